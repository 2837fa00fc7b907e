"""Commits a transaction, even if the catalog applies the request and still reports a failure.

A client or a gateway that gets no answer may send a request twice. The first request succeeds, and the second is
refused as a conflict. Iceberg would take this for a conflict with another writer, and delete manifests that the table
uses. So each commit goes through table operations that hide conflicts from Iceberg. After a conflict, `commit` first
checks whether the table has the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError

from helios.model.retry import CommitRetries
from helios.spark.jvm.callbacks import until_scope_ends
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_class
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable, JavaTableMetadata, JavaTableOperations
from helios.spark.jvm.types.java import JavaSet
from helios.spark.jvm.types.updates import JavaTransaction

CONFLICT = "CommitFailedException"
MAX_REBASES = 3
"""The maximum number of times that one try repeats its rebase, as other writers may commit during each rebase."""


class IdempotentTableOperations:
    """An `org.apache.iceberg.TableOperations` that calls the table's own operations, and hides conflicts from Iceberg.

    Attributes:
        error: The last failure of a refresh. Iceberg keeps only the text of a Python exception.
        start: The metadata on which the next transaction begins; None for the table's own. See `begin_on`.
        rebase: Moves the transaction onto other writers' commits, and returns True if there were any. It is then called
            again, because the try would conflict with commits that were made during the rebase. None for no rebase.
        listeners: Functions that are called before each try, with the metadata that the transaction is applied to.
        holds_commit: If True, `commit` sends nothing to the catalog, and `held` returns the base and the new metadata.
    """

    def __init__(self, operations: JavaTableOperations) -> None:
        self._own = operations
        self.error: Py4JJavaError | None = None
        self.start: JavaTableMetadata | None = None
        self.rebase: Callable[[], bool] | None = None
        self.listeners: list[Callable[[JavaTableMetadata], object]] = []
        self.holds_commit = False
        self._held: tuple[JavaTableMetadata, JavaTableMetadata] | None = None
        self._refusal: Py4JJavaError | None = None

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._own, name)

    def current(self) -> JavaTableMetadata:
        return self.start if self.start is not None else self._own.current()

    def refresh(self) -> JavaTableMetadata:
        if self.start is not None:
            return self.start
        try:
            metadata = self._own.refresh()
            rebases = 0
            while self.rebase is not None and self.rebase() and rebases < MAX_REBASES:
                metadata = self._own.refresh()
                rebases += 1
            for listener in self.listeners:
                listener(metadata)
            return metadata
        except Py4JJavaError as error:
            self.error = error
            raise

    def commit(self, base: JavaTableMetadata, metadata: JavaTableMetadata) -> None:
        """Commits, and hides a refusal from Iceberg, which would otherwise delete files that may be committed."""
        if self.holds_commit:
            self._held = base, metadata
            return
        try:
            self._own.commit(base, metadata)
        except Py4JJavaError as error:
            self._refusal = error

    def held(self) -> tuple[JavaTableMetadata, JavaTableMetadata]:
        """The base and the metadata of the held commit."""
        assert self._held is not None  # a transaction without changes is never held: Iceberg would not commit it
        return self._held

    def take_refusal(self) -> Py4JJavaError | None:
        """The refusal of the last commit, returned only once; None if the commit was accepted."""
        refusal, self._refusal = self._refusal, None
        return refusal

    def toString(self) -> str:
        return str(self._own.toString())

    def hashCode(self) -> int:
        return 0

    def equals(self, other: object) -> bool:
        return False

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


def begin(table: JavaTable) -> tuple[IdempotentTableOperations, JavaTransaction]:
    """Begins a transaction on a table; returns the operations through which it commits, and the transaction."""
    operations = until_scope_ends(IdempotentTableOperations(table.operations()))
    return operations, _transaction(table, operations)


def begin_on(table: JavaTable, operations: IdempotentTableOperations, start: JavaTableMetadata) -> JavaTransaction:
    """Begins another transaction with the same operations, on the given table metadata.

    The commit applies the transaction's changes to the table's own metadata, not to `start`.
    """
    operations.start = start
    try:
        return _transaction(table, operations)
    finally:
        operations.start = None


def _transaction(table: JavaTable, operations: IdempotentTableOperations) -> JavaTransaction:
    try:
        new_transaction = classes().org.apache.iceberg.Transactions.newTransaction
        transaction: JavaTransaction = new_transaction(str(table.name()), operations)
        return transaction
    except Py4JError as error:
        raise operations.error or error from None


@dataclass(frozen=True)
class HeldCommit:
    """A transaction that was applied to its table's newest metadata, and validated, but not committed.

    Attributes:
        base: The table's metadata that the transaction was applied to.
        metadata: The table's metadata after the commit.
    """

    table: JavaTable
    base: JavaTableMetadata
    metadata: JavaTableMetadata


def hold(table: JavaTable, transaction: JavaTransaction, operations: IdempotentTableOperations) -> HeldCommit:
    """Applies a transaction to its table's newest metadata, and validates it there, without committing it.

    Raises:
        Py4JJavaError: The transaction conflicts with other commits.
    """
    operations.holds_commit = True
    try:
        transaction.commitTransaction()
    except Py4JError as error:
        raise operations.error or error from None
    return HeldCommit(table, *operations.held())


def commit(
    table: JavaTable,
    transaction: JavaTransaction,
    operations: IdempotentTableOperations,
    retries: CommitRetries,
) -> None:
    """Commits a transaction.

    Before each try, Iceberg applies the transaction to the table's newest metadata, and validates it there. If another
    writer commits after that and before the request, the request is refused as a conflict. The next try reuses the data
    files.

    Args:
        operations: The operations that `begin` returned with the transaction.

    Raises:
        Py4JJavaError: The commit was refused, or its outcome is unknown. A conflict means that nothing was committed.
    """
    new_snapshots = _new_snapshots(table, transaction)
    while True:
        try:
            transaction.commitTransaction()
        except Py4JError as error:
            raise operations.error or error from None
        refusal = operations.take_refusal()
        if refusal is None:
            return
        if java_class(refusal) != CONFLICT:
            raise refusal
        table.refresh()
        if any(table.snapshot(snapshot_id) is not None for snapshot_id in new_snapshots):
            return
        # With a rebase, retry at once: another writer has just committed, so its next commit is still far away.
        if not retries.wait(pause=operations.rebase is None):
            raise refusal


def _new_snapshots(table: JavaTable, transaction: JavaTransaction) -> list[int]:
    new: JavaSet[JavaSnapshot] = classes().java.util.HashSet(transaction.table().snapshots())
    new.removeAll(table.snapshots())
    return [int(snapshot.snapshotId()) for snapshot in listed(new)]
