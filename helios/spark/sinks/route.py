"""Where a routed pipeline's batches go: a table per value of an expression, each with a record of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import CheckFailed, CheckpointError, InputError, RunError
from helios.model.modes import Delete, Overwrite, Upsert
from helios.model.source import POSITION
from helios.plan.target import existing
from helios.spark.iceberg import tables as writing
from helios.spark.maintenance.maintain import Upkeep
from helios.spark.sinks import merge, modes
from helios.spark.sinks.alignment import columns_of
from helios.spark.sinks.ledger import reads
from helios.spark.sinks.options import Commit
from helios.spark.sinks.quarantine import Quarantine
from helios.spark.sinks.table import Site, TableTarget, Work, create, ensure_branch, placed, shape
from helios.spark.steps.steps import payload
from helios.table.ledger import Record

ROUTE = "__helios_route"

VALUE = re.compile(r"[A-Za-z0-9_]+")
"""What can follow a table's name."""


@dataclass(frozen=True)
class Part:
    """What one table gets of a batch; `found` when it has it."""

    target: TableTarget
    work: Work
    found: Commit | None

    def write(self) -> Commit | None:
        return self.found or self.target.write(self.work)


class RoutedTarget:
    """One table per value of an expression.

    All that can be refused is refused before the first table is written, and what is set aside goes at once.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._tables: dict[str, TableTarget] = {}
        self._quarantine = Quarantine.of(site.plan, site.spark, site.checkpoint, site.verify)
        self._each = replace(site, plan=replace(site.plan, write=replace(site.plan.write, quarantine=None)))

    def tend(self) -> list[Upkeep]:
        return [done for target in self._tables.values() for done in target.tend()]

    def last(self) -> Record | None:
        return None

    def find(self, number: int, position: Mapping[str, Any], *, planned: bool) -> Commit | None:
        return None

    def write(self, work: Work) -> Commit | None:
        plan = self.site.plan
        by = str(plan.write.sink.routing)
        if self._quarantine is not None:
            work = placed(work, plan.write.mode)
        routed = work.df.withColumn(ROUTE, F.expr(by).cast("string")).persist()
        try:
            values = [row[0] for row in routed.select(ROUTE).distinct().collect()]
            good = list(self._good(values))
            bad = [value for value in values if value not in good]
            if bad:
                work = self._without(routed, good, bad, work)
            if len(good) > 1:  # that of a single table looks itself
                self._look_over(routed.where(F.col(ROUTE).isin(good)))
            self._refuse_other_steps(good, work)
            if isinstance(plan.write.mode, Overwrite):  # of a value that has gone, too
                good = sorted({*good, *self._known()})
            parts = [self._part(*opened, work) for opened in self._open(routed, good)]
            if self._quarantine is not None and not (parts and all(part.found for part in parts)):
                aside = self._quarantine.write(work.rejected, work.number, work.position, planned=work.planned)
                self.site.rejected(aside)
            commits = [commit for part in parts if (commit := part.write()) is not None]
        finally:
            routed.unpersist()
        if any(not commit.again for commit in commits):
            self.site.rejected(work.dropped())
        return _together(commits) if commits else None

    # the values

    def _known(self) -> dict[str, TableName]:
        """The tables of the pipeline, by value."""
        base = self.site.plan.write.table
        values = (text.removeprefix(f"{base.text}_") for text in self.site.checkpoint.tables())
        return {value: self._name(value) for value in values}

    def _name(self, value: str) -> TableName:
        base = self.site.plan.write.table
        return replace(base, table=f"{base.table}_{value}")

    def _good(self, values: Iterable[str | None]) -> Iterator[str]:
        """The values of which tables are named; many a catalog takes names that differ in case for one."""
        quarantine = self.site.plan.write.quarantine
        taken = {value.lower(): value for value in self._known()}
        for value in sorted(value for value in values if value is not None and VALUE.fullmatch(value)):
            own = quarantine is not None and self._name(value).text.lower() == quarantine.text.lower()
            if not own and taken.setdefault(value.lower(), value) == value:
                yield value

    def _without(self, routed: DataFrame, good: Sequence[str], bad: Sequence[str | None], work: Work) -> Work:
        """The batch with the rows of which no table is named among those that are set aside."""
        sink = self.site.plan.write.sink
        if self._quarantine is None:
            shown = ", ".join("null" if v is None else repr(v) for v in bad[:5])
            raise RunError(
                f"route(by={sink.routing!r}) gave {shown}, of which no table can be named; nothing was written.",
                where=sink.origin,
                fix="make it letters, digits and '_', and of one case, or set such rows aside with .quarantine(table).",
            )
        value = F.col(ROUTE)
        like = F.when(value.rlike(f"^{VALUE.pattern}$"), F.lit(", which is much like another table's name"))
        reason: Column = F.concat(
            F.lit(f"route {sink.routing}: "), F.coalesce(value, F.lit("null")), F.coalesce(like, F.lit(""))
        )
        reasoned = routed.where(~F.coalesce(value.isin(list(good)), F.lit(False))).withColumn(ROUTE, reason)
        told = payload(reasoned.drop(ROUTE)).alias("payload")
        aside = reasoned.select(told, F.col(ROUTE).alias("reason"), F.lit("").alias("step"))
        return replace(work, rejected=[*work.rejected, aside])

    # the tables

    def _look_over(self, rows: DataFrame) -> None:
        """Refuses what one of the tables would refuse when others are written already."""
        write = self.site.plan.write
        mode, where = write.mode, write.sink.origin
        if isinstance(mode, (Upsert, Delete)):
            merge.look_over(rows, mode, write.table.text, where, also=(ROUTE,))
        elif isinstance(mode, Overwrite) and mode.filter is not None:
            try:
                modes.refuse_outside(rows.drop(ROUTE, POSITION), mode.filter, write.table.text, where)
            except AnalysisException:
                return  # it names a column that only the tables have

    def _open(self, routed: DataFrame, values: Sequence[str]) -> Iterator[tuple[TableTarget, DataFrame]]:
        """The tables, and their rows; those that may refuse the rows come before those that are made."""
        rows = {value: routed.where(F.col(ROUTE) == value).drop(ROUTE) for value in values}
        new = {value: self._name(value) for value in values if value not in self._tables}
        there = {value: writing.load_table(self.site.spark, name) for value, name in new.items()}
        for value in sorted(new, key=lambda value: there[value] is None):
            self._tables[value] = self._table(new[value], there[value], rows[value])
        return ((self._tables[value], rows[value]) for value in values)

    def _table(self, name: TableName, table: Any | None, rows: DataFrame) -> TableTarget:
        return open_table(self._each, name, table, rows)

    def _part(self, target: TableTarget, rows: DataFrame, work: Work) -> Part:
        work = replace(work, df=rows, rejected=[], dropped=lambda: 0)
        if not self.site.plan.streaming:
            # A batch pipeline has no numbers of its own: each table counts what it was given.
            record = target.last()
            again = self.site.plan.write.mode.traits.reruns
            if record is not None and not again and reads(record.position) == reads(work.position):
                return Part(target, work, Commit(snapshot=record.snapshot, again=True))
            work = replace(work, number=record.batch + 1 if record is not None else 0)
        return Part(target, work, target.find(work.number, work.position, planned=work.planned))

    def _refuse_other_steps(self, values: Sequence[str], work: Work) -> None:
        """Rows that other steps made of the same inputs may have gone into other tables.

        Raises:
            InputError: Some of the tables have such rows, and others wait for theirs.
        """
        plan = self.site.plan
        if not work.planned or (not plan.streaming and plan.write.mode.traits.reruns):
            return
        branch = plan.write.sink.branch_name
        tables = {value: writing.load_table(self.site.spark, name) for value, name in self._known().items()}
        records = {
            value: self.site.ledger(table, branch).load() for value, table in tables.items() if table is not None
        }
        mixed = [
            value
            for value, record in records.items()
            if record is not None
            and reads(record.position) == reads(work.position)
            and record.steps != plan.fingerprint
        ]
        missing = [v for v in values if (record := records.get(v)) is None or record.batch < work.number]
        if mixed and (missing or not plan.streaming):
            raise InputError(
                f"{self._name(mixed[0]).text} holds rows that {plan.pipeline} made from these inputs with other steps: "
                "the rest of them would be lost or come twice; nothing was written.",
                where=plan.origin,
                fix="put the steps back and run, then change them; a changed batch pipeline goes under a new name into "
                "new tables.",
            )


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


def open_table(site: Site, name: TableName, table: Any | None, df: DataFrame) -> TableTarget:
    """Opens a routed table, and sees that it takes the rows and that its record is this checkpoint's.

    Args:
        site: What the tables share.
        name: The table.
        table: Iceberg's table object; None for one that is made.
        df: The rows, of which only the schema is looked at.

    Raises:
        CheckFailed: It cannot take the rows, or is partitioned in another way.
        CheckpointError: It holds rows of the pipeline from another checkpoint, or lost its record.
        InputError: It is missing, and is not to be made.
    """
    sink, known = site.plan.write.sink, site.checkpoint.tables()
    made = table is None
    if table is None:
        if not sink.creates:
            raise InputError(f"table {name.text} does not exist.", where=sink.origin)
        claim = Record(checkpoint=site.checkpoint_id, steps=site.plan.fingerprint)
        table = create(site.spark, site.plan, name, df, {site.ledger(None).key: claim.as_json()})
    else:
        _, problems = existing(replace(site.plan.write, table=name), columns_of(df.drop(POSITION).schema))
        if problems:
            raise CheckFailed(problems)
    ledger = site.ledger(table)
    record = ledger.load()
    mine = record is not None and record.checkpoint == site.checkpoint_id
    if not mine and (name.text in known or (record is not None and record.position is not None)):
        raise CheckpointError(
            f"{name.text} holds rows of {site.plan.pipeline} that another checkpoint wrote, or lost its record of this "
            "one.",
            where=sink.origin,
            fix="restore the checkpoint or the record, or route into tables of another name.",
        )
    if not mine:
        ledger.claim(Record(checkpoint=site.checkpoint_id, steps=site.plan.fingerprint))
    if name.text not in known:
        site.checkpoint.write_tables([*known, name.text])
    if not made:
        shape(site.spark, site.plan, table)
    elif sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
    return TableTarget(site, name, table, sink.branch_name)
