"""`expect` keeps the columns."""

from __future__ import annotations

from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, condition_problems, verb
from helios.plan.typing.schema import Schema
from helios.steps.expect import Expect


def columns(step: Expect, schema: Schema | None, other: Schema | None) -> Result:
    named = ((label(verb(step), f"{name}={condition}"), condition) for name, condition in step.conditions)
    return schema, [p for name, condition in named for p in condition_problems(condition, name, schema, step.origin)]
