"""The columns after `drop`: those that are not dropped."""

from __future__ import annotations

from helios.plan.typing.infer import Result, absent_column_problem
from helios.plan.typing.schema import Schema
from helios.steps.drop import Drop


def columns(step: Drop, schema: Schema | None, other: Schema | None) -> Result:
    if schema is None:
        return None, []
    problems = [p for name in step.columns for p in absent_column_problem(step, name, schema)]
    dropped = {name.lower() for name in step.columns}
    return Schema(tuple(c for c in schema.columns if c.name.lower() not in dropped)), problems
