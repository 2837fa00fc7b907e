"""Reads the rows of data files that match a condition, with their positions and their lineage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.lineage.manifests import Deletes, Entry, Files, Vector
from helios.native.deletes import parse_vector
from helios.table.snapshots import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyroaring import BitMap64

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""The field ids of the lineage columns of format v3."""
MAX_ROWS_KEPT = 10_000
"""The maximum number of rows that `Rows` keeps in memory."""


class TooManyRows(Exception):
    """More than `MAX_ROWS_KEPT` rows match a condition."""


@dataclass(frozen=True)
class Place:
    """The place of a row: its data file, and its position in the file, counted from 0."""

    file: str
    position: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a data file.

    Attributes:
        values: The row's values, by the table's current columns.
        id: The row id; None before format v3.
        updated: The sequence number of the commit that last wrote the row; None before format v3.
    """

    place: Place
    values: Mapping[str, Any]
    id: int | None
    updated: int | None

    @property
    def content(self) -> str:
        """The values as text, by which rows are compared, since a NaN value does not equal itself."""
        return repr(self.values)


class Rows:
    """The rows of a table's data files that match a condition; each file is read once.

    Args:
        without_lineage: The snapshots from before format v3, whose files have no row lineage.
    """

    def __init__(self, table: Table, condition: BooleanExpression, without_lineage: Iterable[int]) -> None:
        from pyiceberg.expressions.visitors import bind, extract_field_ids
        from pyiceberg.io.pyarrow import expression_to_pyarrow

        self._table, self._condition, self._without_lineage = table, condition, frozenset(without_lineage)
        self._schema = table.iceberg.schema()
        bound = bind(self._schema, condition, case_sensitive=True)
        self._mask = expression_to_pyarrow(bound, self._schema)
        names = {str(self._schema.find_column_name(id)).split(".")[0] for id in extract_field_ids(bound)}
        self._condition_fields = [field for field in self._schema.fields if field.name in names]
        self._rows: dict[str, dict[int, Row]] = {}
        self._rows_left = MAX_ROWS_KEPT  # of all files together
        self._deleted_positions: dict[tuple[str, int, str], BitMap64] = {}

    def matching(self, entry: Entry) -> Mapping[int, Row]:
        """The matching rows of a file by position, including deleted rows.

        Raises:
            TooManyRows: More than `MAX_ROWS_KEPT` rows match in the files that were read so far.
        """
        if entry.path not in self._rows:
            rows = self._rows[entry.path] = self._read(entry)
            self._rows_left -= len(rows)
            if self._rows_left < 0:
                raise TooManyRows
        return self._rows[entry.path]

    def live(self, files: Files) -> dict[Place, Row]:
        """The matching rows of a snapshot, without deleted rows."""
        live: dict[Place, Row] = {}
        for entry in files.data.values():
            rows = self.matching(entry)
            live |= {rows[at].place: rows[at] for at in self._not_deleted(rows, entry, files)}
        return live

    def count(self, files: Files, limit: int) -> tuple[int, list[Row]]:
        """Counts the matching rows of a snapshot, and returns the first `limit`. No other rows are kept in memory."""
        count, first = 0, list[Row]()
        for entry in files.data.values():
            positions, _ = self._positions(entry)
            live = self._not_deleted(positions, entry, files)
            count += len(live)
            if live and len(first) < limit:
                rows = self._read(entry, set(live[: limit - len(first)]))
                first += rows.values()
        return count, first

    def _not_deleted(self, positions: Collection[int], entry: Entry, files: Files) -> list[int]:
        """The positions without those of deleted rows. Delete files are read only if there are positions."""
        if not positions:
            return []
        deleted = [self._deleted(deletes, entry.path) for deletes in applicable(entry, files.deletes)]
        return [at for at in positions if not any(at in bitmap for bitmap in deleted)]

    # one file

    def _positions(self, entry: Entry) -> tuple[list[int], pa.Table]:
        """Reads the rows of a file that match the condition.

        Returns:
            Their positions, and a table with their lineage and their values of the condition's columns.
        """
        import pyarrow as pa

        read = self._scanned(entry, self._lineage_schema())
        numbered = read.append_column("#", pa.array(range(len(read)), pa.int64()))
        matching = numbered.filter(self._mask)
        return matching["#"].to_pylist(), matching

    def _read(self, entry: Entry, only: set[int] | None = None) -> dict[int, Row]:
        """Reads the rows of a file that match the condition, by position. `only` limits them to some positions."""
        positions, matching = self._positions(entry)
        if not positions:
            return {}
        if only is None and len(positions) > self._rows_left:
            raise TooManyRows
        # Indexes into `positions`, in the order of the file.
        chosen = [index for index, at in enumerate(positions) if only is None or at in only]
        count = chosen[-1] + 1
        values = self._scanned(entry, self._schema, self._condition, count)
        names = [field.name for field in self._condition_fields]
        # Arrow skips row groups by statistics, which ignore NaN, so that rows may be missing: then the file is scanned
        # without the condition. So it is for any NaN, which does not equal itself.
        if values.select(names).to_pylist() != matching.slice(0, count).select(names).to_pylist():
            values = self._scanned(entry, self._schema).take(positions)
        lineage = matching.take(chosen)
        ids = lineage["_row_id"].to_pylist()
        sequences = lineage["_last_updated_sequence_number"].to_pylist()
        rows = {}
        for index, id, sequence, row in zip(chosen, ids, sequences, values.take(chosen).to_pylist(), strict=True):
            at = positions[index]
            row_id, updated = self._lineage(entry, at, id, sequence)
            rows[at] = Row(place=Place(entry.path, at), values=row, id=row_id, updated=updated)
        return rows

    def _lineage(self, entry: Entry, at: int, id: int | None, updated: int | None) -> tuple[int | None, int | None]:
        """The row id and sequence number of a row, from the file or derived from the entry; None before format v3."""
        if entry.first_row is None or (updated is None and entry.snapshot in self._without_lineage):
            return None, None
        return id if id is not None else entry.first_row + at, updated if updated is not None else entry.sequence

    def _lineage_schema(self) -> Schema:
        """The columns of the condition and the lineage columns."""
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField

        return Schema(
            *self._condition_fields,
            NestedField(ROW_ID, "_row_id", LongType(), required=False),
            NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
        )

    def _scanned(
        self, entry: Entry, columns: Schema, condition: BooleanExpression | None = None, limit: int | None = None
    ) -> pa.Table:
        """Reads the rows of a file that match a condition, including deleted rows."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        iceberg = self._table.iceberg
        scan = ArrowScan(iceberg.metadata, iceberg.io, columns, condition or AlwaysTrue(), False, limit)
        return scan.to_table([FileScanTask(entry.file)])

    # deletes

    def _deleted(self, deletes: Deletes, data: str) -> BitMap64:
        """Reads the positions of a data file's rows that a delete file or deletion vector deletes."""
        vector = deletes.vector
        key = (deletes.path, vector.offset if vector is not None else -1, data)
        if key not in self._deleted_positions:
            self._deleted_positions[key] = (
                self._in_vector(vector) if vector is not None else self._in_delete_file(deletes, data)
            )
        return self._deleted_positions[key]

    def _in_vector(self, vector: Vector) -> BitMap64:
        with self._table.iceberg.io.new_input(vector.file).open() as file:
            file.seek(vector.offset)
            return parse_vector(file.read(vector.size))

    def _in_delete_file(self, deletes: Deletes, data: str) -> BitMap64:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
        from pyroaring import BitMap64

        with self._table.iceberg.io.new_input(deletes.path).open() as file:
            rows = pq.read_table(file, columns=["file_path", "pos"])
        return BitMap64(rows.filter(pc.equal(rows["file_path"], data))["pos"].to_pylist())


def applicable(entry: Entry, deletes: Iterable[Deletes]) -> list[Deletes]:
    """The deletes that may apply to a data file."""
    return [file for file in deletes if file.data_file in (None, entry.path) and file.sequence >= entry.sequence]
