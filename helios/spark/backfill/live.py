"""The live pipeline of a backfill: how far it has read, where it first began, and its commits during the backfill."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from helios.errors import CheckpointError, HeliosError, InputError, NotFound
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import Entry
from helios.sources.kinds import position_of
from helios.spark.backfill.recompute import Positions, ReadOnlyCheckpoint, other_rows_fix
from helios.spark.backfill.slices import Slice
from helios.spark.checkpoint.files import Identity
from helios.spark.iceberg import filters, tables
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.validators import COMPACTION
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.sinks.records import names_of
from helios.table.commits import Commit
from helios.table.ledger import Record, Starts, parse_record
from helios.table.positions import Span
from helios.table.refs import LEDGER

REPEATED_FIELDS = ("source", "uuid", "branch", "from", "place")
"""The ledger fields of a source that a backfill's commits repeat: how far it was read, without the last span."""


@dataclass(frozen=True)
class LivePosition:
    """How far a pipeline has read its sources.

    Attributes:
        record: The pipeline's ledger record in the target.
        batch: The last finished batch, which may have changed nothing in the target.
        ends: Where that batch ended in each followed source.
        entries: The same positions, in the ledger's form.
    """

    record: Record
    batch: int
    ends: Positions
    entries: tuple[Entry, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of a backfill's commit: from the beginning of each source up to this position."""
        return tuple(Span(entry["source"], None, entry.get("place"), entry) for entry in self.entries)


def rolled_back_error(plan: Plan, source: str) -> InputError:
    """Returns the error for a source that still has rows which a rollback removed from the target."""
    from_fix = "; or name a table or a folder of the same columns without these rows: --from"
    return InputError(
        f"{plan.pipeline} has continued with a new checkpoint after batches or replays were rolled back: {source} "
        "still has their rows, which would come back; nothing was written.",
        where=plan.origin,
        fix="repair commits that the table still has, other than the first one, with --commits"
        f"{from_fix if plan.write.mode.upsert is None else ''}.",
    )


class LivePipeline:
    """A pipeline that may be running in another process; its checkpoint is only read.

    Args:
        plan: The pipeline, compiled from the current script.

    Raises:
        CheckpointError: There is no checkpoint, or it belongs to another pipeline.
    """

    def __init__(self, plan: Plan, spark: SparkSession, checkpoint: ReadOnlyCheckpoint) -> None:
        self._plan, self.checkpoint = plan, checkpoint
        self.identity = self._read_identity()

    def _read_identity(self) -> Identity:
        identity = self.checkpoint.identity()
        if identity is None:
            raise CheckpointError(
                f"{self._plan.pipeline} has no checkpoint at {self.checkpoint.location}; nothing was written.",
                where=self._plan.declared.sink.origin,
                fix="run the pipeline first; a lost checkpoint is replaced with `helios run --new-checkpoint`.",
            )
        if identity.pipeline not in (self._plan.pipeline, self._plan.was):
            raise CheckpointError(
                f"the checkpoint {self.checkpoint.location} belongs to pipeline {identity.pipeline!r}; nothing was "
                "written.",
                where=self._plan.declared.sink.origin,
            )
        return identity

    def position(self, table: JavaTable, committed: int) -> LivePosition:
        """How far the pipeline has read, according to the loaded metadata of its target.

        Args:
            committed: The last finished batch of the checkpoint, read before the target was loaded; -1 for none.

        Raises:
            NotFound: The pipeline has written nothing.
            CheckpointError: It has begun another checkpoint.
        """
        texts = ((name, table.properties().get(LEDGER + name)) for name in self._plan.write.pipeline_names)
        record = next(
            (parse_record(text, LEDGER + name, table.name()) for name, text in texts if text is not None), None
        )
        if record is None or (record.position is None and committed < 0):
            raise NotFound(
                f"{self._plan.pipeline} has written nothing into {table.name()} yet: there is nothing to repair.",
                where=self._plan.origin,
            )
        if record.checkpoint != self.identity.id:
            raise CheckpointError(
                f"{self._plan.pipeline} has begun a new checkpoint meanwhile, or its target was emptied; the backfill "
                "ends here.",
                where=self._plan.origin,
                fix="start the backfill again: it starts over.",
            )
        recorded = (record.position or {}).get("sources") or self._starts()
        entries = tuple({key: entry[key] for key in REPEATED_FIELDS if key in entry} for entry in recorded)
        if committed <= record.batch:
            return LivePosition(record, record.batch, tuple(entry.get("place") for entry in entries), entries)
        # Later batches changed nothing, so only Spark's offset log has them. The current script may produce rows from
        # their input.
        ends = tuple(self.checkpoint.offsets(committed))
        entries_at_ends = tuple({**entry, "place": end} for entry, end in zip(entries, ends, strict=False))
        return LivePosition(record, committed, ends, entries_at_ends)

    def _starts(self) -> Sequence[Entry]:
        """The first positions of the followed sources, as entries of the ledger."""
        followed = [read for read in self._plan.reads if read.source.streaming]
        return [
            {
                "source": read.ledger_name,
                "uuid": start["uuid"],
                "branch": start["branch"],
                "from": start["declared"],
                "place": start["place"],
            }
            for read, start in zip(followed, self.checkpoint.start() or (), strict=False)
        ]

    def committed(self) -> int:
        """The last batch that the pipeline has finished; -1 for none."""
        return max(self.checkpoint.batches("commits"), default=-1)

    def starts(self, live_position: LivePosition, table: JavaTable) -> Starts:
        """The positions from which the followed sources were first read.

        Raises:
            InputError: The positions are unknown because the pipeline has begun a new checkpoint; or batches after them
                were rolled back.
        """
        starts: Starts | None = self.checkpoint.start()
        if live_position.record.rolled_back:
            if starts and self._has_one_checkpoint(live_position, table):
                return starts
            raise rolled_back_error(self._plan, "the source")
        if live_position.record.start:
            return live_position.record.start
        if starts and (all(map(_is_beginning, starts)) or self._has_one_checkpoint(live_position, table)):
            return starts
        raise InputError(
            f"it is no longer known where {self._plan.pipeline} first began to read, because it has gone on with "
            "a new checkpoint, or its first commits have expired; nothing was written.",
            where=self._plan.origin,
            fix=other_rows_fix(self._plan),
        )

    def with_start(
        self, commit: Commit, own: Sequence[Commit], live_position: LivePosition, table: JavaTable
    ) -> Commit:
        """Returns a commit with the right start of its batch, even for the first commit of a new checkpoint.

        A new checkpoint may continue after rows that were rolled back. Its first batch then does not begin where the
        batch of the previous commit ended.

        Args:
            own: All commits of the pipeline, newest first.

        Raises:
            InputError: The commit is the first of a former checkpoint, and rows may have been rolled back before it.
        """

        def checkpoint_of(other: Commit) -> str | None:
            snapshot = table.snapshot(other.snapshot)
            return snapshot.summary().get("helios.checkpoint") if snapshot is not None else None

        previous = next(iter(own[own.index(commit) + 1 :]), None)
        if previous is None or checkpoint_of(previous) == checkpoint_of(commit):
            return commit
        starts = self.checkpoint.start()
        if checkpoint_of(commit) == self.identity.id and starts is not None:
            return replace(commit, before={"sources": starts})
        if live_position.record.rolled_back:
            raise rolled_back_error(self._plan, "the source")
        return commit

    def _has_one_checkpoint(self, live_position: LivePosition, table: JavaTable) -> bool:
        """True if the whole history of the target shows no other checkpoint of the pipeline."""
        history = History(table, tables.head(table, self._plan.write.sink.branch_name))
        names = names_of(table, self._plan.write.pipeline_names, live_position.record)
        checkpoints = {
            snapshot.summary().get("helios.checkpoint")
            for snapshot in history
            if snapshot.summary().get("helios.pipeline") in names
        }
        return not history.is_cut and checkpoints <= {self.identity.id}


def _is_beginning(start: Entry) -> bool:
    """True if a start is the beginning of its source's history."""
    kind_and_position = position_of(start.get("place"))
    return kind_and_position is not None and kind_and_position[1].is_beginning


class ConflictWatcher:
    """Checks whether a commit of another writer conflicts with the slice that is being written.

    Args:
        name: The target's name as Spark parses it.
        pipelines: The present and former names of the live pipeline.
        produces_rows: Returns True if the current script produces rows of the slice from what the sources received
            since the slice's rows were computed, up to a position.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaTable,
        name: str,
        slice: Slice,
        *,
        pipelines: tuple[str, ...],
        produces_rows: Callable[[Positions], bool],
    ) -> None:
        self._spark, self._table = spark, table
        self._slice, self._pipelines, self._produces_rows = slice, pipelines, produces_rows
        self._file_filter = filters.expression(spark, table, name, [slice.condition])
        self._checked_batch = -1  # the last batch whose input was found to produce no rows of the slice

    def conflict(self, snapshot: JavaSnapshot) -> str:
        """The reason why a commit conflicts; empty if it does not."""
        if str(snapshot.operation()) == COMPACTION or not changes_files(snapshot):
            return ""
        why = f"snapshot {snapshot.snapshotId()} has changed rows of {self._slice.name}"
        if str(snapshot.operation()) != "append":
            return why
        try:
            if self._adds_rows(snapshot) or self._batch_read_rows(snapshot):
                return why
        except (HeliosError, Py4JError, PySparkException) as error:  # the next attempt reports the error
            return f"snapshot {snapshot.snapshotId()} cannot be compared: {error}"
        return ""

    def _adds_rows(self, snapshot: JavaSnapshot) -> bool:
        scan = self._table.newIncrementalAppendScan().toSnapshot(int(snapshot.snapshotId()))
        parent = snapshot.parentId()
        scan = scan.fromSnapshotExclusive(int(parent)) if parent is not None else scan
        tasks = plan_tasks(self._spark, scan.filter(self._file_filter) if self._file_filter is not None else scan)
        if not tasks.size():
            return False
        rows = read_tasks(self._spark, self._table, tasks).where(self._slice.condition)
        return bool(rows.select(F.lit(1)).limit(1).collect())

    def _batch_read_rows(self, snapshot: JavaSnapshot) -> bool:
        """True if the current script produces rows of the slice from what the pipeline's batch read.

        The pipeline may still run with older steps, which put these rows elsewhere.
        """
        summary = snapshot.summary()
        batch = summary.get("helios.batch")
        if summary.get("helios.pipeline") not in self._pipelines or batch is None or int(batch) <= self._checked_batch:
            return False
        entries = json.loads(summary.get("helios.position") or "{}").get("sources") or ()
        if self._produces_rows(tuple(entry.get("place") for entry in entries)):
            return True
        self._checked_batch = int(batch)
        return False
