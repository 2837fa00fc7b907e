"""One attempt at a rehearsal: the batches of past commits run again, into a temporary lake.

Its table begins as the target was before the first of them; for a pipeline that appends, it begins empty.
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
from helios.spark.rehearse.again import Sources, Unread, copy_columns
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
    """The batches of a commit cannot be read again, so that later ones would begin with a wrong state.

    Args:
        index: The index of the commit.
        why: Why.
    """

    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index, self.why = index, why


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
    """What an attempt has done; a commit is given by its index.

    Attributes:
        plan: The plan that wrote into the lake.
        real: The target.
        table: The table of the lake.
        columns: The columns that the script now stores, in lower case; None for a mode that stores none: a delete, or a
            MERGE of the script's own.
        index_of: For each snapshot of the lake's table, the index of the commit whose batches it has.
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
    index_of: dict[int, int] = field(default_factory=dict)
    begins: int | None = None
    rows: dict[int, int] = field(default_factory=dict)
    kept_out: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, list[int]] = field(default_factory=dict)
    unread: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    left: int | None = None
    notes: list[str] = field(default_factory=list)

    def whole(self, index: int) -> bool:
        """True if all batches of a commit were run."""
        return index in self.rows and index not in self.unread and index not in self.failed


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """The batches of commits, from the first one on.

    Attributes:
        plan: The pipeline.
        spark: The session.
        commits: The commits, oldest first.
        reruns: Their batches.
        first: The index of the first commit that is rehearsed.
        most: About how many rows are written and compared.
        folder: Where the temporary lake is; None for the machine's folder of temporary files.
    """

    plan: Plan
    spark: SparkSession
    commits: Sequence[Made]
    reruns: Sequence[Rerun]
    first: int
    most: int
    folder: Path | None = None

    @property
    def appends(self) -> bool:
        """True if no batch depends on what the target holds."""
        return self.plan.write.mode.traits.only_adds

    @contextmanager
    def run(self) -> Generator[Done]:
        """Runs the batches; the temporary lake exists until the `with` block ends.

        Raises:
            CannotRead: Batches cannot be read again, and later ones depend on them.
            HeliosError: The pipeline does not start.
        """
        with tempfile.TemporaryDirectory(prefix="helios-rehearsal-", dir=self.folder) as name:
            folder = Path(name).resolve()
            here = lake.lake_in(folder / "lake")
            lake.declare(self.spark, here)
            watch, plan = Watch(), lake.rehearsed(self.plan, here, folder / "checkpoint")
            with lake.errors_by_real_names(self.plan, plan):
                query = PipelineQuery(plan, self.spark, watch, plan.checkpoint)
                copy_columns(Checkpoint(self.spark, self.plan.checkpoint), query.checkpoint)
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
                    sources.resume(self.commits, self.reruns)
                    self._run(job, sources, watch, done)
                finally:
                    job.lease.release()
                # Notes on the temporary lake itself are not for the user.
                done.notes += [note for note in watch.notes if here.name not in note]
                yield done

    # the lake

    def _job(self, query: PipelineQuery, watch: Watch, df: DataFrame, folder: Path) -> tuple[Job, Done]:
        plan, spark = query.plan, self.spark
        real = tables.load_table(spark, self.plan.write.table)
        assert real is not None  # it has commits
        base = self.commits[self.first].parent if not self.appends else None
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
        shape(spark, plan, table)  # the partitioning, sort order and branch that the sink declares
        self._restore_upsert_state(real, context)
        lease = Lease(query.checkpoint)
        lease.acquire()
        sink = TableSink(context, name, table, None)
        # That of a batch pipeline that appends would leave out inputs of earlier commits: here each appends its own.
        sink.ledger = ledger
        job = Job(
            plan=plan, spark=spark, run=watch, checkpoint=query.checkpoint, lease=lease, sources=query.sources,
            schema=df.schema, sink=sink, planned=-1, repeat=Repeat(query.checkpoint, plan.fingerprint, requested=False),
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

    def _restore_upsert_state(self, real: JavaTable, ours: SinkContext) -> None:
        """Gives the rehearsal the keys that the upserts remembered before the first batch.

        Raises:
            InputError: They are not known any more.
        """
        plan, first = self.plan, self.commits[self.first]
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
            target = plan.write.table.text
            why = f"{others[0]} also upserts into {target}, and the keys that it remembered then are not known"
        elif state.remembers and record is not None:
            same = record.checkpoint == first.checkpoint
            begins = min(first.follows + 1, first.batch)
            copied = ours.upsert_state(ours.plan.write.table, None)
            restored = same and copied.begin_as(self.spark, state, begins)
            if not restored:
                why = f"the keys that it remembered before batch {first.batch} have since been merged with later ones"
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
        for index, some in _by_commit(self.reruns, self.first):
            # None for the batches after the last commit, which wrote nothing.
            past = self.commits[index] if index < len(self.commits) else None
            if used >= self.most:
                done.left = index
                return
            before, watch.kept_out = _head(done.table), 0
            try:
                for rerun in some:
                    used += self._batch(job, sources, number, rerun, done)
                    done.numbers.setdefault(index, []).append(number)
                    number += 1
            except Unread as problem:
                if not self.appends:
                    raise CannotRead(index, str(problem)) from problem
                done.unread[index] = str(problem)
            except Exception as error:
                known = user_error(error, self.plan)
                if not isinstance(known, HeliosError):
                    raise
                done.failed[index] = lake.by_real_names(str(known), self.plan, job.plan)
                if not self.appends:
                    done.left = index + 1
                    return
            number += 1  # skips one, as a batch that failed has used its number without counting it
            used += past.rows if past is not None else 0
            done.kept_out[index] = watch.kept_out
            done.rows.setdefault(index, 0)
            if done.whole(index):
                done.index_of |= dict.fromkeys(_since(done.table, before), index)

    def _batch(self, job: Job, sources: Sources, number: int, rerun: Rerun, done: Done) -> int:
        """Runs a batch, and returns how many rows it wrote."""
        past = self.commits[rerun.owner] if rerun.owner < len(self.commits) else None
        batch, pins = sources.batch(number, rerun), sources.pins(rerun, past)
        if pins:
            job.checkpoint.pin(number, pins)
        # Stands for the frame of Spark's stream; its rows are not used.
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


def _by_commit(reruns: Sequence[Rerun], first: int) -> Iterator[tuple[int, list[Rerun]]]:
    """The batches of each commit, by its index, from the first commit on."""
    found: dict[int, list[Rerun]] = {}
    for rerun in reruns:
        if rerun.owner >= first:
            found.setdefault(rerun.owner, []).append(rerun)
    yield from found.items()


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
    index_of = {number: index for index, numbers in done.numbers.items() for number in numbers}
    found: dict[str, int] = {}
    for batch, step, reason, count in spark.table(name.sql).groupBy("batch", "step", "reason").count().collect():
        # The quarantine of a batch pipeline has batch numbers of its own, which name no commit: all of its rows count.
        if not done.plan.streaming or (batch in index_of and done.whole(index_of[batch])):
            found[step or reason] = found.get(step or reason, 0) + count
    return found
