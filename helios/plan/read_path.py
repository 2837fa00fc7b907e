"""How the rows of a pipeline reach its steps, how often, and how many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from helios.model.flow import DEFAULT_POLL, Pipeline, Source
from helios.plan.nodes import ReadPath, Trigger
from helios.plan.typing.aggregates import stateful_steps, upserts_groups
from helios.plan.views import view_of
from helios.sources.common.kind import WHY_SPANS
from helios.sources.kinds import source_kind


def path_of(pipeline: Pipeline, sources: Sequence[Source]) -> tuple[ReadPath, str]:
    """The read path of a pipeline, and the reason for it.

    Args:
        pipeline: The pipeline.
        sources: All its sources.
    """
    followed = [source for source in sources if source.streaming]
    if not followed:
        return ReadPath.BATCH, "no source is followed: one batch, then done"
    if view_of(pipeline) is not None:
        return ReadPath.RANGES, "a view: groups with changed rows are recomputed at each batch's last snapshot"
    stateful = stateful_steps(pipeline.stream)
    if stateful:
        kept = ", ".join(s.text().split("(")[0] for s in stateful)
        groups = ", whose groups are upserted" if upserts_groups(pipeline.stream, pipeline.sink) else ""
        return ReadPath.STREAM, f"{kept} keeps state between batches{groups}"
    trigger = trigger_of(pipeline, sources)
    bounds = [trigger.bound] if trigger.bound else []
    bounds += [_FILES] if trigger.max_files is not None else []
    rows = [source_kind(source) for source in followed]
    whys, units = {row.why for row in rows}, " and ".join(sorted({row.units for row in rows}))
    why = whys.pop() if len(whys) == 1 else WHY_SPANS
    return ReadPath.RANGES, why + (f", cut between {units} by {' and '.join(bounds)}" if bounds else "")


def trigger_of(pipeline: Pipeline, sources: Sequence[Source]) -> Trigger:
    """The rhythm and the bounds of a pipeline that follows sources, with the settings that decide them."""
    sink = pipeline.sink.iceberg
    polls = [source.poll for source in sources if source.poll is not None]
    every, why = min(polls, default=DEFAULT_POLL), "the smallest poll of the sources"
    if sink is not None and sink.profile is not None:
        every, why = sink.profile.every, f"tune({sink.tuning})"
    if sink is not None and sink.flush_every is not None:
        every, why = sink.flush_every, "flush(every=)"
    smallest = min(_rows(pipeline, sources), key=lambda found: found[0], default=None)
    files = min((s.max_files for s in sources if s.streaming and s.max_files is not None), default=None)
    rows, bound = smallest if smallest is not None else (None, "")
    return Trigger(every=every, why=why, max_rows=rows, bound=bound, max_files=files)


_FILES = "incremental(max_files=)"


def _rows(pipeline: Pipeline, sources: Sequence[Source]) -> list[tuple[int, str]]:
    """Every setting that bounds the rows of a batch, with its name.

    The rows of a profile bound neither sources whose rows are not counted before they are read, nor stateful steps.
    """
    sink = pipeline.sink.iceberg
    bounds: list[tuple[int, str]] = [
        (source.max_rows, "incremental(max_rows=)")
        for source in sources
        if source.streaming and source.max_rows is not None
    ]
    if sink is None or sink.max_rows is None:
        return bounds
    if sink.flush_rows is not None:
        return [(sink.flush_rows, "flush(rows=)"), *bounds]
    uncounted = any(source.streaming and not source_kind(source).counts_rows for source in sources)
    if uncounted or stateful_steps(pipeline.stream):
        return bounds
    return [(sink.max_rows, f"tune({sink.tuning})"), *bounds]
