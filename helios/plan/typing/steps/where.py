"""The columns after `where`: the same."""

from __future__ import annotations

from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, condition_problems
from helios.plan.typing.schema import Schema
from helios.steps.where import Where


def columns(step: Where, schema: Schema | None, other: Schema | None) -> Result:
    return schema, condition_problems(step.condition, label("where", step.condition), schema, step.origin)
