"""The columns after `dedupe`: the same."""

from __future__ import annotations

from helios.plan.typing.infer import Result, absent_column_problem
from helios.plan.typing.schema import Schema
from helios.steps.dedupe import Dedupe


def columns(step: Dedupe, schema: Schema | None, other: Schema | None) -> Result:
    return schema, [p for key in step.keys for p in absent_column_problem(step, key, schema)]
