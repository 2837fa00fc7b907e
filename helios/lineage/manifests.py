"""The files of a table's snapshots, each manifest read once.

PyIceberg's reader leaves out what format v3 adds: the id of a file's first row, and where a deletion vector lies.
"""

from __future__ import annotations

from collections.abc import Iterator
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

PATH = 2147483546
"""The field id of `file_path` in a file of position deletes."""


class Vector(NamedTuple):
    """Where a deletion vector lies."""

    file: str
    offset: int
    size: int


@dataclass(frozen=True)
class Entry:
    """A data file in a snapshot.

    Attributes:
        file: The file.
        snapshot: The snapshot that added it.
        sequence: The sequence number of its data: deletes of a higher one, or an equal one, apply to it.
        file_sequence: The sequence number of the snapshot that added it.
        first_row: The id of its first row; None before format v3.
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
        path: The file.
        sequence: Its sequence number.
        vector: The place of the deletion vector; None for a file of positions.
        only: The one data file whose rows it deletes; None where it may be several.
    """

    path: str
    sequence: int
    vector: Vector | None
    only: str | None


@dataclass(frozen=True)
class Files:
    """The files of a snapshot: data files that may hold what is looked for, by path, and all deletes of positions."""

    data: dict[str, Entry]
    deletes: tuple[Deletes, ...]


class Manifests:
    """The files of the snapshots of a table that may hold rows of a condition.

    Args:
        table: The table.
        wanted: The condition.
    """

    def __init__(self, table: Table, wanted: BooleanExpression) -> None:
        from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator

        self._table, self._io = table, table.iceberg.io
        # Bounds of files that were registered are those of other writers, which say other things by them.
        judged = table.iceberg.metadata.name_mapping() is None
        schema = table.iceberg.schema()
        self._may_hold = (
            _InclusiveMetricsEvaluator(schema, wanted, case_sensitive=False).eval if judged else (lambda file: True)
        )
        self._data: dict[str, list[Entry]] = {}
        self._deletes: dict[str, list[Deletes]] = {}

    def files(self, snapshot: int) -> Files:
        """The files of a snapshot.

        Raises:
            RunError: It has equality deletes, which tell no positions, or a manifest cannot be read.
        """
        data: dict[str, Entry] = {}
        deletes: list[Deletes] = []
        raw = self._table.iceberg.metadata.snapshot_by_id(snapshot)
        assert raw is not None  # only retained ones are asked for
        for manifest, first_row in self._listed(raw.manifest_list):
            path = manifest.manifest_path
            if manifest.content:
                if path not in self._deletes:
                    self._deletes[path] = list(self._of_deletes(manifest))
                deletes += self._deletes[path]
            else:
                if path not in self._data:
                    self._data[path] = list(self._of_data(manifest, first_row))
                data |= {entry.path: entry for entry in self._data[path]}
        return Files(data, tuple(deletes))

    def _listed(self, location: str) -> Iterator[tuple[Any, int | None]]:
        """The manifests of a snapshot, each with the id of its first row."""
        from pyiceberg.avro.file import AvroFile
        from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

        with AvroFile[ManifestFile](
            self._io.new_input(location),
            _list_schema(),
            read_types={-1: ManifestFile, 508: PartitionFieldSummary},
            read_enums={517: ManifestContent},
        ) as reader:
            yield from ((manifest, manifest[15]) for manifest in reader)

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

    def _of_data(self, manifest: Any, first_row: int | None) -> Iterator[Entry]:
        for entry in self._entries(manifest):
            file = entry.data_file
            first = None
            if first_row is not None:
                first = file[16] if file[16] is not None else first_row
                first_row += file.record_count if file[16] is None else 0
            if self._may_hold(file):
                yield Entry(
                    file,
                    entry.snapshot_id if entry.snapshot_id is not None else manifest.added_snapshot_id,
                    entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number,
                    entry.file_sequence_number if entry.file_sequence_number is not None else manifest.sequence_number,
                    first,
                )

    def _of_deletes(self, manifest: Any) -> Iterator[Deletes]:
        from pyiceberg.manifest import DataFileContent

        for entry in self._entries(manifest):
            file = entry.data_file
            if file.content == DataFileContent.EQUALITY_DELETES:
                raise RunError(
                    f"{self._table.name} has deletes by equality ({file.file_path}), which tell no positions: where "
                    "its rows come from cannot be told.",
                    where=caller(),
                    fix="rewrite its data files with another engine, which applies them; Flink's upserts write them.",
                )
            sequence = entry.sequence_number if entry.sequence_number is not None else manifest.sequence_number
            vector = Vector(file.file_path, file[18], file[19]) if file[18] is not None else None
            yield Deletes(file.file_path, sequence, vector, file[17] or _only(file))


def _only(file: DataFile) -> str | None:
    """The data file whose rows a file of position deletes names, where it is one."""
    low, high = ((bounds or {}).get(PATH) for bounds in (file.lower_bounds, file.upper_bounds))
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
    fields = (f for f in MANIFEST_ENTRY_SCHEMAS[2].fields if f.field_id != 2)
    return Schema(*fields, NestedField(2, "data_file", file, required=True))
