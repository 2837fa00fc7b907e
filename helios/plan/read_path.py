"""How the rows of a pipeline reach its steps: the read path, the time between batches, and their size."""

from __future__ import annotations

from collections.abc import Sequence

from helios.model.flow import DEFAULT_POLL, Pipeline, Source
from helios.plan.nodes import ReadPath, Trigger
from helios.plan.typing.aggregates import stateful_steps, upserts_groups
from helios.plan.views import view_of
from helios.sources.common.kind import SPANS_REASON
from helios.sources.kinds import source_kind
from helios.table.plans import STATEFUL


def path_of(pipeline: Pipeline, sources: Sequence[Source]) -> tuple[ReadPath, str]:
    """The read path of a pipeline, and the reason for it; `sources` are all its sources."""
    followed = [source for source in sources if source.streaming]
    if not followed:
        return ReadPath.BATCH, "no source is followed: one batch, then done"
    if view_of(pipeline) is not None:
        return ReadPath.RANGES, "a view: groups with changed rows are recomputed at each batch's last snapshot"
    stateful = stateful_steps(pipeline.stream)
    if stateful:
        calls = ", ".join(step.text().split("(")[0] for step in stateful)
        groups = ", whose groups are upserted" if upserts_groups(pipeline.stream, pipeline.sink) else ""
        return ReadPath.STATEFUL, f"{calls} {STATEFUL}{groups}"
    trigger = trigger_of(pipeline, sources)
    bounds = [trigger.bound] if trigger.bound else []
    bounds += ["incremental(max_files=)"] if trigger.max_files is not None else []
    kinds = [source_kind(source) for source in followed]
    reasons = {kind.read_reason for kind in kinds}
    reason = reasons.pop() if len(reasons) == 1 else SPANS_REASON
    units = " and ".join(sorted({kind.units for kind in kinds}))
    return ReadPath.RANGES, reason + (f", cut between {units} by {' and '.join(bounds)}" if bounds else "")


def trigger_of(pipeline: Pipeline, sources: Sequence[Source]) -> Trigger:
    """The time between batches and their size, with the deciding settings, for a pipeline that follows sources."""
    sink = pipeline.sink.iceberg
    polls = [source.poll for source in sources if source.poll is not None]
    every, why = min(polls, default=DEFAULT_POLL), "the smallest poll of the sources"
    if sink is not None and sink.profile is not None:
        every, why = sink.profile.every, f"tune({sink.tuning})"
    if sink is not None and sink.flush_every is not None:
        every, why = sink.flush_every, "flush(every=)"
    files = min((s.max_files for s in sources if s.streaming and s.max_files is not None), default=None)
    rows, setting = min(_row_bounds(pipeline, sources), key=lambda bound: bound[0], default=(None, ""))
    return Trigger(every=every, why=why, max_rows=rows, bound=setting, max_files=files)


def _row_bounds(pipeline: Pipeline, sources: Sequence[Source]) -> list[tuple[int, str]]:
    """Every bound on the rows of a batch, with the name of its setting.

    A profile does not bound the rows of stateful steps, or of sources that do not count rows before reading them.
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
