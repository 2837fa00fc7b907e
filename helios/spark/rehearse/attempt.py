"""One way through the batches of commits: they are run into a lake of their own, from the state before the first."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.errors import HeliosError, InputError
from helios.model.modes import Append
from helios.plan.checks.rehearsal import TEST, stateful
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
from helios.spark.observer import Silent
from helios.spark.rehearse import lake
from helios.spark.rehearse.again import Sources, Unread, keep_columns
from helios.spark.run.batches import run_batch
from helios.spark.run.job import Job, StreamingQuery
from helios.spark.run.query import PipelineQuery
from helios.spark.run.upsert_keys import upsert_state
from helios.spark.sinks.alignment import SchemaAligner, columns_of
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.modes import stored_schema
from helios.spark.sinks.options import Commit
from helios.spark.sinks.stored_records import known_records
from helios.spark.sinks.table import TableSink, has_written, shape
from helios.table.ledger import Record
from helios.table.rehearsal import Made, Rerun

ID = "rehearsal"
"""The id of the checkpoint of a rehearsal."""


class CannotRead(Exception):
    """The batches of one commit cannot be read again, behind which others would begin with another state.

    Args:
        owner: The number of the commit.
        why: Why.
    """

    def __init__(self, owner: int, why: str) -> None:
        super().__init__(why)
        self.owner, self.why = owner, why


class Watch(Silent):
    """The run of a rehearsal, which counts rejected rows."""

    once = True

    def __init__(self) -> None:
        self.kept_out = 0
        self.notes: list[str] = []

    def batch(self, number: int, work: Callable[[], Commit | None]) -> Commit | None:
        return work()

    def follow(self, query: StreamingQuery) -> None:
        raise AssertionError("a rehearsal starts no stream")

    def rejected(self, rows: int) -> None:
        self.kept_out += rows

    def noted(self, message: str) -> None:
        self.notes.append(message)


@dataclass(kw_only=True)
class Done:
    """What an attempt has done.

    Attributes:
        plan: The plan that wrote into the lake.
        real: The target.
        table: The table of the lake.
        columns: The columns that the script now stores, in lower case; None where its rows do not have the target's.
        owners: The snapshots of the lake's table, each with the number of the commit whose batches it has.
        begins: The snapshot of the lake's table before them; None for an empty one.
        rows: The rows that were written, by commit.
        kept_out: The rows that were rejected, by commit.
        numbers: The numbers of the batches in the lake, by commit.
        unread: Why batches were not read, by commit.
        failed: The errors of batches, by commit.
        left: The first commit that was left out, as the bound on rows was reached; None where none was.
        notes: What the run has told.
    """

    plan: Plan
    real: JavaTable
    table: JavaTable
    columns: frozenset[str] | None
    owners: dict[int, int] = field(default_factory=dict)
    begins: int | None = None
    rows: dict[int, int] = field(default_factory=dict)
    kept_out: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    left: int | None = None
    notes: list[str] = field(default_factory=list)

    def whole(self, owner: int) -> bool:
        """True if all batches of a commit were run."""
        return owner in self.rows and owner not in self.unread and owner not in self.failed


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The batches of commits, from the first one on.

    Attributes:
        plan: The pipeline.
        spark: The session.
        made: The commits.
        reruns: Their batches.
        first: The number of the first commit that is rehearsed.
        most: About how many rows are written and compared.
    """

    plan: Plan
    spark: SparkSession
    made: Sequence[Made]
    reruns: Sequence[Rerun]
    first: int
    most: int

    @property
    def appends(self) -> bool:
        """True if no batch depends on what the target holds."""
        return isinstance(self.plan.write.mode, Append)

    @contextmanager
    def run(self) -> Generator[Done]:
        """Runs the batches; the lake is there inside.

        Raises:
            CannotRead: Batches cannot be read again, and later ones depend on them.
            HeliosError: The pipeline does not start.
        """
        with tempfile.TemporaryDirectory(prefix="helios-rehearsal-") as name:
            folder = Path(name).resolve()
            here = lake.lake_in(folder / "lake")
            lake.declare(self.spark, here)
            watch, plan = Watch(), lake.rehearsed(self.plan, here, folder / "checkpoint")
            query = PipelineQuery(plan, self.spark, watch, plan.checkpoint)
            keep_columns(Checkpoint(self.spark, self.plan.checkpoint), query.checkpoint)
            df = query.declare()
            if query.plan.path is ReadPath.STREAM:
                raise InputError(
                    f"{self.plan.pipeline} cannot be rehearsed: {stateful(query.plan)} has state between batches.",
                    where=self.plan.origin,
                    fix=TEST,
                )
            job, done = self._job(query, watch, df, folder)
            sources = Sources(query.plan, self.spark, query.sources)
            try:
                sources.resume(self.made, self.reruns)
                self._run(job, sources, watch, done)
            finally:
                job.lease.release()
            done.notes += [note for note in watch.notes if here.name not in note]
            yield done

    # the lake

    def _job(self, query: PipelineQuery, watch: Watch, df: DataFrame, folder: Path) -> tuple[Job, Done]:
        plan, spark = query.plan, self.spark
        real = tables.load_table(spark, self.plan.write.table)
        assert real is not None  # it has commits
        base = self.made[self.first].parent if not self.appends else None
        name = plan.write.table
        table = lake.clone(spark, real, name, folder, base)
        context = SinkContext(plan=plan, spark=spark, checkpoint=query.checkpoint, checkpoint_id=ID, observer=watch)
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
        shape(spark, plan, table)
        self._remembered(real, context)
        lease = Lease(query.checkpoint)
        lease.acquire()
        sink = TableSink(context, name, table, None)
        sink.ledger = ledger  # also of a batch pipeline that appends: each commit's inputs are appended once more
        job = Job(
            plan=plan, spark=spark, run=watch, checkpoint=query.checkpoint, lease=lease, sources=query.sources,
            made=df.schema, sink=sink, planned=-1, repeat=Repeat(query.checkpoint, plan.fingerprint, asked=False),
        )  # fmt: skip
        return job, Done(plan=plan, real=real, table=table, columns=columns)

    def _columns(self, plan: Plan, table: JavaTable, df: DataFrame, name: TableName) -> frozenset[str] | None:
        """The columns that the rows of the script give the target; they are checked against it, as a run does.

        Raises:
            CheckFailed: They do not fit.
        """
        mode = plan.write.mode
        if not mode.traits.stores:
            return None
        held = columns_of(tables.spark_schema(self.spark, table))
        out = left_out(plan.write.iceberg, columns_of(df.schema), held, has_written=has_written(plan, table))
        stored = stored_schema(df, mode, out)
        SchemaAligner(self.spark, plan, name, table).check(stored)
        return frozenset(name.lower() for name in stored.names)

    def _remembered(self, real: JavaTable, ours: SinkContext) -> None:
        """Begins with what the upserts remembered of keys before the first batch.

        Raises:
            InputError: That is not known any more.
        """
        plan, first = self.plan, self.made[self.first]
        upsert = plan.write.mode.upsert
        if upsert is None or upsert.order_by is None:
            return
        theirs = SinkContext(plan=plan, spark=self.spark, checkpoint=Checkpoint(self.spark, plan.checkpoint))
        known = known_records(real)
        record = next((known[name] for name in plan.write.pipelines if name in known), None)
        state = upsert_state(theirs, record)
        others = [n for n, r in known.items() if n not in plan.write.pipelines and r.upserts and r.batch >= 0]
        why = None
        if others and (state.remembers or upsert.delete_when):
            why = f"{others[0]} upserts into it, too, and remembers keys"
        elif state.remembers and record is not None:
            same = record.checkpoint == first.checkpoint
            begins = min((n for n in (first.follows + 1, first.batch)), default=0)
            if not same or not ours.upsert_state(ours.plan.write.table, None).begin_as(self.spark, state, begins):
                why = f"what it remembered of deleted and late keys before batch {first.batch} has been folded since"
        if why is not None:
            raise InputError(
                f"{plan.pipeline} cannot be rehearsed from snapshot {first.snapshots[0]} on: {why}.",
                where=plan.write.sink.origin,
                fix=f"rehearse fewer commits, with --last, or {TEST}",
            )

    # the batches

    def _run(self, job: Job, sources: Sources, watch: Watch, done: Done) -> None:
        number = used = 0
        done.begins = _head(done.table)
        for owner, some in _by_owner(self.reruns, self.first):
            made = self.made[owner] if owner < len(self.made) else None
            if used >= self.most:
                done.left = owner
                return
            before, watch.kept_out = _head(done.table), 0
            try:
                for rerun in some:
                    used += self._batch(job, sources, number, rerun, done)
                    done.numbers.setdefault(owner, []).append(number)
                    number += 1
            except Unread as problem:
                if not self.appends:
                    raise CannotRead(owner, str(problem)) from problem
                done.unread[owner] = str(problem)
            except Exception as error:
                known = user_error(error, self.plan)
                if not isinstance(known, HeliosError):
                    raise
                done.failed[owner] = str(known)
                if not self.appends:
                    done.left = owner + 1
                    return
            number += 1  # of a batch that failed, its number too is not used again
            used += made.rows if made is not None else 0
            done.kept_out[owner] = watch.kept_out
            done.rows.setdefault(owner, 0)
            if done.whole(owner):
                done.owners |= dict.fromkeys(_since(done.table, before), owner)

    def _batch(self, job: Job, sources: Sources, number: int, rerun: Rerun, done: Done) -> int:
        """Runs a batch, and returns how many rows it wrote."""
        made = self.made[rerun.owner] if rerun.owner < len(self.made) else None
        batch, pins = sources.batch(number, rerun), sources.pins(rerun, made)
        if pins:
            job.checkpoint.pin(number, pins)
        tick = self.spark.range(0).toDF("tick") if job.plan.streaming else None
        try:
            with callback_scope(), scan_task_scope(), collect_scan_metrics(job.tables):
                commit = run_batch(job, batch, tick)
        except Exception:
            sources.probe(batch)  # it may be that the script is right, and what it read is gone
            raise
        rows = commit.rows if commit is not None else 0
        done.rows[rerun.owner] = done.rows.get(rerun.owner, 0) + rows
        return rows


