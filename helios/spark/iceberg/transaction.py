"""A table as Spark's writers see it while they write a batch: all that they commit goes into one transaction.

Spark's Iceberg writer commits by itself, each mode in its own way, with no room for a second update. But it asks its
table for the operation that it commits. A batch is written to a view of its table: the view reads as the table does,
its operations belong to a transaction, and each is stamped and fenced before Spark gets it. So append, overwrite,
delete and MERGE all land together with the pipeline's record, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from helios.spark.iceberg import commit, scan_metrics
from helios.spark.iceberg.history import History
from helios.spark.jvm.classes import classes

ALWAYS = {
    # Iceberg's default keeps a writer open per partition: 1 GB of heap ends at some 500 of them. Sorted rows need one.
    "write.spark.fanout.enabled": "false",
}


class TransactionalTable:
    """Implements `org.apache.iceberg.Table` over a table and a transaction on it.

    Args:
        table: Iceberg's table object, which is read.
        transaction: The transaction that the operations belong to.
        prepare: Stamps and fences an operation.
        properties: A Java map that writers read instead of the table's own.
        pinned: The snapshot that scans read, where Spark's scan does not pin one itself.
    """

    def __init__(
        self, table: Any, transaction: Any, prepare: Callable[[Any], None], properties: Any, pinned: int | None
    ) -> None:
        self._table = table
        self._pinned = pinned
        self._pending = transaction.table()
        self._prepare = prepare
        self._properties = properties
        self._name = str(table.name())
        self.within: Any | None = None  # an expression: files that cannot meet it are not read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._table, name)

    def _open(self, operation: Any) -> Any:
        self._prepare(operation)
        return operation

    def properties(self) -> Any:
        return self._properties

    def newBatchScan(self) -> Any:
        scan = self._table.newBatchScan()
        scan = scan.useSnapshot(self._pinned) if self._pinned is not None else scan
        return scan.filter(self.within) if self.within is not None else scan

    def newAppend(self) -> Any:
        return self._open(self._pending.newAppend())

    def newFastAppend(self) -> Any:
        return self._open(self._pending.newFastAppend())

    def newOverwrite(self) -> Any:
        return self._open(self._pending.newOverwrite())

    def newReplacePartitions(self) -> Any:
        return self._open(self._pending.newReplacePartitions())

    def newRowDelta(self) -> Any:
        return self._open(self._pending.newRowDelta())

    def newDelete(self) -> Any:
        return self._open(self._pending.newDelete())

    def toString(self) -> str:
        return self._name

    def hashCode(self) -> int:
        return 0

    def equals(self, other: Any) -> bool:
        return False

    class Java:
        implements = ("org.apache.iceberg.Table", "org.apache.iceberg.HasTableOperations")


ADVISORY = "write.spark.advisory-partition-size-bytes"
"""How much of what a command shuffles one task writes, as far as Spark may choose."""
SMALLEST_SHARE = 4 << 20


@dataclass(frozen=True, kw_only=True)
class MergeScope:
    """The rows of its target that a command can change: those whose key is in the batch.

    Attributes:
        narrow: Leaves only those of a DataFrame of the target's rows.
        bounds: Between which values, as Iceberg's expressions take them, the batch's keys lie, by column.
        rows: The rows that it stores.
    """

    narrow: Callable[[DataFrame], DataFrame]
    bounds: Mapping[str, Bound]
    rows: int


@dataclass(frozen=True)
class Bound:
    """The smallest and the largest value of a column, and the type for which they stand."""

    kind: DataType
    low: Any
    high: Any


class Transaction:
    """The transaction of one batch, and the commands by which Spark fills it.

    Args:
        spark: The session of the batch.
        table: Iceberg's table object; the batch is written onto the state that it shows.
        prepare: Gives what stamps and fences the operations of one try.
        branch: The branch that is read and written; None for main.
        properties: What writers follow, whatever the table itself says.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Any,
        prepare: Callable[[], Callable[[Any], None]],
        branch: str | None,
        properties: Mapping[str, str],
    ) -> None:
        jvm = classes()
        # Spark asks its table from threads of its own, which reach Python by the callback server.
        listen: Any = ensure_callback_server_started
        listen(spark.sparkContext._gateway)
        self.spark = spark
        self.table = table
        self.branch = branch
        self._jvm = jvm
        self._prepare = prepare
        self._shown = jvm.java.util.HashMap(table.properties())
        for key, value in {**ALWAYS, **properties}.items():
            self._shown.put(key, value)
        self.rows: int | None = None  # that the batch stores, where what it writes may hold others too
        self.begin()

    def begin(self) -> None:
        """Begins, and forgets what was done before."""
        self._operations, self._pending = commit.begin(self.table)
        self._before = self._head()
        # For Spark 4.1 Iceberg pins the scans of its own table class alone; for 4.0 it names the branch to any.
        before = self._before if minor(self.spark) == "4.1" else None
        pinned = int(before.snapshotId()) if before is not None else None
        self._view = TransactionalTable(self.table, self._pending, self._prepare(), self._shown, pinned)

    # what the batch finds

    @property
    def base(self) -> int | None:
        """The snapshot that the batch is written onto; None for an empty table."""
        return int(self._before.snapshotId()) if self._before is not None else None

    def read(self) -> DataFrame:
        """The table as the batch found it; what is read counts when conflicts are looked for."""
        return DataFrame(self._rows(self._relation()), self.spark)

    # what the batch does

    def append(self, df: DataFrame) -> None:
        self._write("AppendData", df)

    def overwrite(self, df: DataFrame, condition: str, options: Mapping[str, str]) -> None:
        """Replaces whole files whose rows meet a condition; a file of which only some do is refused by Iceberg."""
        expression = self._parser().parseExpression(condition)
        self._write("OverwriteByExpression", df, expression, options=options)

    def overwrite_partitions(self, df: DataFrame, options: Mapping[str, str]) -> None:
        self._write("OverwritePartitionsDynamic", df, options=options)

    def sql(self, command: str, batch: DataFrame | None = None, reach: MergeScope | None = None) -> None:
        """Runs a MERGE or DELETE.

        Args:
            command: Its text, in which the table is called `target` and the rows `batch`.
            batch: The rows.
            reach: What it can change; nothing else is read, but for the other rows of files that are written anew.
        """
        plans = {"target": self._relation()}
        if batch is not None:
            plans["batch"] = _plan(batch)
        plan = self._replaced(self._parser().parsePlan(command), lambda node: _named(self._jvm, node, plans))
        if reach is not None:
            self.rows = reach.rows
            target = self.read()
            self._view.within = self._within(target, reach.bounds)
            self._share(target, reach.rows)
            plan = self._narrowed(plan, reach.narrow)
        scan_metrics.ran(self._rows(plan))

    # its end

    @property
    def snapshots(self) -> list[Any]:
        """The snapshots that the batch has made, newest first and not yet committed; none when it changed nothing."""
        since = History(self._pending.table(), self._head()).since(self._before)
        assert since is not None  # the transaction stands on what was before it
        return since

    def record(self, key: str, value: str) -> None:
        """Sets a property of the table with it."""
        self._pending.updateProperties().set(key, value).commit()

    def commit(self) -> None:
        commit.commit(self.table, self._pending, self._operations)

    def _head(self) -> Any | None:
        pending = self._pending.table()
        if self.branch is None:
            return pending.currentSnapshot()
        ref = pending.refs().get(self.branch)
        return pending.snapshot(ref.snapshotId()) if ref is not None else None

    # Spark's plans

    def _relation(self) -> Any:
        table = SPARK_TABLE[minor(self.spark)](self._jvm, self._view, self.branch)
        session: Any = self.spark._jsparkSession
        # The catalog knows the functions of partition transforms. No identifier: by it Spark would load the table anew.
        catalog = session.sessionState().catalogManager().catalog(str(self.table.name()).partition(".")[0])
        option: Any = self._jvm.scala.Option
        v2: Any = self._jvm.org.apache.spark.sql.execution.datasources.v2
        return v2.DataSourceV2Relation.create(table, option.apply(catalog), option.empty())

    def _write(self, command: str, df: DataFrame, *arguments: Any, options: Mapping[str, str] | None = None) -> None:
        given = self._jvm.java.util.HashMap()
        for key, value in (options or {}).items():
            given.put(key, value)
        scala_map = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(given)
        plans: Any = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        plan = getattr(plans, command).byName(self._relation(), _plan(df), *arguments, scala_map)
        scan_metrics.ran(self._rows(plan))

    def _rows(self, plan: Any) -> Any:
        """Runs a command at once; a query is only analyzed."""
        classic: Any = self._jvm.org.apache.spark.sql.classic
        return classic.Dataset.ofRows(self.spark._jsparkSession, plan)

    def _parser(self) -> Any:
        session: Any = self.spark._jsparkSession
        return session.sessionState().sqlParser()

    def _share(self, target: DataFrame, rows: int) -> None:
        """Has all cores write a batch: the new rows of an unpartitioned table would come to one of them.

        Not with deletion vectors, of which a data file has one, that two tasks cannot write.
        """
        if int(self._jvm.org.apache.iceberg.TableUtil.formatVersion(self.table)) < 3:
            width = int(target._jdf.schema().defaultSize())
            share = rows * width // self.spark.sparkContext.defaultParallelism
            self._shown.putIfAbsent(ADVISORY, str(max(share, SMALLEST_SHARE)))

    def _within(self, target: DataFrame, bounds: Mapping[str, Bound]) -> Any:
        """What a file must be able to meet to be read.

        Iceberg gets it beside Spark: a filter of Spark's would have each batch's values in its code, which the JVM
        would compile anew for each.
        """
        make: Any = self._jvm.org.apache.iceberg.expressions.Expressions
        both = getattr(make, "and")
        kinds = {field.name.lower(): (field.name, field.dataType) for field in target.schema.fields}
        found = make.alwaysTrue()
        for column, bound in bounds.items():
            name, kind = kinds[column.lower()]
            if kind == bound.kind and bound.low is not None:
                ends = make.greaterThanOrEqual(name, bound.low), make.lessThanOrEqual(name, bound.high)
                found = both(found, both(*ends))
        return found

    def _narrowed(self, command: Any, narrow: Callable[[DataFrame], DataFrame]) -> Any:
        """A command that reads less of its target."""
        session: Any = self.spark._jsparkSession
        skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        plan = session.sessionState().executePlan(command, skip).analyzed()
        if _kind(plan) != "WriteDelta":
            return plan

        def narrowed(node: Any) -> Any | None:
            read = _kind(node) == "DataSourceV2Relation" and _kind(node.table()) == "RowLevelOperationTable"
            return _plan(narrow(DataFrame(self._rows(node), self.spark))) if read else None

        return self._replaced(plan, narrowed)

    def _replaced(self, node: Any, replacement: Callable[[Any], Any | None]) -> Any:
        """A plan with other leaves."""
        children = [node.children().apply(i) for i in range(node.children().size())]
        if not children:
            found = replacement(node)
            return node if found is None else found
        replaced = self._jvm.java.util.ArrayList()
        for child in children:
            replaced.add(self._replaced(child, replacement))
        return node.withNewChildren(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(replaced))


