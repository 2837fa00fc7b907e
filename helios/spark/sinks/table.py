"""Where a pipeline's batches go: one table, one table behind an audit, or a table per value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.model.modes import Delete, MergeSql, Mode, Overwrite, OverwritePartitions, Upsert
from helios.plan.checks.merge import inserts_only
from helios.plan.checks.sinks import left_out, sort_terms
from helios.plan.nodes import Plan
from helios.plan.properties import SERIALIZABLE, created, presented
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.spark.iceberg import freshness
from helios.spark.iceberg import tables as writing
from helios.spark.iceberg.failures import is_outage
from helios.spark.maintenance.maintain import Maintainer, Upkeep
from helios.spark.sinks import modes
from helios.spark.sinks.alignment import Fit, columns_of
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.merge import unplaced
from helios.spark.sinks.options import Commit, Terms
from helios.spark.sinks.quarantine import Quarantine
from helios.spark.steps.steps import rejected
from helios.table.ledger import Record


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the targets of one run share.

    Attributes:
        plan: What runs.
        spark: The session.
        checkpoint: The pipeline's checkpoint, whose id is `checkpoint_id`.
        lease: The pipeline's lease, looked at before each commit.
        retried: Called for each commit that is tried again.
        rejected: Called with the number of rows that were kept out.
        gave_up: Called for each commit that fails for good.
        put_off: Called for each commit that fails because a service is away.
    """

    plan: Plan
    spark: SparkSession
    checkpoint: Checkpoint
    checkpoint_id: str = ""
    lease: Lease | None = None
    retried: Callable[[], None] = lambda: None
    rejected: Callable[[int], None] = lambda rows: None
    gave_up: Callable[[], None] = lambda: None
    put_off: Callable[[], None] = lambda: None

    def verify(self) -> None:
        """Refuses to go on without the lease."""
        if self.lease is not None:
            self.lease.verify()

    def ledger(self, table: Any, branch: str | None = None) -> Ledger:
        return Ledger(table, self.plan.pipeline, self.checkpoint_id, self.plan.fingerprint, branch)

    def terms(self) -> Terms:
        plan, sink = self.plan, self.plan.write.sink
        erases = isinstance(sink.mode, (Overwrite, OverwritePartitions))
        return Terms(
            stamps=dict(sink.stamps),
            sources=[{"kind": r.kind, "name": r.name, "uuid": r.uuid} for r in plan.reads],
            properties={**SERIALIZABLE, **presented(sink, plan.write.file_format)},
            retry=sink.retrying,
            # A batch pipeline counts its runs by the record, and what it remembers of keys by that count.
            counts_empty=isinstance(sink.mode, Upsert) and not plan.streaming,
            alone=erases or (isinstance(sink.mode, MergeSql) and inserts_only(sink.mode.query)),
            yields=not erases,
            before=self.verify,
            retried=self.retried,
        )


@dataclass(frozen=True, kw_only=True)
class Work:
    """One batch.

    Attributes:
        df: Its rows.
        rejected: The rows that its expectations set aside.
        number: Its number.
        position: What it read.
        planned: Whether an earlier process may have written it already.
        dropped: Gives the number of rows that its expectations left out, once it is written.
    """

    df: DataFrame
    rejected: Sequence[DataFrame] = field(default_factory=list)
    number: int
    position: Mapping[str, Any]
    planned: bool
    dropped: Callable[[], int] = lambda: 0


