"""The columns after `union`: both sides must have the same columns."""

from __future__ import annotations

from helios.errors import DeclarationError, HeliosError, near_miss
from helios.plan.typing.infer import Result
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.types import wider
from helios.steps.union import Union


def columns(step: Union, left: Schema | None, right: Schema | None) -> Result:
    if left is None or right is None:
        return None, []
    if not (left.exact and right.exact):
        return left, []
    problems: list[HeliosError] = []
    for side, schema, other in (("left", left, right), ("right", right, left)):
        only = [c.name for c in schema.columns if other.get(c.name) is None]
        if only:
            problems.append(
                DeclarationError(
                    f"union(): only the {side} side has {', '.join(map(repr, only))}. "
                    f"{near_miss(only[0], other.names)}",
                    where=step.origin,
                    fix="give both sides the same columns with select(...) or with_columns(...).",
                )
            )
    columns = []
    for ours in left.columns:
        theirs = right.get(ours.name)
        kind = wider(ours.kind, theirs.kind) if theirs else ours.kind
        columns.append(Column.of(ours.name, kind, ours.nullable or theirs is None or theirs.nullable))
    return Schema(tuple(columns)), problems
