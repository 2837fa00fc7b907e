"""Reads the files of a table's snapshots from manifests. Each manifest is read once.

PyIceberg's own reader leaves out the new fields of format v3: the id of a file's first row, and the location of a
deletion vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from helios.errors import RunError
from helios.model.values import caller
from helios.table.snapshots import Table

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema

FILE_PATH_ID = 2147483546
"""The field id of `file_path` in a file of position deletes."""


class Vector(NamedTuple):
    """The location of a deletion vector."""

    file: str
    offset: int
    size: int


@dataclass(frozen=True)
class Entry:
    """A data file in a snapshot.

    Attributes:
        snapshot: The snapshot that added the file.
        sequence: The sequence number of the file's data; deletes with an equal or higher number apply to the file.
        file_sequence: The sequence number of the snapshot that added the file.
        first_row: The id of the file's first row; None before format v3.
    """

    file: DataFile
    snapshot: int
    sequence: int
    file_sequence: int
    first_row: int | None

    @property
    def path(self) -> str:
        return self.file.file_path


@dataclass(frozen=True)
class Deletes:
    """A file of position deletes, or a deletion vector.

    Attributes:
        vector: The location of the deletion vector; None for a file of position deletes.
        data_file: The only data file whose rows are deleted; None if there may be several.
    """

    path: str
    sequence: int
    vector: Vector | None
    data_file: str | None


@dataclass(frozen=True)
class Files:
    """The files of a snapshot.

    Attributes:
        data: The data files in which rows may match the condition, by path.
        deletes: All position deletes.
    """

    data: dict[str, Entry]
    deletes: tuple[Deletes, ...]


class Manifests:
    """The files of a table's snapshots, except data files in which no row can match a condition."""

    def __init__(self, table: Table, condition: BooleanExpression) -> None:
        from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator

        self._table, self._io = table, table.iceberg.io
        # With a name mapping, the table may have files of other writers, whose bounds may be of another type.
        self._may_match: Callable[[DataFile], bool] = lambda file: True
        if table.iceberg.metadata.name_mapping() is None:
            self._may_match = _InclusiveMetricsEvaluator(table.iceberg.schema(), condition, case_sensitive=True).eval
        self._data: dict[str, list[Entry]] = {}
        self._deletes: dict[str, list[Deletes]] = {}

    def files(self, snapshot: int) -> Files:
        """The files of a snapshot.

        Raises:
            RunError: The snapshot has equality deletes, which have no positions, or a manifest cannot be read.
        """
        data: dict[str, Entry] = {}
        deletes: list[Deletes] = []
        raw = self._table.iceberg.metadata.snapshot_by_id(snapshot)
        assert raw is not None  # callers ask for retained snapshots only
        for manifest, first_row in self._listed(raw.manifest_list):
            path = manifest.manifest_path
            if manifest.content:
                if path not in self._deletes:
                    self._deletes[path] = list(self._delete_files(manifest))
                deletes += self._deletes[path]
            else:
                if path not in self._data:
                    self._data[path] = list(self._data_files(manifest, first_row))
                data |= {entry.path: entry for entry in self._data[path]}
        return Files(data, tuple(deletes))

    def _listed(self, location: str) -> Iterator[tuple[Any, int | None]]:
        """Reads the manifests of a snapshot, each with the id of its first row; None before format v3."""
        from pyiceberg.avro.file import AvroFile
        from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

        with AvroFile[ManifestFile](
            self._io.new_input(location),
            _list_schema(),
            read_types={-1: ManifestFile, 508: PartitionFieldSummary},
            read_enums={517: ManifestContent},
        ) as reader:
            for manifest in reader:
                yield manifest, manifest[15]  # first_row_id, the field that `_list_schema` appends

    def _entries(self, manifest: Any) -> Iterator[Any]:
        from pyiceberg.avro.file import AvroFile
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus

        with AvroFile[ManifestEntry](
            self._io.new_input(manifest.manifest_path),
            _entry_schema(),
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as reader:
            for entry in reader:
                if entry.status != ManifestEntryStatus.DELETED:
                    entry.data_file.spec_id = manifest.partition_spec_id
                    yield entry

    def _data_files(self, manifest: Any, first_row: int | None) -> Iterator[Entry]:
        """Reads the data files of a manifest. An entry inherits missing values from the manifest."""
        for entry in self._entries(manifest):
            file = entry.data_file
            first = None
            if first_row is not None:
                first = file[_FIRST_ROW_ID]
                if first is None:
                    first = first_row
                    first_row += file.record_count
            if self._may_match(file):
                yield Entry(
                    file,
                    entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id,
                    entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number,
                    entry.file_sequence_number if entry.file_sequence_number is not None else manifest.sequence_number,
                    first,
                )

    def _delete_files(self, manifest: Any) -> Iterator[Deletes]:
        from pyiceberg.manifest import DataFileContent

        for entry in self._entries(manifest):
            file = entry.data_file
            if file.content == DataFileContent.EQUALITY_DELETES:
                raise RunError(
                    f"{self._table.name} has equality deletes ({file.file_path}), as Flink's upserts write them. They "
                    "have no positions: the origin of the table's rows cannot be found.",
                    where=caller(),
                    fix="rewrite the data files with an engine that applies equality deletes, such as Spark.",
                )
            sequence = entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number
            offset, size = file[_CONTENT_OFFSET], file[_CONTENT_SIZE]
            vector = Vector(file.file_path, offset, size) if offset is not None else None
            yield Deletes(file.file_path, sequence, vector, file[_REFERENCED_DATA_FILE] or _only_data_file(file))


# Positions of the fields of v3 in a data file, as `_entry_schema` appends them.
_FIRST_ROW_ID, _REFERENCED_DATA_FILE, _CONTENT_OFFSET, _CONTENT_SIZE = 16, 17, 18, 19


def _only_data_file(file: DataFile) -> str | None:
    """The data file whose rows a delete file deletes, from the bounds of `file_path`; None if there may be several."""
    low, high = ((bounds or {}).get(FILE_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return low.decode() if low is not None and low == high else None


@cache
def _list_schema() -> Schema:
    from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField

    return Schema(*MANIFEST_LIST_FILE_SCHEMAS[2].fields, NestedField(520, "first_row_id", LongType(), required=False))


@cache
def _entry_schema() -> Schema:
    from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_ENTRY_SCHEMAS
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType, StructType

    file = StructType(
        *DATA_FILE_TYPE[2].fields,
        NestedField(142, "first_row_id", LongType(), required=False),
        NestedField(143, "referenced_data_file", StringType(), required=False),
        NestedField(144, "content_offset", LongType(), required=False),
        NestedField(145, "content_size_in_bytes", LongType(), required=False),
    )
    fields = (field for field in MANIFEST_ENTRY_SCHEMAS[2].fields if field.field_id != 2)
    return Schema(*fields, NestedField(2, "data_file", file, required=True))
