"""A batch that the columnar engine does: its files, its program, and the job whose tasks write the target's files."""

from __future__ import annotations

import glob
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.catalog.spec import Catalog
from helios.native.program import NotNative, Program
from helios.native.storage import delete, is_local, sweep
from helios.native.task import Stores
from helios.native.work import InputFile, Target, Work
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList, JavaObject
from helios.spark.native.fields import absent, fields_of
from helios.spark.native.stores import Store, store_of

SHARE = 8 << 20
"""Bytes below which a task is not worth its start."""
LARGEST_SHARE = 512 << 20
"""Bytes of files above which a task is another task's work."""
MOST_FILES = 5_000
"""Files above which Spark plans: each is told from the JVM by itself."""


@dataclass(frozen=True)
class SourceFiles:
    """The data files of a batch.

    Attributes:
        table: The table that they are of.
        catalog: Its catalog.
        tasks: A scan task for each.
        read: Called once they have been read.
    """

    table: JavaTable
    catalog: Catalog
    tasks: JavaList[JavaFileScanTask]
    read: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class Written:
    """The files that a batch has written.

    Attributes:
        folder: Where they are, and in folders below.
        name: The beginning of their names.
        files: What the table's metadata says of each, as JSON.
        store: The store that they are on.
    """

    folder: str
    name: str
    files: tuple[str, ...] = ()
    store: Store = field(default_factory=Store)

    def delete(self, known: Sequence[str] = ()) -> None:
        """Deletes them, also those of tasks that could not delete their own.

        Args:
            known: Their paths, where all are known: of a large table on a store they are a long list to look through.
        """
        if not is_local(self.folder):
            known = known or [json.loads(one)["file-path"] for one in self.files]
            for path in known:
                delete(path, self.store.properties)
            if not known:
                sweep(self.folder, f"{self.name}-", self.store.properties)
            return
        for path in glob.iglob(f"{glob.escape(self.folder)}/**/{self.name}-*.parquet", recursive=True):
            if os.path.exists(path):
                os.unlink(path)


@dataclass(frozen=True)
class NativeBatch:
    """A batch as the columnar engine does it.

    Attributes:
        files: Its files.
        program: Its steps.
        catalog: The catalog of the table that is written.
        told: Called with the reason where Spark does it after all.
    """

    files: SourceFiles
    program: Program
    catalog: Catalog
    told: Callable[[str], None]

    def matches(self, schema: StructType) -> bool:
        """Whether the program gives the columns that Spark's analyzer gives the steps."""
        found = tuple((column.name, column.dataType.simpleString()) for column in schema.fields)
        return found == self.program.columns

    def write(self, spark: SparkSession, target: Target, store: Store) -> Written:
        """Writes the files of the target.

        Args:
            spark: The session of the batch.
            target: The table.
            store: The store that it is on.

        Raises:
            NotNative: Spark must do the batch; nothing is left of it.
        """
        name = uuid.uuid4().hex
        work = self._work(name, target).to_json()
        source = store_of(self.files.table, self.files.catalog)
        shares = shared(self._inputs(source), spark.sparkContext.defaultParallelism)
        written = Written(target.folder, name, store=store)
        if not shares:
            return written
        try:
            found = [json.loads(text) for text in _run(spark, work, shares, (source.properties, store.properties))]
        except BaseException:
            written.delete()
            raise
        files = [file for one in found for file in one.get("files", ())]
        refused = next((one["refused"] for one in found if "refused" in one), None)
        if refused is not None:
            # Who refuses has deleted what it wrote.
            if files or is_local(target.folder):
                written.delete([file["file-path"] for file in files])
            raise NotNative(refused)
        self.files.read()
        return replace(written, files=tuple(map(json.dumps, files)))

    def _work(self, name: str, target: Target) -> Work:
        table = self.files.table
        fields = fields_of(table.schema())
        known = {field["name"]: field["id"] for field in fields}
        ids = {column: known[column] for column, _ in self.program.read}
        missing = absent(table, fields)
        return Work(name, self.program, ids, target, tuple(column for column, id in ids.items() if id in missing))

    def _inputs(self, store: Store) -> list[InputFile]:
        """The files, as tasks read them.

        Raises:
            NotNative: They are not parquet files that tasks can reach, or have deletes by equality.
        """
        tasks = self.files.tasks
        count = int(tasks.size())
        if count > MOST_FILES:
            raise NotNative(f"a batch has more than {MOST_FILES:,} files")
        # It counts the deletes of each task as files, too.
        plain = int(classes().org.apache.iceberg.BaseCombinedScanTask(tasks).filesCount()) == count
        return [_input(task, plain, store) for task in tasks.toArray()]


