"""The commit of a transaction to a catalog that may apply a request and say that it failed.

A request that was sent twice, by a client or a gateway that heard nothing, lands the first time and is then refused as
a conflict. Iceberg would take that for a conflict with somebody else, find the batch's own files in its way, and delete
the manifests of a snapshot that the table has. So each commit goes through operations which, before Iceberg hears of a
conflict, look whether it has landed.
"""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from helios.spark.jvm.classes import classes, listed

CONFLICT = "CommitFailedException"

RETRIES = {"num-retries": 4, "min-wait-ms": 100, "max-wait-ms": 60_000}
"""Iceberg's own defaults, by the ends of their properties."""


class IdempotentTableOperations:
    """Implements `org.apache.iceberg.TableOperations` over a table's own, and keeps failures: Java tells text only.

    Args:
        operations: The table's.
    """

    def __init__(self, operations: Any) -> None:
        self._own = operations
        self.error: Py4JJavaError | None = None
        self._refused: Py4JJavaError | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._own, name)

    def refresh(self) -> Any:
        try:
            return self._own.refresh()
        except Py4JJavaError as error:
            self.error = error
            raise

    def commit(self, base: Any, metadata: Any) -> None:
        """Commits; of what was refused Iceberg hears nothing, as it would clean up: see `commit` of this module."""
        try:
            self._own.commit(base, metadata)
        except Py4JJavaError as error:
            self._refused = error

    def refused(self) -> Py4JJavaError | None:
        """Why the last commit was refused; None when it went through."""
        refused, self._refused = self._refused, None
        return refused

    def toString(self) -> str:
        return str(self._own.toString())

    def hashCode(self) -> int:
        return 0

    def equals(self, other: Any) -> bool:
        return False

    class Java:
        implements = ("org.apache.iceberg.TableOperations",)


def begin(table: Any) -> tuple[IdempotentTableOperations, Any]:
    """A transaction on a table, and such operations, through which it goes."""
    operations = IdempotentTableOperations(table.operations())
    try:
        return operations, classes().org.apache.iceberg.Transactions.newTransaction(str(table.name()), operations)
    except Py4JError as error:
        raise operations.error or error from None


def commit(table: Any, pending: Any, operations: IdempotentTableOperations) -> None:
    """Commits a transaction; conflicts with others are tried again as Iceberg does, on what is there then.

    Raises:
        Py4JJavaError: It was refused, or its outcome is unknown. Of one that was refused for a conflict, the last
            word is that it has not landed.
    """
    new = classes().java.util.HashSet(pending.table().snapshots())
    new.removeAll(table.snapshots())
    made = [int(one.snapshotId()) for one in listed(new)]
    retries, wait, most = (int(table.properties().get(f"commit.retry.{k}") or v) for k, v in RETRIES.items())
    for tried in range(retries + 1):
        try:
            pending.commitTransaction()
        except Py4JError as error:
            raise operations.error or error from None
        refused = operations.refused()
        if refused is None:
            return
        if refused.java_exception.getClass().getSimpleName() != CONFLICT:
            raise refused
        table.refresh()
        if any(table.snapshot(one) is not None for one in made):
            return
        if tried == retries:
            raise refused
        time.sleep(min(wait * 2**tried, most) / 1000)
