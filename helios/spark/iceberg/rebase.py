"""A MERGE beside writers that append: their commits are no conflict where they hold no key of the batch.

Iceberg would refuse the MERGE for any file that was added since it read the table, and each try would run it again and
lose again. So before each try the files that were added are looked at: by the bounds of their columns, then by their
keys. Where none is in the batch, the MERGE would have given the same files, and is validated from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.spark.iceberg.history import History
from helios.spark.iceberg.scan_tasks import plan_tasks, read_tasks, scan_task_scope
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.updates import JavaRowDelta


class Rebase:
    """Moves the row deltas of a MERGE onto commits that hold no key of its batch.

    Args:
        spark: The session of the batch.
        table: Iceberg's table object.
        base: The snapshot that the MERGE has read.
        deltas: The row deltas.
        narrow: Keeps the rows of a DataFrame whose key is in the batch.
        within: What a file must be able to meet to hold such a row.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaTable,
        base: JavaSnapshot,
        deltas: Sequence[JavaRowDelta],
        *,
        narrow: Callable[[DataFrame], DataFrame],
        within: JavaExpression,
    ) -> None:
        self._spark = spark
        self._table = table
        self._checked = base
        self._narrow = narrow
        self._within = within
        self._deltas = deltas
        self._met = False
        for delta in deltas:
            delta.conflictDetectionFilter(within)

    def onto(self, head: JavaSnapshot | None) -> None:
        """Validates the row deltas from a head on, if the commits up to it only append other keys.

        Otherwise Iceberg refuses them, and the MERGE must run again.
        """
        if self._met or not self._deltas or head is None or head.snapshotId() == self._checked.snapshotId():
            return
        try:
            self._met = not self._apart(head)
        except (Py4JError, PySparkException):  # a file is gone, or cannot be read: nothing is known
            self._met = True
        if not self._met:
            for delta in self._deltas:
                delta.validateFromSnapshot(int(head.snapshotId()))
            self._checked = head

    def _apart(self, head: JavaSnapshot) -> bool:
        """Whether the commits up to a head only append rows whose keys are not in the batch."""
        since = History(self._table, head).since(self._checked)
        if since is None or any(str(snapshot.operation()) != "append" for snapshot in since):
            return False
        scan = self._table.newIncrementalAppendScan().fromSnapshotExclusive(int(self._checked.snapshotId()))
        tasks = plan_tasks(self._spark, scan.toSnapshot(int(head.snapshotId())).filter(self._within))
        if not tasks.size():
            return True
        with scan_task_scope():
            met = self._narrow(read_tasks(self._spark, self._table, tasks)).select(F.lit(1)).limit(1)
            return not met.collect()
