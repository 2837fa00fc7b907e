"""The routed sink: writes rows into one table per value of an expression. Each table has its own ledger record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError, RunError
from helios.model.columns import POSITION
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks import merge, modes
from helios.spark.sinks.many_tables import ManyTables
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Found, Staged
from helios.spark.sinks.routed_tables import open_table
from helios.spark.sinks.table import TableSink, split_invalid
from helios.spark.steps.build import Built
from helios.spark.steps.steps import payload
from helios.table.positions import Batch, same_input

ROUTE = "__helios_route"

VALUE = re.compile(r"[A-Za-z0-9_]+")
"""A value with which a table's name can end."""


@dataclass(frozen=True)
class TablePart:
    """The part of a batch for one table; `existing_commit` is set if the table has the batch already."""

    sink: TableSink
    batch: Batch
    rows: Built
    existing_commit: Commit | None

    def commit(self) -> Commit | None:
        if self.existing_commit is not None:
            return self.existing_commit
        with self.sink.stage(self.batch, self.rows) as staged:
            return self.sink.commit(staged)


class RoutedSink(ManyTables):
    """One table per value of an expression, each written by a `TableSink`.

    The whole batch is validated before the first table is written, and its rejected rows are written together.
    """

    # staging

    @override
    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        mode = self.context.plan.write.mode
        if self._quarantine is not None:
            rows = split_invalid(rows, mode)
        by = str(self.context.plan.write.sink.routing)
        routed = rows.df.withColumn(ROUTE, F.expr(by).cast("string")).persist()
        try:
            values = [row[0] for row in routed.select(ROUTE).distinct().collect()]
            routable = list(self._valid_values(values))
            unroutable = [value for value in values if value not in routable]
            if unroutable:
                rows = self._reject_invalid(routed, routable, unroutable, rows)
            if len(routable) > 1:  # a single table validates its rows itself
                self._validate(routed.where(F.col(ROUTE).isin(routable)))
            self._refuse_other_steps(routable, batch)
            if mode.traits.empties_routed_tables:  # the tables of values that no longer occur are cleared, too
                routable = sorted({*routable, *self._tables_in_checkpoint()})
            parts = [self._table_part(*opened, batch) for opened in self._open(routed, routable)]
            if self._quarantine is not None and not (parts and all(part.existing_commit for part in parts)):
                self.context.observer.rejected(self._quarantine.write(batch, rows.rejected))
            if routable:
                self.context.checkpoint.write_routes(
                    batch.number, batch.sources, self.context.plan.fingerprint, routable
                )
            yield Staged(batch, rows, parts=parts)
        finally:
            routed.unpersist()

    # the values

    @override
    def _tables_in_checkpoint(self) -> dict[str, TableName]:
        base = self.context.plan.write.table
        values = (text.removeprefix(base.prefix) for text in self.context.checkpoint.tables())
        return {value: self._table_name(value) for value in values}

    @override
    def _table_name(self, value: str) -> TableName:
        base = self.context.plan.write.table
        return replace(base, table=f"{base.table}_{value}")

    def _valid_values(self, values: Iterable[str | None]) -> Iterator[str]:
        """The values with which a table's name can end. Of values that differ only in case, only one is valid."""
        quarantine = self.context.plan.write.quarantine
        value_by_lower_case = {value.lower(): value for value in self._tables_in_checkpoint()}
        for value in sorted(value for value in values if value is not None and VALUE.fullmatch(value)):
            is_quarantine = quarantine is not None and self._table_name(value).text.lower() == quarantine.text.lower()
            if not is_quarantine and value_by_lower_case.setdefault(value.lower(), value) == value:
                yield value

    def _reject_invalid(
        self, routed: DataFrame, routable: Sequence[str], unroutable: Sequence[str | None], rows: Built
    ) -> Built:
        """The batch, with the rows of invalid routes added to the rejected rows.

        Raises:
            RunError: The sink has no quarantine.
        """
        sink = self.context.plan.write.sink
        if self._quarantine is None:
            shown = ", ".join("null" if v is None else repr(v) for v in unroutable[:5])
            raise RunError(
                f"route(by={sink.routing!r}) gave {shown}, which cannot name a table; nothing was written.",
                where=sink.origin,
                fix="let it give letters, digits and '_', never two cases of one name; or add .quarantine(table).",
            )
        value = F.col(ROUTE)
        # A rejected value whose characters are valid differs from another value only in case, or names the quarantine.
        alike = F.when(value.rlike(f"^{VALUE.pattern}$"), F.lit(", which is much like another table's name"))
        reason: Column = F.concat(
            F.lit(f"route {sink.routing}: "), F.coalesce(value, F.lit("null")), F.coalesce(alike, F.lit(""))
        )
        reasoned = routed.where(~F.coalesce(value.isin(list(routable)), F.lit(False))).withColumn(ROUTE, reason)
        row = payload(reasoned.drop(ROUTE)).alias("payload")
        unrouted = reasoned.select(row, F.col(ROUTE).alias("reason"), F.lit("").alias("step"))
        return Built(rows.df, rejected=[*rows.rejected, unrouted], counted=rows.counted)

    # the tables

    def _validate(self, rows: DataFrame) -> None:
        """Validates all rows before the first table is written. Otherwise a later table could reject its rows."""
        write = self.context.plan.write
        mode, where = write.mode, write.sink.origin
        if mode.traits.keyed:
            merge.validate_keys(rows, mode, write.table.text, where, also=(ROUTE,))
        elif mode.condition is not None:
            try:
                modes.refuse_outside(rows.drop(ROUTE, POSITION), mode.condition, write.table.text, where)
            except AnalysisException:
                return  # the filter names a column that only the tables have

    def _open(self, routed: DataFrame, values: Sequence[str]) -> Iterator[tuple[TableSink, DataFrame]]:
        """Opens all tables, existing ones first, as they may reject their rows; then returns each with its rows."""
        rows = {value: routed.where(F.col(ROUTE) == value).drop(ROUTE) for value in values}
        new = {value: self._table_name(value) for value in values if value not in self._sinks}
        loaded = {value: tables.load_table(self.context.spark, name) for value, name in new.items()}
        for value in sorted(new, key=lambda value: loaded[value] is None):
            self._sinks[value] = self._table(new[value], loaded[value], rows[value])
        return ((self._sinks[value], rows[value]) for value in values)

    def _table(self, name: TableName, table: JavaTable | None, rows: DataFrame) -> TableSink:
        return open_table(self._table_context, name, table, rows)

    def _table_part(self, sink: TableSink, rows: DataFrame, batch: Batch) -> TablePart:
        batch = self._numbered(sink, batch)
        outcome = sink.find(batch)
        return TablePart(sink, batch, Built(rows), outcome.commit if isinstance(outcome, Found) else None)

    def _refuse_other_steps(self, values: Sequence[str], batch: Batch) -> None:
        """Rejects a batch that other steps have written to some of the tables: those steps may route rows differently.

        Raises:
            InputError: Some tables hold such rows, and others lack the batch.
        """
        plan = self.context.plan
        if not batch.maybe_written or self._reruns():
            return
        if not plan.streaming:  # the look-up compares the inputs in each claimed table, also in those without new rows
            for sink in filter(None, map(self._claimed_sink, self._tables_in_checkpoint())):
                self._commit_in(sink, batch)
            return
        branch = plan.write.sink.branch_name
        known = {
            value: tables.load_table(self.context.spark, name) for value, name in self._tables_in_checkpoint().items()
        }
        records = {
            value: self.context.ledger(table, branch).load() for value, table in known.items() if table is not None
        }
        outdated = [
            value
            for value, record in records.items()
            if record is not None and same_input(record.position, batch) and record.steps != plan.fingerprint
        ]
        numbers = {value: record.batch for value, record in records.items() if record is not None}
        missing = [value for value in values if numbers.get(value, -1) < batch.number]
        if outdated and missing:
            raise InputError(
                f"{self._table_name(outdated[0]).text} holds rows that {plan.pipeline} made from these inputs with "
                "other steps: the remaining rows would be lost or duplicated; nothing was written.",
                where=plan.origin,
                fix="put the steps back and run, then change them.",
            )
