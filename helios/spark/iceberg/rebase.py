"""A MERGE beside appending writers: their commits are no conflict if they hold no key of the batch.

Iceberg would refuse the MERGE for any file that was added since it read the table, and each try would run it again and
lose again. So before each try the files that were added are looked at: by the bounds of their columns, then by their
keys. Where none is in the batch, the MERGE would have given the same files, and is validated from there on.

The look must be shorter than others take from commit to commit. So few and small files are read by Iceberg's own
reader, in the driver, and only others by a job of Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.spark.iceberg.batch_keys import BatchKeys
from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks, scan_task_scope
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.spark.jvm.types.updates import JavaRowChange

FEW_FILES = 32
"""The most files that the driver reads one after the other; Spark's tasks are faster with more."""
SMALL_BYTES = 32 << 20
"""The most bytes of them."""


class Rebase:
    """Moves the row changes of a MERGE onto commits that hold no key of its batch.

    Args:
        spark: The session of the batch.
        table: Iceberg's table object.
        base: The snapshot that the MERGE has read.
        changes: Its row deltas, or overwrites of files.
        narrow: Keeps the rows of a DataFrame whose key is in the batch.
        keys: The batch's keys.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaTable,
        base: JavaSnapshot,
        changes: Sequence[JavaRowChange],
        *,
        narrow: Callable[[DataFrame], DataFrame],
        keys: BatchKeys,
    ) -> None:
        self._spark = spark
        self._table = table
        self._checked = base
        self._narrow = narrow
        self._keys = keys
        self._changes = changes
        self._met = False
        for change in changes:
            change.conflictDetectionFilter(keys.within)

    def onto(self, head: JavaSnapshot | None) -> bool:
        """Validates the row changes from a head on, if the commits up to it only append other keys.

        Otherwise Iceberg refuses them, and the MERGE must run again.

        Returns:
            Whether the row changes were moved.
        """
        if self._met or head is None or head.snapshotId() == self._checked.snapshotId():
            return False
        try:
            self._met = not self._apart(head)
        except (Py4JError, PySparkException):  # a file is gone, or cannot be read: nothing is known
            self._met = True
        if self._met:
            return False
        for change in self._changes:
            change.validateFromSnapshot(int(head.snapshotId()))
        self._checked = head
        return True

    def _apart(self, head: JavaSnapshot) -> bool:
        """True if the commits up to a head only append rows whose keys are not in the batch."""
        since = History(self._table, head).since(self._checked)
        if since is None or any(str(snapshot.operation()) != "append" for snapshot in since):
            return False
        expression = self._expression()
        held = self._holds_one(expression, head) if expression is not None and _few_and_small(since) else None
        if held is not None:
            return not held
        scan = self._table.newIncrementalAppendScan().fromSnapshotExclusive(int(self._checked.snapshotId()))
        scan = scan.toSnapshot(int(head.snapshotId())).filter(self._keys.within if expression is None else expression)
        tasks = plan_tasks(self._spark, scan)
        if not tasks.size():
            return True
        with scan_task_scope():
            met = self._narrow(read_tasks(self._spark, self._table, tasks)).select(F.lit(1)).limit(1)
            return not met.collect()

    def _expression(self) -> JavaExpression | None:
        """The expression for the rows with the batch's keys; None if Spark must compare them."""
        try:
            return self._keys.expression
        except Py4JError:  # a value that Iceberg cannot take
            return None

    def _holds_one(self, expression: JavaExpression, head: JavaSnapshot) -> bool | None:
        """True if a row that was added up to a head meets an expression; None if the driver cannot read the files."""
        columns: JavaList[str] = classes().java.util.ArrayList()
        for column in self._keys.columns:
            columns.add(column)
        since, until = int(self._checked.snapshotId()), int(head.snapshotId())
        read = classes().org.apache.iceberg.data.IcebergGenerics.read(self._table).where(expression).select(columns)
        try:
            rows = read.appendsBetween(since, until).build()
            try:
                return bool(rows.iterator().hasNext())
            finally:
                rows.close()
        except Py4JError:  # Spark may have what it takes, or tells what is wrong
            return None


def _few_and_small(since: Sequence[JavaSnapshot]) -> bool:
    """True if the driver reads the files that snapshots add in less time than Spark takes to start a job."""
    files = size = 0
    for snapshot in since:
        summary = snapshot.summary()
        files += int(summary.get("added-data-files") or FEW_FILES + 1)
        size += int(summary.get("added-files-size") or SMALL_BYTES + 1)
    return files <= FEW_FILES and size <= SMALL_BYTES
