"""The columns after `aggregate`, `window` and `session_window`: the window, the groups and the aggregates."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.typing.expression import with_aliases
from helios.plan.typing.infer import Result, event_time, project, schema_of
from helios.plan.typing.results import window_bound
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Scope
from helios.plan.typing.types import UNKNOWN
from helios.steps.aggregate import Aggregate


def columns(step: Aggregate, schema: Schema | None, other: Schema | None) -> Result:
    scope, columns, problems = Scope(schema), [], list[HeliosError]()
    if step.window is not None:
        # Spark casts text to timestamps here.
        allowed = ("timestamp", "timestamp_ntz", "date", "string", "struct")
        column, problems = event_time(step, step.window.column, schema, allowed)
        bound = str(window_bound(column.kind))
        columns = [Column("window_start", bound), Column("window_end", bound)]
        scope = with_aliases(scope, (*columns, Column("window", str(UNKNOWN))))
    projected, more_problems = project(step, [*((None, e) for e in step.by), *step.columns], scope)
    return schema_of((*columns, *projected) if projected is not None else None), problems + more_problems