class AddedFiles:
    """The files that snapshots add, read while their manifests are there."""

    def __init__(self, table: Any, snapshots: Iterable[Any]) -> None:
        self._io = table.io()
        # Iceberg caches the lists in the snapshots: nothing is iterated unless the commit fails.
        self._lists = [
            files(self._io) for snapshot in snapshots for files in (snapshot.addedDataFiles, snapshot.addedDeleteFiles)
        ]

    def delete(self) -> None:
        """Deletes the files of a change that did not land."""
        for files in self._lists:
            for file in files:
                self._io.deleteFile(file.location())


def changes_files(snapshot: Any) -> bool:
    """Whether a snapshot adds or removes any file."""
    summary = snapshot.summary()
    return any(int(summary.get(key) or 0) for key in CHANGED_FILES)


CHANGED_FILES = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")


def minor(spark: SparkSession) -> str:
    """Spark's version by which Iceberg's runtimes go, such as "4.1"."""
    return ".".join(spark.version.split(".")[:2])


def _named(jvm: Any, node: Any, plans: Mapping[str, Any]) -> Any | None:
    """The plan that a relation's name stands for."""
    if _kind(node) != "UnresolvedRelation":
        return None
    name = str(node.multipartIdentifier().mkString("."))
    if name.lower() not in plans:
        return None
    alias = jvm.org.apache.spark.sql.catalyst.AliasIdentifier(name)
    return jvm.org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias(alias, plans[name.lower()])


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _plan(df: DataFrame) -> Any:
    frame: Any = df._jdf
    return frame.queryExecution().analyzed()


def _table_40(jvm: Any, view: TransactionalTable, branch: str | None) -> Any:
    spark_table = jvm.org.apache.iceberg.spark.source.SparkTable
    return spark_table(view, branch, False) if branch else spark_table(view, False)


def _table_41(jvm: Any, view: TransactionalTable, branch: str | None) -> Any:
    spark_table = jvm.org.apache.iceberg.spark.source.SparkTable
    return spark_table.create(view, branch) if branch else spark_table(view)


SPARK_TABLE: dict[str, Callable[[Any, TransactionalTable, str | None], Any]] = {"4.0": _table_40, "4.1": _table_41}
"""How Iceberg's table for each Spark version is made over one of its own tables."""
