"""Looks up rows by key in the files that a batch has read, without a JVM."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from helios.errors import HeliosError
from helios.sources.common.file import File
from helios.sources.common.lookup import MAX_ROWS, SourceLookup, row_has_key
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.lag import ReadOnlyLog
from helios.sources.files.log import FileLog
from helios.table.positions import Span
from helios.table.storage import Folder
from helios.table.view import View

MAX_BYTES = 256 << 20
"""The maximum total size of the files that are searched for the rows with a key."""
SEARCHABLE_CSV_OPTIONS = {"header": "true", "escape": '"', "multiline": "true"}
"""The csv options that the search supports, each with its only supported value. Any separator is supported, too."""


def lookup(span: Span, key: Mapping[str, Any], declared: Mapping[str, Any], view: View) -> SourceLookup:
    """Looks up the rows with a given key that a batch has read from a folder.

    Args:
        declared: The source as its plan shows it.
        view: The tables and warehouses of the configuration; a warehouse has the properties of its storage.
    """
    at, before = FolderPosition.of(span.end), FolderPosition.of(span.start)
    if at is None:
        return SourceLookup(note="a folder that is read once has no log of its files")
    properties = view.warehouses[0].properties if view.warehouses else {}
    default = -1 if span.from_beginning else at.entry - 1  # -1 for all entries; otherwise only the last entry is read
    after = before.entry if before is not None and before.log == at.log else default
    try:
        files = _files(after, at, properties)
    except HeliosError as error:
        files = list(at.names) if after == at.entry - 1 else []
        if not files:
            return SourceLookup(note=error.what)
    size = sum(file.size for file in files)
    if size > MAX_BYTES:
        return SourceLookup(note=f"{len(files):,} files ({size >> 20:,} MB) are too large to be searched")
    return _search(files, key, declared, properties)


def _files(after: int, at: FolderPosition, properties: Mapping[str, str]) -> list[File]:
    """The files of a folder's log in the entries from number `after + 1` up to a position."""
    root, _, number = at.log.partition("/helios/files/")
    return FileLog(ReadOnlyLog(Folder(_uri(root), properties)), root, int(number)).files(after, at)


def _uri(path: str) -> str:
    """Hadoop's form of a local path (`file:/in`) as a URI with an empty host (`file:///in`)."""
    return f"file:///{path.removeprefix('file:').lstrip('/')}" if path.startswith("file:") else path


def _search(
    files: list[File], key: Mapping[str, Any], declared: Mapping[str, Any], properties: Mapping[str, str]
) -> SourceLookup:
    """Looks up a key in files, the newest file first."""
    rows: list[Mapping[str, Any]] = []
    places: list[str] = []
    unreadable, unsupported = 0, 0
    for file in reversed(files):  # the newest row of a key is the likeliest origin
        folder, _, name = file.path.rpartition("/")
        read_rows = _reader(file, declared)
        if read_rows is None:
            unsupported += 1
            continue
        try:
            content = Folder(_uri(folder), properties).open_content(name)
            matches = [(place, row) for place, row in read_rows(content) if row_has_key(row, key)]
        except (HeliosError, OSError, ValueError, csv.Error):  # the file is gone, or has changed since
            unreadable += 1
            continue
        rows += [row for _, row in reversed(matches)]
        places += [f"{name}, {place}: " for place, _ in reversed(matches)]
    notes = [f"{unreadable:,} of {len(files):,} files cannot be read any more"] if unreadable else []
    if unsupported:
        notes.append(f"{unsupported:,} of {len(files):,} files have a format or options that cannot be searched")
    return SourceLookup(
        rows=tuple(rows[:MAX_ROWS]),
        count=len(rows),
        by=tuple(key),
        places=tuple(places[:MAX_ROWS]),
        note="; ".join(notes) or None,
    )


def _reader(file: File, declared: Mapping[str, Any]) -> Any:
    """The function that reads the rows of a file; None if the search does not support its format or an option."""
    options = dict(declared.get("options") or {})
    separator = options.pop("sep", options.pop("delimiter", ","))
    file_format = declared.get("format")
    if file_format == "parquet":
        return _parquet
    if file_format == "json" and not options:
        return _json
    has_supported_options = all(SEARCHABLE_CSV_OPTIONS.get(name.lower()) == value for name, value in options.items())
    if file_format == "csv" and has_supported_options and len(separator) == 1:
        return lambda content: _csv(content, separator)
    return None


def _csv(content: IO[bytes], separator: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = csv.DictReader(io.TextIOWrapper(content, "utf-8", newline=""), delimiter=separator)
    for row in lines:
        first = lines.line_num - sum(str(value).count("\n") for value in row.values())
        yield f"line {first:,}", {name: value for name, value in row.items() if name is not None}


def _json(content: IO[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(io.TextIOWrapper(content, "utf-8"), start=1):
        row = json.loads(line) if line.strip() else None
        if isinstance(row, dict):
            yield f"line {number:,}", row


def _parquet(content: IO[bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(io.BytesIO(content.read())) as parquet:
        number = 0
        for batch in parquet.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield f"row {number:,}", row
