"""The columns after `sql`: those of its query."""

from __future__ import annotations

from helios.plan.typing.infer import Result
from helios.plan.typing.query import query_schema
from helios.plan.typing.schema import Schema
from helios.steps.sql import Sql


def columns(step: Sql, schema: Schema | None, other: Schema | None) -> Result:
    return query_schema(step.query, schema, step.origin)
