"""The policy of a mirror for rows whose new values the log lacks: to stop, to keep the rows, or to await a snapshot.

Debezium can take a snapshot of a table into the same topics. It then sends all rows with their present values, and the
log has the deletes. Once the last row of the snapshot is written, the mirrored table equals the table of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.mirror import MirrorSink
from helios.sources.changes.spark.tables import ChangesByTable, SourceTable
from helios.spark.checkpoint.mirrored import Mirrored, MirroredTables
from helios.spark.iceberg import tables
from helios.spark.jvm.sql import quoted
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.mirrored_columns import missing_column
from helios.spark.sinks.schema_changes import SchemaChange, compared, messages_of, possible_former_tables


class SchemaPolicy:
    """The policy that a mirror declares with `.on_schema_change`.

    Args:
        name: Returns the full name of a table of the mirror.
    """

    def __init__(
        self, context: SinkContext, declared: MirrorSink, mirrored: MirroredTables, name: Callable[[str], TableName]
    ) -> None:
        self._context = context
        self._declared = declared
        self._mirrored = mirrored
        self._name = name
        self._arrived: set[str] = set()  # the tables whose awaited Debezium snapshot ends in the current batch

    @property
    def _fails(self) -> bool:
        return self._declared.schema_change == "fail"

    @property
    def _awaits(self) -> bool:
        return self._declared.schema_change == "snapshot"

    def verify(self, name: str, table: SourceTable) -> None:
        """Checks a table at the start of a run, and reports a snapshot that has not come yet.

        Raises:
            InputError: A column of the mirrored table was renamed or dropped, and `.on_schema_change` says "fail".
        """
        mirrored = self._mirrored.load()[name]
        missing = missing_column(self._context.spark, self._name(name), mirrored.newest)
        if missing is not None:
            self._report_missing(name, table, missing)
            if self._awaits and mirrored.newest is not None:
                # All rows of a snapshot have one log position. A snapshot that is already partly read must not count.
                file, position = max([mirrored.newest.start, *mirrored.newest.snapshots])
                mirrored = replace(mirrored, waits_since=(file, position + 1))
                self._mirrored.add({name: mirrored})
        if mirrored.waits_since is not None and self._declared.schema_change != "keep":
            self._context.observer.noted(
                f"{self._name(name).text} waits for a snapshot of {table}, and rows that do not change may have former "
                f"values until then: {signal(table)}"
            )

    def _report_missing(self, name: str, table: SourceTable, column: str) -> None:
        """Notes or refuses, as `.on_schema_change` says, that a column was renamed or dropped in a mirrored table."""
        what = (
            f"{self._name(name).text} has no column {column} any more, which {table} had with its last changes: "
            "it was renamed or dropped in the mirror"
        )
        if not self._fails:
            self._context.observer.noted(f"{what}; rows that do not change have null there")
            return
        raise InputError(
            f"{what}, and rows that do not change would have null there; nothing was written.",
            where=self._declared.origin,
            fix=f"rename it back: ALTER TABLE ... RENAME COLUMN; if it was dropped, {self._snapshot_fix(table)}.",
        )

    def updated(self, name: str, table: SourceTable, mirrored: Mirrored, changes: ChangesByTable) -> Mirrored:
        """A table of the mirror, with its newest columns and the log position since which it awaits a snapshot.

        Args:
            table: The table in the database.
            mirrored: The source and the key of the mirror's table.

        Raises:
            InputError: The log lacks values of existing rows, and `.on_schema_change` says "fail".
        """
        known = self._mirrored.load().get(name)
        seen = changes.tables[table]
        change = compared(seen.versions, known.newest if known is not None else None)
        waits = known.waits_since if known is not None else None
        if change.unsent and self._awaits and change.newest is not None:
            waits = max(change.newest.start, waits or change.newest.start)
        # A snapshot at an earlier position does not end the wait: it was read late, or the server was restored.
        arrived = waits is not None and seen.snapshot_end is not None and seen.snapshot_end >= waits
        self._arrived = self._arrived | {name} if arrived else self._arrived - {name}
        if change.unsent and not (arrived and self._awaits):
            self._note_or_refuse_change(name, table, change)
        return replace(mirrored, newest=change.newest, waits_since=waits)

    def batch_committed(self) -> None:
        """Called after the commit of a batch: ends the wait of the tables whose snapshot ended in it."""
        for name in sorted(self._arrived):
            mirrored = self._mirrored.load()[name]
            self._mirrored.add({name: replace(mirrored, waits_since=None)})
            self._context.observer.noted(
                f"the snapshot of {SourceTable(*mirrored.source)} that {self._name(name).text} waited for has been "
                "read to its last row"
            )
        self._arrived = set()

    def added(self, name: str, mirrored: Mapping[str, Mirrored], changes: ChangesByTable) -> Mirrored:
        """A new table of the mirror. If it may be a renamed table, the policy decides whether the mirror continues.

        Args:
            mirrored: All tables of the mirror, with the new ones.

        Raises:
            InputError: The table is likely a renamed one, and `.on_schema_change` says "fail".
        """
        new = mirrored[name]
        table = SourceTable(*new.source)
        seen = changes.tables[table]
        alike = possible_former_tables(name, mirrored, changes)
        if len(alike) == 1:  # if the new table inserts a key that the other table has, it is not the other table
            alike = [former for former in alike if not self._shares_key(former, name, mirrored, changes)]
        # The first batch of a mirror may lack a table's first changes, unless the batch has a snapshot.
        has_all_changes = bool(self._mirrored.load()) or any(
            other.has_snapshot_rows for other in changes.tables.values()
        )
        lacks_rows = has_all_changes and seen.first_operation in ("u", "d") and not seen.has_snapshot_rows
        if not (lacks_rows or alike):
            return new
        why = f"{table} begins with changes of rows that Debezium never sent" if lacks_rows else f"{table} is new"
        like = [f"{self._name(former).text} has the same columns and key" for former in alike[:1]]
        what = ", and ".join([why, *like]) + f": {table} may be a table that was renamed"
        stays = f"{self._name(name).text} begins with these changes"
        stays += f", and {self._name(alike[0]).text} stays as it is" if alike else ""
        refused = f"{what}, and {self._name(name).text} would lack its other rows"
        if len(alike) > 1 and not lacks_rows:  # several tables are alike, so the new one is likely just another of them
            self._context.observer.noted(f"{what}; {stays}")
            return new
        self._note_or_refuse(table, f"{what}; {stays}", refused, f", which is right for a table of its own: {stays}")
        if not self._awaits:
            return new
        return replace(new, waits_since=new.newest.start if new.newest is not None else (0, 0))

    def _shares_key(self, former: str, name: str, mirrored: Mapping[str, Mirrored], changes: ChangesByTable) -> bool:
        """True if the new table inserts a key that the other table has."""
        keys = list(mirrored[name].keys)
        known = former in self._mirrored.load()
        if known and tables.load_table(self._context.spark, self._name(former)) is not None:
            rows = self._context.spark.table(self._name(former).sql)
            held_keys = rows.select(*[F.col(quoted(key)).cast("string").alias(key) for key in keys])
        else:  # the other table is new, too
            held_keys = changes.keys(SourceTable(*mirrored[former].source), keys, "c", "r", "u")
        inserted_keys = changes.keys(SourceTable(*mirrored[name].source), keys, "c")
        return not inserted_keys.join(held_keys, keys, "left_semi").isEmpty()

    def _note_or_refuse_change(self, name: str, table: SourceTable, change: SchemaChange) -> None:
        """Notes or refuses, as `.on_schema_change` says, a change after which the log lacks values of existing rows."""
        target = self._name(name).text
        what, stays, values = messages_of(change, table, target)
        refused = f"{what}. Its log has only changed rows: in {target} {values}"
        self._note_or_refuse(table, f"{what}; {stays}", refused, f": {stays}")

    def _note_or_refuse(self, table: SourceTable, note: str, refusal: str, effect: str) -> None:
        """Continues with a note, or refuses, as `.on_schema_change` says.

        Args:
            note: The note if the mirror continues.
            refusal: The message if it does not.
            effect: The effect of "keep", for the fix.
        """
        if self._fails:
            raise InputError(
                f"{refusal}; nothing was written.",
                where=self._declared.origin,
                fix=f'{self._snapshot_fix(table)}; or write .on_schema_change("keep"){effect}.',
            )
        until = f", until the snapshot of {table} has come: {signal(table)}" if self._awaits else ""
        self._context.observer.noted(f"{note}{until}")

    def _snapshot_fix(self, table: SourceTable) -> str:
        """The fix after which the mirrored table equals the table of the database."""
        return f'write .on_schema_change("snapshot"), and {signal(table)}'


def signal(table: SourceTable) -> str:
    """The instruction in messages to have Debezium take a snapshot of a table.

    Debezium's `blocking` snapshots mark their last row in the topics; `incremental` snapshots do not. See
    https://debezium.io/documentation/reference/stable/configuration/signalling.html.

    Examples:
        >>> signal(SourceTable("shop", "postgres", "public", "orders"))
        'send Debezium the signal execute-snapshot with {"type": "blocking", "data-collections": ["public.orders"]}'
    """
    collection = f"{table.schema or table.db}.{table.table}"
    return (
        f'send Debezium the signal execute-snapshot with {{"type": "blocking", "data-collections": ["{collection}"]}}'
    )
