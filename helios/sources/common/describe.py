"""The columns that a source declares."""

from __future__ import annotations

from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Source
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import Schema, from_ddl
from helios.plan.typing.types import SparkType, quoted


def describe(source: Source, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    """Returns the planned read of a source whose columns are declared, or are known only during a run.

    Raises:
        DeclarationError: The declared columns do not parse, or one is char or varchar.
    """
    return ReadPlan(source=source, schema=declared_columns(source)), []


def declared_columns(source: Source) -> Schema | None:
    """The declared columns of a source; None if it declares none.

    Raises:
        DeclarationError: The text does not parse as columns, or a type is char or varchar, whose length no reader of
            Spark checks.
    """
    if source.declared_schema is None:
        return None
    schema = from_ddl(source.declared_schema, source.origin)
    for column in schema.columns:
        bounded = _bounded(column.kind)
        if bounded is not None:
            verb = "is" if bounded == column.kind else "holds"
            raise DeclarationError(
                f"{source.label()}: {column.name} {verb} {bounded}, and sources do not check the length of text.",
                where=source.origin,
                fix="declare string, and check the length with a step: "
                f'expect({{"it fits": "length({quoted(column.name)}) <= {bounded.numbers[0]}"}}).',
            )
    return schema


def _bounded(kind: SparkType) -> SparkType | None:
    """The first char or varchar type in a type, at any depth; None if there is none."""
    if kind.name in ("char", "varchar"):
        return kind
    return next((bounded for bounded in map(_bounded, kind.parts) if bounded is not None), None)
