"""The table that Spark's writer sees while it writes a batch.

Iceberg's writer for Spark commits by itself, and cannot add a second update to its commit. But the writer asks its
table for the operation to commit, such as an append. So Helios gives the writer a table that reads like the real one,
but whose operations belong to a transaction. Before Spark gets an operation, Helios writes the batch's stamp into the
operation's snapshot summary, and adds a validator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from helios.spark.jvm.types.files import JavaExpression, JavaTableScan
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.jvm.types.updates import (
    JavaAppendFiles,
    JavaDeleteFiles,
    JavaReplacePartitions,
    JavaRowChange,
    JavaRowDelta,
    JavaSnapshotUpdate,
    JavaTransaction,
)

Update = TypeVar("Update", bound=JavaSnapshotUpdate)
Change = TypeVar("Change", bound=JavaRowChange)


class TransactionalTable:
    """A table whose operations belong to a transaction; implements `org.apache.iceberg.Table`.

    Args:
        table: Iceberg's table object, from which scans read.
        prepare: Stamps an operation, and adds its validator.
        properties: The properties that writers see instead of the table's own.
        pinned: The id of the snapshot that scans read; None if Spark's scan pins one itself, or if the table is empty.

    Attributes:
        scan_filter: Scans skip files that cannot match this expression; None to read all files.
        row_changes: The row deltas and overwrites that have begun.
        before_change: Called before a row change begins; returns the transaction for it. None to keep the current one.
    """

    # A plan shows this name if it is printed after its batch has ended, when the attributes of the table are cleared.
    _name = "a table of a batch that has ended"

    def __init__(
        self,
        table: JavaTable,
        transaction: JavaTransaction,
        prepare: Callable[[JavaSnapshotUpdate], None],
        properties: JavaMap[str, str],
        pinned: int | None,
    ) -> None:
        self._table = table
        self._pinned = pinned
        self._transaction = transaction
        self._prepare = prepare
        self._properties = properties
        self._name = str(table.name())
        self.scan_filter: JavaExpression | None = None
        self.row_changes: list[JavaRowChange] = []
        self.before_change: Callable[[], JavaTransaction] | None = None

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    def _prepared(self, operation: Update) -> Update:
        self._prepare(operation)
        return operation

    def name(self) -> str:
        return self._name

    def properties(self) -> JavaMap[str, str]:
        return self._properties

    def newBatchScan(self) -> JavaTableScan:
        scan = self._table.newBatchScan()
        scan = scan.useSnapshot(self._pinned) if self._pinned is not None else scan
        return scan.filter(self.scan_filter) if self.scan_filter is not None else scan

    def newAppend(self) -> JavaAppendFiles:
        return self._prepared(self._transaction.newAppend())

    def newFastAppend(self) -> JavaSnapshotUpdate:
        return self._prepared(self._transaction.newFastAppend())

    def newOverwrite(self) -> JavaRowChange:
        return self._row_change(lambda transaction: transaction.newOverwrite())

    def newReplacePartitions(self) -> JavaReplacePartitions:
        return self._prepared(self._transaction.newReplacePartitions())

    def newRowDelta(self) -> JavaRowDelta:
        return self._row_change(lambda transaction: transaction.newRowDelta())

    def _row_change(self, begin: Callable[[JavaTransaction], Change]) -> Change:
        if self.before_change is not None:
            self._transaction = self.before_change()
        change = self._prepared(begin(self._transaction))
        self.row_changes.append(change)
        return change

    def newDelete(self) -> JavaDeleteFiles:
        return self._prepared(self._transaction.newDelete())

    def toString(self) -> str:
        return self._name

    def hashCode(self) -> int:
        return 0

    def equals(self, other: object) -> bool:
        return False

    class Java:
        implements = ("org.apache.iceberg.Table", "org.apache.iceberg.HasTableOperations")
