"""A batch of the columnar engine: its input files, its steps, and the Spark job that writes the target's files."""

from __future__ import annotations

import glob
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.catalog.spec import Catalog
from helios.errors import RunError
from helios.native.program import NotNative, Program
from helios.native.storage import delete, delete_by_prefix, is_local
from helios.native.work import Share, Stores, Target, TaskReport, Work
from helios.plan.native import engine
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaDataFile
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaObject
from helios.spark.native.inputs import SourceFiles
from helios.spark.native.spread import refuse_many_planned_files, refuse_many_written_files, shares_of
from helios.spark.native.stores import Store


class SmallBatch(NotNative):
    """The batch is too small for the engine. The plan mentions this reason, but the run does not report it."""


def refuse_small(size: int | None) -> None:
    """Raises `SmallBatch` for a batch that is too small for the engine.

    Args:
        size: The size of the batch in bytes; for an upsert, the size of the target is added. None if unknown.
    """
    if size is not None and size < engine.MIN_NATIVE_BYTES:
        raise SmallBatch(f"a batch has less than {engine.MIN_NATIVE_BYTES >> 20} MB")


@dataclass(frozen=True)
class WrittenFiles:
    """The data files that a batch has written.

    Attributes:
        folder: The folder of the files; files of partitions are in subfolders.
        name: The prefix of the files' names.
        files: The metadata of each file, as Iceberg's JSON.
    """

    folder: str
    name: str
    files: tuple[str, ...] = ()
    store: Store = field(default_factory=Store)

    def from_reports(self, reports: Iterable[TaskReport]) -> WrittenFiles:
        """A copy with the files that the reports of tasks name."""
        return replace(self, files=tuple(json.dumps(file) for report in reports for file in report.get("files", ())))

    def delete(self) -> None:
        """Deletes the files of the batch.

        On a local disk, or if `files` is empty, the folder is searched. The search also finds files of failed tasks.
        """
        if not is_local(self.folder):
            # Listing a large table in a store is slow. So a store is searched only if the files are unknown.
            for file in self.files:
                delete(json.loads(file)["file-path"], self.store.properties)
            if not self.files:
                delete_by_prefix(self.folder, f"{self.name}-", self.store.properties)
            return
        for path in glob.iglob(f"{glob.escape(self.folder)}/**/{self.name}-*.parquet", recursive=True):
            if os.path.exists(path):
                os.unlink(path)


@dataclass(frozen=True)
class NativeBatch:
    """A batch of the columnar engine.

    Attributes:
        catalog: The catalog of the table that is written.
        only_if_better: Whether to leave the batch to Spark if Spark is faster, or writes far fewer files.
        explain: This function is called with the reason why Spark must write the batch, unless the batch is only too
            small.
        counted_by_spark: Whether Spark has planned a read of the same files, and so has counted the files already.
        files_counted: A flag, as a list: empty before the files are counted, not empty afterwards. After a conflict the
            batch is written again, but its files are not counted again.
        dropped: The number of rows that expectations dropped, as a list with one item. The list is empty before the
            engine has written the batch. It stays empty if Spark writes the batch.
    """

    files: SourceFiles
    program: Program
    catalog: Catalog
    only_if_better: bool
    explain: Callable[[str], None]
    counted_by_spark: bool = True
    files_counted: list[bool] = field(default_factory=list, compare=False)
    dropped: list[int] = field(default_factory=list, compare=False)

    def leave_to_spark(self, reason: NotNative) -> None:
        """Leaves the batch to Spark. Spark then also counts the rows that expectations drop."""
        self.dropped.clear()
        if not isinstance(reason, SmallBatch):
            self.explain(str(reason))

    def count_files(self) -> None:
        """Reports the files for the run's count of read files. A second call does nothing."""
        if not self.files_counted:
            self.files_counted.append(True)
            self.files.report_read(self.counted_by_spark)

    def count_dropped(self, reports: Iterable[TaskReport]) -> None:
        """Stores the sum of the dropped rows in the reports of tasks."""
        self.dropped[:] = [sum(report["dropped"] for report in reports)]

    def check_columns(self, analyzed: StructType, stored: StructType) -> None:
        """Compares the columns after the steps: those of the engine, of Spark's analyzer and of the table.

        Args:
            analyzed: The columns after the steps, according to Spark's analyzer.
            stored: The columns of the table.

        Raises:
            NotNative: The columns differ.
        """
        if tuple((column.name, column.dataType.simpleString()) for column in analyzed.fields) != self.program.columns:
            raise NotNative("Spark's analyzer and the engine find different columns after the steps")
        if {(f.name, f.dataType) for f in analyzed.fields} != {(f.name, f.dataType) for f in stored.fields}:
            raise NotNative("the columns of the batch are not those of the table")

    def write(self, spark: SparkSession, target: Target, store: Store, partitions: int = 0) -> WrittenFiles:
        """Writes the files of the target.

        Args:
            partitions: The number of the table's partitions into which the batch is expected to write; 0 if unknown.

        Raises:
            NotNative: Spark must write the batch. All files that the engine has written are deleted.
        """
        name = uuid.uuid4().hex
        inputs = self.files.inputs(self.program)
        ids, formats = dict(inputs.ids), inputs.line_formats
        work = Work(name, self.program, ids, target, inputs.absent, inputs.groups, formats).to_json()
        shares = shares_of(inputs.files, target, spark.sparkContext.defaultParallelism)
        if self.only_if_better:
            refuse_many_planned_files(shares, target, partitions)
        written = WrittenFiles(target.folder, name, store=store)
        if not shares:
            self.count_dropped(())
            return written
        stores = inputs.store.properties, store.properties
        try:
            reports = run_tasks(spark, "write", work, [[astuple(file) for file in share] for share in shares], stores)
        except BaseException:
            written.delete()
            raise
        written = written.from_reports(reports)
        files = [json.loads(file) for file in written.files]
        try:
            require_accepted(reports)
            if self.only_if_better:
                partitions = len({json.dumps(file["partition"]) for file in files})
                refuse_many_written_files([file["file-size-in-bytes"] for file in files], partitions, target)
        except (NotNative, RunError):
            # A task that refuses its work has deleted its own files. If the other tasks have written no files either, a
            # store need not be searched.
            if files or is_local(target.folder):
                written.delete()
            raise
        self.count_files()
        self.count_dropped(reports)
        return written


