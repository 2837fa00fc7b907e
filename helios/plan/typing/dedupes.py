"""Checks deduplication over followed sources: keys need a time limit, and stateful steps cannot be chained freely."""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import DeclarationError, HeliosError
from helios.model.flow import Flow, flows
from helios.model.step import Step
from helios.plan.typing.aggregates import group_columns, is_streaming
from helios.steps.aggregate import Aggregate
from helios.steps.dedupe import Dedupe
from helios.steps.join import Join
from helios.steps.select import Select
from helios.steps.sql import Sql
from helios.steps.union import Union
from helios.steps.watermark import Watermark
from helios.steps.with_columns import WithColumns


def unbounded_dedupe_error(step: Dedupe) -> DeclarationError:
    """The problem of a `dedupe` that would remember every key for ever."""
    keys = ", ".join(f'"{key}"' for key in step.keys)
    return DeclarationError(
        f"{step.text()} on a followed source would remember every key for ever.",
        where=step.origin,
        fix=f'bound it: watermark("ts", "10 minutes") >> dedupe({keys}, within="1 day"); or let the target keep one '
        f"row of each key: .upsert({keys}).",
    )


def dedupe_problems(flow: Flow) -> list[HeliosError]:
    """The problems of the deduplications in a pipeline that follows sources."""
    _, chain_problems = _chained_state(flow)
    return [*_unbounded_dedupes(flow), *chain_problems]


def _unbounded_dedupes(flow: Flow) -> Iterator[HeliosError]:
    """Yields a problem for each `dedupe` without `within` if none of its keys can have a watermark."""
    for inner in filter(is_streaming, flows(flow)):
        watermarked: set[str] | None = set()
        for step in inner.steps:
            if watermarked is not None and isinstance(step, Dedupe) and step.within is None:
                if watermarked.isdisjoint(key.lower() for key in step.keys):
                    yield unbounded_dedupe_error(step)
            elif watermarked is not None:
                watermarked = _watermarked_after(step, watermarked)


def _watermarked_after(step: Step, watermarked: set[str]) -> set[str] | None:
    """The names of the columns with a watermark after a step, in lower case.

    None if this is unknown. Then every column may have a watermark.
    """
    if step.traits.opaque or isinstance(step, (Join, Union)):
        return None
    if isinstance(step, Watermark):
        return watermarked | {step.column.lower()}
    kept = {after.lower() for name in watermarked if (after := step.name_after(name)) is not None}
    copies = step.unchanged if isinstance(step, Select) else ()
    if isinstance(step, WithColumns):
        copies = tuple((expression, name) for name, expression in step.columns)
    return kept | {new.lower() for old, new in copies if old.strip(" `").lower() in watermarked}


def _chained_state(flow: Flow) -> tuple[Step | None, list[HeliosError]]:
    """The last `dedupe(within=)` or aggregate of a flow, and the problems of steps that cannot be chained."""
    last: Step | None = None
    problems: list[HeliosError] = []
    for step in flow.steps if is_streaming(flow) else ():
        last_of_other: Step | None = None
        if isinstance(step, (Join, Union)):
            last_of_other, other_problems = _chained_state(step.other)
            problems += other_problems
        is_timed_dedupe = isinstance(step, Dedupe) and step.within is not None
        is_grouping = group_columns(step) is not None
        is_stream_join = isinstance(step, Join) and is_streaming(step.other)
        earlier_dedupe = next((before for before in (last, last_of_other) if isinstance(before, Dedupe)), None)
        if earlier_dedupe is not None and (is_grouping or is_stream_join or isinstance(step, Dedupe)):
            problems.append(_chain_problem(earlier_dedupe, step))
        elif is_timed_dedupe and isinstance(last, (Aggregate, Sql)):
            problems.append(_chain_problem(last, step))
        if is_timed_dedupe or is_grouping:
            last = step
        elif last is None:
            last = last_of_other
    return last, problems


def _chain_problem(first: Step, second: Step) -> DeclarationError:
    return DeclarationError(
        f"{second.text()} comes after {first.text()}, and both keep state: Spark passes no watermark from the first to "
        "the second.",
        where=second.origin,
        fix="write the rows between the two steps to a table, and follow that table in a second pipeline.",
    )
