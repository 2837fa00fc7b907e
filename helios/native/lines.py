"""Plain lines of csv and JSON as frames; a line is plain if Spark's readers certainly give it the same values.

Nothing is judged here: a block of lines of which one is not plain is refused, and Spark reads the batch. Not plain are
quotes and backslashes of a csv, control characters, empty lines, bytes that are no UTF-8, spaces at the ends of a csv's
fields, other fields than the file's columns, and values that `helios.native.plain` does not know for their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, BinaryIO

from helios.native import json_lines
from helios.native.plain import any_of, fields, values
from helios.native.program import NotNative
from helios.native.work import InputFile, Text

if TYPE_CHECKING:
    import polars as pl

BLOCK = 16 << 20
"""Bytes that are read at a time."""
LONGEST = 1 << 20
"""Bytes of a line that is plain."""


def rows(file: InputFile, text: Text) -> Iterator[pl.DataFrame]:
    """The rows of a file or a part of one, with all columns of the file; some lines at a time.

    Args:
        file: The file, or the part of it whose lines begin in it.
        text: What its lines are.

    Raises:
        NotNative: A line is not plain, or the file is shorter than it was.
    """
    import polars as pl
    import pyarrow as pa

    first = file.begin == 0
    for block in _blocks(file):
        lines = _ended(block)
        if first and text.header:
            lines = _behind_header(lines, text)
        first = False
        if lines:
            try:
                frame = READ[text.format](lines, text, _check(lines, text))
            except (pl.exceptions.PolarsError, pa.ArrowException) as error:
                raise NotNative(f"a line is not plain: {str(error).splitlines()[0]}") from error
            yield frame


def _blocks(file: InputFile) -> Iterator[bytes]:
    """The lines that begin in a part of a file, in blocks of whole ones.

    Raises:
        NotNative: The file is shorter than it was, or a line is long.
    """
    with open(file.path, "rb") as stream:
        left, kept = file.size, b""
        if file.begin:
            stream.seek(file.begin - 1)
            left -= len(_line(stream, file)) - 1  # the rest of a line that begins before the part
        while left > 0:
            read = stream.read(min(BLOCK, left))
            left -= len(read)
            if not read:
                raise NotNative("a file is shorter than it was")
            block = kept + read
            if left <= 0 and not block.endswith(b"\n"):
                block += _line(stream, file)  # the last line continues after the part
            cut = block.rfind(b"\n") + 1 if left > 0 else len(block)
            kept = block[cut:]
            if len(kept) > LONGEST:
                raise NotNative("a line is long")
            if cut:
                yield block[:cut]


def _line(stream: BinaryIO, file: InputFile) -> bytes:
    """The bytes up to the end of a line, or of what the file was."""
    end = file.whole or file.size
    line = stream.readline(min(LONGEST, end - stream.tell()))
    if not line.endswith(b"\n") and stream.tell() < end:
        raise NotNative("a line is long, or a file shorter than it was")
    return line


def _ended(block: bytes) -> bytes:
    """Lines that end with a newline each, whatever they ended with.

    Raises:
        NotNative: Some end otherwise.
    """
    if b"\r" in block:
        if block.count(b"\r") != block.count(b"\r\n"):
            raise NotNative("lines end with a carriage return alone")
        block = block.replace(b"\r\n", b"\n")
    return block if block.endswith(b"\n") else block + b"\n"


def _behind_header(lines: bytes, text: Text) -> bytes:
    head, _, rest = lines.partition(b"\n")
    if head != text.separator.join(text.header).encode():
        raise NotNative("a file has another header than it had, or one with quotes")
    return rest


def _check(lines: bytes, text: Text) -> int:
    """How many lines there are.

    Raises:
        NotNative: Bytes are not plain, whatever the lines are.
    """
    import numpy as np

    codes = np.frombuffer(lines, dtype=np.uint8)
    count = int(np.count_nonzero(codes == ord("\n")))
    tabs = lines.count(b"\t") if text.separator == "\t" else 0
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


def _csv(lines: bytes, text: Text, count: int) -> pl.DataFrame:
    import polars as pl
    import pyarrow.compute as pc

    for sign in (b'"', b"\\"):
        if sign in lines:
            raise NotNative(f"a line has the sign {sign.decode()}")
    made = []
    for (name, kind), texts in zip(text.columns, fields(lines, text.separator, len(text.columns), ""), strict=True):
        if len(texts) != count:
            raise NotNative("lines are not rows")
        if kind == "string" and any(any_of(ends(texts, " ")) for ends in (pc.starts_with, pc.ends_with)):
            raise NotNative("a field begins or ends with a space")
        made.append(values(texts, name, kind))
    frame = pl.DataFrame(made)
    if all(column.null_count() for column in made) and frame.select(pl.all_horizontal(pl.all().is_null()).any()).item():
        raise NotNative("a line is empty, or has nothing but separators")
    return frame


READ: Mapping[str, Callable[[bytes, Text, int], pl.DataFrame]] = {"csv": _csv, "json": json_lines.read}
"""By format: the rows of some lines, of which it is told how many they are."""
