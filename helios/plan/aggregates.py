"""How a streaming aggregate leaves the stream: appended behind a watermark, or upserted by its group columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helios.errors import DeclarationError, HeliosError, InputError
from helios.model.flow import Flow, Sink, Step, flows
from helios.model.modes import Upsert
from helios.model.sink import IcebergSink
from helios.model.steps import Aggregate, Dedupe, Join, Rename, Select, Watermark
from helios.plan.expression import outputs, parse
from helios.plan.kinds import Scope
from helios.plan.schema import Column

_WORD = re.compile(r"\w+")


def is_streaming(flow: Flow) -> bool:
    """Whether a flow, with what its joins and unions bring in, never ends."""
    return any(inner.source.streaming for inner in flows(flow))


def streaming_steps(flow: Flow) -> list[Step]:
    """The steps of a flow, and of what it joins, that see a stream."""
    return [step for inner in flows(flow) for step in inner.steps if is_streaming(inner)]


def upserts_groups(flow: Flow, sink: Sink) -> bool:
    """Whether a sink upserts the flow's only streaming aggregate by exactly its group columns.

    Then each batch gives the groups that changed again, with their new values, and nothing has to wait for an end.
    """
    if not isinstance(sink, IcebergSink) or not isinstance(sink.mode, Upsert) or not is_streaming(flow):
        return False
    aggregates = [step for step in streaming_steps(flow) if isinstance(step, Aggregate)]
    if len(aggregates) != 1 or aggregates[0] not in flow.steps:
        return False
    return {name.lower() for name in _groups(flow.steps)} == {key.lower() for key in sink.mode.keys}


def _groups(steps: Sequence[Step]) -> tuple[str, ...]:
    """What the group columns of the one aggregate are called at the end; empty when a later step keeps state too."""
    at = next(index for index, step in enumerate(steps) if isinstance(step, Aggregate))
    names = group_columns(steps[at])  # type: ignore[arg-type]
    for step in steps[at + 1 :]:
        if isinstance(step, Dedupe) or (isinstance(step, Join) and is_streaming(step.other)):
            return ()
        if isinstance(step, Rename):
            renamed = {old.lower(): new for old, new in step.names}
            names = tuple(renamed.get(name.lower(), name) for name in names)
        elif isinstance(step, Select):
            given = {a.lower(): b for text in step.expressions for a, b in _aliases(text)}
            names = tuple(given.get(name.lower(), name) for name in names)
    return names


def group_columns(step: Aggregate) -> tuple[str, ...]:
    """The columns by which an aggregate groups, as they are called behind it.

    Examples:
        >>> group_columns(Aggregate(by=("country", "year(ts) AS y"), columns=(("n", "count(*)"),)))
        ('country', 'y')
    """
    window = ("window_start", "window_end") if step.window is not None else ()
    return (*window, *(column.name for text in step.by for column in _named(text)))


def _named(text: str) -> tuple[Column, ...]:
    if _WORD.fullmatch(text.strip()):
        return (Column(text.strip(), "unknown"),)
    try:
        return outputs(parse(text, text, None), text, Scope(None)) or ()
    except InputError:
        return ()


def _aliases(text: str) -> list[tuple[str, str]]:
    """The old and new name where an expression only renames a column."""
    found = re.fullmatch(r"\s*(\w+)\s+(?:as\s+)?(\w+)\s*", text, re.IGNORECASE)
    return [(found[1], found[2])] if found else []


def endless_aggregates(flow: Flow, sink: Sink) -> list[HeliosError]:
    """Aggregates over a followed source that nothing ends, and that are not upserted by their groups either."""
    if upserts_groups(flow, sink):
        return []
    problems: list[HeliosError] = []
    marked = False
    for step in streaming_steps(flow):
        marked = marked or isinstance(step, Watermark)
        if not isinstance(step, Aggregate) or (marked and step.window is not None):
            continue
        keys = ", ".join(f'"{name}"' for name in group_columns(step))
        what = "an aggregate over a followed source has no end, so it cannot be appended"
        if marked:
            what = "behind a watermark an aggregate needs a time window to end"
        problems.append(
            DeclarationError(
                f"{step.text()}: {what}.",
                where=step.origin,
                fix='append behind a watermark: watermark("ts", "10 minutes") before window("ts", ...).agg(...), '
                + (f"or upsert by the group columns: .upsert({keys})." if keys else "or group by columns and upsert."),
            )
        )
    return problems
