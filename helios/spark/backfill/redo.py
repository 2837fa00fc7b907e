"""Repairs single commits: reads the span of a commit again, and replaces exactly the rows that the commit wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from helios.errors import InputError
from helios.model.retry import CommitRetries
from helios.plan.nodes import Plan
from helios.spark.backfill.recompute import Positions, Recompute
from helios.spark.backfill.rejects import Rejects
from helios.spark.backfill.repair import COMMIT_RETRY, SNAPSHOT_ISOLATION
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
from helios.spark.iceberg import changed_files, freshness, tables
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks
from helios.spark.iceberg.transaction import Transaction
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.types.files import JavaDataFile
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Conflict
from helios.table.commits import REDONE, Commit
from helios.table.positions import Batch, Span
from helios.table.refs import BACKFILL

DELETED_SINCE = "some of its rows were deleted or changed since, and the repair would undo that"


@dataclass(frozen=True)
class CommitRows:
    """The location of a commit's rows in the target.

    Attributes:
        files: The files that contain exactly these rows; empty if a compaction has moved the rows.
        moved: The SQL condition for rows that a compaction has moved, by row id; empty if none were moved.
    """

    files: Sequence[JavaDataFile]
    moved: str
    rows: int


@dataclass(kw_only=True)
class CommitRepair:
    """Repairs commits of a mode that only adds rows.

    Attributes:
        ledger: The ledger of the backfill; None for a dry run.
        rejects: Compares rejected rows with the pipeline's quarantine.
        commits: The commits to repair, by snapshot id.
        replays: The commits with which `helios quarantine replay` added rows that the pipeline had rejected, newest
            first.
        first: The snapshot of the pipeline's first commit; None if it has expired.
        verify: Raises if another process has taken over the backfill.
        names: The present and former names of the pipeline.
    """

    plan: Plan
    spark: SparkSession
    target: JavaTable
    ledger: Ledger | None
    recompute: Recompute
    rejects: Rejects
    commits: dict[str, Commit]
    replays: Sequence[Commit]
    first: int | None
    verify: Callable[[], None]
    names: Iterable[str]

    @property
    def table(self) -> str:
        return self.plan.write.table.text

    @property
    def slices(self) -> list[Slice]:
        """A slice for each commit; its condition is the snapshot id."""
        commits = self.commits.values()
        return [Slice(f"batch {commit.batch} (snapshot {commit.snapshot})", str(commit.snapshot)) for commit in commits]

    def begin(self, stack: ExitStack) -> Callable[[], None]:
        """Does nothing: the pipeline may run during the repair."""
        return lambda: None

    def preview(self) -> tuple[list[Repaired], int | None]:
        """Counts the rows of each slice before and after a repair.

        Returns:
            The slices, and the size of the files with the old rows; None if compactions have moved all of these rows.
        """
        head = tables.head(self.target, self.plan.write.sink.branch_name)
        slices: list[Repaired] = []
        sizes: list[int] = []
        for slice in self.slices:
            rows, old = self.rows(slice), self.locate_rows(slice, head)
            after = rows.count() if rows is not None else 0
            slices.append(Repaired(slice=slice.name, before=old.rows, after=after))
            sizes += [int(file.fileSizeInBytes()) for file in old.files]
        return slices, sum(sizes) if sizes else None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        ledger = self.ledger
        assert ledger is not None
        self.verify()
        rows = self.rows(slice)
        if rows is not None:
            rows = SchemaAligner(self.spark, self.plan, self.plan.write.table, self.target)(rows, ())
        ledger.find(Batch(number, (), maybe_written=True))  # refreshes the target, and sets `ledger.head_at_look_up`
        old = self.locate_rows(slice, ledger.head_at_look_up)

        def write(pending: Transaction) -> None:
            pending.watch.conflict_reason = _conflict
            if old.files:
                pending.delete_files(old.files)
            if old.moved:
                pending.delete(old.moved)
            if rows is not None:
                pending.append(rows)

        commit = self.commits[slice.condition]
        entries = (commit.position or {}).get("sources") or ()
        spans = tuple(Span(entry["source"], None, entry.get("place"), entry) for entry in entries)
        options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.recompute.checkpoint).options()
        options = replace(
            options,
            stamps={**options.stamps, REDONE: slice.condition},
            properties={**options.properties, **SNAPSHOT_ISOLATION},
            verify=self.verify,
        )
        batch = Batch(number, spans, maybe_written=True)
        committed = ledger.try_commit(self.spark, write, batch, options, CommitRetries(COMMIT_RETRY))
        if isinstance(committed, Conflict):
            return committed
        freshness.verify(self.plan.write.table, self.target)
        return Repaired(
            slice=slice.name,
            before=old.rows,
            after=committed.rows if committed is not None and rows is not None else 0,
            snapshot=committed.snapshot if committed is not None else None,
        )

    # what a commit read and wrote

    def rows(self, slice: Slice) -> DataFrame | None:
        """The rows that the current script produces from a commit's span; None for an empty span."""
        commit = self.commits[slice.condition]
        ends = _ends(commit.position)
        if commit.before is None and commit.snapshot != self.first:
            raise InputError(
                f"{slice.name} of {self.table} cannot be read again, and its rows were not replaced: its begin is "
                "unknown, because the commit before it has expired.",
                where=self.plan.origin,
                fix="repair its rows by a filter: --where.",
            )
        built = self.recompute.rows(_ends(commit.before) if commit.before is not None else None, ends)
        if built is not None:
            self.rejects.refuse_difference(built.rejected, commit)
        later_replays = [replay for replay in self.replays if replay.committed >= commit.committed]
        self.rejects.refuse_replayed(commit, later_replays)
        return built.df if built is not None else None

    def locate_rows(self, slice: Slice, head: JavaSnapshot | None) -> CommitRows:
        """Locates the rows of a commit in the target.

        Raises:
            InputError: The rows can no longer be told from other rows, or some were deleted.
        """
        appends = [
            snapshot for snapshot in self._adding_snapshots(slice, head) if str(snapshot.operation()) == "append"
        ]
        files = [file for snapshot in appends for file in changed_files.added_data(self.target, snapshot)]
        added = {str(file.location()): file for file in files}
        scan = self.target.newScan().useSnapshot(int(head.snapshotId())) if head is not None else None
        tasks = plan_tasks(self.spark, scan) if scan is not None else ()
        current = {str(task.file().location()): task for task in tasks}
        lost = added.keys() - current.keys()
        rows = sum(int(file.recordCount()) for file in added.values())
        if not lost and not any(current[file].deletes().size() for file in added):
            return CommitRows([current[file].file() for file in sorted(added)], "", rows)
        ranges = [(file.firstRowId(), int(file.recordCount())) for file in added.values()]
        if not lost or any(first is None for first, _ in ranges):
            why = (
                f"{len(lost):,} of its {len(added):,} files were compacted or replaced since, and its rows cannot be "
                "told from others"
            )
            raise self._refusal(slice, why if lost else DELETED_SINCE)
        # greatest() keeps Spark from pushing the condition down: Iceberg's filters do not know metadata columns.
        id, changed = (f"greatest({name}, {name})" for name in ("_row_id", "_last_updated_sequence_number"))
        unchanged = f"{changed} <= {max(int(snapshot.sequenceNumber()) for snapshot in appends)}"
        moved = " OR ".join(f"({id} >= {first} AND {id} < {int(first or 0) + count})" for first, count in ranges)
        present = read_tasks(self.spark, self.target, tasks).where(moved).where(unchanged).count() if tasks else 0
        if present != rows:
            raise self._refusal(slice, DELETED_SINCE)
        return CommitRows([], moved, rows)

    def _refusal(self, slice: Slice, why: str) -> InputError:
        return InputError(
            f"{slice.name} of {self.table} cannot be repaired as a commit: {why}; its rows were not replaced.",
            where=self.plan.declared.sink.origin,
            fix="repair its rows by a filter: --where.",
        )

    def _adding_snapshots(self, slice: Slice, head: JavaSnapshot | None) -> list[JavaSnapshot]:
        """The snapshots that added the rows of a commit: its own, or those of the last backfill that replaced them."""
        own, backfill_names = None, {f"{name}{BACKFILL}" for name in self.names}
        redone: list[JavaSnapshot] = []
        last_attempt = None
        for snapshot in History(self.target, head):
            summary = snapshot.summary()
            if str(snapshot.snapshotId()) == slice.condition:
                own = snapshot
                break
            if summary.get("helios.pipeline") in backfill_names and summary.get(REDONE) == slice.condition:
                attempt = summary.get("helios.attempt")
                if last_attempt in (None, attempt):  # the last backfill's commit may consist of two snapshots
                    last_attempt = attempt
                    redone.append(snapshot)
        return redone or ([own] if own is not None else [])


def _ends(position: object) -> Positions:
    entries = position.get("sources") if isinstance(position, dict) else None
    return tuple(entry.get("place") for entry in entries or ())


def _conflict(snapshot: JavaSnapshot) -> str:
    """The reason why a commit of another writer conflicts; empty if it does not.

    An append does not conflict, because it does not change existing files. Iceberg itself detects removed files.
    """
    harmless = str(snapshot.operation()) == "append" or not changes_rows(snapshot)
    return "" if harmless else f"snapshot {snapshot.snapshotId()} has changed rows"
