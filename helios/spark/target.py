"""Where a pipeline's batches go: one table, one table behind an audit, or a table per value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.config import TableName
from helios.errors import CheckpointError, InputError, RunError
from helios.model.modes import Delete, Overwrite, OverwritePartitions, Upsert
from helios.plan.plan import Plan
from helios.plan.properties import SERIALIZABLE, created, presented
from helios.plan.sinks import left_out, sort_terms
from helios.spark import modes
from helios.spark import write as writing
from helios.spark.checkpoint import Checkpoint, Lease
from helios.spark.fit import Fit, columns_of
from helios.spark.keys import KeyMemory
from helios.spark.ledger import Commit, Ledger, Record, Terms, reads
from helios.spark.maintain import Maintainer, Upkeep
from helios.spark.quarantine import Quarantine
from helios.spark.steps import payload, quoted, rejected
from helios.spark.upsert import null_key


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
    """

    plan: Plan
    spark: SparkSession
    checkpoint: Checkpoint
    checkpoint_id: str = ""
    lease: Lease | None = None
    retried: Callable[[], None] = lambda: None
    rejected: Callable[[int], None] = lambda rows: None
    gave_up: Callable[[], None] = lambda: None

    def verify(self) -> None:
        """Refuses to go on without the lease."""
        if self.lease is not None:
            self.lease.verify()

    def ledger(self, table: Any, branch: str | None = None) -> Ledger:
        return Ledger(table, self.plan.pipeline, self.checkpoint_id, self.plan.fingerprint, branch)

    def terms(self) -> Terms:
        plan, sink = self.plan, self.plan.write.sink
        return Terms(
            stamps=dict(sink.stamps),
            sources=[{"kind": r.kind, "name": r.name, "uuid": r.uuid} for r in plan.reads],
            properties={**SERIALIZABLE, **presented(sink, plan.write.file_format)},
            retry=sink.retrying,
            # A batch pipeline counts its runs by the record, and what it remembers of keys by that count.
            counts_empty=isinstance(sink.mode, Upsert) and not plan.streaming,
            yields=not isinstance(sink.mode, (Overwrite, OverwritePartitions)),
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


class TableTarget:
    """One table, or one branch of it."""

    def __init__(self, site: Site, name: TableName, table: Any, branch: str | None) -> None:
        self.site = site
        self.name = name
        self.table = table
        self.branch = branch
        self.ledger = site.ledger(table, branch)
        self.fit = Fit(site.spark, site.plan.write, name, table)
        mode = site.plan.write.mode
        tombstones = mode.tombstones if isinstance(mode, Upsert) else 0.0
        self._memory = KeyMemory(site.checkpoint, f"{name.text}@{branch}" if branch else name.text, tombstones)
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
        work = self._without_null_keys(work)
        if self._quarantine is not None:
            # Before the batch itself: once that is there, nobody looks at what it set aside again.
            self.site.rejected(self._quarantine.write(work.rejected, work.number, work.position))
        commit = self._commit(work)
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
        except Exception:
            self.site.gave_up()
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
            memory=self._memory,
            fit=self.fit,
        )

    def _left_out(self, df: DataFrame) -> tuple[str, ...]:
        table = columns_of(writing.target_schema(self.site.spark, self.table))
        return left_out(self.site.plan.write.sink, columns_of(df.schema), table)

    def _without_null_keys(self, work: Work) -> Work:
        mode = self.site.plan.write.mode
        if self._quarantine is None or not isinstance(mode, (Upsert, Delete)):
            return work
        missing = null_key(mode.keys)
        names = [F.when(F.col(quoted(key)).isNull(), F.lit(key)) for key in mode.keys]
        reason = F.concat(F.lit("null key: "), F.concat_ws(", ", *names))
        aside = rejected(work.df.where(missing), reason, "")
        return replace(work, df=work.df.where(~missing), rejected=[*work.rejected, aside])


