"""Rebases a MERGE onto the commits of appending writers, if these commits contain no key of the batch.

Iceberg refuses a MERGE if any file was added since the MERGE read the table. A retry would run the MERGE again, and
could conflict again. So before each try, Helios checks the added files: first their column bounds, then their keys. If
none of the keys is in the batch, the MERGE would have written the same files. Iceberg then has to validate only later
commits.

The check must take less time than other writers need for a commit. So Iceberg's own reader reads a few small files in
the driver. A Spark job reads the files only if there are more of them, or if they are larger.
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

MAX_FILES = 32
"""The maximum number of files that the driver reads, one after the other. If there are more, Spark is faster."""
MAX_BYTES = 32 << 20
"""The maximum number of bytes that the driver reads."""


class Rebase:
    """Moves the row changes of a MERGE onto commits that contain no key of its batch.

    Args:
        base: The snapshot that the MERGE has read.
        changes: The MERGE's row deltas, or its overwrites of files.
        narrow: Filters a DataFrame of the target for the rows whose key is in the batch.
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
        self._checked = base  # all commits up to this snapshot are checked
        self._narrow = narrow
        self._keys = keys
        self._changes = changes
        self._conflicts = False
        for change in changes:
            change.conflictDetectionFilter(keys.bounds)

    def onto(self, head: JavaSnapshot | None) -> bool:
        """Moves the row changes onto a head, if all commits up to it only append rows with other keys than the batch's.

        Returns:
            True if the row changes were moved: Iceberg then validates only commits after the head. False if there are
            no new commits, or if Iceberg will refuse the row changes, so that the MERGE must run again.
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
        expression = self._key_expression()
        if expression is not None and _few_and_small(since):
            has_key = self._has_match(expression, head)
            if has_key is not None:
                return not has_key
        scan = self._table.newIncrementalAppendScan().fromSnapshotExclusive(int(self._checked.snapshotId()))
        scan = scan.toSnapshot(int(head.snapshotId())).filter(self._keys.bounds if expression is None else expression)
        tasks = plan_tasks(self._spark, scan)
        if not tasks.size():
            return True
        with scan_task_scope():
            rows_with_key = self._narrow(read_tasks(self._spark, self._table, tasks))
            return not rows_with_key.select(F.lit(1)).limit(1).collect()

    def _key_expression(self) -> JavaExpression | None:
        """The expression that matches the rows with a key of the batch; None if Spark must compare the keys."""
        try:
            return self._keys.expression
        except Py4JError:  # Iceberg cannot parse a value
            return None

    def _has_match(self, expression: JavaExpression, head: JavaSnapshot) -> bool | None:
        """True if the commits up to a head added a row that matches; None if the driver cannot read the files."""
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
        except Py4JError:  # perhaps Spark can read the files; if not, there is no rebase
            return None


def _few_and_small(since: Sequence[JavaSnapshot]) -> bool:
    """True if snapshots add so few and small files that the driver reads them before Spark could start a job."""
    files = size = 0
    for snapshot in since:
        summary = snapshot.summary()
        # A summary without these entries counts as too many files.
        files += int(summary.get("added-data-files") or MAX_FILES + 1)
        size += int(summary.get("added-files-size") or MAX_BYTES + 1)
    return files <= MAX_FILES and size <= MAX_BYTES
