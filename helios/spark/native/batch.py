"""A batch that the columnar engine does: its files, its program, and the job whose tasks write the target's files."""

from __future__ import annotations

import glob
import json
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.native.program import NotNative, Program
from helios.native.work import InputFile, Share, Target, Told, Work
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaDataFile, JavaDeleteFile, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList, JavaObject
from helios.spark.native.fields import absent, fields_of

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
        tasks: A scan task for each.
        read: Called once they have been read.
    """

    table: JavaTable
    tasks: JavaList[JavaFileScanTask]
    read: Callable[[], None] = field(default=lambda: None, compare=False)


@dataclass(frozen=True)
class Written:
    """The files that a batch has written.

    Attributes:
        folder: Where they are, and in folders below.
        name: The beginning of their names.
        files: What the table's metadata says of each, as JSON.
    """

    folder: str
    name: str
    files: tuple[str, ...] = ()

    def of(self, told: Iterable[Told]) -> Written:
        """The files that tasks have told of."""
        return replace(self, files=tuple(json.dumps(file) for one in told for file in one["files"]))

    def delete(self) -> None:
        """Deletes them, also those of tasks that could not delete their own."""
        for path in glob.iglob(f"{glob.escape(self.folder)}/**/{self.name}-*.parquet", recursive=True):
            if os.path.exists(path):
                os.unlink(path)


@dataclass(frozen=True)
class NativeBatch:
    """A batch as the columnar engine does it.

    Attributes:
        files: Its files.
        program: Its steps.
        told: Called with the reason where Spark does it after all.
    """

    files: SourceFiles
    program: Program
    told: Callable[[str], None]

    def matches(self, schema: StructType) -> bool:
        """Whether the program gives the columns that Spark's analyzer gives the steps."""
        found = tuple((column.name, column.dataType.simpleString()) for column in schema.fields)
        return found == self.program.columns

    def write(self, spark: SparkSession, target: Target) -> Written:
        """Writes the files of the target.

        Raises:
            NotNative: Spark must do the batch; nothing is left of it.
        """
        name = uuid.uuid4().hex
        work = self.work(name, target).to_json()
        shares = shared(self.inputs(), spark.sparkContext.defaultParallelism)
        written = Written(target.folder, name)
        if not shares:
            return written
        try:
            found = run(spark, "write", work, [[astuple(file) for file in share] for share in shares])
        except BaseException:
            written.delete()
            raise
        self.files.read()
        return written.of(found)

    def work(self, name: str, target: Target) -> Work:
        """What the tasks have in common that read the batch."""
        table = self.files.table
        fields = fields_of(table.schema())
        known = {field["name"]: field["id"] for field in fields}
        ids = {column: known[column] for column, _ in self.program.read}
        missing = absent(table, fields)
        return Work(name, self.program, ids, target, tuple(column for column, id in ids.items() if id in missing))

    def inputs(self) -> list[InputFile]:
        """The files, as tasks read them.

        Raises:
            NotNative: They are not parquet files on a local disk, or have deletes by equality.
        """
        return inputs(self.files.tasks, "source")


def inputs(tasks: JavaList[JavaFileScanTask], whose: str, most: int = MOST_FILES) -> list[InputFile]:
    """The files of scan tasks, as the engine's tasks read them.

    Args:
        tasks: The scan tasks.
        whose: Whose files they are, for the reason.
        most: Files above which Spark plans.

    Raises:
        NotNative: They are not parquet files on a local disk, or have deletes by equality.
    """
    count = int(tasks.size())
    if count > most:
        raise NotNative(f"a batch has more than {most:,} files of the {whose}")
    # It counts the deletes of each task as files, too.
    plain = int(classes().org.apache.iceberg.BaseCombinedScanTask(tasks).filesCount()) == count
    return [_input(task, plain, whose) for task in tasks.toArray()]


def _input(task: JavaFileScanTask, plain: bool, whose: str) -> InputFile:
    file = task.file()
    if str(file.format()) != "PARQUET":
        raise NotNative(f"files of the {whose} are {str(file.format()).lower()}")
    location = str(file.location())
    size, rows = int(file.fileSizeInBytes()), int(file.recordCount())
    deletes = () if plain else tuple(_delete(one, whose) for one in listed(task.deletes()))
    return InputFile(local_path(location), size, rows, location, deletes)


def _delete(file: JavaDeleteFile, whose: str) -> tuple[str, int | None, int]:
    content, form = str(file.content()), str(file.format())
    if content != "POSITION_DELETES" or form not in ("PARQUET", "PUFFIN"):
        raise NotNative(f"files of the {whose} have {content.lower().replace('_', ' ')} in {form.lower()}")
    path = local_path(str(file.location()))
    if form == "PARQUET":
        return path, None, int(file.fileSizeInBytes())
    return path, file.contentOffset(), int(file.contentSizeInBytes() or 0)


def local_path(location: str) -> str:
    """The path of a file on the local disk.

    Raises:
        NotNative: It is elsewhere.

    Examples:
        >>> local_path("file:/data/a.parquet"), local_path("file:///data/a.parquet"), local_path("/data/a.parquet")
        ('/data/a.parquet', '/data/a.parquet', '/data/a.parquet')
    """
    scheme, colon, rest = location.partition(":")
    if location.startswith("/"):
        return location
    if not colon or scheme != "file":
        raise NotNative(f"the files are on {scheme}, and it knows local disks alone")
    return "/" + rest.lstrip("/")


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


def run(spark: SparkSession, does: str, work: str, shares: Sequence[Share]) -> list[Told]:
    """Has Spark's tasks do shares of some work.

    Args:
        spark: The session of the batch.
        does: What they do: a key of `helios.native.task.TASKS`.
        work: What they have in common, as JSON.
        shares: What each has alone, as plain values.

    Returns:
        What they tell, in the order of the shares.

    Raises:
        NotNative: Spark must do the batch.
    """
    found: list[Told] = [json.loads(text) for text in _run(spark, does, work, shares)]
    refused = next((one["refused"] for one in found if "refused" in one), None)
    if refused is not None:
        raise NotNative(refused)
    return found


def _run(spark: SparkSession, does: str, work: str, shares: Sequence[Share]) -> list[str]:
    rdd = spark.sparkContext.parallelize(shares, len(shares))
    # Pickled by value: an executor without Helios answers too.
    return rdd.mapPartitions(_task_of(does, work)).collect()


def _task_of(does: str, work: str) -> Callable[[Iterable[Share]], Iterator[str]]:
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
            yield run(does, work, share, f"{attempt:05}-{index}")

    return task


def data_files(table: JavaTable, texts: Iterable[str]) -> Iterator[JavaDataFile]:
    """Iceberg's data files of what tasks have told of them."""
    jvm = classes()
    mapper = jvm.org.apache.iceberg.util.JsonUtil.mapper()
    spec: JavaObject = table.spec()
    for text in texts:
        yield jvm.org.apache.iceberg.ContentFileParser.fromJson(mapper.readTree(text), spec)
