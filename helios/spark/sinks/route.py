"""Where a routed pipeline's batches go: a table per value of an expression, each with a record of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import CheckFailed, CheckpointError, InputError, RunError
from helios.model.source import POSITION
from helios.plan.target import existing
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.maintenance.maintain import Upkeep
from helios.spark.sinks import merge, modes
from helios.spark.sinks.alignment import columns_of
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Absent, Found, Outcome, Partial, Staged
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.table import TableSink, create, ensure_branch, shape, split_invalid
from helios.spark.steps.build import Built
from helios.spark.steps.steps import payload
from helios.table.ledger import Record
from helios.table.positions import Batch, Span, same_sources

ROUTE = "__helios_route"

VALUE = re.compile(r"[A-Za-z0-9_]+")
"""What can follow a table's name."""


@dataclass(frozen=True)
class TablePart:
    """What one table gets of a batch; `found` when it has it."""

    sink: TableSink
    batch: Batch
    rows: Built
    found: Commit | None

    def commit(self) -> Commit | None:
        if self.found is not None:
            return self.found
        with self.sink.stage(self.batch, self.rows) as staged:
            return self.sink.commit(staged)


class RoutedSink:
    """One table per value of an expression, composed of a `TableSink` each.

    All that can be refused is refused before the first table is written, and rejected rows are written at once. Which
    tables a batch writes is known after its steps only: a manifest in the checkpoint keeps it from before the first
    commit on.
    """

    transactional = False

    def __init__(self, context: SinkContext) -> None:
        self.context = context
        self._tables: dict[str, TableSink] = {}
        self._found_tables: dict[str, TableSink] = {}  # looked at, and not opened for writing
        self._quarantine = QuarantineSink.of(context)
        write = replace(context.plan.write, quarantine=None)
        self._each = replace(context, plan=replace(context.plan, write=write))

    def maintain(self) -> list[Upkeep]:
        sinks = {**self._found_tables, **self._tables}
        return [done for sink in sinks.values() for done in sink.maintain()]

    def last(self) -> Record | None:
        return None

    # finding

    def number(self, spans: Sequence[Span]) -> int:
        return 0  # each table counts the batches of a batch pipeline by itself

    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up in each table of its manifest."""
        plan = self.context.plan
        manifest = self.context.checkpoint.routes(batch.number) if batch.replayed else None
        if manifest is None or manifest["sources"] != batch.sources or self._reruns():
            return Absent()
        if manifest["steps"] != plan.fingerprint and not plan.streaming:
            return Absent()  # rows that other steps made of the same inputs are refused when the tables are known
        found: list[Commit] = []
        names: list[str] = []
        for value in manifest["values"]:
            sink = self._known_sink(value)
            commit = self._found(sink, batch) if sink is not None else None
            if sink is not None and commit is not None:
                found.append(commit)
                names.append(sink.name.text)
        if not found:
            return Absent()
        return Found(_together(found)) if len(found) == len(manifest["values"]) else Partial(tuple(names))

    def _known_sink(self, value: str) -> TableSink | None:
        """The sink of a table that this checkpoint has claimed; None where there is none."""
        if value not in self._found_tables:
            name = self._name(value)
            table = tables.load_table(self.context.spark, name)
            if table is None:
                return None
            self._found_tables[value] = TableSink(self._each, name, table, self.context.plan.write.sink.branch_name)
        sink = self._found_tables[value]
        record = sink.ledger.load()
        return sink if record is not None and record.checkpoint == self.context.checkpoint_id else None

    def _reruns(self) -> bool:
        plan = self.context.plan
        return not plan.streaming and plan.write.mode.traits.reruns

    def _found(self, sink: TableSink, batch: Batch) -> Commit | None:
        """The batch in one table, under the number that it has there."""
        if not self.context.plan.streaming:
            batch = replace(batch, number=sink.number(batch.spans))
        outcome = sink.find(batch)
        return outcome.commit if isinstance(outcome, Found) else None

    # staging

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        mode = self.context.plan.write.mode
        if self._quarantine is not None:
            rows = split_invalid(rows, mode)
        by = str(self.context.plan.write.sink.routing)
        routed = rows.df.withColumn(ROUTE, F.expr(by).cast("string")).persist()
        try:
            values = [row[0] for row in routed.select(ROUTE).distinct().collect()]
            good = list(self._good(values))
            bad = [value for value in values if value not in good]
            if bad:
                rows = self._without(routed, good, bad, rows)
            if len(good) > 1:  # a single table validates by itself
                self._validate(routed.where(F.col(ROUTE).isin(good)))
            self._refuse_other_steps(good, batch)
            if mode.traits.clears:  # of a value that has gone, too
                good = sorted({*good, *self._known()})
            parts = [self._part(*opened, batch) for opened in self._open(routed, good)]
            if self._quarantine is not None and not (parts and all(part.found for part in parts)):
                self.context.observer.rejected(self._quarantine.write(batch, rows.rejected))
            if good:
                self.context.checkpoint.write_routes(batch.number, batch.sources, self.context.plan.fingerprint, good)
            yield Staged(batch, rows, parts=parts)
        finally:
            routed.unpersist()

    def commit(self, staged: Staged) -> Commit | None:
        commits = [commit for part in staged.parts if (commit := part.commit()) is not None]
        if any(not commit.again for commit in commits):
            self.context.observer.rejected(staged.rows.dropped())
        return _together(commits) if commits else None

    # the values

    def _known(self) -> dict[str, TableName]:
        """The tables of the pipeline, by value."""
        base = self.context.plan.write.table
        values = (text.removeprefix(f"{base.text}_") for text in self.context.checkpoint.tables())
        return {value: self._name(value) for value in values}

    def _name(self, value: str) -> TableName:
        base = self.context.plan.write.table
        return replace(base, table=f"{base.table}_{value}")

    def _good(self, values: Iterable[str | None]) -> Iterator[str]:
        """The values of which tables are named; many a catalog takes names that differ in case for one."""
        quarantine = self.context.plan.write.quarantine
        taken = {value.lower(): value for value in self._known()}
        for value in sorted(value for value in values if value is not None and VALUE.fullmatch(value)):
            own = quarantine is not None and self._name(value).text.lower() == quarantine.text.lower()
            if not own and taken.setdefault(value.lower(), value) == value:
                yield value

    def _without(self, routed: DataFrame, good: Sequence[str], bad: Sequence[str | None], rows: Built) -> Built:
        """The batch with the rows of which no table is named among those that are set aside."""
        sink = self.context.plan.write.sink
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
        return replace(rows, rejected=[*rows.rejected, aside])

    # the tables

    def _validate(self, rows: DataFrame) -> None:
        """Refuses what one of the tables would refuse when others are written already."""
        write = self.context.plan.write
        mode, where = write.mode, write.sink.origin
        if mode.traits.keyed:
            merge.validate_keys(rows, mode, write.table.text, where, also=(ROUTE,))
        elif mode.filter is not None:
            try:
                modes.refuse_outside(rows.drop(ROUTE, POSITION), mode.filter, write.table.text, where)
            except AnalysisException:
                return  # it names a column that only the tables have

    def _open(self, routed: DataFrame, values: Sequence[str]) -> Iterator[tuple[TableSink, DataFrame]]:
        """The tables, and their rows; those that may refuse the rows come before those that are made."""
        rows = {value: routed.where(F.col(ROUTE) == value).drop(ROUTE) for value in values}
        new = {value: self._name(value) for value in values if value not in self._tables}
        there = {value: tables.load_table(self.context.spark, name) for value, name in new.items()}
        for value in sorted(new, key=lambda value: there[value] is None):
            self._tables[value] = self._table(new[value], there[value], rows[value])
        return ((self._tables[value], rows[value]) for value in values)

    def _table(self, name: TableName, table: JavaTable | None, rows: DataFrame) -> TableSink:
        return open_table(self._each, name, table, rows)

    def _part(self, sink: TableSink, rows: DataFrame, batch: Batch) -> TablePart:
        if not self.context.plan.streaming:
            # A batch pipeline has no numbers of its own: each table counts what it was given.
            batch = replace(batch, number=sink.number(batch.spans))
        outcome = sink.find(batch)
        return TablePart(sink, batch, Built(rows), outcome.commit if isinstance(outcome, Found) else None)

    def _refuse_other_steps(self, values: Sequence[str], batch: Batch) -> None:
        """Rows that other steps made of the same inputs may have gone into other tables.

        Raises:
            InputError: Some of the tables have such rows, and others wait for theirs.
        """
        plan = self.context.plan
        if not batch.replayed or self._reruns():
            return
        branch = plan.write.sink.branch_name
        known = {value: tables.load_table(self.context.spark, name) for value, name in self._known().items()}
        records = {
            value: self.context.ledger(table, branch).load() for value, table in known.items() if table is not None
        }
        mixed = [
            value
            for value, record in records.items()
            if record is not None and same_sources(record.position, batch) and record.steps != plan.fingerprint
        ]
        missing = [v for v in values if (record := records.get(v)) is None or record.batch < batch.number]
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


def open_table(context: SinkContext, name: TableName, table: JavaTable | None, df: DataFrame) -> TableSink:
    """Opens a routed table, and sees that it takes the rows and that its record is this checkpoint's.

    Args:
        context: What the tables share.
        name: The table.
        table: Iceberg's table object; None for one that is made.
        df: The rows, of which only the schema is looked at.

    Raises:
        CheckFailed: It cannot take the rows, or is partitioned in another way.
        CheckpointError: It holds rows of the pipeline from another checkpoint, or lost its record.
        InputError: It is missing, and is not to be made.
    """
    sink, known = context.plan.write.sink, context.checkpoint.tables()
    made = table is None
    if table is None:
        if not sink.creates:
            raise InputError(f"table {name.text} does not exist.", where=sink.origin)
        claim = Record(checkpoint=context.checkpoint_id, steps=context.plan.fingerprint)
        table = create(context.spark, context.plan, name, df, {context.ledger_key: claim.as_json()})
    else:
        _, problems = existing(replace(context.plan.write, table=name), columns_of(df.drop(POSITION).schema))
        if problems:
            raise CheckFailed(problems)
    ledger = context.ledger(table)
    record = ledger.load()
    mine = record is not None and record.checkpoint == context.checkpoint_id
    if not mine and (name.text in known or (record is not None and record.position is not None)):
        raise CheckpointError(
            f"{name.text} holds rows of {context.plan.pipeline} that another checkpoint wrote, or lost its record of "
            "this one.",
            where=sink.origin,
            fix="restore the checkpoint or the record, or route into tables of another name.",
        )
    if not mine:
        ledger.claim(Record(checkpoint=context.checkpoint_id, steps=context.plan.fingerprint))
    if name.text not in known:
        context.checkpoint.write_tables([*known, name.text])
    if not made:
        shape(context.spark, context.plan, table)
    elif sink.branch_name is not None:
        ensure_branch(table, sink.branch_name)
    return TableSink(context, name, table, sink.branch_name)