class RoutedTarget:
    """One table per value of an expression; each has its own record."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._tables: dict[str, TableTarget] = {}
        self._quarantine = Quarantine.of(site.plan, site.spark, site.checkpoint, site.verify)

    def tend(self) -> list[Upkeep]:
        return [done for target in self._tables.values() for done in target.tend()]

    def last(self) -> Record | None:
        return None

    def find(self, number: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        return None

    def write(self, work: Work) -> Commit | None:
        column = "__helios_route"
        by = str(self.site.plan.write.sink.routing)
        routed = work.df.withColumn(column, F.expr(by).cast("string")).persist()
        try:
            values = [row[0] for row in routed.select(column).distinct().collect()]
            good = sorted(v for v in values if v is not None and VALUE.fullmatch(v))
            if len(good) < len(values):
                self._set_aside(routed, column, [v for v in values if v not in good], by, work)
            elif self._quarantine is not None:
                self.site.rejected(self._quarantine.write(work.rejected, work.number, work.position))
            made = []
            for value in good:
                rows = routed.where(F.col(column) == value).drop(column)
                made.append(self._one(self._table(value, rows), replace(work, df=rows, rejected=[])))
        finally:
            routed.unpersist()
        commits = [commit for commit in made if commit is not None]
        return _together(commits) if commits else None

    def _one(self, target: TableTarget, work: Work) -> Commit | None:
        if not self.site.plan.streaming:
            # A batch pipeline has no numbers of its own: each table counts what it was given.
            record = target.last()
            if (
                record is not None
                and not self.site.plan.write.mode.reruns
                and reads(record.position) == reads(work.position)
            ):
                return Commit(snapshot=record.snapshot, again=True)
            work = replace(work, number=record.batch + 1 if record is not None else 0)
        found = target.find(work.number, work.position, planned=work.planned)
        return found or target.write(work)

    def _set_aside(self, routed: DataFrame, column: str, bad: list[str | None], by: str, work: Work) -> None:
        sink = self.site.plan.write.sink
        if self._quarantine is None:
            shown = ", ".join("null" if v is None else repr(v) for v in bad[:5])
            raise RunError(
                f"route(by={by!r}) gave {shown}, of which no table can be named; nothing was written.",
                where=sink.origin,
                fix="make it letters, digits and '_', or set such rows aside with .quarantine(table).",
            )
        named = F.coalesce(F.col(column).rlike(f"^{VALUE.pattern}$"), F.lit(False))
        reason = F.concat(F.lit(f"route {by}: "), F.coalesce(F.col(column), F.lit("null")))
        reasoned = routed.where(~named).withColumn(column, reason)
        rows = reasoned.drop(column)
        aside = reasoned.select(
            payload(rows).alias("payload"),
            F.col(column).alias("reason"),
            F.lit("").alias("step"),
        )
        self.site.rejected(self._quarantine.write([*work.rejected, aside], work.number, work.position))

    def _table(self, value: str, rows: DataFrame) -> TableTarget:
        if value not in self._tables:
            base = self.site.plan.write.table
            name = replace(base, table=f"{base.table}_{value}")
            self._tables[value] = open_table(self.site, name, rows)
        return self._tables[value]


VALUE = re.compile(r"[A-Za-z0-9_]+")
"""What can follow a table's name."""


def _together(commits: list[Commit]) -> Commit:
    return Commit(
        snapshot=commits[-1].snapshot,
        rows=sum(c.rows for c in commits),
        files=sum(c.files for c in commits),
        bytes=sum(c.bytes for c in commits),
        again=all(c.again for c in commits),
        retries=sum(c.retries for c in commits),
        write_seconds=sum(c.write_seconds for c in commits),
        commit_seconds=sum(c.commit_seconds for c in commits),
    )


def open_table(site: Site, name: TableName, df: DataFrame) -> TableTarget:
    """Opens a routed table, and sees that its record is this checkpoint's; the table is created when it is missing.

    Raises:
        CheckpointError: The table holds rows of the pipeline from another checkpoint, or lost its record.
    """
    table = writing.load_table(site.spark, name)
    known = site.checkpoint.tables()
    branch = site.plan.write.sink.branch_name
    if table is None:
        if not site.plan.write.sink.creates:
            raise InputError(f"table {name.text} does not exist.", where=site.plan.declared.sink.origin)
        claim = Record(checkpoint=site.checkpoint_id, steps=site.plan.fingerprint)
        table = create(site.spark, site.plan, name, df, {site.ledger(None).key: claim.as_json()})
    ledger = site.ledger(table)
    record = ledger.load()
    mine = record is not None and record.checkpoint == site.checkpoint_id
    if not mine and (name.text in known or (record is not None and record.position is not None)):
        raise CheckpointError(
            f"{name.text} holds rows of {site.plan.pipeline} that another checkpoint wrote, or lost its record of this "
            "one.",
            where=site.plan.declared.sink.origin,
            fix="restore the checkpoint or the record, or route into tables of another name.",
        )
    if not mine:
        ledger.claim(Record(checkpoint=site.checkpoint_id, steps=site.plan.fingerprint))
    if name.text not in known:
        site.checkpoint.write_tables([*known, name.text])
    if branch is not None:
        ensure_branch(table, branch)
    return TableTarget(site, name, table, branch)


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
        writing.repartition(spark, table, sink.partitioning)
    if sink.sort:
        writing.reorder(spark, table, sort_terms(sink))
    if sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
