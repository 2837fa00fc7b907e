"""One Iceberg transaction for everything that Spark writes for a batch.

Spark writes a batch to a `TransactionalTable`, whose operations belong to the transaction. So the changes of an append,
overwrite, delete or MERGE are committed together with the pipeline's record, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from helios.model.retry import NEVER, CommitRetries
from helios.spark.iceberg import commit, foreign_files, overflow, partitions, scan_metrics
from helios.spark.iceberg.batch_keys import BatchKeys
from helios.spark.iceberg.commit import HeldCommit
from helios.spark.iceberg.history import History
from helios.spark.iceberg.merge_scope import IcebergScope, MergeScope, RowChange, iceberg_scope_of
from helios.spark.iceberg.rebase import Rebase
from helios.spark.iceberg.transactional_table import TransactionalTable
from helios.spark.iceberg.validators import Watch
from helios.spark.jvm.callbacks import until_scope_ends
from helios.spark.jvm.classes import allow_callbacks, classes, listed
from helios.spark.jvm.types.files import JavaDataFile, JavaTableScan
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaList, JavaMap, JavaObject
from helios.spark.jvm.types.spark import (
    JavaDataset,
    JavaLogicalPlan,
    JavaParser,
    JavaRelation,
    JavaSparkSession,
    JavaUnresolvedRelation,
)
from helios.spark.jvm.types.updates import JavaSnapshotUpdate, JavaTransaction
from helios.spark.jvm.version import spark_version

WRITER_PROPERTIES = {
    # Rows sorted by partition need one open writer. By default each partition has one, and 500 fill 1 GB of heap.
    "write.spark.fanout.enabled": "false",
    # With "true", Spark would not compare columns, and would not resolve the names of a MERGE.
    "write.spark.accept-any-schema": "false",
}

MERGES_MANIFESTS = "commit.manifest-merge.enabled"
ADVISORY_SIZE = "write.spark.advisory-partition-size-bytes"
"""The size in bytes of a shuffle partition, which one task writes; Spark takes it as advice."""
SMALLEST_ADVISORY_SIZE = 4 << 20
"""The smallest advisory size, so that a small batch is written by few tasks, into few files."""


class Transaction:
    """The transaction of one batch, and the commands with which Spark writes into it.

    Args:
        table: Iceberg's table object; the batch is written onto its current state.
        prepare: Called when a transaction begins; returns the function that stamps its operations and adds validators.
        branch: The branch that is read and written; None for main.
        properties: Properties for the writers, which override the table's own.
        retries: How often a conflicting commit is retried without writing the batch again; None if the caller retries.

    Attributes:
        rows: The number of rows that a MERGE stores; its files may have other rows, too. None for other commands.
        watch: Finds conflicts that Iceberg does not detect.
        properties: The properties that the writers see: the table's own, with the overrides.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: JavaTable,
        prepare: Callable[[], Callable[[JavaSnapshotUpdate], None]],
        branch: str | None,
        properties: Mapping[str, str],
        *,
        retries: CommitRetries | None = None,
    ) -> None:
        allow_callbacks()  # Spark calls the table, which is a Python object, from its own threads
        self.spark, self.table, self.branch = spark, table, branch
        self.rows: int | None = None
        self.watch = Watch()
        self._jvm, self._version = classes(), spark_version(spark)
        self._prepare = prepare
        self._retries = retries or CommitRetries(NEVER)
        self.properties: JavaMap[str, str] = self._jvm.java.util.HashMap(table.properties())
        for key, value in {**WRITER_PROPERTIES, **properties}.items():
            self.properties.put(key, value)
        if _has_uuid_bucket(table):  # Spark cannot sort the rows by partition
            self.properties.put("write.spark.fanout.enabled", "true")
        self.begin()

    def begin(self) -> None:
        """Begins an empty transaction in place of the current one."""
        self._operations, self._transaction = commit.begin(self.table)
        self._base, self._metadata = self._head(), self.table.operations().current()
        pinned = int(self._base.snapshotId()) if self._base is not None and self._version.pins_scans else None
        table = TransactionalTable(self.table, self._transaction, self._prepare(), self.properties, pinned)
        self._written_table = until_scope_ends(table)

    # the state that the batch is written onto

    @property
    def base(self) -> int | None:
        """The id of the snapshot that the batch is written onto; None for an empty table."""
        return int(self._base.snapshotId()) if self._base is not None else None

    def read(self) -> DataFrame:
        """The table at the start of the batch; the commit checks these reads for conflicts."""
        return DataFrame(self._run(self._relation()), self.spark)

    # the commands

    def append(self, df: DataFrame) -> None:
        self._write("AppendData", df)

    def append_files(self, files: Iterable[JavaDataFile]) -> None:
        """Appends existing data files, as Spark's own append does with the files of its tasks."""
        append = self._written_table.newAppend()
        for file in files:
            append.appendFile(file)
        self._add_operation(append)

    def delete_files(self, files: Iterable[JavaDataFile]) -> None:
        """Removes whole data files. If a file no longer exists at the commit, this is a conflict."""
        delete = self._written_table.newDelete().validateFilesExist()
        for file in files:
            delete.deleteFile(file)
        self._add_operation(delete)

    def replace_partitions(self, files: Iterable[JavaDataFile]) -> None:
        """Replaces all data files in the partitions of `files`. A later commit to these partitions is a conflict."""
        added = list(files)
        if not added:  # Spark's own writer makes no snapshot either
            return
        replace = self._written_table.newReplacePartitions()
        if self.base is not None:
            replace.validateFromSnapshot(self.base)
        replace.validateNoConflictingData()
        replace.validateNoConflictingDeletes()
        for file in added:
            replace.addFile(file)
        self._add_operation(replace)

    def _add_operation(self, operation: JavaSnapshotUpdate) -> None:
        """Adds an operation on existing files to the transaction."""
        operation.set("spark.app.id", str(self.spark.sparkContext.applicationId))
        if self.branch is not None:
            operation.toBranch(self.branch)
        operation.commit()

    def overwrite(self, df: DataFrame, condition: str, options: Mapping[str, str]) -> None:
        """Replaces the files whose rows all meet a condition. Iceberg fails if only some rows of a file meet it."""
        foreign_files.verify_bounds(self.spark, self.table, self._base, condition)
        self._write("OverwriteByExpression", df, self._parser().parseExpression(condition), options=options)

    def has_former_partitioning(self) -> bool:
        """True if the table has data files of another partition spec than its current one."""
        return self._base is not None and partitions.has_former_specs(self.table, self._base)

    def unordered_columns(self) -> frozenset[str]:
        """The lower-case names of the columns whose partitions are not in the order of their values."""
        snapshots = [self._base] if self._base is not None else []
        return frozenset(map(str.lower, overflow.unordered_columns(self.table, snapshots)))

    def overwrite_partitions(self, df: DataFrame, options: Mapping[str, str]) -> None:
        self._write("OverwritePartitionsDynamic", df, options=options)

    def delete(self, condition: str) -> None:
        """Deletes the rows that meet a condition over the table's columns."""
        foreign_files.verify_state(self.spark, self.table, self._base, by_bounds=True)
        delete = self._jvm.org.apache.spark.sql.catalyst.plans.logical.DeleteFromTable
        # Without an alias: with the alias `target`, a field of a struct column `target` would be taken for a column.
        scan_metrics.record_command(self._run(delete(self._relation(), self._parser().parseExpression(condition))))

    def sql(self, command: str, batch: DataFrame | None = None, scope: MergeScope | None = None) -> None:
        """Runs a MERGE.

        Args:
            command: The MERGE statement, in which the table is called `target` and the rows are called `batch`.
            scope: The rows that the MERGE can change. It reads only these rows, and the rest of files that it rewrites.
        """
        plans: dict[str, JavaLogicalPlan] = {"target": self._relation()}
        if batch is not None:
            # With cached data, because a copy-on-write command reads its source twice and needs the same rows.
            plans["batch"] = batch._jdf.queryExecution().withCachedData()
        plan = self._replace_leaves(self._parser().parsePlan(command), lambda node: self._resolved(node, plans))
        if scope is None:
            foreign_files.verify_state(self.spark, self.table, self._base, by_bounds=True)
            scan_metrics.record_command(self._run(plan))
            return
        target = self.read()
        limits = self._limit(scope, target)
        self._spread_write(target, scope.rows)
        scan_metrics.record_command(self._run(self._narrow_reads(plan, scope.narrow)))
        self._rebase_tries(scope, limits)

    def replace_rows(self, scope: MergeScope, change: Callable[[JavaTableScan], RowChange]) -> None:
        """Replaces and adds rows by adding existing files; the change is validated like a MERGE of the same scope.

        Args:
            scope: The rows that can change.
            change: Returns the files to add, given a scan of the target's files that may contain rows of the scope.
        """
        limits = self._limit(scope, self.read())
        scan = self.table.newBatchScan().filter(limits.key_range)
        files = change(scan.useSnapshot(self.base) if self.base is not None else scan)
        delta = self._written_table.newRowDelta()
        files.add_to(delta)
        delta.conflictDetectionFilter(limits.key_range)
        if self.base is not None:
            delta.validateFromSnapshot(self.base)
        delta.validateDeletedFiles().validateNoConflictingDeleteFiles().validateNoConflictingDataFiles()
        self._add_operation(delta)
        self._rebase_tries(scope, limits)

    def _limit(self, scope: MergeScope, target: DataFrame) -> IcebergScope:
        """Limits the following scans to a scope, and prepares row changes; returns the limits in Iceberg's terms."""
        self.rows = scope.rows
        limits = iceberg_scope_of(self.table, {field.name: field.dataType for field in target.schema.fields}, scope)
        foreign_files.verify_state(self.spark, self.table, self._base)
        self._written_table.scan_filter = limits.key_range
        self._written_table.before_change = self._without_manifest_merges
        return limits

    def _rebase_tries(self, scope: MergeScope, limits: IcebergScope) -> None:
        """Makes each try of the commit first move the row changes onto other writers' commits."""
        changes = self._written_table.row_changes
        if self._base is not None and changes:
            keys = BatchKeys(limits.columns, scope.keys, limits.key_range)
            rebase = Rebase(self.spark, self.table, self._base, changes, narrow=scope.narrow, keys=keys)
            self._operations.rebase = lambda: rebase.onto(_head_of(self.table, self.branch))

    # the commit

    @property
    def snapshots(self) -> list[JavaSnapshot]:
        """The snapshots of the batch before the commit, newest first; empty if the batch changed nothing."""
        since = History(self._transaction.table(), self._head()).since(self._base)
        assert since is not None  # the transaction began at the base
        return since

    def final_snapshots(self, *, even_empty: bool) -> list[JavaSnapshot]:
        """The snapshots of the batch. With `even_empty`, a batch that changed nothing gets an empty snapshot."""
        if even_empty and not self.snapshots:
            self.append_files(())
        return self.snapshots

    def set_record(self, key: str, value: Callable[[int], str], snapshots: Sequence[JavaSnapshot]) -> None:
        """Sets the table property with the pipeline's record, in the same commit.

        Args:
            value: Returns the value of the property, given the sequence number of the batch's newest snapshot.
            snapshots: The snapshots of the batch, newest first.
        """
        update, count = self._transaction.updateProperties(), len(snapshots)
        sequence = int(snapshots[0].sequenceNumber())
        update.set(key, value(sequence)).commit()
        if sequence:  # 0 in tables of format v1
            # On newer metadata the snapshots get other sequence numbers; each try applies the update again.
            self._operations.listeners.append(lambda new: update.set(key, value(int(new.lastSequenceNumber()) + count)))

    def commit(self) -> None:
        """Commits the batch; raises `Py4JJavaError` if the commit is refused, or if its outcome is unknown."""
        commit.commit(self.table, self._transaction, self._operations, self._retries)

    def hold(self) -> HeldCommit:
        """Returns the commit of the batch without making it, so that it can be a part of a commit of several tables."""
        return commit.hold(self.table, self._transaction, self._operations)

    def _head(self) -> JavaSnapshot | None:
        return _head_of(self._transaction.table(), self.branch)

    # Spark's plans

    @property
    def _session(self) -> JavaSparkSession:
        session: JavaSparkSession = self.spark._jsparkSession
        return session

    def _parser(self) -> JavaParser:
        return self._session.sessionState().sqlParser()

    def _relation(self) -> JavaRelation:
        table = self._version.connector_table(self._written_table, self.branch)
        # Spark needs the catalog for the functions of partition transforms. An identifier would make it load the table.
        catalog = self._session.sessionState().catalogManager().catalog(str(self.table.name()).partition(".")[0])
        option = self._jvm.scala.Option
        create = self._jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create
        relation: JavaRelation = create(table, option.apply(catalog), option.empty())
        return relation

    def _write(self, command: str, df: DataFrame, *args: JavaObject, options: Mapping[str, str] | None = None) -> None:
        java_map: JavaMap[str, str] = self._jvm.java.util.HashMap()
        for key, value in (options or {}).items():
            java_map.put(key, value)
        scala_map = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(java_map)
        plans = self._jvm.org.apache.spark.sql.catalyst.plans.logical
        plan = getattr(plans, command).byName(self._relation(), _analyzed_plan(df), *args, scala_map)
        scan_metrics.record_command(self._run(plan))

    def _run(self, plan: JavaLogicalPlan) -> JavaDataset:
        """Runs a command immediately; a query is only analyzed."""
        dataset: JavaDataset = self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session, plan)
        return dataset

    def _spread_write(self, target: DataFrame, rows: int) -> None:
        """Spreads the write over all cores, because Spark would write an unpartitioned table with one core.

        Format v3 is excluded: a data file has a single deletion vector, which two tasks cannot write together.
        """
        if int(self._jvm.org.apache.iceberg.TableUtil.formatVersion(self.table)) < 3:
            width = int(target._jdf.schema().defaultSize())
            size = rows * width // self.spark.sparkContext.defaultParallelism
            self.properties.putIfAbsent(ADVISORY_SIZE, str(max(size, SMALLEST_ADVISORY_SIZE)))

    def _without_manifest_merges(self) -> JavaTransaction:
        """The transaction; a new one that merges no manifests if other writers have committed meanwhile.

        With merges, each try would merge some hundred manifests again, and another writer would always commit first.
        """
        try:
            self.table.refresh()
        except Py4JError:  # the commit raises the same error
            return self._transaction
        head = _head_of(self.table, self.branch)
        if head is not None and head.snapshotId() != self.base:
            properties: JavaMap[str, str] = self._jvm.java.util.HashMap(self._metadata.properties())
            properties.put(MERGES_MANIFESTS, "false")
            start = self._metadata.replaceProperties(properties)
            self._transaction = commit.begin_on(self.table, self._operations, start)
        return self._transaction

    def _narrow_reads(self, command: JavaLogicalPlan, narrow: Callable[[DataFrame], DataFrame]) -> JavaLogicalPlan:
        """The plan of a command; a merge-on-read command then reads only the rows that `narrow` keeps."""
        skip = self._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        plan = self._session.sessionState().executePlan(command, skip).analyzed()
        if _class_name(plan) != "WriteDelta":
            return plan

        def narrowed(node: JavaLogicalPlan) -> JavaLogicalPlan | None:
            is_read = _class_name(node) == "DataSourceV2Relation"
            if not is_read or _class_name(cast("JavaRelation", node).table()) != "RowLevelOperationTable":
                return None
            return _analyzed_plan(narrow(DataFrame(self._run(node), self.spark)))

        return self._replace_leaves(plan, narrowed)

    def _replace_leaves(
        self, node: JavaLogicalPlan, replacement: Callable[[JavaLogicalPlan], JavaLogicalPlan | None]
    ) -> JavaLogicalPlan:
        """The plan with each leaf replaced by the plan that `replacement` returns for it; None keeps the leaf."""
        children = [node.children().apply(i) for i in range(node.children().size())]
        if not children:
            new = replacement(node)
            return node if new is None else new
        replaced: JavaList[JavaLogicalPlan] = self._jvm.java.util.ArrayList()
        for child in children:
            replaced.add(self._replace_leaves(child, replacement))
        return node.withNewChildren(self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(replaced))

    def _resolved(self, node: JavaLogicalPlan, plans: Mapping[str, JavaLogicalPlan]) -> JavaLogicalPlan | None:
        """The plan in `plans` with the name of an unresolved relation; None for other nodes."""
        if _class_name(node) != "UnresolvedRelation":
            return None
        name = str(cast("JavaUnresolvedRelation", node).multipartIdentifier().mkString("."))
        if name.lower() not in plans:
            return None
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        alias: JavaLogicalPlan = catalyst.plans.logical.SubqueryAlias(
            catalyst.AliasIdentifier(name), plans[name.lower()]
        )
        return alias


def _has_uuid_bucket(table: JavaTable) -> bool:
    """True if the table has a bucket of a uuid column. Spark hashes a uuid's text, but Iceberg hashes its bytes."""
    schema = table.schema()
    buckets = [f for f in listed(table.spec().fields()) if str(f.transform().toString()).startswith("bucket")]
    columns = [schema.findField(int(field.sourceId())) for field in buckets]
    return any(column is not None and str(column.type()) == "uuid" for column in columns)


def _head_of(table: JavaTable, branch: str | None) -> JavaSnapshot | None:
    if branch is None:
        return table.currentSnapshot()
    ref = table.refs().get(branch)
    return table.snapshot(ref.snapshotId()) if ref is not None else None


def _class_name(node: JavaObject) -> str:
    return str(node.getClass().getSimpleName())


def _analyzed_plan(df: DataFrame) -> JavaLogicalPlan:
    return cast("JavaLogicalPlan", df._jdf.queryExecution().analyzed())
