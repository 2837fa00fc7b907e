"""The columns after `cast`: the same, some with other types."""

from __future__ import annotations

from helios.errors import DeclarationError, HeliosError, near_miss
from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, absent_column_problem
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.types import KNOWN, UNKNOWN, TypeProblem, cast_type, parse_type
from helios.steps.cast import Cast


def columns(step: Cast, schema: Schema | None, other: Schema | None) -> Result:
    problems: list[HeliosError] = []
    columns = {c.name.lower(): c for c in schema.columns} if schema is not None else {}
    for name, text in step.types:
        problems += absent_column_problem(step, name, schema)
        kind = str(UNKNOWN)
        try:
            kind = str(cast_type(parse_type(text)))
        except TypeProblem as problem:
            hint = f" {near_miss(problem.unknown, KNOWN)}" if problem.unknown else ""
            problems.append(
                DeclarationError(
                    f"{label('cast', f'{name}={text}')}: {problem}.{hint}",
                    where=step.origin,
                    fix='name a Spark SQL type, such as "bigint" or "decimal(10,2)".',
                )
            )
        old = columns.get(name.lower())
        if old is not None:
            columns[name.lower()] = Column(name, kind, old.nullable or kind != old.type)
    return (Schema(tuple(columns.values())) if schema is not None else None), problems
