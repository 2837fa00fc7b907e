"""What a batch reads: the data files of a table, or the files of a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pyspark.sql.types import StructType

from helios.catalog.spec import Catalog
from helios.native.program import NotNative, Program
from helios.native.work import InputFile, Text
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.files import JavaDeleteFile, JavaFileScanTask
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.jvm.types.java import JavaList
from helios.spark.native.fields import absent, fields_of
from helios.spark.native.stores import Store, store_of

MOST_FILES = 5_000
"""Files of a table above which Spark plans: each is told from the JVM by itself."""

PART = 64 << 20
"""Bytes of a file of lines above which it is read in parts."""


@dataclass(frozen=True)
class Inputs:
    """What the tasks of a batch read.

    Attributes:
        files: The files.
        store: The store that they are on.
        ids: The field ids of the columns that are read, by name; none of files whose columns are found by name.
        absent: Those of them that are null in files that were written before they came.
        groups: What the files of each group call the columns, with their Spark types; null where they lack them.
        texts: Of files of lines: what those of each group are.
    """

    files: Sequence[InputFile]
    store: Store
    ids: Mapping[str, int] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    groups: tuple[Mapping[str, tuple[str, str] | None], ...] = ()
    texts: tuple[Text, ...] = ()


class SourceFiles(Protocol):
    """The files of a batch."""

    @property
    def columns(self) -> StructType:
        """The columns of their rows."""

    def inputs(self, program: Program) -> Inputs:
        """What tasks read for a program.

        Raises:
            NotNative: They cannot read the files.
        """

    def commits(self) -> Mapping[str, int]:
        """The sequence number of the commit of each file, by its location; none of files of no table."""

    def done(self) -> None:
        """Is called once they have been read."""


@dataclass(frozen=True)
class TableFiles:
    """The data files of a table.

    Attributes:
        table: The table that they are of.
        catalog: Its catalog.
        columns: Its columns.
        tasks: A scan task for each.
        read: Called once they have been read.
    """

    table: JavaTable
    catalog: Catalog
    columns: StructType
    tasks: JavaList[JavaFileScanTask]
    read: Callable[[], None] = field(default=lambda: None, compare=False)

    def inputs(self, program: Program) -> Inputs:
        """What tasks read for a program.

        Raises:
            NotNative: They are not parquet files that tasks can reach, or have deletes by equality.
        """
        store = store_of(self.table, self.catalog)
        fields = fields_of(self.table.schema())
        known = {one["name"]: one["id"] for one in fields}
        ids = {column: known[column] for column, _ in program.read}
        missing = absent(self.table, fields)
        files = table_files(self.tasks, store, "source")
        return Inputs(files, store, ids, tuple(column for column, id in ids.items() if id in missing))

    def commits(self) -> Mapping[str, int]:
        files = [task.file() for task in self.tasks.toArray()]
        return {str(file.location()): int(file.dataSequenceNumber() or 0) for file in files}

    def done(self) -> None:
        self.read()


def table_files(tasks: JavaList[JavaFileScanTask], store: Store, whose: str, most: int = MOST_FILES) -> list[InputFile]:
    """The files of scan tasks, as the engine's tasks read them.

    Args:
        tasks: The scan tasks.
        store: The store that they are on.
        whose: Whose files they are, for the reason.
        most: Files above which Spark plans.

    Raises:
        NotNative: They are not parquet files that tasks can reach, have deletes by equality, or are too many.
    """
    count = int(tasks.size())
    if count > most:
        raise NotNative(f"a batch has more than {most:,} files of the {whose}")
    # It counts the deletes of each task as files, too.
    plain = int(classes().org.apache.iceberg.BaseCombinedScanTask(tasks).filesCount()) == count
    return [_input(task, plain, store, whose) for task in tasks.toArray()]


def _input(task: JavaFileScanTask, plain: bool, store: Store, whose: str) -> InputFile:
    file = task.file()
    if str(file.format()) != "PARQUET":
        raise NotNative(f"files of the {whose} are {str(file.format()).lower()}")
    location = str(file.location())
    size, rows = int(file.fileSizeInBytes()), int(file.recordCount())
    deletes = () if plain else tuple(_delete(one, store, whose) for one in listed(task.deletes()))
    return InputFile(store.path(location), size, rows, location, deletes)


def _delete(file: JavaDeleteFile, store: Store, whose: str) -> tuple[str, int | None, int]:
    content, form = str(file.content()), str(file.format())
    if content != "POSITION_DELETES" or form not in ("PARQUET", "PUFFIN"):
        raise NotNative(f"files of the {whose} have {content.lower().replace('_', ' ')} in {form.lower()}")
    path = store.path(str(file.location()))
    if form == "PARQUET":
        return path, None, int(file.fileSizeInBytes())
    return path, file.contentOffset(), int(file.contentSizeInBytes() or 0)


@dataclass(frozen=True)
class FolderFiles:
    """Files of a folder, whose columns are found by their names.

    Attributes:
        columns: Their columns.
        groups: Files of equal columns with their sizes, and what they call each of the columns, with its Spark type;
            null where they lack it.
        texts: Of files of lines: what those of each group are; none of parquet files.
    """

    columns: StructType
    groups: Sequence[tuple[Sequence[tuple[str, int]], Mapping[str, tuple[str, str] | None]]]
    texts: tuple[Text, ...] = ()

    def inputs(self, program: Program) -> Inputs:
        """What tasks read for a program.

        Raises:
            NotNative: They are on no local disk.
        """
        store = Store()
        files = [
            file
            for number, (paths, _) in enumerate(self.groups)
            for path, size in paths
            for file in self._parts(InputFile(store.path(path), size, group=number))
        ]
        names = [name for name, _ in program.read]
        groups = tuple({name: one[name] for name in names} for _, one in self.groups)
        return Inputs(files, store, groups=groups, texts=self.texts)

    def _parts(self, file: InputFile) -> list[InputFile]:
        """A file of lines in parts of which each may be another task's."""
        if not self.texts or file.size <= PART:
            return [file]
        begins = range(0, file.size, PART)
        return [replace(file, begin=at, size=min(PART, file.size - at), whole=file.size) for at in begins]

    def commits(self) -> Mapping[str, int]:
        return {}

    def done(self) -> None:
        return None
