"""The columns after `join`: those of both sides; the columns of `on=` appear once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helios.errors import DeclarationError
from helios.plan.typing.infer import Result, absent_column_problem, call_name
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.types import wider
from helios.steps.join import Join


def columns(step: Join, left: Schema | None, right: Schema | None) -> Result:
    # A cross join has no columns in common.
    on = () if step.how == "cross" else step.on
    problems = [p for key in on for p in absent_column_problem(step, key, left, "the left side")]
    problems += [p for key in on for p in absent_column_problem(step, key, right, "the right side")]
    only_left = step.how in ("semi", "anti")
    if left is None or (right is None and not only_left):
        return None, problems
    left_rest = _without_keys(left, on)
    if only_left or right is None:
        keys = [left.get(key) for key in on]
        return Schema((*filter(None, keys), *left_rest)), problems
    right_rest = _without_keys(right, on)
    shared = _shared(left_rest, right_rest)
    if shared:
        problems.append(_ambiguous(step, shared))
        right_rest = [c for c in right_rest if c.name not in shared]
    joined = filter(None, (_key(key, step.how, left, right) for key in on))
    # If a row has no match, the columns of the other side are null.
    left_rest = _optional(left_rest) if step.how in ("right", "full") else left_rest
    right_rest = _optional(right_rest) if step.how in ("left", "full") else right_rest
    return Schema((*joined, *left_rest, *right_rest)), problems


def _without_keys(schema: Schema, on: Sequence[str]) -> list[Column]:
    keys = {key.lower() for key in on}
    return [c for c in schema.columns if c.name.lower() not in keys]


def _shared(left: Sequence[Column], right: Sequence[Column]) -> list[str]:
    """The names that both sides certainly have."""
    names = {c.name.lower() for c in left if c.exact}
    return [c.name for c in right if c.exact and c.name.lower() in names]


def _ambiguous(step: Join, shared: Sequence[str]) -> DeclarationError:
    return DeclarationError(
        f"{call_name(step)}(): both sides have {', '.join(map(repr, shared))}.",
        where=step.origin,
        fix=f'rename or drop it on one side first: rename({{"{shared[0]}": "right_{shared[0]}"}}).',
    )


def _optional(columns: Sequence[Column]) -> list[Column]:
    return [replace(c, nullable=True) for c in columns]


def _key(name: str, how: str, left: Schema, right: Schema) -> Column | None:
    """A key column of the result, as USING gives it: from a side whose rows are all kept; None if neither has it."""
    ours, theirs = left.get(name), right.get(name)
    if ours is None or theirs is None:
        return ours or theirs
    if how == "full":
        return Column.of(ours.name, wider(ours.kind, theirs.kind))
    return theirs if how == "right" else ours
