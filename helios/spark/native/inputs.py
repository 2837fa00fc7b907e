"""The inputs of a batch: the data files of a table, or the files of a folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from helios.catalog.spec import Catalog
from helios.native.program import NotNative, Program
from helios.native.work import InputFile, LinesFormat
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.files import JavaFileReporter, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.spark.native.fields import fields_of, null_if_absent
from helios.spark.native.stores import Store, store_of

MAX_FILES = 50_000
"""A batch with more files of a table is left to Spark, because the driver sends the list of files to the tasks."""

SCAN_FILES_JAVA = Path(__file__).with_name("ScanFiles.java")

MAX_PART_BYTES = 64 << 20
"""The maximum number of bytes of a csv or json file that one task reads; larger files are split."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of the tasks of a batch.

    Attributes:
        ids: The field ids of the columns that are read, by name; empty if columns are found by their names.
        absent: The columns that are null in a file without them, because the file is older than the column.
        groups: For each group of files, a map from each column to its name and Spark type in the files; None for a
            column that the files lack.
        line_formats: The format of the lines of each group of csv or json files.
    """

    files: Sequence[InputFile]
    store: Store
    ids: Mapping[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    groups: tuple[Mapping[str, tuple[str, str] | None], ...] = ()
    line_formats: tuple[LinesFormat, ...] = ()


class SourceFiles(Protocol):
    """The files of a batch."""

    @property
    def columns(self) -> StructType:
        """The columns of the files."""

    @property
    def size(self) -> int:
        """The bytes of the files."""

    def inputs(self, program: Program) -> Inputs:
        """The inputs of the tasks for a program.

        Raises:
            NotNative: The tasks cannot read the files.
        """

    def commits(self) -> Mapping[str, int]:
        """The sequence number of the commit of each file, by the file's location; empty for files outside of tables."""

    def report_read(self, counted_by_spark: bool) -> None:
        """Is called when the engine has read the files, to count them.

        Args:
            counted_by_spark: Whether Spark has planned a read of the same files, and so has counted the files already.
        """


@dataclass(frozen=True)
class ScanFile:
    """A data file of a scan task.

    Attributes:
        format: PARQUET, AVRO or ORC.
        size: The size in bytes.
        rows: The number of rows, including deleted rows.
        first_row: The id of the first row; None before format v3.
        sequence: The data sequence number.
        deletes: The delete files, each as location, content, format, size in bytes, and the offset and length of the
            deletion vector.
    """

    location: str
    format: str
    size: int
    rows: int
    first_row: int | None
    sequence: int | None
    deletes: Sequence[tuple[str, str, str, int, int | None, int | None]]

    def input(self, store: Store, side: str) -> InputFile:
        """The file, as an input of tasks.

        Args:
            side: "source" or "target", for the message.

        Raises:
            NotNative: The file is not in parquet, tasks cannot reach it, or it has equality deletes.
        """
        if self.format != "PARQUET":
            raise NotNative(f"files of the {side} are {self.format.lower()}")
        deletes = []
        for location, content, format, size, offset, length in self.deletes:
            if content != "POSITION_DELETES" or format not in ("PARQUET", "PUFFIN"):
                raise NotNative(f"files of the {side} have {content.lower().replace('_', ' ')} in {format.lower()}")
            path = store.path(location)
            deletes.append((path, None, size) if format == "PARQUET" else (path, offset, length or 0))
        return InputFile(store.path(self.location), self.size, self.rows, self.location, tuple(deletes))


def scan_files(spark: SparkSession, tasks: JavaList[JavaFileScanTask], side: str, max_files: int) -> list[ScanFile]:
    """The files of scan tasks, in one JVM call.

    Args:
        side: "source" or "target", for the message.

    Raises:
        NotNative: There are more than `max_files` files.
    """
    if int(tasks.size()) > max_files:
        raise NotNative(f"a batch has more than {max_files:,} files of the {side}")
    files = cast("JavaFileReporter", instance(spark, SCAN_FILES_JAVA)).call(tasks)
    text = classes().org.apache.iceberg.util.JsonUtil.mapper().writeValueAsString(files)
    return [ScanFile(*fields) for fields in json.loads(str(text))]


@dataclass(frozen=True)
class TableFiles:
    """The data files of a table.

    Attributes:
        tasks: A scan task for each file.
        on_read: Is called by `report_read`, with the argument of `report_read`.
    """

    spark: SparkSession
    table: JavaTable
    catalog: Catalog
    columns: StructType
    tasks: JavaList[JavaFileScanTask]
    on_read: Callable[[bool], None] = field(default=lambda counted_by_spark: None, compare=False)

    @property
    def size(self) -> int:
        return int(classes().org.apache.iceberg.BaseCombinedScanTask(self.tasks).sizeBytes())

    @cached_property
    def _files(self) -> list[ScanFile]:
        return scan_files(self.spark, self.tasks, "source", MAX_FILES)

    def inputs(self, program: Program) -> Inputs:
        """The inputs of the tasks for a program.

        Raises:
            NotNative: A file is not in parquet, tasks cannot reach it, or it has equality deletes.
        """
        store = store_of(self.table, self.catalog)
        fields = fields_of(self.table.schema())
        field_ids = {field["name"]: field["id"] for field in fields}
        ids = {column: field_ids[column] for column, _ in program.read}
        nulls = null_if_absent(self.table, fields)
        files = [file.input(store, "source") for file in self._files]
        return Inputs(files, store, ids, tuple(column for column, id in ids.items() if id in nulls))

    def commits(self) -> Mapping[str, int]:
        return {file.location: file.sequence or 0 for file in self._files}

    def report_read(self, counted_by_spark: bool) -> None:
        self.on_read(counted_by_spark)


@dataclass(frozen=True)
class FolderFiles:
    """The files of a folder, in which columns are found by their names.

    Attributes:
        groups: Groups of files with equal columns: the path and size of each file, and a map from each column to its
            name and Spark type in the files; None for a column that the files lack.
        line_formats: The format of the lines of each group of csv or json files; empty for parquet files.
    """

    columns: StructType
    groups: Sequence[tuple[Sequence[tuple[str, int]], Mapping[str, tuple[str, str] | None]]]
    line_formats: tuple[LinesFormat, ...] = ()

    @property
    def size(self) -> int:
        return sum(size for paths, _ in self.groups for _, size in paths)

    def inputs(self, program: Program) -> Inputs:
        """The inputs of the tasks for a program.

        Raises:
            NotNative: The files are not on the local disk.
        """
        store = Store()
        files = [
            file
            for number, (paths, _) in enumerate(self.groups)
            for path, size in paths
            for file in self._parts(InputFile(store.path(path), size, group=number))
        ]
        names = [name for name, _ in program.read]
        groups = tuple({name: group[name] for name in names} for _, group in self.groups)
        return Inputs(files, store, groups=groups, line_formats=self.line_formats)

    def _parts(self, file: InputFile) -> list[InputFile]:
        """The parts of a csv or json file that tasks read separately; a parquet file is one part."""
        if not self.line_formats or file.size <= MAX_PART_BYTES:
            return [file]
        return [
            replace(file, begin=begin, size=min(MAX_PART_BYTES, file.size - begin), file_size=file.size)
            for begin in range(0, file.size, MAX_PART_BYTES)
        ]

    def commits(self) -> Mapping[str, int]:
        return {}

    def report_read(self, counted_by_spark: bool) -> None:
        return None
