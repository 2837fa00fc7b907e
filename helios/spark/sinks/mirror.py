"""The sink of a mirror: writes the changes of each table of a database into a table of its own.

Each mirrored table has a ledger record, which shows the last batch in the table. All tables of a batch are read,
checked and staged before the first table is committed.
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
"""A table name that catalogs and storages accept. Some catalogs also refuse upper case; this is not checked here."""

SINGLE_TABLE_SINK = "Iceberg.sink(...).upsert()"
"""The declaration of a sink of one table, as messages show it."""


@dataclass(frozen=True)
class StagedTable:
    """The part of a batch for one table.

    Attributes:
        staged: The staged rows; None if the table already has the batch.
        existing_commit: The commit of the batch, if the table already has the batch.
    """

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
        self._policy = SchemaPolicy(context, self._declared, self._mirrored, self._table_name)

    @property
    def _declared(self) -> Declared:
        sink = self.context.plan.write.sink.mirror
        assert sink is not None
        return sink

    @override
    def verify(self) -> None:
        self._mirrored.verify(self._tables_in_checkpoint())
        for name, table in self._source_tables().items():
            self._mirror_name(table, name)  # raises an error if the script now gives the table another name
            self._policy.verify(name, table)
        super().verify()

    # the tables

    @override
    def _tables_in_checkpoint(self) -> dict[str, TableName]:
        prefix = self.context.plan.write.table.prefix
        names = [text.removeprefix(prefix) for text in self.context.checkpoint.tables()]
        return {name: self._table_name(name) for name in names if not name.startswith(CONTROL)}

    @override
    def _table_name(self, name: str) -> TableName:
        namespace = self.context.plan.write.table
        assert isinstance(namespace, Namespace)
        return namespace.of(name)

    @override
    def _context_of(self, name: str) -> SinkContext:
        plan = self._table_context.plan
        sink = plan.write.iceberg
        assert sink.mode.upsert is not None
        keyed = replace(sink, mode=replace(sink.mode.upsert, keys=self._mirrored.load()[name].keys))
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

    def _mode(self, name: str) -> Mode:
        return self._context_of(name).plan.write.mode

    def _rows(self, changes: ChangesByTable) -> dict[str, DataFrame]:
        """The rows of each mirrored table, by its name. Records that cannot be mirrored are rejected as bad records.

        Raises:
            InputError: Two tables would have the same name in the mirror; a table would have the name of a table of
                Helios; or the changes of a table cannot be written to its mirror, and bad records stop the pipeline.
            CheckFailed: The column types of the changes do not fit the mirrored table, and `.evolve_schema` allows less
                than "full".
            RunError: The rows of a table lack a column of the table's key.
        """
        known_sources = {mirrored.source: (name, mirrored.keys) for name, mirrored in self._mirrored.load().items()}
        accepted: dict[str, tuple[SourceTable, Mirrored]] = {}
        tables_by_name = self._source_tables()
        for table, found in changes.tables.items():
            former_name, keys = known_sources.get(_source_of(table), ("", found.key_columns))
            if table is None or not found.versions or not keys:
                changes.refuse(table, keys)
                continue
            name = self._mirror_name(table, former_name)
            if NAME.fullmatch(name) is None:
                why = (
                    f"{table} would be mirrored to {name!r}, but table names may have only letters, digits, '_' and '-'"
                )
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
            name: with_kept_columns(spark, self._table_name(name), rows, updated[name].newest)
            for name, rows in rows_by_table.items()
        }
        known_tables = self._mirrored.load()
        all_tables = {**known_tables, **updated}
        for name in (name for name in updated if name not in known_tables):
            updated[name] = self._policy.added(name, all_tables, changes)
        self._mirrored.add({name: mirrored for name, mirrored in updated.items() if mirrored != known_tables.get(name)})
        return rows_by_table

    def _misfit(self, name: str, table: SourceTable, changes: ChangesByTable) -> str | None:
        """Why the changes of a table cannot be written to its mirror; None if they can.

        The reason is a column with a reserved name, a column with types that do not fit each other, or a type that does
        not fit the mirrored table.

        Raises:
            CheckFailed: A type does not fit the mirrored table, and `.evolve_schema` allows less than "full".
        """
        try:
            columns = changes.columns(table)
            column = reserved_column(columns.names)
            if column is not None:
                why = "a name that Iceberg or Helios reserves: leave it out with Debezium's column.exclude.list"
                return f"{table} has the column {column}, {why}"
            opened = self._sinks.get(name)
            existing = opened.table if opened else tables.load_table(self.context.spark, self._table_name(name))
            if existing is not None:
                SchemaAligner(self.context.spark, self.context.plan, self._table_name(name), existing).check(columns)
        except CheckFailed as error:
            if self._declared.evolution.mode != "full":
                raise
            return "; ".join(problem.what for problem in error.problems)
        except InputError as error:
            return f"{self._table_name(name).text}: {error.what.partition(': ')[2]}"
        return None

    def _report_misfit(self, table: SourceTable, why: str, changes: ChangesByTable) -> None:
        """Reports that all changes of a table are bad records; raises `InputError` if bad records stop the pipeline."""
        if not changes.fails_on_bad_records:
            self.context.observer.noted(f"changes of {table} are bad records: {why}; the other tables continue")
            return
        raise InputError(
            f"{why}\nNothing was written to the other tables either.",
            where=self._declared.origin,
            fix=f"to let the other tables continue, quarantine the changes of {table}: "
            f'Kafka.source(...).on_bad_row("quarantine") and {self._declared.label()}.quarantine("bad.rows"); '
            "a separate pipeline can write these changes into another table: "
            f"Cdc.debezium(...) >> {SINGLE_TABLE_SINK}.",
        )

    def _source_tables(self) -> dict[str, SourceTable]:
        """The tables of the database, by the names of their mirrored tables."""
        return {name: SourceTable(*mirrored.source) for name, mirrored in self._mirrored.load().items()}

    def _mirror_name(self, table: SourceTable, former: str) -> str:
        """The name of the mirrored table of `table`, as the script declares it.

        Args:
            former: The name of the mirrored table in earlier batches; empty for a new table.

        Raises:
            CheckpointError: The name differs from `former`.
        """
        name = self._declared.names.format_map(asdict(table))
        if former not in ("", name):
            raise CheckpointError(
                f"{table} has been mirrored to {self._table_name(former).text}, and names={self._declared.names!r} "
                f"would now mirror the table to {name}; nothing was written.",
                where=self._declared.origin,
                fix="restore the former names=, or mirror into another namespace with another pipeline name, "
                ".named(...).",
            )
        return name

    def _refuse_taken(self, name: str, table: SourceTable, taken: Mapping[str, SourceTable]) -> None:
        """Raises `InputError` if another table has the name. Case is ignored, as some catalogs ignore it."""
        quarantine = self.context.plan.write.quarantine
        is_quarantine = quarantine is not None and quarantine.text.lower() == self._table_name(name).text.lower()
        if is_quarantine or name.lower().startswith(CONTROL):
            raise InputError(
                f"{table} would be mirrored to {self._table_name(name).text}, a table of Helios; nothing was written.",
                where=self._declared.origin,
                fix="give .quarantine() another table."
                if is_quarantine
                else 'name the tables differently: names="{schema}_{table}".',
            )
        other = next((t for n, t in taken.items() if n.lower() == name.lower() and t != table), None)
        if other is not None:
            raise InputError(
                f"{other} and {table} would both be mirrored to {self._table_name(name).text}; nothing was written.",
                where=self._declared.origin,
                fix='give them different names, such as names="{schema}_{table}", and mirror into another namespace '
                "with another pipeline name, .named(...); or leave out the topic of one of them.",
            )

    def _rows_of(self, changes: ChangesByTable, name: str, table: SourceTable, keys: Sequence[str]) -> DataFrame:
        separate_pipeline = (
            "start another mirror without this table, and give the table a pipeline of its own: "
            f"Cdc.debezium(...) >> {SINGLE_TABLE_SINK}."
        )
        columns = changes.columns(table)
        missing = [key for key in keys if key.lower() not in {column.lower() for column in columns.names}]
        if missing:
            rename_fix = f"if the column was renamed, {NEW_MIRROR}; " if name in self._mirrored.load() else ""
            raise RunError(
                f"{table} has the key ({', '.join(keys)}), and its rows have no column {missing[0]}; nothing was "
                "written.",
                where=self._declared.origin,
                fix=f"{rename_fix}set Debezium's message.key.columns to columns of the table; or {separate_pipeline}",
            )
        return changes.rows(table, keys)

    # the tables of a batch

    def _open(self, rows: Mapping[str, DataFrame]) -> Iterator[tuple[TableSink, DataFrame]]:
        """Opens the tables, and yields each table with its rows.

        Existing tables come first: if one of them refuses its rows, no new table has been created yet.
        """
        new = [name for name in rows if name not in self._sinks]
        loaded = {name: tables.load_table(self.context.spark, self._table_name(name)) for name in new}
        missing = {name for name, table in loaded.items() if table is None}
        for name in sorted(rows, key=lambda name: (name in missing, name)):
            if name not in self._sinks:
                self._refuse_other_rows(name, loaded[name])
                self._sinks[name] = open_table(self._context_of(name), self._table_name(name), loaded[name], rows[name])
            yield self._sinks[name], rows[name]

    def _refuse_other_rows(self, name: str, table: JavaTable | None) -> None:
        """Refuses an existing table with rows that the mirror did not write: they would never be deleted."""
        text = self._table_name(name).text
        if table is None or text in self.context.checkpoint.tables() or table.currentSnapshot() is None:
            return
        if self.context.ledger(table).load() is None:
            raise InputError(
                f"{text} has rows that {self.context.plan.pipeline} did not write, so the table would differ from the "
                "database; nothing was written.",
                where=self._declared.origin,
                fix="drop or rename the table, or mirror into another namespace; an empty table is accepted.",
            )

    def _staged_table(self, stack: ExitStack, batch: Batch, sink: TableSink, rows: DataFrame) -> StagedTable:
        """Stages the rows of one table, unless the table already has the batch."""
        batch = self._numbered(sink, batch)
        outcome = sink.find(batch)
        if isinstance(outcome, Found):
            return StagedTable(sink, None, outcome.commit)
        return StagedTable(sink, stack.enter_context(sink.stage(batch, Built(rows))))


def _source_of(table: SourceTable | None) -> tuple[str, str, str, str]:
    """The value of `Mirrored.source` for a table; empty texts for None."""
    return (table.prefix, table.db, table.schema, table.table) if table is not None else ("", "", "", "")
