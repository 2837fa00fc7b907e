"""Reads the commits of a table, each with its pipeline, input and plan, from metadata; without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from helios.errors import HeliosError
from helios.table.first_snapshot import is_first
from helios.table.ledger import records, summary_of
from helios.table.plans import KeptPlan, plans_of
from helios.table.positions import Position, Recorded, Span, parse_position, recorded_entries
from helios.table.readers import Warehouse
from helios.table.refs import BACKFILL, LEDGER, MAIN, REPLAY, ancestors
from helios.table.snapshot import from_milliseconds
from helios.table.snapshots import Table

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

REDONE = "helios.redone"
"""The summary entry of a backfill's commit that names the snapshot whose rows it replaced."""
SLICE = "helios.slice"
"""The summary entry of a backfill's commit that has the condition of its slice."""
INSTEAD = "helios.from"
"""The summary entry of a backfill's commit that names the table or folder that it read in place of the source."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One snapshot of a table.

    Attributes:
        snapshot: Its id.
        operation: Iceberg's operation: append, overwrite, delete or replace.
        added: The number of rows that it added.
        removed: The number of rows that it removed.
        moved: The number of rows that it moved into other files, as a compaction does.
        exact: Whether these counts are exact. They are not if files were rewritten (unchanged rows count as added and
            removed), if removed files had position deletes of format v2 (deleted rows count again), or if the commit
            added equality deletes.
        pipeline: The pipeline that made it; None for other writers.
        batch: The number of the batch in the pipeline's checkpoint.
        position: The input of the batch, from the stamps.
        steps: The fingerprint of the pipeline's steps.
        version: The version of Helios; None without such a stamp.
        plan: The plan of these steps; None if no checkpoint has it.
        before: The position of the pipeline's previous commit; None if there is none, if that commit has expired, or
            for a backfill, which reads from the beginning.
        redone: The snapshot whose rows this commit of a backfill replaced; None for any other commit.
        instead: The table or folder that a backfill read in place of the source (`--from`); None if it read the source.
    """

    snapshot: int
    committed: datetime
    operation: str
    added: int
    removed: int
    moved: int = 0
    exact: bool = True
    pipeline: str | None = None
    batch: int | None = None
    position: Position | None = None
    steps: str | None = None
    version: str | None = None
    plan: KeptPlan | None = None
    before: Position | None = None
    redone: int | None = None
    instead: str | None = None

    @property
    def reads(self) -> tuple[Recorded, ...]:
        """The entries of the batch's sources, each with the position at which the batch ended."""
        return tuple(recorded_entries(self.position))

    @property
    def repairs(self) -> str | None:
        """The pipeline whose rows this commit of a backfill repaired; None for any other commit.

        The backfill reads again what that pipeline had read, up to the same position.
        """
        repaired = (self.pipeline or "").removesuffix(BACKFILL)
        return repaired if repaired != (self.pipeline or "") else None

    @property
    def read_texts(self) -> tuple[str, ...]:
        """For each of `reads`, a text about the part of the source that was read; "" if the position is unknown."""
        if self.repairs is not None:
            read = f"what snapshot {self.redone}" if self.redone is not None else f"what {self.repairs}"
            text = f"{self.instead} in its place" if self.instead is not None else f"{read} had read, once more"
            return (text,) * len(self.reads)
        before = {entry.source: entry.position for entry in recorded_entries(self.before)}
        return tuple(
            entry.position.text(before.get(entry.source)) if entry.position is not None else "" for entry in self.reads
        )

    @property
    def spans(self) -> tuple[Span, ...]:
        """The part `(start, end]` that the batch read of each source. A start is None if `before` lacks the source."""
        starts = {entry["source"]: entry.get("place") for entry in (self.before or {}).get("sources") or ()}
        entries = (self.position or {}).get("sources") or ()
        whole = self.repairs is not None and self.redone is None
        return tuple(
            Span(entry["source"], starts.get(entry["source"]), entry.get("place"), entry, whole) for entry in entries
        )


def commits(
    table: Table, places: Sequence[Warehouse] = (), checkpoints: Mapping[str, str] | None = None, *, branch: str = MAIN
) -> list[Commit]:
    """The retained commits of a branch, newest first, each with its spans and its plan.

    Args:
        places: The warehouses that may have the checkpoints of the table's pipelines, which have the plans.
        checkpoints: The declared checkpoint of each pipeline that declares one, by pipeline.
    """
    head = table.iceberg.metadata.refs.get(branch)
    return _history(table.iceberg.metadata, head.snapshot_id, places, checkpoints or {}) if head is not None else []


def commit_of(
    table: Table, snapshot: int, places: Sequence[Warehouse] = (), checkpoints: Mapping[str, str] | None = None
) -> Commit:
    """The commit of a snapshot of any branch, with its spans and its plan; `places` and `checkpoints` as for `commits`.

    Raises:
        NotFound: The table has no such snapshot.
    """
    return commit_in(table.iceberg.metadata, table.snapshot(snapshot).id, places, checkpoints)


def commit_in(
    metadata: TableMetadata,
    snapshot: int,
    places: Sequence[Warehouse] = (),
    checkpoints: Mapping[str, str] | None = None,
) -> Commit:
    """As `commit_of`, but from the given metadata, which may be that of an earlier metadata file."""
    return _history(metadata, snapshot, places, checkpoints or {})[0]


