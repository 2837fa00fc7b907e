"""The columns after `watermark`: the same."""

from __future__ import annotations

from helios.plan.typing.infer import Result, event_time
from helios.plan.typing.schema import Schema
from helios.steps.watermark import Watermark


def columns(step: Watermark, schema: Schema | None, other: Schema | None) -> Result:
    # A struct may be the window of an earlier aggregate, which Spark also accepts.
    _, problems = event_time(step, step.column, schema, ("timestamp", "timestamp_ntz", "struct"))
    return schema, problems
