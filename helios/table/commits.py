"""The commits of a table: the pipeline, the input and the plan of each; from metadata, without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from helios.table.plans import KeptPlan, plans_of
from helios.table.positions import Position, Recorded, Span, position_in, recorded
from helios.table.readers import Warehouse
from helios.table.refs import MAIN, ancestors
from helios.table.snapshot import from_milliseconds
from helios.table.snapshots import Table


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One snapshot of a table.

    Attributes:
        snapshot: Its id.
        committed: The time of the commit.
        operation: Iceberg's operation: append, overwrite, delete or replace.
        added: The rows of the data files that it added.
        removed: The rows of the data files that it removed.
        pipeline: The pipeline that made it; None for another writer.
        batch: The number of the batch in the pipeline's checkpoint.
        position: The input of the batch, as stamped.
        steps: The fingerprint of the pipeline's steps.
        version: The version of Helios; None where it was not stamped yet.
        plan: The plan of these steps; None where no checkpoint has it.
        before: The position of the pipeline's commit before this one; None where there is none, or it has expired.
    """

    snapshot: int
    committed: datetime
    operation: str
    added: int
    removed: int
    pipeline: str | None = None
    batch: int | None = None
    position: Position | None = None
    steps: str | None = None
    version: str | None = None
    plan: KeptPlan | None = None
    before: Position | None = None

    @property
    def reads(self) -> tuple[Recorded, ...]:
        """The entries of the batch's sources, with the position at which the batch ended."""
        return tuple(recorded(self.position))

    @property
    def spans(self) -> tuple[Span, ...]:
        """The part `(start, end]` of each source that the batch read; the start is None if it is unknown."""
        starts = {entry["source"]: entry.get("place") for entry in (self.before or {}).get("sources") or ()}
        entries = (self.position or {}).get("sources") or ()
        return tuple(Span(entry["source"], starts.get(entry["source"]), entry.get("place"), entry) for entry in entries)


def commits(
    table: Table, places: Sequence[Warehouse] = (), given: Mapping[str, str] | None = None, *, branch: str = MAIN
) -> list[Commit]:
    """The retained commits of a branch, newest first, each with its spans and its plan.

    Args:
        table: The table.
        places: The warehouses that may have the checkpoints of its pipelines, and with them the plans.
        given: The declared checkpoints of pipelines, by pipeline.
        branch: The branch.
    """
    head = table.iceberg.metadata.refs.get(branch)
    return _history(table, head.snapshot_id, places, given or {}) if head is not None else []


def commit_of(
    table: Table, snapshot: int, places: Sequence[Warehouse] = (), given: Mapping[str, str] | None = None
) -> Commit:
    """The commit of a snapshot of any branch, with its spans and its plan; `places` and `given` as for `commits`.

    Raises:
        NotFound: The table has no such snapshot.
    """
    return _history(table, table.snapshot(snapshot).id, places, given or {})[0]


def _history(table: Table, head: int, places: Sequence[Warehouse], given: Mapping[str, str]) -> list[Commit]:
    """The commits up to a snapshot, newest first."""

    @cache
    def plans(pipeline: str) -> Mapping[str, KeptPlan]:
        own = [given[pipeline]] if pipeline in given else []
        return {kept.steps: kept for kept in plans_of(pipeline, places, own)}

    metadata = table.iceberg.metadata
    last_positions: dict[str, Position | None] = {}
    history: list[Commit] = []
    for id in reversed(list(ancestors(metadata, head))):
        raw = metadata.snapshot_by_id(id)
        assert raw is not None  # ancestors are retained
        summary = raw.summary.additional_properties if raw.summary is not None else {}
        pipeline, steps, batch = (summary.get(f"helios.{key}") for key in ("pipeline", "steps", "batch"))
        history.append(
            Commit(
                snapshot=id,
                committed=from_milliseconds(raw.timestamp_ms),
                operation=raw.summary.operation.value if raw.summary is not None else "",
                added=int(summary.get("added-records") or 0),
                removed=int(summary.get("deleted-records") or 0),
                pipeline=pipeline,
                batch=int(batch) if batch is not None else None,
                position=position_in(summary.get("helios.position")),
                steps=steps,
                version=summary.get("helios.version"),
                plan=plans(pipeline).get(steps) if pipeline is not None and steps is not None else None,
                before=last_positions.get(pipeline) if pipeline is not None else None,
            )
        )
        if pipeline is not None:
            last_positions[pipeline] = history[-1].position
    history.reverse()
    return history