def _input(task: JavaFileScanTask, plain: bool, store: Store) -> InputFile:
    file = task.file()
    if str(file.format()) != "PARQUET":
        raise NotNative(f"files of the source are {str(file.format()).lower()}")
    location = str(file.location())
    size, rows = int(file.fileSizeInBytes()), int(file.recordCount())
    deletes = () if plain else tuple(_delete(one, store) for one in listed(task.deletes()))
    return InputFile(store.path(location), size, rows, location, deletes)


def _delete(file: JavaDeleteFile, store: Store) -> tuple[str, int | None, int]:
    content, form = str(file.content()), str(file.format())
    if content != "POSITION_DELETES" or form not in ("PARQUET", "PUFFIN"):
        raise NotNative(f"files of the source have {content.lower().replace('_', ' ')} in {form.lower()}")
    path = store.path(str(file.location()))
    if form == "PARQUET":
        return path, None, int(file.fileSizeInBytes())
    return path, file.contentOffset(), int(file.contentSizeInBytes() or 0)


def shared(files: Iterable[InputFile], cores: int) -> list[list[InputFile]]:
    """Shares of about equally many bytes, one for a task.

    Examples:
        >>> files = [InputFile(str(n), size << 20, 1) for n, size in enumerate((9, 30, 8, 12))]
        >>> [[file.path for file in share] for share in shared(files, 2)]
        [['1'], ['3', '0', '2']]
    """
    largest = sorted(files, key=lambda file: file.size, reverse=True)
    total = sum(file.size for file in largest)
    count = min(len(largest), cores, max(1, total // SHARE))
    count = min(len(largest), max(count, math.ceil(total / LARGEST_SHARE)))
    shares: list[list[InputFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in largest:
        smallest = sizes.index(min(sizes))
        shares[smallest].append(file)
        sizes[smallest] += max(1, file.size)
    return shares


def _run(spark: SparkSession, work: str, shares: list[list[InputFile]], stores: Stores) -> list[str]:
    plain = [[astuple(file) for file in share] for share in shares]
    rdd = spark.sparkContext.parallelize(plain, len(plain))
    # Pickled by value: an executor without Helios answers too. Keys of stores go with it, as with Iceberg's own tasks.
    return rdd.mapPartitions(_task_of(work, stores)).collect()


def _task_of(work: str, stores: Stores) -> Callable[[Iterable[Any]], Iterator[str]]:
    def task(shares: Iterable[Any]) -> Iterator[str]:
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context is not None else 0
        try:
            from helios.native.task import run
        except ImportError as error:
            import json

            yield json.dumps({"refused": f"an executor cannot import {error.name}"})
            return
        for index, share in enumerate(shares):
            yield run(work, share, f"{attempt:05}-{index}", stores)

    return task


def data_files(table: JavaTable, texts: Iterable[str]) -> Iterator[JavaDataFile]:
    """Iceberg's data files of what tasks have told of them."""
    jvm = classes()
    mapper = jvm.org.apache.iceberg.util.JsonUtil.mapper()
    spec: JavaObject = table.spec()
    for text in texts:
        yield jvm.org.apache.iceberg.ContentFileParser.fromJson(mapper.readTree(text), spec)