def run_tasks(spark: SparkSession, kind: str, work: str, shares: Sequence[Share], stores: Stores) -> list[TaskReport]:
    """Runs a Spark job with one task for each share of the work.

    Args:
        kind: The kind of task: a key of `helios.native.task.TASKS`.
        work: The input that all tasks have in common, as JSON.
        shares: The input of each task, as plain values.
        stores: The settings of the stores of the source and of the target.

    Returns:
        The reports of the tasks, in the order of the shares.
    """
    rdd = spark.sparkContext.parallelize(shares, len(shares))
    # The function is pickled by value. So it also starts on an executor without Helios. There it refuses the work, and
    # Spark writes the batch. Like the tasks of Iceberg, the pickle has the credentials of the stores.
    return [json.loads(text) for text in rdd.mapPartitions(_task_of(kind, work, stores)).collect()]


def require_accepted(reports: list[TaskReport]) -> list[TaskReport]:
    """Returns the reports of tasks if all tasks have done their work.

    Raises:
        NotNative: A task has refused its work, so Spark must write the batch.
        RunError: The types in a file contradict the table's schema, so Spark cannot read the file correctly either.
    """
    misread = next((report["misread"] for report in reports if "misread" in report), None)
    if misread is not None:
        raise RunError(f"{misread}.", fix="replace the file, or leave the column out: .select(...).")
    refused = next((report["refused"] for report in reports if "refused" in report), None)
    if refused is not None:
        raise NotNative(refused)
    return reports


def _task_of(kind: str, work: str, stores: Stores) -> Callable[[Iterable[Share]], Iterator[str]]:
    def task(shares: Iterable[Share]) -> Iterator[str]:
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        try:
            from helios.native.task import run
        except ImportError as error:
            import json

            yield json.dumps({"refused": f"an executor cannot import {error.name}"})
            return
        for index, share in enumerate(shares):
            yield run(kind, work, share, f"{attempt:05}-{index}", stores)

    return task


def data_files(table: JavaTable, metadata: Iterable[str]) -> Iterator[JavaDataFile]:
    """Iceberg's data files, from their metadata in the reports of tasks."""
    jvm = classes()
    mapper = jvm.org.apache.iceberg.util.JsonUtil.mapper()
    specs: dict[int, JavaObject | None] = {}
    for text in metadata:
        spec_id = int(json.loads(text)["spec-id"])  # the table's current spec may be another one by now
        if spec_id not in specs:
            specs[spec_id] = table.specs().get(spec_id)
        yield jvm.org.apache.iceberg.ContentFileParser.fromJson(mapper.readTree(text), specs[spec_id])
