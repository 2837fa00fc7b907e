"""Checks that a watermark comes before the steps of a stream that need one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from helios.errors import DeclarationError, HeliosError
from helios.model.call import Call
from helios.model.flow import Flow
from helios.model.step import Step
from helios.model.values import show_seconds
from helios.plan.typing.aggregates import is_streaming
from helios.plan.typing.schema import Schema
from helios.steps.dedupe import Dedupe
from helios.steps.join import Join
from helios.steps.union import Union
from helios.steps.watermark import Watermark


def dedupe_without_watermark(step: Step, flow: Flow, schema: Schema | None) -> list[HeliosError]:
    """The problem of a `dedupe(within=)` on a stream without a watermark before the step.

    `schema` has the columns before the step; it is None if they are known only at run.
    """
    if not isinstance(step, Dedupe) or step.within is None or not is_streaming(flow):
        return []
    if has_watermark(takewhile(lambda before: before is not step, flow.steps)):
        return []
    times = [c.name for c in schema.columns if c.kind.name in ("timestamp", "timestamp_ntz")] if schema else []
    time = times[0] if times else "ts"
    keys = ", ".join(f'"{key}"' for key in step.keys)
    within = show_seconds(step.within)
    return [
        DeclarationError(
            f"{step.text()}: within= is a span of event time, and no watermark before it names the event-time column.",
            where=step.origin,
            fix=f'put a watermark before it: watermark("{time}", "10 minutes") >> dedupe({keys}, within="{within}").',
        )
    ]


def has_watermark(steps: Iterable[Step]) -> bool:
    """True if one of the steps may set a watermark, by itself, in a joined or united flow, or in a callable."""
    return any(
        isinstance(step, (Watermark, Call)) or (isinstance(step, (Join, Union)) and has_watermark(step.other.steps))
        for step in steps
    )
