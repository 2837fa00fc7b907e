"""A MERGE beside appending writers: their commits are no conflict if they contain no key of the batch.

Iceberg refuses a MERGE if any file was added since the MERGE read the table. A retry would run the MERGE again, and
conflict again. So before each try, Helios checks the added files: first their bounds, then their keys. If none of the
keys is in the batch, the MERGE would have written the same files, so Iceberg has to validate only later commits.

The check must take less time than other writers need for a commit. So Iceberg's own reader reads a few small files in
the driver, and only more or larger files are read by a job of Spark.
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
"""The most files that the driver reads, one after the other; Spark's tasks read more files faster."""
SMALL_BYTES = 32 << 20
"""The most bytes of files that the driver reads."""


class Rebase:
    """Moves the row changes of a MERGE onto commits that contain no key of its batch.

    Args:
        spark: The session of the batch.
        table: Iceberg's table object.
        base: The snapshot that the MERGE has read.
        changes: The MERGE's row deltas, or its overwrites of files.
        narrow: Filters a DataFrame of the target to the rows whose key is in the batch.
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
        self._checked = base  # the snapshot up to which the commits are checked
        self._narrow = narrow
        self._keys = keys
        self._changes = changes
        self._conflicts = False
        for change in changes:
            change.conflictDetectionFilter(keys.within)

    def onto(self, head: JavaSnapshot | None) -> bool:
        """Moves the row changes onto a head, if the commits up to it only append keys that are not in the batch.

        Otherwise Iceberg refuses the row changes, and the MERGE must run again.

        Returns:
            True if the row changes were moved: Iceberg then validates only commits after the head.
        """
        if self._conflicts or head is None or head.snapshotId() == self._checked.snapshotId():
            return False
        try:
            self._conflicts = not self._appends_other_keys(head)
        except (Py4JError, PySparkException):  # a file is gone or cannot be read, so its keys are unknown
            self._conflicts = True
        if self._conflicts:
            return False
        for change in self._changes:
            change.validateFromSnapshot(int(head.snapshotId()))
        self._checked = head
        return True

    def _appends_other_keys(self, head: JavaSnapshot) -> bool:
        """True if the commits up to a head only append rows whose keys are not in the batch."""
        since = History(self._table, head).since(self._checked)
        if since is None or any(str(snapshot.operation()) != "append" for snapshot in since):
            return False
        expression = self._expression()
        if expression is not None and _few_and_small(since):
            has_key = self._has_match(expression, head)
            if has_key is not None:
                return not has_key
        scan = self._table.newIncrementalAppendScan().fromSnapshotExclusive(int(self._checked.snapshotId()))
        scan = scan.toSnapshot(int(head.snapshotId())).filter(self._keys.within if expression is None else expression)
        tasks = plan_tasks(self._spark, scan)
        if not tasks.size():
            return True
        with scan_task_scope():
            with_key = self._narrow(read_tasks(self._spark, self._table, tasks)).select(F.lit(1)).limit(1)
            return not with_key.collect()

    def _expression(self) -> JavaExpression | None:
        """The expression for the rows with the batch's keys; None if Spark must compare the keys."""
        try:
            return self._keys.expression
        except Py4JError:  # Iceberg cannot parse a value
            return None

    def _has_match(self, expression: JavaExpression, head: JavaSnapshot) -> bool | None:
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
        except Py4JError:  # Spark may be able to read the files; if not, the rebase is given up
            return None


def _few_and_small(since: Sequence[JavaSnapshot]) -> bool:
    """True if the driver reads the files that snapshots add in less time than Spark takes to start a job."""
    files = size = 0
    for snapshot in since:
        summary = snapshot.summary()
        # A summary without these entries counts as too many files.
        files += int(summary.get("added-data-files") or FEW_FILES + 1)
        size += int(summary.get("added-files-size") or SMALL_BYTES + 1)
    return files <= FEW_FILES and size <= SMALL_BYTES