def oldest_retained_time(table: Table, branch: str = MAIN) -> datetime | None:
    """The time of a branch's oldest retained commit if earlier ones have expired; None if none has expired."""
    metadata = table.iceberg.metadata
    head = metadata.refs.get(branch)
    oldest = [*ancestors(metadata, head.snapshot_id)][-1] if head is not None else None
    raw = metadata.snapshot_by_id(oldest) if oldest is not None else None
    if raw is None:
        return None
    if raw.parent_snapshot_id is None and is_first(raw.sequence_number or 0, summary_of(metadata, raw.snapshot_id).get):
        return None
    return from_milliseconds(raw.timestamp_ms)


NOT_WRITTEN = (
    "no pipeline of Helios has written this table: the inputs and the steps of its rows are not known. Ask the program "
    "that writes the table; `helios snapshots` lists the table's commits."
)
"""The message for a table that only other programs have written."""


def never_written(history: Iterable[Commit], table: Table) -> bool:
    """True if no pipeline has ever committed to a table; False if expired commits hide the answer."""
    if oldest_retained_time(table) is not None:
        return False
    stamped = any(commit.pipeline is not None for commit in history)
    return not stamped and not any(name.startswith(LEDGER) for name in table.iceberg.properties)


def _present_names(metadata: TableMetadata) -> dict[str, str]:
    """The present names of renamed pipelines, by their former names; empty if a pipeline's record is damaged."""
    try:
        known = records(metadata.properties, "")
    except HeliosError:
        return {}
    return {former: name for name, record in known.items() for former in record.formerly if former not in known}


def _history(
    metadata: TableMetadata, head: int, places: Sequence[Warehouse], checkpoints: Mapping[str, str]
) -> list[Commit]:
    """Returns the commits up to a snapshot, newest first."""
    present_names = _present_names(metadata)

    @cache
    def plans(pipeline: str) -> Mapping[str, KeptPlan]:
        # A renamed pipeline has a checkpoint under its present name, with the plans of its earlier runs.
        stamped = pipeline.removesuffix(REPLAY).removesuffix(BACKFILL)
        present = present_names.get(stamped, stamped)
        location = checkpoints.get(pipeline) or checkpoints.get(present)
        return {kept.steps: kept for kept in plans_of(present, places, [location] if location else [])}

    last_positions: dict[str, Position | None] = {}
    history: list[Commit] = []
    retained = {raw.snapshot_id: raw for raw in metadata.snapshots}  # PyIceberg's lookup by id is a linear search
    for id in reversed(list(ancestors(metadata, head))):
        raw = retained[id]
        summary = raw.summary.additional_properties if raw.summary is not None else {}
        operation = raw.summary.operation.value if raw.summary is not None else ""
        pipeline, steps, batch = (summary.get(f"helios.{key}") for key in ("pipeline", "steps", "batch"))
        present = present_names.get(pipeline or "", pipeline or "")
        plan = plans(pipeline).get(steps) if pipeline is not None and steps is not None else None
        history.append(
            Commit(
                snapshot=id,
                committed=from_milliseconds(raw.timestamp_ms),
                operation=operation,
                **_counted(summary, operation, plan, vectors=metadata.format_version > 2),
                pipeline=pipeline,
                batch=int(batch) if batch is not None else None,
                position=parse_position(summary.get("helios.position")),
                steps=steps,
                version=summary.get("helios.version"),
                plan=plan,
                before=last_positions.get(present) if not present.endswith(BACKFILL) else None,
                redone=int(summary[REDONE]) if summary.get(REDONE, "").isdecimal() else None,
                instead=summary.get(INSTEAD),
            )
        )
        if pipeline is not None:
            last_positions[present] = history[-1].position
    history.reverse()
    return history


def overwrites(plan: KeptPlan | None) -> bool:
    """True if the batches of a plan overwrite old rows, so that their files have only new rows."""
    return plan is not None and str(plan.plan["target"].get("mode")).startswith("overwrite")


def _counted(summary: Mapping[str, str], operation: str, plan: KeptPlan | None, *, vectors: bool) -> dict[str, Any]:
    """Computes the rows that a commit added, removed and moved from the counts in its summary.

    Args:
        vectors: Whether deletes are deletion vectors (format v3), which are removed together with their data files.

    Examples:
        >>> _counted({"added-records": "3", "added-position-deletes": "5", "removed-position-deletes": "4"},
        ...     "overwrite", None, vectors=True)
        {'added': 3, 'removed': 1, 'moved': 0, 'exact': True}
        >>> _counted({"added-records": "9", "deleted-records": "10"}, "replace", None, vectors=True)
        {'added': 0, 'removed': 0, 'moved': 9, 'exact': True}
    """

    def count(name: str) -> int:
        return int(summary.get(name) or 0)

    added, dropped = count("added-records"), count("deleted-records")
    if operation == "replace":
        return {"added": 0, "removed": 0, "moved": added, "exact": True}
    new_deletes = count("added-position-deletes") - count("removed-position-deletes")
    rewrites = bool(added and dropped and not overwrites(plan))
    dangling = bool(dropped and not vectors and count("total-position-deletes") - new_deletes)
    exact = not (rewrites or dangling or count("added-equality-deletes"))
    return {"added": added, "removed": max(0, dropped + new_deletes), "moved": 0, "exact": exact}
