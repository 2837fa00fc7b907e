"""Looks up the rows of a key in the files that a batch has read; without a JVM."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import IO, Any

from helios.errors import HeliosError
from helios.sources.common.again import MOST, Again, has
from helios.sources.common.file import File
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.lag import ReadOnlyLog
from helios.sources.files.log import FileLog
from helios.table.positions import Span
from helios.table.storage import Folder
from helios.table.view import View

MOST_BYTES = 256 << 20
"""The bytes of files that are read for one row."""
PLAIN = {"header": "true", "escape": '"', "multiline": "true"}
"""The options of csv with which lines are read here, beside another separator."""


def again(span: Span, key: Mapping[str, Any], declared: Mapping[str, Any], view: View) -> Again:
    """The rows of a key that a batch has read from a folder.

    Args:
        span: The range of the batch.
        key: The columns of the key.
        declared: The source as its plan shows it.
        view: Knows how storages are opened.
    """
    at, before = FolderPosition.of(span.end), FolderPosition.of(span.start)
    if at is None:
        return Again(note="a folder that is read once has no log of its files")
    properties = view.places[0].properties if view.places else {}
    first = -1 if span.whole else at.entry - 1
    after = before.entry if before is not None and before.log == at.log else first
    try:
        files = _files(after, at, properties)
    except HeliosError as error:
        files = list(at.names) if after == at.entry - 1 else []
        if not files:
            return Again(note=error.what)
    size = sum(file.size for file in files)
    if size > MOST_BYTES:
        return Again(note=f"{len(files):,} files of {size >> 20:,} MB are not searched")
    return _searched(files, key, declared, properties)


def _files(after: int, at: FolderPosition, properties: Mapping[str, str]) -> list[File]:
    """The files of the entries of a folder's log."""
    root, _, number = at.log.partition("/helios/files/")
    return FileLog(ReadOnlyLog(Folder(_uri(root), properties)), root, int(number)).files(after, at)


def _uri(path: str) -> str:
    """A path of Hadoop as a URI with an empty host."""
    return f"file:///{path.removeprefix('file:').lstrip('/')}" if path.startswith("file:") else path


def _searched(
    files: list[File], key: Mapping[str, Any], declared: Mapping[str, Any], properties: Mapping[str, str]
) -> Again:
    rows: list[Mapping[str, Any]] = []
    places: list[str] = []
    lost, unread = 0, 0
    for file in files:
        folder, _, name = file.path.rpartition("/")
        read = _reader(file, declared)
        if read is None:
            unread += 1
            continue
        try:
            matches = [(at, row) for at, row in read(Folder(_uri(folder), properties).content(name)) if has(row, key)]
        except (HeliosError, OSError, ValueError, csv.Error):  # the file is gone, or has changed since
            lost += 1
            continue
        rows += [row for _, row in matches]
        places += [f"{name}, {at}: " for at, _ in matches]
    notes = [f"{lost:,} of {len(files):,} files cannot be read any more"] if lost else []
    other = f"{unread:,} of {len(files):,} files have a format or options that are not looked through"
    notes += [other] if unread else []
    return Again(
        rows=tuple(rows[:MOST]),
        count=len(rows),
        by=tuple(key),
        places=tuple(places[:MOST]),
        note="; ".join(notes) or None,
    )


def _reader(file: File, declared: Mapping[str, Any]) -> Any:
    """The function that reads a file; None if the format or an option is not supported here."""
    options = dict(declared.get("options") or {})
    separator = options.pop("sep", options.pop("delimiter", ","))
    kind = declared.get("format")
    if kind == "parquet":
        return _parquet
    if kind == "json" and not options:
        return _json
    plain = all(PLAIN.get(name.lower()) == value for name, value in options.items())
    if kind == "csv" and plain and len(separator) == 1:
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
