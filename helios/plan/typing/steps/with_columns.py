"""The columns after `with_columns`: those before it, with columns added or replaced."""

from __future__ import annotations

from helios.plan.typing.infer import Result, project
from helios.plan.typing.schema import Schema
from helios.plan.typing.scope import Scope
from helios.steps.with_columns import WithColumns


def columns(step: WithColumns, schema: Schema | None, other: Schema | None) -> Result:
    columns, problems = project(step, list(step.columns), Scope(schema))
    if schema is None or columns is None:
        return None, problems
    added = {c.name.lower(): c for c in columns}
    kept = [added.pop(c.name.lower(), c) for c in schema.columns]
    return Schema((*kept, *added.values())), problems