def _by_owner(reruns: Sequence[Rerun], first: int) -> Iterator[tuple[int, list[Rerun]]]:
    """The batches of each commit, from the first commit on."""
    by: dict[int, list[Rerun]] = {}
    for rerun in reruns:
        if rerun.owner >= first:
            by.setdefault(rerun.owner, []).append(rerun)
    yield from by.items()


def _head(table: JavaTable) -> int | None:
    """The current snapshot."""
    table.refresh()
    newest = table.currentSnapshot()
    return int(newest.snapshotId()) if newest is not None else None


def _since(table: JavaTable, before: int | None) -> Iterator[int]:
    """The snapshots after one."""
    at = _head(table)
    while at is not None and at != before:
        yield at
        snapshot = table.snapshot(at)
        parent = snapshot.parentId() if snapshot is not None else None
        at = int(parent) if parent is not None else None


def kept_out(done: Done, spark: SparkSession) -> Mapping[str, int]:
    """The rows that the rehearsal kept out, by expectation; none where there is no quarantine."""
    name = done.plan.write.quarantine
    if name is None or tables.load_table(spark, name) is None:
        return {}
    of = {number: owner for owner, numbers in done.numbers.items() for number in numbers}
    found: dict[str, int] = {}
    for batch, step, reason, count in spark.table(name.sql).groupBy("batch", "step", "reason").count().collect():
        # A batch pipeline numbers rejected batches apart.
        if not done.plan.streaming or (batch in of and done.whole(of[batch])):
            found[step or reason] = found.get(step or reason, 0) + count
    return found
