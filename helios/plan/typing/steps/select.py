"""The columns after `select`: those of its expressions."""

from __future__ import annotations

from helios.plan.typing.infer import Result, project, schema_of
from helios.plan.typing.schema import Schema
from helios.plan.typing.scope import Scope
from helios.steps.select import Select


def columns(step: Select, schema: Schema | None, other: Schema | None) -> Result:
    columns, problems = project(step, [(None, e) for e in step.expressions], Scope(schema))
    return schema_of(columns), problems
