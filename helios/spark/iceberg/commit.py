"""The commit of a transaction, to a catalog that may apply a request and report that it failed.

A request that was sent twice, by a client or a gateway that heard nothing, lands the first time and is then refused as
a conflict. Iceberg would take that for a conflict with somebody else, find the batch's own files in its way, and delete
the manifests of a snapshot that the table has. So each commit goes through operations which, before Iceberg hears of a
conflict, look whether it has landed.
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
LOOKS = 3
"""How often a try looks again at what others have committed while it looked."""


class IdempotentTableOperations:
    """Implements `org.apache.iceberg.TableOperations` over a table's own, and hides conflicts from Iceberg.

    Attributes:
        error: The last failure of a refresh: of an exception in Python Iceberg gets the text only.
        start: What a transaction begins on instead of the table's own state; see `begin_on`.
        look: Looks at what others have committed; None where nobody does. Returns whether it has found any: more may
            have come while it looked, and a try that begins behind them would lose.
        refreshed: Called with the state that a transaction is about to be applied to.
        holds: Whether a commit is only held: its base and its metadata are kept, for who commits it.

    Args:
        operations: The table's own operations.
    """

    def __init__(self, operations: JavaTableOperations) -> None:
        self._own = operations
        self.error: Py4JJavaError | None = None
        self.start: JavaTableMetadata | None = None
        self.look: Callable[[], bool] | None = None
        self.refreshed: list[Callable[[JavaTableMetadata], object]] = []
        self.holds = False
        self._held: tuple[JavaTableMetadata, JavaTableMetadata] | None = None
        self._refused: Py4JJavaError | None = None

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
            metadata, left = self._own.refresh(), LOOKS
            while self.look is not None and self.look() and left:
                metadata, left = self._own.refresh(), left - 1
            for call in self.refreshed:
                call(metadata)
            return metadata
        except Py4JJavaError as error:
            self.error = error
            raise

    def commit(self, base: JavaTableMetadata, metadata: JavaTableMetadata) -> None:
        """Commits; hides a refusal from Iceberg, which would delete files that may be committed."""
        if self.holds:
            self._held = base, metadata
            return
        try:
            self._own.commit(base, metadata)
        except Py4JJavaError as error:
            self._refused = error

    def held(self) -> tuple[JavaTableMetadata, JavaTableMetadata]:
        """The base and the metadata of the held commit."""
        assert self._held is not None  # a transaction that changes nothing is not committed
        return self._held

    def refused(self) -> Py4JJavaError | None:
        """Why the last commit was refused; None when it went through. Asked once per commit."""
        refused, self._refused = self._refused, None
        return refused

    def toString(self) -> str:
        return str(self._own.toString())

    def hashCode(self) -> int:
        return 0

    def equals(self, other: object) -> bool:
        return False

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


def begin(table: JavaTable) -> tuple[IdempotentTableOperations, JavaTransaction]:
    """Begins a transaction on a table, and returns the operations that it commits through beside it."""
    operations = until_scope_ends(IdempotentTableOperations(table.operations()))
    return operations, _transaction(table, operations)


def begin_on(table: JavaTable, operations: IdempotentTableOperations, start: JavaTableMetadata) -> JavaTransaction:
    """Begins another transaction with the same operations, on a given table state.

    When it is committed, it is applied to the table's own state: nothing of the other one is left.
    """
    operations.start = start
    try:
        return _transaction(table, operations)
    finally:
        operations.start = None


def _transaction(table: JavaTable, operations: IdempotentTableOperations) -> JavaTransaction:
    try:
        made: JavaTransaction = classes().org.apache.iceberg.Transactions.newTransaction(str(table.name()), operations)
        return made
    except Py4JError as error:
        raise operations.error or error from None


@dataclass(frozen=True)
class HeldCommit:
    """A transaction that is applied to its table's newest state, and not committed.

    Attributes:
        table: Iceberg's table object.
        base: The metadata that it was applied to.
        metadata: The metadata that it gives.
    """

    table: JavaTable
    base: JavaTableMetadata
    metadata: JavaTableMetadata


def hold(table: JavaTable, transaction: JavaTransaction, operations: IdempotentTableOperations) -> HeldCommit:
    """Applies a transaction to its table's newest state, and validates it there, without committing it.

    Raises:
        Py4JJavaError: It conflicts with what others have committed.
    """
    operations.holds = True
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

    Before each try Iceberg applies the transaction to the table's newest state, and validates it there. A conflict is a
    commit between that and the request; the next try keeps the data files that are written.

    Args:
        table: Iceberg's table object.
        transaction: The transaction.
        operations: The operations that `begin` gave with it.
        retries: How often a conflict is tried again.

    Raises:
        Py4JJavaError: The commit was refused, or its outcome is unknown. A commit that was refused for a conflict has
            not landed.
    """
    made = _new_snapshots(table, transaction)
    while True:
        try:
            transaction.commitTransaction()
        except Py4JError as error:
            raise operations.error or error from None
        refused = operations.refused()
        if refused is None:
            return
        if java_class(refused) != CONFLICT:
            raise refused
        table.refresh()
        if any(table.snapshot(snapshot) is not None for snapshot in made):
            return
        # A retry at once: the next competing commit is furthest away now.
        if not retries.wait(pause=operations.look is None):
            raise refused


def _new_snapshots(table: JavaTable, transaction: JavaTransaction) -> list[int]:
    """The ids of the snapshots that a transaction has made."""
    new: JavaSet[JavaSnapshot] = classes().java.util.HashSet(transaction.table().snapshots())
    new.removeAll(table.snapshots())
    return [int(snapshot.snapshotId()) for snapshot in listed(new)]
