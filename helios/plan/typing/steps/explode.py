"""The columns after `explode`: those before it, and the column of the element."""

from __future__ import annotations

from helios.errors import DeclarationError, HeliosError
from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, absent_column_problem
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.types import UNKNOWN, quoted
from helios.steps.explode import Explode


def taken_name(step: Explode, name: str) -> DeclarationError:
    """The problem of an `explode` whose element would have the name of another column."""
    return DeclarationError(
        f"{label('explode', step.column)}: there is a column {name!r} already.",
        where=step.origin,
        fix=f'leave it out first with drop("{name}"), or choose another name.',
    )


def not_an_array(step: Explode, kind: str) -> DeclarationError:
    """The problem of an `explode` of a column that has another type than array.

    Args:
        kind: The type of the column, as in Spark SQL.
    """
    if kind.startswith("map"):
        fix = f'write with_columns({{"{step.as_}": "map_entries({quoted(step.column)})"}}) first.'
    else:
        fix = "name an array."
    what = f"{label('explode', step.column)}: {step.column!r} is {kind}, not an array."
    return DeclarationError(what, where=step.origin, fix=fix)


def columns(step: Explode, schema: Schema | None, other: Schema | None) -> Result:
    if schema is None:
        return None, []
    problems: list[HeliosError] = absent_column_problem(step, step.column, schema)
    array = schema.get(step.column)
    kind = array.kind if array is not None else UNKNOWN
    if kind.name not in ("array", "unknown"):
        problems.append(not_an_array(step, str(kind)))
    replaces = step.as_.lower() == step.column.lower()
    taken = schema.get(step.as_)
    if taken is not None and not replaces:
        problems.append(taken_name(step, taken.name))
    element = Column.of(step.as_, kind.parts[0] if kind.name == "array" else UNKNOWN)
    if replaces:
        return Schema(tuple(element if column is array else column for column in schema.columns)), problems
    return Schema((*schema.columns, element)) if taken is None else schema, problems
