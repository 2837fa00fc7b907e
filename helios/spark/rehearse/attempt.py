"""One attempt at a rehearsal: runs the batches of past commits again, into a table of a temporary lake.

The table starts with the rows that the target had before the first of these commits. For a mode that only adds rows, it
starts empty.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.errors import HeliosError, InputError
from helios.plan.checks.rehearsal import TEST_INSTEAD, stateful_step
from helios.plan.checks.sinks import left_out
from helios.plan.nodes import Plan, ReadPath
from helios.spark.checkpoint.files import Checkpoint, Identity
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.repeat import Repeat
from helios.spark.iceberg import tables
from helios.spark.iceberg.failures import user_error
from helios.spark.iceberg.scan_metrics import collect_scan_metrics
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.spark.jvm.callbacks import callback_scope
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.observer import SilentObserver
from helios.spark.rehearse import lake
from helios.spark.rehearse.again import PastSources, UnreadableInput, copy_columns
from helios.spark.run.batches import run_batch
from helios.spark.run.job import Job, StreamingQuery
from helios.spark.run.query import PipelineQuery
from helios.spark.run.upsert_keys import upsert_state
from helios.spark.sinks.alignment import SchemaAligner, columns_of
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.modes import stored_schema
from helios.spark.sinks.options import Commit
from helios.spark.sinks.stored_records import known_records
from helios.spark.sinks.table import TableSink, apply_layout, has_written
from helios.table.ledger import Record
from helios.table.rehearsal import CommittedBatch, Rerun

ID = "rehearsal"
"""The id of a rehearsal's checkpoint."""


class UnreadableCommit(Exception):
    """The batches of a commit cannot be read again, and later batches depend on them."""

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index, self.why = index, why


class RehearsalRun(SilentObserver):
    """Observes the run of a rehearsal: counts rejected rows, and collects notes for the user."""

    once = True

    def __init__(self) -> None:
        self.rejected_rows = 0
        self.notes: list[str] = []

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        return work()

    def follow(self, query: StreamingQuery) -> None:
        raise AssertionError("a rehearsal starts no stream")

    def rejected(self, rows: int) -> None:
        self.rejected_rows += rows

    def noted(self, message: str) -> None:
        self.notes.append(message)


