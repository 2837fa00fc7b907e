"""Write modes of an Iceberg sink: how the rows of a batch change the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal, Self, TypeAlias, get_args

from helios.errors import DeclarationError
from helios.model.arguments import expression, flag, key_columns, listed, one_of, text
from helios.model.expressions import SqlText
from helios.model.modes import Append, Delete, MergeSql, Mode, Overwrite, OverwritePartitions, Upsert
from helios.model.values import caller, duration

RowChanges: TypeAlias = Literal["merge-on-read", "copy-on-write"]
ROW_CHANGES: tuple[RowChanges, ...] = get_args(RowChanges)


@dataclass(frozen=True, kw_only=True)
class WriteModes:
    """The write mode of a sink; appends by default."""

    mode: Mode = field(default_factory=Append)
    row_changes: RowChanges | None = None

    def append(self) -> Self:
        """Adds the rows and changes no others. This is the default."""
        return replace(self, mode=Append())

    def overwrite(self, filter: SqlText | None = None) -> Self:
        """Replaces the rows that a filter selects; without a filter, the whole table, which needs a batch source.

        Args:
            filter: SQL condition on the table's columns: `overwrite("d = DATE '2026-01-01'")`. Every row of the batch
                must meet it. The run fails if another writer commits such rows at the same time.
        """
        return replace(self, mode=Overwrite(filter=expression(filter, "overwrite") if filter is not None else None))

    def overwrite_partitions(self) -> Self:
        """Replaces the partitions that have rows in the batch, and no others."""
        return replace(self, mode=OverwritePartitions())

    def upsert(
        self,
        *keys: str | Sequence[str],
        order_by: SqlText | None = None,
        delete_when: SqlText | None = None,
        tombstones: float | str | timedelta = "7d",
        history: bool = False,
        store_order: bool = True,
    ) -> Self:
        """Keeps the newest row per key: an older row that arrives late, in this or a later batch, does not replace it.

        Args:
            keys: The key columns, `"id", "line"` or `["id", "line"]`; a null key is refused, or goes to the quarantine.
                After `Cdc.debezium(...)` they may be left out: the records then carry their key, order and deletes.
            order_by: SQL expression whose greatest value marks the newest row. Of equal values, the row with the later
                source position wins. Without `order_by` a later batch wins, and two rows of a key in one batch are an
                error.
            delete_when: SQL condition of rows that delete their key: `delete_when="op = 'd'"`.
            tombstones: How long a delete is remembered. Until then, a late older row does not bring the key back.
            history: Keeps all versions of a row, with the columns `valid_from` (the value of `order_by`) and
                `valid_to` (null for the current version); needs `order_by`.
            store_order: Whether the table stores the columns of `order_by`, to compare late rows with them. Otherwise
                Helios remembers the newest order of every key, as it remembers deletes.

        Columns that only `delete_when` uses are not stored, unless the table has them. The same holds for the columns
        of a change read, such as `_change_ordinal`, and for an order that an earlier run did not store.

        Raises:
            DeclarationError: A key column occurs twice, or `history` has no `order_by`.
        """
        if history and order_by is None:
            raise DeclarationError(
                "upsert(history=True) needs an order, from which valid_from comes.",
                where=caller(),
                fix='write upsert("id", order_by="updated_at", history=True).',
            )
        mode = Upsert(
            keys=key_columns(keys, "upsert") if listed(keys) else (),
            order_by=expression(order_by, "order_by") if order_by is not None else None,
            delete_when=expression(delete_when, "delete_when") if delete_when is not None else None,
            tombstones=duration(tombstones, "tombstones"),
            history=flag(history, "upsert(history=)"),
            stores_order=flag(store_order, "upsert(store_order=)"),
        )
        return replace(self, mode=mode)

    def delete(self, *keys: str | Sequence[str]) -> Self:
        """Deletes every row whose key arrives, as for erasure requests. The keys themselves are not stored.

        Raises:
            DeclarationError: There is no key column, or a key column occurs twice.
        """
        return replace(self, mode=Delete(keys=key_columns(keys, "delete")))

    def merge_sql(self, query: str) -> Self:
        """Runs your own MERGE once for every batch: `merge_sql("MERGE INTO target USING batch ON ...")`.

        The query calls the table `target`, and the rows of the batch `batch`.

        Raises:
            DeclarationError: The text is not a MERGE INTO `target`.
        """
        if [word.lower() for word in text(query, "merge_sql").split()[:3]] != ["merge", "into", "target"]:
            raise DeclarationError(
                "merge_sql takes a MERGE INTO target.",
                where=caller(),
                fix='write merge_sql("MERGE INTO target USING batch ON target.id = batch.id WHEN ...").',
            )
        return replace(self, mode=MergeSql(query=query))

    def write_mode(self, mode: RowChanges) -> Self:
        """Sets how changed rows are stored: "merge-on-read" (the default of new tables) or "copy-on-write".

        The setting applies to the commits of this pipeline. The properties of an existing table do not change.
        """
        return replace(self, row_changes=one_of(mode, ROW_CHANGES, "write_mode"))
