"""Deduplication of streams: how long keys are remembered, and what may follow."""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import DeclarationError, HeliosError
from helios.model.call import Call
from helios.model.flow import Flow, flows
from helios.model.step import Step
from helios.plan.typing.aggregates import group_columns, is_streaming
from helios.steps.aggregate import Aggregate
from helios.steps.dedupe import Dedupe
from helios.steps.join import Join
from helios.steps.rename import Rename
from helios.steps.sql import Sql
from helios.steps.union import Union
from helios.steps.watermark import Watermark


def endless(step: Dedupe) -> DeclarationError:
    """The problem of a stream whose keys are all remembered for ever."""
    keys = ", ".join(f'"{key}"' for key in step.keys)
    return DeclarationError(
        f"{step.text()} on a followed source would remember every key for ever.",
        where=step.origin,
        fix=f'bound it: watermark("ts", "10 minutes") >> dedupe({keys}, within="1 day"); or let the target keep one '
        f"row of each key: .upsert({keys}).",
    )


def dedupe_problems(flow: Flow) -> list[HeliosError]:
    """The problems of the deduplications in a pipeline that follows sources."""
    return [*_endless(flow), *_chained(flow)[1]]


def _endless(flow: Flow) -> Iterator[HeliosError]:
    """The problems of each `dedupe` without a span whose keys surely have no watermark's column among them."""
    for inner in filter(is_streaming, flows(flow)):
        times: set[str] | None = set()  # None where a step may hide one
        for step in inner.steps:
            if isinstance(step, (Call, Sql, Join, Union)):
                times = None
            elif times is not None and isinstance(step, Watermark):
                times.add(step.column.lower())
            elif times is not None and isinstance(step, Rename):
                renamed = {old.lower(): new.lower() for old, new in step.names}
                times = {renamed.get(name, name) for name in times}
            elif times is not None and isinstance(step, Dedupe) and step.within is None:
                yield from [endless(step)] if times.isdisjoint(key.lower() for key in step.keys) else []


def _chained(flow: Flow) -> tuple[Step | None, list[HeliosError]]:
    """The last `dedupe(within=)` or group of a flow, and the problems of state before and after it."""
    before: Step | None = None
    problems: list[HeliosError] = []
    for step in flow.steps if is_streaming(flow) else ():
        beside: Step | None = None
        if isinstance(step, (Join, Union)):
            beside, faults = _chained(step.other)
            problems += faults
        kept = isinstance(step, Dedupe) and step.within is not None
        groups = group_columns(step) is not None
        joins = isinstance(step, Join) and is_streaming(step.other)
        first = next((step for step in (before, beside) if isinstance(step, Dedupe)), None)
        if first is not None and (groups or joins or isinstance(step, Dedupe)):
            problems.append(_problem(first, step))
        elif kept and isinstance(before, (Aggregate, Sql)):
            problems.append(_problem(before, step))
        before = step if kept or groups else before or beside
    return before, problems


def _problem(first: Step, second: Step) -> DeclarationError:
    return DeclarationError(
        f"{second.text()} keeps state after {first.text()}: Spark carries no watermark from one to the other.",
        where=second.origin,
        fix="write the rows between them to a table, and follow that table in a second pipeline.",
    )
