"""A batch of the columnar engine: its files, its program, and the Spark job whose tasks write the target's files."""

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
from helios.native.storage import delete, is_local, sweep
from helios.native.work import Share, Stores, Target, TaskReport, Work
from helios.plan.native import engine
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaDataFile
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaObject
from helios.spark.native.inputs import SourceFiles
from helios.spark.native.spread import refuse_many, refuse_written, shares_of
from helios.spark.native.stores import Store


class SmallBatch(NotNative):
    """A batch is too small for the engine. Only the plan mentions such batches, not the run."""


def refuse_small(size: int | None) -> None:
    """Leaves a small batch to Spark.

    Args:
        size: The bytes of the batch, for an upsert plus those of the target; None if unknown.

    Raises:
        SmallBatch: The batch is small.
    """
    if size is not None and size < engine.SMALL:
        raise SmallBatch(f"a batch has less than {engine.SMALL >> 20} MB")


@dataclass(frozen=True)
class Written:
    """The files that a batch has written.

    Attributes:
        folder: The folder of the files; those of partitions are in subfolders.
        name: The beginning of their names.
        files: The metadata of each file, as Iceberg's JSON.
        store: The store of the files.
    """

    folder: str
    name: str
    files: tuple[str, ...] = ()
    store: Store = field(default_factory=Store)

    def of(self, reports: Iterable[TaskReport]) -> Written:
        """The files in the reports of tasks."""
        return replace(self, files=tuple(json.dumps(file) for report in reports for file in report.get("files", ())))

    def delete(self) -> None:
        """Deletes the files, and those that failed tasks have left behind."""
        if not is_local(self.folder):
            # The folder is searched only if the files are unknown: listing a large table in a store takes long.
            for file in self.files:
                delete(json.loads(file)["file-path"], self.store.properties)
            if not self.files:
                sweep(self.folder, f"{self.name}-", self.store.properties)
            return
        for path in glob.iglob(f"{glob.escape(self.folder)}/**/{self.name}-*.parquet", recursive=True):
            if os.path.exists(path):
                os.unlink(path)


@dataclass(frozen=True)
class NativeBatch:
    """A batch of the columnar engine.

    Attributes:
        files: The files of its source.
        program: Its steps.
        catalog: The catalog of the table that is written.
        guarded: Whether the batch is left to Spark if Spark would be faster or write far fewer files.
        explain: Called with the reason if Spark must write the batch.
        planned: Whether Spark has also planned these rows, and so has counted their files.
        counted: Not empty once the files are counted, so that a batch written again after a conflict counts once.
        dropped: The number of rows that expectations dropped, once the engine has written the batch; empty before, and
            if Spark writes the batch.
    """

    files: SourceFiles
    program: Program
    catalog: Catalog
    guarded: bool
    explain: Callable[[str], None]
    planned: bool = True
    counted: list[bool] = field(default_factory=list, compare=False)
    dropped: list[int] = field(default_factory=list, compare=False)

    def leave(self, reason: NotNative) -> None:
        """Leaves the batch to Spark, which counts the rows that it drops."""
        self.dropped.clear()
        if not isinstance(reason, SmallBatch):
            self.explain(str(reason))

    def count_files(self) -> None:
        """Counts the files as read, once."""
        if not self.counted:
            self.counted.append(True)
            self.files.done(self.planned)

    def count(self, reports: Iterable[TaskReport]) -> None:
        """Keeps the number of dropped rows that the tasks have reported."""
        self.dropped[:] = [sum(report["dropped"] for report in reports)]

    def check_columns(self, analyzed: StructType, stored: StructType) -> None:
        """Checks that the program's columns are those of Spark's analyzer and those of the table.

        Raises:
            NotNative: The columns differ.
        """
        if tuple((column.name, column.dataType.simpleString()) for column in analyzed.fields) != self.program.columns:
            raise NotNative("Spark's analyzer finds other columns after the steps")
        if {(f.name, f.dataType) for f in analyzed.fields} != {(f.name, f.dataType) for f in stored.fields}:
            raise NotNative("the columns of the batch are not those of the table")

    def write(self, spark: SparkSession, target: Target, store: Store, partitions: int = 0) -> Written:
        """Writes the files of the target.

        Args:
            spark: The session of the batch.
            target: The table.
            store: The store of the table.
            partitions: The expected number of partitions of the batch.

        Raises:
            NotNative: Spark must write the batch; no file is left.
        """
        name = uuid.uuid4().hex
        inputs = self.files.inputs(self.program)
        work = Work(name, self.program, dict(inputs.ids), target, inputs.absent, inputs.groups, inputs.texts).to_json()
        shares = shares_of(inputs.files, target, spark.sparkContext.defaultParallelism)
        if self.guarded:
            refuse_many(shares, target, partitions)
        written = Written(target.folder, name, store=store)
        if not shares:
            self.count(())
            return written
        stores = inputs.store.properties, store.properties
        try:
            reports = run(spark, "write", work, [[astuple(file) for file in share] for share in shares], stores)
        except BaseException:
            written.delete()
            raise
        written = written.of(reports)
        files = [json.loads(file) for file in written.files]
        try:
            accepted(reports)
            if self.guarded:
                partitions = len({json.dumps(file["partition"]) for file in files})
                refuse_written([file["file-size-in-bytes"] for file in files], partitions, target)
        except (NotNative, RunError):
            # A task that refuses has deleted its own files.
            if files or is_local(target.folder):
                written.delete()
            raise
        self.count_files()
        self.count(reports)
        return written


def run(spark: SparkSession, kind: str, work: str, shares: Sequence[Share], stores: Stores) -> list[TaskReport]:
    """Runs Spark tasks of one kind, one for each share of the work.

    Args:
        spark: The session of the batch.
        kind: The kind of task: a key of `helios.native.task.TASKS`.
        work: The input that all tasks have in common, as JSON.
        shares: The input of each task, as plain values.
        stores: The stores of the source and of the target.

    Returns:
        The reports of the tasks, in the order of the shares.
    """
    rdd = spark.sparkContext.parallelize(shares, len(shares))
    # The function is pickled by value, so that it also runs in an executor without Helios. It carries the credentials
    # of the stores, as Iceberg's own tasks do.
    return [json.loads(text) for text in rdd.mapPartitions(_task_of(kind, work, stores)).collect()]


def accepted(reports: list[TaskReport]) -> list[TaskReport]:
    """The reports of tasks, if none of them has refused or failed.

    Raises:
        NotNative: A task has refused: Spark must write the batch.
        RunError: The types in a file contradict the table's schema.
    """
    misread = next((report["misread"] for report in reports if "misread" in report), None)
    if misread is not None:
        raise RunError(f"{misread}.", fix="replace the file, or read the other columns: .select(...).")
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


def data_files(table: JavaTable, texts: Iterable[str]) -> Iterator[JavaDataFile]:
    """Iceberg's data files, from the reports of tasks."""
    jvm = classes()
    mapper = jvm.org.apache.iceberg.util.JsonUtil.mapper()
    specs: dict[int, JavaObject | None] = {}
    for text in texts:
        spec_id = int(json.loads(text)["spec-id"])  # the table's current spec may be another one by now
        if spec_id not in specs:
            specs[spec_id] = table.specs().get(spec_id)
        yield jvm.org.apache.iceberg.ContentFileParser.fromJson(mapper.readTree(text), specs[spec_id])
