"""The rows of data files that fulfil a condition, with their positions and their lineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from helios.lineage.manifests import Deletes, Entry, Files
from helios.native.deletes import parsed
from helios.table.snapshots import Table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyroaring import BitMap64

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""The field ids of the lineage of a row in format v3."""
MOST_ROWS = 10_000
"""Rows that are kept for one question."""


class TooMany(Exception):
    """More rows fulfil a condition than are kept."""


@dataclass(frozen=True)
class Place:
    """Where a row lies: its data file, and its position in it from 0 on."""

    file: str
    position: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of a data file.

    Attributes:
        place: Where it lies.
        values: Its columns, as the table has them now.
        id: Its row id; None before format v3.
        updated: The sequence number of the commit that wrote it last; None before format v3.
    """

    place: Place
    values: Mapping[str, Any]
    id: int | None
    updated: int | None

    @property
    def content(self) -> str:
        """The values as a text that is equal for equal ones, NaN too."""
        return repr(self.values)


class Rows:
    """The rows of a table's data files that fulfil a condition; each file is read once.

    Args:
        table: The table.
        wanted: The condition.
        untraced: The snapshots of before format v3, whose files tell nothing of the lineage of their rows.
    """

    def __init__(self, table: Table, wanted: BooleanExpression, untraced: Iterable[int]) -> None:
        from pyiceberg.expressions.visitors import bind, extract_field_ids
        from pyiceberg.io.pyarrow import expression_to_pyarrow

        self._table, self._wanted, self._untraced = table, wanted, frozenset(untraced)
        self._schema = table.iceberg.schema()
        bound = bind(self._schema, wanted, case_sensitive=False)
        self._mask = expression_to_pyarrow(bound, self._schema)
        names = {str(self._schema.find_column_name(id)).split(".")[0] for id in extract_field_ids(bound)}
        self._used = [field for field in self._schema.fields if field.name in names]
        self._kept: dict[str, dict[int, Row]] = {}
        self._left = MOST_ROWS  # of all files
        self._gone: dict[tuple[str, int, str], BitMap64] = {}

    def of(self, entry: Entry) -> Mapping[int, Row]:
        """The rows of a file, deleted ones too, by position.

        Raises:
            TooMany: With those of the files before they are more than are kept.
        """
        if entry.path not in self._kept:
            rows = self._kept[entry.path] = self._read(entry)
            self._left -= len(rows)
            if self._left < 0:
                raise TooMany
        return self._kept[entry.path]

    def live(self, files: Files) -> dict[Place, Row]:
        """The rows of a snapshot."""
        found: dict[Place, Row] = {}
        for entry in files.data.values():
            rows = self.of(entry)
            gone = [self._deleted(one, entry.path) for one in applying(entry, files.deletes)] if rows else []
            found |= {row.place: row for at, row in rows.items() if not any(at in positions for positions in gone)}
        return found

    def count(self, files: Files, most: int) -> tuple[int, list[Row]]:
        """How many rows of a snapshot there are, and the first of them; no file's rows are kept in memory.

        Args:
            files: The files of the snapshot.
            most: How many rows are given.
        """
        count, first = 0, list[Row]()
        for entry in files.data.values():
            positions = self._positions(entry)[0]
            if not positions:
                continue
            gone = [self._deleted(one, entry.path) for one in applying(entry, files.deletes)]
            live = [at for at in positions if not any(at in some for some in gone)] if gone else positions
            count += len(live)
            if live and len(first) < most:
                rows = self._read(entry, set(live[: most - len(first)]))
                first += rows.values()
        return count, first

    # one file

    def _positions(self, entry: Entry) -> tuple[list[int], pa.Table]:
        """The positions of the rows of a file that fulfil the condition, and their lineage."""
        import pyarrow as pa

        read = self._scanned(entry, self._lineage())
        numbered = read.append_column("#", pa.array(range(len(read)), pa.int64()))
        found = numbered.filter(self._mask)
        return found["#"].to_pylist(), found

    def _read(self, entry: Entry, only: set[int] | None = None) -> dict[int, Row]:
        positions, lineage = self._positions(entry)
        if not positions:
            return {}
        if only is None and len(positions) > self._left:
            raise TooMany
        # In the order of the file, as the positions are.
        chosen = [index for index, at in enumerate(positions) if only is None or at in only]
        values = self._scanned(entry, self._schema, self._wanted, chosen[-1] + 1)
        used = [field.name for field in self._used]
        rows, expected = (table.select(used).to_pylist() for table in (values, lineage.slice(0, chosen[-1] + 1)))
        if rows != expected:  # Arrow leaves out row groups whose statistics lack NaN; NaN differs from itself, too
            values = self._scanned(entry, self._schema).take(positions)
        ids, updated = (lineage[name].take(chosen).to_pylist() for name in ("_row_id", "_last_updated_sequence_number"))
        found = {}
        for index, id, last, row in zip(chosen, ids, updated, values.take(chosen).to_pylist(), strict=True):
            at = positions[index]
            number, sequence = self._traces(entry, at, id, last)
            found[at] = Row(place=Place(entry.path, at), values=row, id=number, updated=sequence)
        return found

    def _traces(self, entry: Entry, at: int, id: int | None, updated: int | None) -> tuple[int | None, int | None]:
        """The lineage of a row: what its file says, or what it has of its file; none of a file of before format v3."""
        if entry.first_row is None or (updated is None and entry.snapshot in self._untraced):
            return None, None
        return id if id is not None else entry.first_row + at, updated if updated is not None else entry.sequence

    def _lineage(self) -> Schema:
        from pyiceberg.schema import Schema
        from pyiceberg.types import LongType, NestedField

        return Schema(
            *self._used,
            NestedField(ROW_ID, "_row_id", LongType(), required=False),
            NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
        )

    def _scanned(
        self, entry: Entry, columns: Schema, wanted: BooleanExpression | None = None, limit: int | None = None
    ) -> pa.Table:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        iceberg = self._table.iceberg
        scan = ArrowScan(iceberg.metadata, iceberg.io, columns, wanted or AlwaysTrue(), False, limit)
        return scan.to_table([FileScanTask(entry.file)])

    # deletes

    def _deleted(self, deletes: Deletes, data: str) -> BitMap64:
        """The positions of a data file that are deleted."""
        offset = deletes.vector.offset if deletes.vector is not None else -1
        known = (deletes.path, offset, data)
        if known not in self._gone:
            self._gone[known] = self._vector(deletes) if deletes.vector is not None else self._listed(deletes, data)
        return self._gone[known]

    def _vector(self, deletes: Deletes) -> BitMap64:
        assert deletes.vector is not None
        with self._table.iceberg.io.new_input(deletes.path).open() as file:
            file.seek(deletes.vector.offset)
            return parsed(file.read(deletes.vector.size))

    def _listed(self, deletes: Deletes, data: str) -> BitMap64:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq
        from pyroaring import BitMap64

        with self._table.iceberg.io.new_input(deletes.path).open() as file:
            rows = pq.read_table(file, columns=["file_path", "pos"])
        return BitMap64(rows.filter(pc.equal(rows["file_path"], data))["pos"].to_pylist())


def applying(entry: Entry, deletes: Iterable[Deletes]) -> list[Deletes]:
    """The deletes that may apply to a data file."""
    return [one for one in deletes if one.only in (None, entry.path) and one.sequence >= entry.sequence]
