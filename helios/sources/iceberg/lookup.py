"""Looks up rows by key in the snapshots that a batch has read. No JVM is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from helios.errors import HeliosError
from helios.sources.common.lookup import MAX_ROWS, SourceLookup
from helios.sources.iceberg.offsets import IcebergOffset
from helios.table.positions import SNAPSHOT, Span
from helios.table.refs import translating_errors
from helios.table.snapshots import Table
from helios.table.view import View

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


def lookup(span: Span, key: Mapping[str, Any], declared: Mapping[str, Any], view: View) -> SourceLookup:
    """Looks up the rows with a given key that a batch has read from a table.

    Args:
        key: The key columns and their values.
        declared: The source as its plan shows it.
    """
    try:
        table = view.load(span.source)
    except HeliosError as error:
        return SourceLookup(note=error.what)
    uuid = span.entry.get("uuid")
    if table is None or (uuid is not None and str(table.iceberg.metadata.table_uuid) != uuid):
        return SourceLookup(note=f"{span.source} is no longer the same table, or is in no declared catalog")
    columns_by_name = {field.name.lower(): field.name for field in table.iceberg.schema().fields}
    missing = [name for name in key if name.lower() not in columns_by_name]
    if missing or not key:
        return SourceLookup(
            note=f"{span.source} has no column {', '.join(missing)}" if missing else "the key is not known"
        )
    columns = {columns_by_name[name.lower()]: value for name, value in key.items()}
    try:
        return _read(table, _state_entry(span) if span.from_beginning else span.entry, columns)
    except HeliosError as error:
        return SourceLookup(by=tuple(columns), note=error.what)


def _state_entry(span: Span) -> Mapping[str, Any]:
    """The entry of another span: it reads the state of the table at the end of the given span."""
    end = IcebergOffset.of(span.end)
    return {"state": end.snapshot} if end is not None else {}


def _read(table: Table, entry: Mapping[str, Any], columns: Mapping[str, Any]) -> SourceLookup:
    """The rows that a span reads from its state, and then the rows that it reads from its appends."""
    from pyiceberg.expressions import And, EqualTo, IsNull

    key_filter: Any = None
    for name, value in columns.items():
        has_value = IsNull(name) if value is None else EqualTo(name, value)  # type: ignore[arg-type, call-arg]
        key_filter = has_value if key_filter is None else And(key_filter, has_value)
    rows: list[Mapping[str, Any]] = []
    for begin, end, appended in _parts(entry):
        expired = [id for id in (begin, end) if id is not None and table.iceberg.metadata.snapshot_by_id(id) is None]
        if expired:
            return SourceLookup(by=tuple(columns), note=f"snapshot {expired[0]} of {table.name} has expired")
        with translating_errors(table, "reading it"):
            rows += _rows(table, key_filter, begin, end, appended=appended)
    note = "the batch read a part of these snapshots" if "taken" in entry or "skipped" in entry else None
    return SourceLookup(rows=tuple(rows[:MAX_ROWS]), count=len(rows), by=tuple(columns), note=note)


def _parts(entry: Mapping[str, Any]) -> Iterator[tuple[int | None, int, bool]]:
    """For each part of a span: the snapshot before it, its last snapshot, and whether only its appends are read."""
    state, after, to = entry.get("state") or entry.get(SNAPSHOT), entry.get("after"), entry.get("to")
    if entry.get("changes") and to is not None:
        yield None, to, False  # the state at the end has the result of the changes
        return
    if state is not None and after is not None and to is None:  # a range that is read once
        yield after, state, True
        return
    if state is not None:
        yield None, state, False
    if to is not None and to != state:
        yield after, to, True


def _rows(
    table: Table, row_filter: BooleanExpression, begin: int | None, end: int, *, appended: bool
) -> list[Mapping[str, Any]]:
    """The rows of the state at `end`, or of the appends in `(begin, end]`."""
    if not appended:
        rows: list[Mapping[str, Any]] = table.iceberg.scan(row_filter, snapshot_id=end).to_arrow().to_pylist()
        return rows
    scan = table.iceberg.incremental_append_scan(
        from_snapshot_id_exclusive=begin, to_snapshot_id_inclusive=end, row_filter=row_filter
    )
    appended_rows: list[Mapping[str, Any]] = scan.to_arrow().to_pylist()
    return appended_rows
