"""The columns after `expect`: the same."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, call_name, condition_problems
from helios.plan.typing.schema import Schema
from helios.steps.expect import Expect


def columns(step: Expect, schema: Schema | None, other: Schema | None) -> Result:
    problems: list[HeliosError] = []
    for name, condition in step.conditions:
        problems += condition_problems(condition, label(call_name(step), f"{name}={condition}"), schema, step.origin)
    return schema, problems
