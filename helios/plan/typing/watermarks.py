"""Steps of a stream that need a watermark before them."""

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


def unmarked_dedupe(step: Step, flow: Flow, schema: Schema | None) -> list[HeliosError]:
    """The problem of `dedupe(within=)` on a stream whose event time is not declared before it.

    Args:
        step: A step.
        flow: The flow that it is a step of.
        schema: The columns before it; None where they are known only at run.
    """
    if not isinstance(step, Dedupe) or step.within is None or not is_streaming(flow):
        return []
    if has_watermark(takewhile(lambda before: before is not step, flow.steps)):
        return []
    times = [c.name for c in schema.columns if c.kind.name in ("timestamp", "timestamp_ntz")] if schema else []
    keys = ", ".join(f'"{key}"' for key in step.keys)
    within = show_seconds(step.within)
    return [
        DeclarationError(
            f"{step.text()}: within= is a span of event time, and no watermark before it says which column that is.",
            where=step.origin,
            fix=f'put a watermark before it: watermark("{(times or ["ts"])[0]}", "10 minutes") >> '
            f'dedupe({keys}, within="{within}").',
        )
    ]


def has_watermark(steps: Iterable[Step]) -> bool:
    """True if a watermark may result from these steps: declared, brought by another flow, or set by a callable."""
    return any(
        isinstance(step, (Watermark, Call)) or (isinstance(step, (Join, Union)) and has_watermark(step.other.steps))
        for step in steps
    )