@dataclass(kw_only=True)
class AttemptResult:
    """The result of an attempt. Commits are identified by their index.

    Attributes:
        plan: The plan that wrote into the lake.
        real: The target.
        table: The lake's table.
        columns: The columns that the script now stores, in lower case; None for a mode that stores no columns of the
            script: a delete, or the user's own MERGE.
        index_of: For each snapshot of the lake's table, the commit whose batches wrote it.
        base: The snapshot of the lake's table before the first batch; None if the table starts empty.
        rows: The number of written rows, by commit.
        rejected: The number of rejected rows, by commit.
        numbers: The numbers of the batches in the rehearsal, by commit.
        unread: The reason why batches were not read, by commit.
        failed: The error of the script, by commit.
        first_left_out: The first commit that was not run, because the limit of rows was reached or the script failed
            on an earlier commit; None if all were run.
    """

    plan: Plan
    real: JavaTable
    table: JavaTable
    columns: frozenset[str] | None
    index_of: dict[int, int] = field(default_factory=dict)
    base: int | None = None
    rows: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    first_left_out: int | None = None
    notes: list[str] = field(default_factory=list)

    def is_complete(self, index: int) -> bool:
        """True if all batches of a commit were run without an error."""
        return index in self.rows and index not in self.unread and index not in self.failed


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to run the batches of commits again, beginning with the commit at index `first`.

    Attributes:
        commits: The commits, oldest first.
        max_rows: The limit of rows that are written and compared; the commit that reaches the limit is the last one.
        folder: The folder for the temporary lake; None for the system's temporary folder.
    """

    plan: Plan
    spark: SparkSession
    commits: Sequence[CommittedBatch]
    reruns: Sequence[Rerun]
    first: int
    max_rows: int
    folder: Path | None = None

    @property
    def appends(self) -> bool:
        """True if the mode only adds rows, so that no batch depends on the rows of the target."""
        return self.plan.write.mode.traits.only_adds

    @contextmanager
    def run(self) -> Generator[AttemptResult]:
        """Runs the batches; the temporary lake exists until the `with` block ends.

        Raises:
            UnreadableCommit: Batches cannot be read again, and later batches depend on them.
            HeliosError: The pipeline cannot start.
        """
        with tempfile.TemporaryDirectory(prefix="helios-rehearsal-", dir=self.folder) as name:
            folder = Path(name).resolve()
            catalog = lake.lake_in(folder / "lake")
            lake.declare(self.spark, catalog)
            run, plan = RehearsalRun(), lake.rehearsal_plan(self.plan, catalog, folder / "checkpoint")
            with lake.errors_by_real_names(self.plan, plan):
                query = PipelineQuery(plan, self.spark, run, plan.checkpoint)
                copy_columns(Checkpoint(self.spark, self.plan.checkpoint), query.checkpoint)
                df = query.declare()
                if query.plan.path is ReadPath.STATEFUL:
                    raise InputError(
                        f"{self.plan.pipeline} cannot be rehearsed: {stateful_step(query.plan)} has "
                        "state between batches.",
                        where=self.plan.origin,
                        fix=TEST_INSTEAD,
                    )
                job, result = self._job(query, run, df, folder)
                sources = PastSources(query.plan, self.spark, query.sources)
                try:
                    sources.resume(self.commits, self.reruns)
                    self._run(job, sources, run, result)
                finally:
                    job.lease.release()
                # Notes on the temporary lake itself are not for the user.
                result.notes += [note for note in run.notes if catalog.name not in note]
                yield result

    # the lake

    def _job(self, query: PipelineQuery, run: RehearsalRun, df: DataFrame, folder: Path) -> tuple[Job, AttemptResult]:
        plan, spark = query.plan, self.spark
        real = tables.load_table(spark, self.plan.write.table)
        assert real is not None  # the target has commits
        base = self.commits[self.first].parent if not self.appends else None
        name = plan.write.table
        table = lake.clone(spark, real, name, folder, base)
        context = SinkContext(plan=plan, spark=spark, checkpoint=query.checkpoint, checkpoint_id=ID, observer=run)
        ledger = context.ledger(table, None, name)
        ledger.claim(Record(checkpoint=ID, steps=plan.fingerprint))
        uuid = str(table.uuid())
        query.checkpoint.create(
            Identity(
                id=ID, pipeline=plan.pipeline, target=name.text, target_uuid=uuid, sources=(), state=(),
                path=plan.path.value, uuids=(),
            )
        )  # fmt: skip
        columns = self._columns(plan, table, df, name)
        apply_layout(spark, plan, table)  # the partitioning, sort order and branch that the sink declares
        self._restore_upsert_state(real, context)
        lease = Lease(query.checkpoint)
        lease.acquire()
        sink = TableSink(context, name, table, None)
        # The sink's own ledger may skip input that an earlier commit has appended. A rehearsal must append it again.
        sink.ledger = ledger
        job = Job(
            plan=plan, spark=spark, run=run, checkpoint=query.checkpoint, lease=lease, sources=query.sources,
            schema=df.schema, sink=sink, last_planned=-1,
            repeat=Repeat(query.checkpoint, plan.fingerprint, requested=False),
        )  # fmt: skip
        return job, AttemptResult(plan=plan, real=real, table=table, columns=columns)

    def _columns(self, plan: Plan, table: JavaTable, df: DataFrame, name: TableName) -> frozenset[str] | None:
        """The columns that the script stores in the target; runs the same checks as the start of a run.

        Raises:
            CheckFailed: The columns do not fit the target.
        """
        mode = plan.write.mode
        if not mode.traits.stores_columns:
            return None
        present = columns_of(tables.spark_schema(self.spark, table))
        omitted = left_out(plan.write.iceberg, columns_of(df.schema), present, has_written=has_written(plan, table))
        stored = stored_schema(df, mode, omitted)
        SchemaAligner(self.spark, plan, name, table).check(stored)
        return frozenset(name.lower() for name in stored.names)

    def _restore_upsert_state(self, real: JavaTable, context: SinkContext) -> None:
        """Gives the rehearsal the keys that the pipeline remembered before the first commit.

        Raises:
            InputError: These keys are no longer known.
        """
        plan, first = self.plan, self.commits[self.first]
        upsert = plan.write.mode.upsert
        if upsert is None or upsert.order_by is None:
            return
        real_context = SinkContext(plan=plan, spark=self.spark, checkpoint=Checkpoint(self.spark, plan.checkpoint))
        known = known_records(real)
        record = next((known[name] for name in plan.write.pipeline_names if name in known), None)
        state = upsert_state(real_context, record)
        others = [n for n, r in known.items() if n not in plan.write.pipeline_names and r.upserts and r.batch >= 0]
        why, fix = None, f"rehearse fewer commits, with --last, or {TEST_INSTEAD}"
        if others and (state.has_keys or upsert.delete_when):
            target = plan.write.table.text
            why = f"{others[0]} also upserts into {target}, and the keys that it remembered at that time are unknown"
            fix = TEST_INSTEAD
        elif state.has_keys and record is not None:
            same_checkpoint = record.checkpoint == first.checkpoint
            batch = min(first.previous_batch + 1, first.batch)
            restored = context.upsert_state(context.plan.write.table, None)
            if not (same_checkpoint and restored.begin_as_copy(self.spark, state, batch)):
                why = f"the keys that it remembered before batch {first.batch} have since been merged with later ones"
        if why is not None:
            raise InputError(
                f"{plan.pipeline} cannot be rehearsed from snapshot {first.snapshots[0]} on: {why}.",
                where=plan.write.sink.origin,
                fix=fix,
            )

    # the batches

    def _run(self, job: Job, sources: PastSources, run: RehearsalRun, result: AttemptResult) -> None:
        number = rows = 0
        result.base = _head(result.table)
        for index, reruns in _by_commit(self.reruns, self.first):
            # Batches after the last commit wrote nothing, and have no commit.
            commit = self.commits[index] if index < len(self.commits) else None
            if rows >= self.max_rows:
                result.first_left_out = index
                return
            before, run.rejected_rows = _head(result.table), 0
            try:
                for rerun in reruns:
                    rows += self._batch(job, sources, number, rerun, result)
                    result.numbers.setdefault(index, []).append(number)
                    number += 1
            except UnreadableInput as problem:
                if not self.appends:
                    raise UnreadableCommit(index, str(problem)) from problem
                result.unread[index] = str(problem)
            except Exception as error:
                user_facing_error = user_error(error, self.plan)
                if not isinstance(user_facing_error, HeliosError):
                    raise
                result.failed[index] = lake.by_real_names(str(user_facing_error), self.plan, job.plan)
                if not self.appends:
                    result.first_left_out = index + 1
                    return
            number += 1  # if a batch has failed, the failed batch has used this number
            rows += commit.rows if commit is not None else 0
            result.rejected[index] = run.rejected_rows
            result.rows.setdefault(index, 0)
            if result.is_complete(index):
                result.index_of |= dict.fromkeys(_snapshots_after(result.table, before), index)

    def _batch(self, job: Job, sources: PastSources, number: int, rerun: Rerun, result: AttemptResult) -> int:
        """Runs a batch, and returns how many rows it wrote."""
        past = self.commits[rerun.commit_index] if rerun.commit_index < len(self.commits) else None
        batch, pins = sources.batch(number, rerun), sources.pins(rerun, past)
        if pins:
            job.checkpoint.pin(number, pins)
        # A stand-in for the DataFrame of Spark's stream; its rows are not used.
        tick = self.spark.range(0).toDF("tick") if job.plan.streaming else None
        try:
            with callback_scope(), scan_task_scope(), collect_scan_metrics(job.tables):
                commit = run_batch(job, batch, tick)
        except Exception:
            sources.probe(batch)  # raises `UnreadableInput` if the cause is missing input, and not the script
            raise
        rows = commit.rows if commit is not None else 0
        result.rows[rerun.commit_index] = result.rows.get(rerun.commit_index, 0) + rows
        return rows


def _by_commit(reruns: Sequence[Rerun], first: int) -> Iterator[tuple[int, list[Rerun]]]:
    """The batches of each commit, by its index, from the first commit on."""
    by_commit: dict[int, list[Rerun]] = {}
    for rerun in reruns:
        if rerun.commit_index >= first:
            by_commit.setdefault(rerun.commit_index, []).append(rerun)
    yield from by_commit.items()


def _head(table: JavaTable) -> int | None:
    """The id of the current snapshot, after a refresh; None for an empty table."""
    table.refresh()
    newest = table.currentSnapshot()
    return int(newest.snapshotId()) if newest is not None else None


def _snapshots_after(table: JavaTable, before: int | None) -> Iterator[int]:
    """The snapshots after `before`, newest first."""
    snapshot_id = _head(table)
    while snapshot_id is not None and snapshot_id != before:
        yield snapshot_id
        snapshot = table.snapshot(snapshot_id)
        parent = snapshot.parentId() if snapshot is not None else None
        snapshot_id = int(parent) if parent is not None else None


def rejected_by_step(result: AttemptResult, spark: SparkSession) -> Mapping[str, int]:
    """The number of rows that the rehearsal quarantined, by step, or else by reason; empty without a quarantine."""
    name = result.plan.write.quarantine
    if name is None or tables.load_table(spark, name) is None:
        return {}
    index_of = {number: index for index, numbers in result.numbers.items() for number in numbers}
    counts: dict[str, int] = {}
    for batch, step, reason, count in spark.table(name.sql).groupBy("batch", "step", "reason").count().collect():
        # A batch pipeline numbers the batches of its quarantine separately, so all of its rows count.
        if not result.plan.streaming or (batch in index_of and result.is_complete(index_of[batch])):
            counts[step or reason] = counts.get(step or reason, 0) + count
    return counts
