"""The table that Spark's writer sees while it writes a batch.

Spark's Iceberg writer commits by itself, each mode in its own way, with no room for a second update. But it asks its
table for the operation that it commits. So it gets a table that reads as the real one does, and whose operations belong
to a transaction; each is stamped and gets its validator before Spark has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from helios.spark.jvm.types.files import JavaExpression, JavaTableScan
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.jvm.types.updates import JavaDeleteFiles, JavaRowDelta, JavaSnapshotUpdate, JavaTransaction

Update = TypeVar("Update", bound=JavaSnapshotUpdate)


class TransactionalTable:
    """A table whose operations belong to a transaction; implements `org.apache.iceberg.Table`.

    Args:
        table: Iceberg's table object, which is read.
        transaction: The transaction that the operations belong to.
        prepare: Stamps an operation, and adds its validator.
        properties: What writers read instead of the table's own properties.
        pinned: The snapshot that scans read, where Spark's scan does not pin one itself.

    Attributes:
        within: Files that cannot meet this expression are not read; None for all files.
        deltas: The row deltas that were begun.
        before_delta: Gives the transaction of a row delta that is about to begin; None for the one there is.
    """

    _name = "a table of a batch that has ended"  # which a plan that outlives the batch may still be asked for

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
        self.within: JavaExpression | None = None
        self.deltas: list[JavaRowDelta] = []
        self.before_delta: Callable[[], JavaTransaction] | None = None

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
        return scan.filter(self.within) if self.within is not None else scan

    def newAppend(self) -> JavaSnapshotUpdate:
        return self._prepared(self._transaction.newAppend())

    def newFastAppend(self) -> JavaSnapshotUpdate:
        return self._prepared(self._transaction.newFastAppend())

    def newOverwrite(self) -> JavaSnapshotUpdate:
        return self._prepared(self._transaction.newOverwrite())

    def newReplacePartitions(self) -> JavaSnapshotUpdate:
        return self._prepared(self._transaction.newReplacePartitions())

    def newRowDelta(self) -> JavaRowDelta:
        if self.before_delta is not None:
            self._transaction = self.before_delta()
        self.deltas.append(self._prepared(self._transaction.newRowDelta()))
        return self.deltas[-1]

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
