"""Reads plain lines of csv and JSON. A line is plain if this module and Spark's readers certainly read the same values.

If any line is not plain, the engine refuses the file, and Spark reads the batch. Not plain are quotes and backslashes
in a csv, control characters, empty lines, bytes that are not UTF-8, spaces at the ends of a csv's fields,
fields other than the file's columns, and values that are not plain for their types (`helios.native.plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from helios.native import json_lines
from helios.native.plain import any_of, parse_values, split_fields
from helios.native.program import NotNative
from helios.native.work import InputFile, LinesFormat

if TYPE_CHECKING:
    import polars as pl

BLOCK_BYTES = 16 << 20
"""The number of bytes that are read at a time."""
MAX_LINE_BYTES = 1 << 20
"""The maximum number of bytes of a plain line."""


def rows(file: InputFile, lines_format: LinesFormat) -> Iterator[pl.DataFrame]:
    """Reads the rows of a file in blocks, with all columns. A part of a file has the lines that begin in the part.

    Raises:
        NotNative: A line is not plain, or the file is shorter than when it was listed.
    """
    import polars as pl
    import pyarrow as pa

    first = file.begin == 0
    for block in _blocks(file):
        lines = _with_newlines(block)
        if first and lines_format.header:
            lines = _without_header(lines, lines_format)
        first = False
        if lines:
            try:
                frame = PARSERS[lines_format.format](lines, lines_format, _checked_count(lines, lines_format))
            except (pl.exceptions.PolarsError, pa.ArrowException) as error:
                raise NotNative(f"a line is not plain: {str(error).splitlines()[0]}") from error
            yield frame


def _blocks(file: InputFile) -> Iterator[bytes]:
    """Reads the lines that begin in a part of a file, in blocks of whole lines."""
    with open(file.path, "rb") as stream:
        remaining, kept = file.size, b""
        if file.begin:
            stream.seek(file.begin - 1)
            remaining -= len(_rest_of_line(stream, file)) - 1  # skips the rest of a line that begins before the part
        while remaining > 0:
            read = stream.read(min(BLOCK_BYTES, remaining))
            remaining -= len(read)
            if not read:
                raise NotNative("a file is shorter than it was")
            block = kept + read
            if remaining <= 0 and not block.endswith(b"\n"):
                block += _rest_of_line(stream, file)  # the last line continues after the part
            end_of_lines = block.rfind(b"\n") + 1 if remaining > 0 else len(block)
            kept = block[end_of_lines:]
            if len(kept) > MAX_LINE_BYTES:
                raise NotNative(f"a line is longer than {MAX_LINE_BYTES >> 20} MB")
            if end_of_lines:
                yield block[:end_of_lines]


def _rest_of_line(stream: BinaryIO, file: InputFile) -> bytes:
    """Reads up to the end of the line, or up to where the file ended when it was listed."""
    end = file.file_size or file.size
    line = stream.readline(min(MAX_LINE_BYTES, end - stream.tell()))
    if not line.endswith(b"\n") and stream.tell() < end:
        raise NotNative(f"a line is longer than {MAX_LINE_BYTES >> 20} MB, or a file is shorter than it was")
    return line


def _with_newlines(block: bytes) -> bytes:
    """Returns the lines of a block with a newline, and no carriage return, at the end of each line."""
    if b"\r" in block:
        if block.count(b"\r") != block.count(b"\r\n"):
            raise NotNative("lines end with a carriage return alone")
        block = block.replace(b"\r\n", b"\n")
    return block if block.endswith(b"\n") else block + b"\n"


def _without_header(lines: bytes, lines_format: LinesFormat) -> bytes:
    header, _, rest = lines.partition(b"\n")
    if header != lines_format.separator.join(lines_format.header).encode():
        raise NotNative("the header of a file has changed, or has quotes")
    return rest


def _checked_count(lines: bytes, lines_format: LinesFormat) -> int:
    """Refuses bytes that are not plain, and returns the number of lines."""
    import numpy as np

    codes = np.frombuffer(lines, dtype=np.uint8)
    count = int(np.count_nonzero(codes == ord("\n")))
    tabs = lines.count(b"\t") if lines_format.separator == "\t" else 0
    if int(np.count_nonzero(codes < ord(" "))) != count + tabs:
        raise NotNative("a line has a control character")
    if not lines.isascii():
        try:
            lines.decode()
        except UnicodeDecodeError:
            raise NotNative("a line is not UTF-8") from None
        if lines.startswith(b"\xef\xbb\xbf"):
            raise NotNative("a file begins with a byte order mark")
    return count


def _csv(lines: bytes, lines_format: LinesFormat, count: int) -> pl.DataFrame:
    import polars as pl
    import pyarrow.compute as pc

    for character in (b'"', b"\\"):
        if character in lines:
            raise NotNative(f"a line has the character {character.decode()}")
    columns = []
    fields_of_lines = split_fields(lines, lines_format.separator, len(lines_format.columns), null="")
    for (name, kind), texts in zip(lines_format.columns, fields_of_lines, strict=True):
        if len(texts) != count:
            raise NotNative("a line is not one row")
        if kind == "string" and (any_of(pc.starts_with(texts, " ")) or any_of(pc.ends_with(texts, " "))):
            raise NotNative("a field begins or ends with a space")
        columns.append(parse_values(texts, name, kind))
    frame = pl.DataFrame(columns)
    some_row_is_null = pl.all_horizontal(pl.all().is_null()).any()
    if all(column.null_count() for column in columns) and frame.select(some_row_is_null).item():
        raise NotNative("a line is empty, or has only separators")
    return frame


PARSERS: Mapping[str, Callable[[bytes, LinesFormat, int], pl.DataFrame]] = {"csv": _csv, "json": json_lines.read}
"""The parser of each format: a function of the lines, their format and their number."""
