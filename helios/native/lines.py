"""Lines of csv and JSON as frames, where they are plain: what each means is certain, and the same to Spark's readers.

Nothing is judged here: a block of lines of which one is not plain is refused, and Spark reads the batch. Not plain are
quotes and backslashes of a csv, control characters, empty lines, bytes that are no UTF-8, spaces at the ends of a csv's
fields, other fields than the file's columns, and values that `PLAIN` does not know for their types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from helios.native.engine import polars_type
from helios.native.program import NotNative
from helios.native.work import InputFile, Text

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

BLOCK = 16 << 20
"""Bytes that are read at a time."""
LONGEST = 1 << 20
"""Bytes of a line that is plain."""

WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
ZONE = r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
PLAIN: Mapping[str, str] = {
    "boolean": r"^(true|false)$",
    "int": WHOLE,
    "bigint": WHOLE,
    "double": r"^-?(0|[1-9][0-9]{0,90})(\.[0-9]{1,90})?([eE][+-]?[0-9]{1,3})?$",
    "decimal": r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?$",
    "date": rf"^{DAY}$",
    "timestamp": rf"^{TIME}{ZONE}?$",
    "timestamp_ntz": rf"^{TIME}$",
    "string": "",
}
"""By type, the texts that are plain values; every text is one."""
JSON_TEXTS = ("string", "date", "timestamp", "timestamp_ntz")
"""Types whose values are texts in JSON."""
DIGITS = 18
"""Of a decimal that is plain."""


def takes(kind: str) -> bool:
    """Whether values of a type may be plain.

    Examples:
        >>> takes("bigint"), takes("decimal(18,2)"), takes("decimal(19,2)"), takes("float")
        (True, True, False, False)
    """
    if kind.startswith("decimal("):
        return int(kind[len("decimal(") :].split(",", maxsplit=1)[0]) <= DIGITS
    return kind in PLAIN


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
            _check(lines, text)
            try:
                found = (_csv if text.format == "csv" else _json)(lines, text)
            except (pl.exceptions.PolarsError, pa.ArrowException) as error:
                raise NotNative(f"a line is not plain: {str(error).splitlines()[0]}") from error
            yield found


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
                block += _line(stream, file)  # the last line goes on behind the part
            cut = block.rfind(b"\n") + 1 if left > 0 else len(block)
            kept = block[cut:]
            if len(kept) > LONGEST:
                raise NotNative("a line is long")
            if cut:
                yield block[:cut]


def _line(stream: BinaryIO, file: InputFile) -> bytes:
    """The bytes up to the end of a line, or of what the file was."""
    end = file.whole or file.size
    found = stream.readline(min(LONGEST, end - stream.tell()))
    if not found.endswith(b"\n") and stream.tell() < end:
        raise NotNative("a line is long, or a file shorter than it was")
    return found


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


def _check(lines: bytes, text: Text) -> None:
    """Raises `NotNative` where bytes are not plain, whatever the lines are."""
    import numpy as np

    values = np.frombuffer(lines, dtype=np.uint8)
    signs = lines.count(b"\n") + (lines.count(b"\t") if text.separator == "\t" else 0)
    if int(np.count_nonzero(values < ord(" "))) != signs:
        raise NotNative("a line has a control character")
    if lines.startswith(b"\n") or b"\n\n" in lines:
        raise NotNative("a line is empty")
    if int(values.max()) > 127:
        try:
            lines.decode()
        except UnicodeDecodeError:
            raise NotNative("a line is no UTF-8") from None
        if lines.startswith(b"\xef\xbb\xbf"):
            raise NotNative("a file begins with a byte order mark")


def _csv(lines: bytes, text: Text) -> pl.DataFrame:
    import polars as pl

    separator = text.separator.encode()
    for sign in (b'"', b"\\"):
        if sign in lines:
            raise NotNative(f"a line has the sign {sign.decode()}")
    for ends in (b" " + separator, separator + b" ", b" \n", b"\n "):
        if ends in lines:
            raise NotNative("a field begins or ends with a space")
    if lines.startswith(b" "):
        raise NotNative("a field begins or ends with a space")
    # A line with more fields is refused by the reader, and one with fewer by the count.
    if lines.count(separator) != lines.count(b"\n") * (len(text.columns) - 1):
        raise NotNative("a line has another number of fields than the file has columns")
    found = pl.read_csv(
        lines,
        has_header=False,
        schema={str(place): pl.String() for place in range(len(text.columns))},
        separator=text.separator,
        quote_char=None,
        truncate_ragged_lines=False,
    )
    if len(found) != lines.count(b"\n"):
        raise NotNative("lines are not rows")
    frame = pl.DataFrame([_value(found.to_series(i), *column) for i, column in enumerate(text.columns)])
    if frame.select(pl.all_horizontal(pl.all().is_null()).any()).item():
        raise NotNative("a line has nothing but separators")
    return frame


def _json(lines: bytes, text: Text) -> pl.DataFrame:
    import polars as pl
    import pyarrow as pa
    import pyarrow.json

    count = lines.count(b"\n")
    # Fields are flat, so that each line which begins and ends so is one object or is refused.
    if not lines.startswith(b"{") or lines.count(b"\n{") != count - 1 or lines.count(b"}\n") != count:
        raise NotNative("a line is no object alone")
    if b"\\u0000" in lines:
        raise NotNative("a text has a NUL")
    schema = pa.schema([(name, _json_type(kind)) for name, kind in text.columns])
    found = pa.json.read_json(
        pa.BufferReader(lines),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
        ),
    )
    if found.num_rows != count:
        raise NotNative("lines are not rows")
    found.validate(full=True)  # Arrow compares the digits of a decimal with its precision before it scales it
    series = {}
    for name, kind in text.columns:
        values = pl.Series(name, found.column(name))
        series[name] = _value(values, name, kind) if kind in JSON_TEXTS else values
        if kind == "double" and not values.is_finite().all():
            raise NotNative(f"a value of {name} is no plain {kind}")
    return pl.DataFrame(series)


def _json_type(kind: str) -> pa.DataType:
    """The Arrow type that a value is read as: its own, or a text of which it is made then."""
    import pyarrow as pa

    from helios.native.writer import arrow_type

    return pa.string() if kind in JSON_TEXTS else arrow_type(kind)


def _value(texts: pl.Series, name: str, kind: str) -> pl.Series:
    """The values that texts are.

    Raises:
        NotNative: One of them is not plain.
    """
    plain = PLAIN[kind.partition("(")[0]]
    if not plain:
        return texts.alias(name)
    if not texts.str.contains(plain).all():  # nulls are left out
        raise NotNative(f"a value of {name} is no plain {kind}")
    if kind == "boolean":
        return (texts == "true").alias(name)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _times(texts, name, kind)
    found = texts.cast(polars_type(kind), strict=True).alias(name)
    _check_numbers(texts, found, kind)
    return found


def _check_numbers(texts: pl.Series, found: pl.Series, kind: str) -> None:
    """Raises `NotNative` for numbers that their type does not hold as they are written."""
    fits = True
    if kind == "double":
        fits = found.is_finite().all()
    elif kind.startswith("decimal("):
        precision, scale = map(int, kind[len("decimal(") : -1].split(","))
        before = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
        behind = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        fits = texts.str.contains(f"^-?{before}{behind}$").all()
    if not fits:
        raise NotNative(f"a value of {found.name} is no plain {kind}")


def _times(texts: pl.Series, name: str, kind: str) -> pl.Series:
    """Days and times as Arrow reads ISO 8601; times without a zone are those of UTC, as the session's are."""
    import polars as pl
    import pyarrow as pa

    wanted: Any = pa.date32() if kind == "date" else pa.timestamp("us")
    if kind == "timestamp":
        wanted = pa.timestamp("us", "UTC")
        zoned = texts.str.contains(f"{ZONE}$")
        if not zoned.all():
            texts = pl.select(pl.when(zoned).then(texts).otherwise(texts + "Z")).to_series()
    if texts.str.starts_with("0000").any():
        raise NotNative(f"a value of {name} is no plain {kind}")
    return pl.Series(name, texts.to_arrow().cast(wanted)).cast(polars_type(kind))