class Target(Protocol):
    """Where batches go."""

    def find(self, number: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        """Looks a batch up; None when it is not there, or only writing it can tell."""

    def write(self, work: Work) -> Commit | None:
        """Writes a batch that `find` did not find; None when it changes nothing."""

    def last(self) -> Record | None:
        """The last batch that is there."""

    def tend(self) -> list[Upkeep]:
        """The upkeep that is due between two batches; returns what was done."""


def memory(site: Site, name: TableName, branch: str | None) -> UpsertState:
    """What is remembered of the keys of one table, or of one branch of it."""
    mode = site.plan.write.mode
    tombstones = mode.tombstones if isinstance(mode, Upsert) else 0.0
    return UpsertState(site.checkpoint, f"{name.text}@{branch}" if branch else name.text, tombstones)


class TableTarget:
    """One table, or one branch of it."""

    def __init__(self, site: Site, name: TableName, table: Any, branch: str | None) -> None:
        self.site = site
        self.name = name
        self.table = table
        self.branch = branch
        self.ledger = site.ledger(table, branch)
        self.fit = Fit(site.spark, site.plan.write, name, table)
        self.memory = memory(site, name, branch)
        self._quarantine = Quarantine.of(site.plan, site.spark, site.checkpoint, site.verify)
        asked = site.plan.write.sink.maintenance
        self._maintainer = (
            Maintainer(
                site.spark, name, asked, catalogs=site.plan.neighbours, notes=site.checkpoint.files, branch=branch
            )
            if asked is not None
            else None
        )

    def tend(self) -> list[Upkeep]:
        return self._maintainer.after_batch() if self._maintainer is not None else []

    def last(self) -> Record | None:
        record = self.ledger.load()
        if record is not None:
            self.ledger.refuse_rollback(record)
        return record

    def find(self, number: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        return self.ledger.find(number, position, planned=planned)

    def write(self, work: Work) -> Commit | None:
        if self._quarantine is not None:
            work = placed(work, self.site.plan.write.mode)
            # Before the batch itself: once that is there, nobody looks at what it set aside again.
            aside = self._quarantine.write(work.rejected, work.number, work.position, planned=work.planned)
            self.site.rejected(aside)
        commit = self._commit(work)
        freshness.verify(self.name, self.table)
        if commit is not None and not commit.again:
            self.site.rejected(work.dropped())
        return commit

    def _commit(self, work: Work) -> Commit | None:
        with modes.writer(self._batch(work)) as write:
            return self._commit_with(self.ledger, write, work)

    def _commit_with(self, ledger: Ledger, write: modes.Write, work: Work, *, recorded: bool = True) -> Commit | None:
        spark, terms = work.df.sparkSession, self.site.terms()
        try:
            return ledger.commit(spark, write, work.number, work.position, terms, recorded=recorded)
        except Exception as error:
            (self.site.put_off if is_outage(error) else self.site.gave_up)()
            raise

    def _batch(self, work: Work) -> modes.Batch:
        plan = self.site.plan
        return modes.Batch(
            df=work.df,
            number=work.number,
            mode=plan.write.mode,
            table=self.name.text,
            where=plan.declared.sink.origin,
            left_out=self._left_out(work.df),
            memory=self.memory,
            fit=self.fit,
        )

    def _left_out(self, df: DataFrame) -> tuple[str, ...]:
        table = columns_of(writing.spark_schema(self.site.spark, self.table))
        return left_out(self.site.plan.write.sink, columns_of(df.schema), table)


def placed(work: Work, mode: Mode) -> Work:
    """A batch without the rows that its mode has no place for: they are set aside with the rejected ones."""
    if not isinstance(mode, (Upsert, Delete)):
        return work
    reason = unplaced(mode)
    aside = rejected(work.df.where(reason.isNotNull()), reason, "")
    return replace(work, df=work.df.where(reason.isNull()), rejected=[*work.rejected, aside])


def create(spark: SparkSession, plan: Plan, name: TableName, df: DataFrame, properties: Mapping[str, str]) -> Any:
    """Creates a target for the rows of a pipeline, from what its sink declares."""
    sink = plan.write.sink
    return writing.create_table(
        spark,
        name,
        modes.stored_schema(df, sink.mode, left_out(sink, columns_of(df.schema), None)),
        {**created(sink), **properties},
        partitioning=sink.partitioning or (),
        sort=sort_terms(sink),
    )


def ensure_branch(table: Any, branch: str) -> None:
    """Makes a branch from main when there is none of its name."""
    table.refresh()
    if not table.refs().containsKey(branch):
        table.manageSnapshots().createBranch(branch).commit()
        table.refresh()


def shape(spark: SparkSession, plan: Plan, table: Any) -> None:
    """Brings an existing table's partitioning, sort order and branch to what the sink declares."""
    sink = plan.write.sink
    if sink.partitioning is not None and sink.evolves_partitioning:
        writing.replace_partition_spec(spark, table, sink.partitioning)
    if sink.sort:
        writing.replace_sort_order(spark, table, sort_terms(sink))
    if sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
