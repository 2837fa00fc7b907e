"""The mirror: writes the changes of each table of a database into a separate table with a separate ledger record.

All tables of a batch are read, checked and staged before the first of them is committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from typing_extensions import override

from helios.catalog.names import Namespace, TableName
from helios.errors import CheckFailed, CheckpointError, InputError, RunError
from helios.model.mirror import MirrorSink as Declared
from helios.model.modes import Mode
from helios.sources.changes.spark.tables import ChangesByTable, SourceTable
from helios.sources.common.spark.run_state import RejectedInput
from helios.spark.checkpoint.mirrored import Mirrored, MirroredTables
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.many_tables import ManyTables
from helios.spark.sinks.mirrored_columns import NEW_MIRROR, reserved_column, with_kept_columns
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Found, Staged
from helios.spark.sinks.routed_tables import open_table
from helios.spark.sinks.schema_policy import SchemaPolicy
from helios.spark.sinks.table import TableSink, split_invalid
from helios.spark.steps.build import Built
from helios.table.positions import Batch

CONTROL = "helios_mirror"
"""The prefix of the names of control tables (see `atomic_mirror.py`)."""

NAME = re.compile(r"[\w-]+")
"""A table name that catalogs and storages accept. A catalog that accepts only lower case refuses other names itself."""

SINGLE_TABLE_SINK = "Iceberg.sink(...).upsert()"
"""The sink of one table, as messages show it."""


@dataclass(frozen=True)
class StagedTable:
    """The part of a batch for one table: staged, or already in the table."""

    sink: TableSink
    staged: Staged | None
    existing_commit: Commit | None = None

    def commit(self) -> Commit | None:
        return self.sink.commit(self.staged) if self.staged is not None else self.existing_commit


class MirrorSink(ManyTables):
    """Mirrors the tables of a database into tables of a namespace."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        self._mirrored = MirroredTables(context.checkpoint)
        self._policy = SchemaPolicy(context, self._declared, self._mirrored, self._name)

    @property
    def _declared(self) -> Declared:
        sink = self.context.plan.write.sink.mirror
        assert sink is not None
        return sink

    @override
    def verify(self) -> None:
        self._mirrored.verify(self._claimed())
        for name, table in self._source_tables().items():
            self._mirror_name(table, name)  # raises if the script now names the table differently
            self._policy.verify(name, table)
        super().verify()

    # the tables

    @override
    def _claimed(self) -> dict[str, TableName]:
        prefix = self.context.plan.write.table.prefix
        names = [text.removeprefix(prefix) for text in self.context.checkpoint.tables()]
        return {name: self._name(name) for name in names if not name.startswith(CONTROL)}

    @override
    def _name(self, value: str) -> TableName:
        namespace = self.context.plan.write.table
        assert isinstance(namespace, Namespace)
        return namespace.of(value)

    @override
    def _context_of(self, value: str) -> SinkContext:
        plan = self._table_context.plan
        sink = plan.write.iceberg
        assert sink.mode.upsert is not None
        keyed = replace(sink, mode=replace(sink.mode.upsert, keys=self._mirrored.load()[value].keys))
        return replace(self._table_context, plan=replace(plan, write=replace(plan.write, sink=keyed)))

    # staging

    @override
    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        bad_records = RejectedInput()
        with ExitStack() as stack:
            changes = ChangesByTable(rows.df, self.context.plan.reads[0].source, bad_records)
            stack.callback(changes.unpersist)
            rows_by_table = self._rows(changes)
            rejected: list[DataFrame] = []
            if self._quarantine is not None:
                split = {name: split_invalid(Built(df), self._mode(name)) for name, df in rows_by_table.items()}
                rows_by_table = {name: built.df for name, built in split.items()}
                rejected = [df for built in split.values() for df in built.rejected]
            parts = [self._staged_table(stack, batch, *opened) for opened in self._open(rows_by_table)]
            rejected += bad_records.rejected_rows
            if self._quarantine is not None and not (parts and all(part.existing_commit for part in parts)):
                self.context.observer.rejected(self._quarantine.write(batch, rejected))
            if rows_by_table:
                steps = self.context.plan.fingerprint
                self.context.checkpoint.write_routes(batch.number, batch.sources, steps, sorted(rows_by_table))
            yield Staged(batch, Built(rows.df, rejected=rejected, counted=bad_records.drop_counts), parts=parts)
            self._policy.batch_committed()

    def _mode(self, value: str) -> Mode:
        return self._context_of(value).plan.write.mode

    def _rows(self, changes: ChangesByTable) -> dict[str, DataFrame]:
        """The rows of each table, by the table's name. Records that belong to no table are rejected as bad records.

        Raises:
            InputError: Two tables, or a table and one of Helios's own, would share a name; or the changes of a table do
                not fit, and the pipeline stops at bad records.
            CheckFailed: The changes of a table do not fit, and `.evolve_schema` allows less than "full".
            RunError: The rows of a table lack a column of the table's key.
        """
        known = {mirrored.source: (name, mirrored.keys) for name, mirrored in self._mirrored.load().items()}
        accepted: dict[str, tuple[SourceTable, Mirrored]] = {}
        tables_by_name = self._source_tables()
        for table, seen in changes.tables.items():
            former_name, keys = known.get(_source_of(table), ("", seen.keys))
            if table is None or not seen.versions or not keys:
                changes.refuse(table, keys)
                continue
            name = self._mirror_name(table, former_name)
            if NAME.fullmatch(name) is None:
                why = f"{table} would be the table {name!r}, and names have letters, digits, '_' and '-'"
                changes.refuse(table, keys, why)
                continue
            self._refuse_taken(name, table, tables_by_name)
            tables_by_name[name] = table
            misfit = self._misfit(name, table, changes)
            if misfit is not None:
                self._report_misfit(table, misfit, changes)
                changes.refuse(table, keys, misfit)
                continue
            accepted[name] = table, Mirrored(_source_of(table), keys)
        updated = {name: self._policy.updated(name, *pair, changes) for name, pair in accepted.items()}
        rows_by_table = {
            name: self._rows_of(changes, name, table, mirrored.keys) for name, (table, mirrored) in accepted.items()
        }
        spark = self.context.spark
        rows_by_table = {
            name: with_kept_columns(spark, self._name(name), rows, updated[name].newest)
            for name, rows in rows_by_table.items()
        }
        known_tables = self._mirrored.load()
        all_tables = {**known_tables, **updated}
        for name in (name for name in updated if name not in known_tables):
            updated[name] = self._policy.added(name, all_tables, changes)
        self._mirrored.add({name: mirrored for name, mirrored in updated.items() if mirrored != known_tables.get(name)})
        return rows_by_table

    def _misfit(self, name: str, table: SourceTable, changes: ChangesByTable) -> str | None:
        """Why the changes of a table do not fit the existing table, or each other; None if they fit.

        Raises:
            CheckFailed: The types do not fit, and `.evolve_schema` allows less than "full".
        """
        try:
            columns = changes.columns(table)
            column = reserved_column(columns.names)
            if column is not None:
                why = "a name that Iceberg or Helios reserves: leave it out with Debezium's column.exclude.list"
                return f"{table} has the column {column}, {why}"
            opened = self._sinks.get(name)
            existing = opened.table if opened else tables.load_table(self.context.spark, self._name(name))
            if existing is not None:
                SchemaAligner(self.context.spark, self.context.plan, self._name(name), existing).check(columns)
        except CheckFailed as error:
            if self._declared.evolution.mode != "full":
                raise
            return "; ".join(problem.what for problem in error.problems)
        except InputError as error:
            return f"{self._name(name).text}: {error.what.partition(': ')[2]}"
        return None

    def _report_misfit(self, table: SourceTable, why: str, changes: ChangesByTable) -> None:
        """Reports that all changes of a table are bad records; raises `InputError` if the pipeline stops at them."""
        if not changes.fails_on_bad_records:
            self.context.observer.noted(f"changes of {table} are bad records, and the other tables continue: {why}")
            return
        raise InputError(
            f"{why}\nNothing was written to the other tables either.",
            where=self._declared.origin,
            fix=f"quarantine the changes of {table}, and the other tables continue: "
            f'Kafka.source(...).on_bad_row("quarantine") and {self._declared.label()}.quarantine("bad.rows"); '
            f"a separate pipeline can write them into another table: Cdc.debezium(...) >> {SINGLE_TABLE_SINK}.",
        )

    def _source_tables(self) -> dict[str, SourceTable]:
        """The tables of the database, by the names of the tables that mirror them."""
        return {name: SourceTable(*mirrored.source) for name, mirrored in self._mirrored.load().items()}

    def _mirror_name(self, table: SourceTable, former: str) -> str:
        """The name of the table that mirrors `table`; `former` is that name in earlier batches, or empty.

        Raises:
            CheckpointError: The name differs from the former one.
        """
        name = self._declared.names.format_map(asdict(table))
        if former not in ("", name):
            raise CheckpointError(
                f"{table} has been mirrored to {self._name(former).text}, and names={self._declared.names!r} calls it "
                f"{name} now; nothing was written.",
                where=self._declared.origin,
                fix="put names= back, or mirror into another namespace under another .named(...).",
            )
        return name

    def _refuse_taken(self, name: str, table: SourceTable, taken: Mapping[str, SourceTable]) -> None:
        """Raises if another table has this name, or one that differs only in case: some catalogs ignore case."""
        quarantine = self.context.plan.write.quarantine
        is_quarantine = quarantine is not None and quarantine.text.lower() == self._name(name).text.lower()
        if is_quarantine or name.lower().startswith(CONTROL):
            raise InputError(
                f"{table} would be the table {self._name(name).text}, which is Helios's own; nothing was written.",
                where=self._declared.origin,
                fix="give .quarantine() another table."
                if is_quarantine
                else 'name tables differently: names="{schema}_{table}".',
            )
        other = next((t for n, t in taken.items() if n.lower() == name.lower() and t != table), None)
        if other is not None:
            raise InputError(
                f"{other} and {table} would both be the table {self._name(name).text}; nothing was written.",
                where=self._declared.origin,
                fix='tell them apart, as by names="{schema}_{table}", in another namespace under another .named(...); '
                "or leave the topic of one of them out.",
            )

    def _rows_of(self, changes: ChangesByTable, name: str, table: SourceTable, keys: Sequence[str]) -> DataFrame:
        separately = (
            "start another mirror without this table, and give the table a pipeline of its own: "
            f"Cdc.debezium(...) >> {SINGLE_TABLE_SINK}."
        )
        columns = changes.columns(table)
        missing = [key for key in keys if key.lower() not in {column.lower() for column in columns.names}]
        if missing:
            renamed = f"if it was renamed, {NEW_MIRROR}; " if name in self._mirrored.load() else ""
            raise RunError(
                f"{table} has the key ({', '.join(keys)}), and its rows have no column {missing[0]}; nothing was "
                "written.",
                where=self._declared.origin,
                fix=f"{renamed}set Debezium's message.key.columns to columns of the table; or {separately}",
            )
        return changes.rows(table, keys)

    # the tables of a batch

    def _open(self, rows: Mapping[str, DataFrame]) -> Iterator[tuple[TableSink, DataFrame]]:
        """Opens the tables and yields each with its rows. Existing tables come first, as they may reject their rows."""
        new = [name for name in rows if name not in self._sinks]
        loaded = {name: tables.load_table(self.context.spark, self._name(name)) for name in new}
        missing = {name for name, table in loaded.items() if table is None}
        for name in sorted(rows, key=lambda name: (name in missing, name)):
            if name not in self._sinks:
                self._refuse_other_rows(name, loaded[name])
                self._sinks[name] = open_table(self._context_of(name), self._name(name), loaded[name], rows[name])
            yield self._sinks[name], rows[name]

    def _refuse_other_rows(self, name: str, table: JavaTable | None) -> None:
        """Refuses an existing table with rows that the mirror did not write: they would never be removed."""
        text = self._name(name).text
        if table is None or text in self.context.checkpoint.tables() or table.currentSnapshot() is None:
            return
        if self.context.ledger(table).load() is None:
            raise InputError(
                f"{text} has rows that {self.context.plan.pipeline} did not write, so it would differ from the "
                "database; nothing was written.",
                where=self._declared.origin,
                fix="drop or rename it, or mirror into another namespace; an empty table is accepted.",
            )

    def _staged_table(self, stack: ExitStack, batch: Batch, sink: TableSink, rows: DataFrame) -> StagedTable:
        """Stages the rows of one table, unless the table has the batch."""
        batch = self._numbered(sink, batch)
        outcome = sink.find(batch)
        if isinstance(outcome, Found):
            return StagedTable(sink, None, outcome.commit)
        return StagedTable(sink, stack.enter_context(sink.stage(batch, Built(rows))))


def _source_of(table: SourceTable | None) -> tuple[str, str, str, str]:
    """A table in the form of `Mirrored.source`."""
    return (table.prefix, table.db, table.schema, table.table) if table is not None else ("", "", "", "")
