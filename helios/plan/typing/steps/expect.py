"""`expect` keeps the columns."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.typing.expression import label
from helios.plan.typing.infer import Result, condition_problems, verb
from helios.plan.typing.schema import Schema
from helios.steps.expect import Expect


def columns(step: Expect, schema: Schema | None, other: Schema | None) -> Result:
    problems: list[HeliosError] = []
    for name, condition in step.conditions:
        problems += condition_problems(condition, label(verb(step), f"{name}={condition}"), schema, step.origin)
    return schema, problems
