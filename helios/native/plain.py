"""Parses plain texts. A text is plain if this module and Spark's readers certainly read the same value from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from helios.native.engine import polars_type
from helios.native.program import NotNative, decimal_digits

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

WHOLE = r"-?(0|[1-9][0-9]*)"
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = rf"{DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(\.[0-9]{{1,6}})?"
ZONE = r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])"
PLAIN: Mapping[str, str] = {
    "boolean": "(true|false)",
    "int": WHOLE,
    "bigint": WHOLE,
    "double": r"-?(0|[1-9][0-9]{0,90})(\.[0-9]{1,90})?([eE][+-]?[0-9]{1,3})?",
    "date": DAY,
    "timestamp": f"{TIME}{ZONE}?",
    "timestamp_ntz": TIME,
}
"""The patterns of plain texts, by type. For decimals, see `pattern`. For strings, every text is plain."""
DAY_BYTES = frozenset({10})
TIME_BYTES = frozenset({19, *range(21, 27)})
"""The lengths of plain times without a zone: whole seconds, or one to six digits of a fraction."""
ZONED_BYTES = 25
"""The length of two forms of times: whole seconds with a zone such as +01:00, and five fraction digits without zone."""


def parses_type(kind: str) -> bool:
    """True if this module parses texts of a Spark type.

    Examples:
        >>> parses_type("bigint"), parses_type("decimal(38,2)"), parses_type("string"), parses_type("float")
        (True, True, True, False)
    """
    return kind in PLAIN or kind == "string" or kind.startswith("decimal(")


def pattern(kind: str) -> str:
    """The pattern of plain texts of a type. The pattern of a decimal matches texts whose digits all fit.

    Examples:
        >>> pattern("decimal(9,2)"), pattern("decimal(4,0)"), pattern("boolean")
        ('-?(0|[1-9][0-9]{0,6})(\\\\.[0-9]{1,2})?', '-?(0|[1-9][0-9]{0,3})', '(true|false)')
    """
    if not kind.startswith("decimal("):
        return PLAIN[kind]
    precision, scale = decimal_digits(kind)
    before = f"(0|[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    return f"-?{before}" + (rf"(\.[0-9]{{1,{scale}}})?" if scale else "")


def split_fields(lines: bytes, separator: str, columns: int, null: str | None = None) -> list[pa.ChunkedArray]:
    """Splits each line at the separators into fields, and returns the fields as columns of texts.

    Args:
        lines: The lines, in UTF-8 without a carriage return.
        separator: The separator, a single byte.
        null: The text that stands for null; None if no text does.

    Raises:
        pyarrow.ArrowInvalid: A line does not have `columns` fields.
    """
    import pyarrow as pa
    import pyarrow.csv

    names = [str(index) for index in range(columns)]
    table = pa.csv.read_csv(
        pa.BufferReader(lines),
        read_options=pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=len(lines) + 1),
        parse_options=pa.csv.ParseOptions(
            delimiter=separator, quote_char=False, double_quote=False, escape_char=False, ignore_empty_lines=False
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            check_utf8=False,
            strings_can_be_null=null is not None,
            null_values=[] if null is None else [null],
        ),
    )
    return list(table.columns)


def parse_values(texts: pa.ChunkedArray, name: str, kind: str) -> pl.Series:
    """Parses the texts of a column into values of a Spark type for which `parses_type` is true. Null stays null.

    Raises:
        NotNative: A text is not plain.
        pyarrow.ArrowException: A text has no value of the type, such as February 30.
    """
    import polars as pl

    if kind == "string":
        return pl.Series(name, texts)
    if kind in ("int", "bigint"):
        return _whole(texts, name, kind)
    if kind in ("date", "timestamp", "timestamp_ntz"):
        return _times(texts, name, kind)
    plain_texts = _plain(texts, name, kind)
    if kind == "boolean":
        return plain_texts == "true"
    numbers = plain_texts.cast(polars_type(kind), strict=True)
    if kind == "double" and not numbers.is_finite().all():
        raise _not_plain(name, kind)
    return numbers


def _not_plain(name: str, kind: str) -> NotNative:
    return NotNative(f"a value of {name} is not a plain {kind}")


def _plain(texts: pa.ChunkedArray, name: str, kind: str) -> pl.Series:
    """The texts of a column; raises `NotNative` if one of them is not plain."""
    import polars as pl

    series = pl.Series(name, texts)
    if not series.str.contains(f"^({pattern(kind)})$").all():  # nulls are ignored
        raise _not_plain(name, kind)
    return series


def _whole(texts: pa.ChunkedArray, name: str, kind: str) -> pl.Series:
    """Parses whole numbers. Texts that equal the formatted numbers are plain. For other texts, the pattern decides."""
    import polars as pl
    import pyarrow.compute as pc

    from helios.native.writer import arrow_type

    numbers = texts.cast(arrow_type(kind))
    if not _all(pc.equal(numbers.cast(texts.type), texts)):
        _plain(texts, name, kind)
    return pl.Series(name, numbers)


def _times(texts: pa.ChunkedArray, name: str, kind: str) -> pl.Series:
    """Parses dates and times with Arrow. Times without a zone are in UTC, as in the session.

    Arrow also accepts texts that are not plain. If all texts end with Z, or none has a zone, their lengths show which
    are plain; otherwise the pattern decides.
    """
    import polars as pl
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = {length for length in pc.unique(pc.binary_length(texts)).to_pylist() if length is not None}
    arrow_type: Any = pa.date32() if kind == "date" else pa.timestamp("us")
    plain = lengths <= (DAY_BYTES if kind == "date" else TIME_BYTES)
    if kind == "timestamp":
        in_utc = pc.ends_with(texts, "Z")
        if _all(in_utc):
            arrow_type, plain = pa.timestamp("us", "UTC"), {length - 1 for length in lengths} <= TIME_BYTES
        elif ZONED_BYTES in lengths or not plain or any_of(in_utc):
            texts, arrow_type, plain = _zoned(_plain(texts, name, kind)), pa.timestamp("us", "UTC"), True
    if not plain or any_of(pc.starts_with(texts, "0000")):
        raise _not_plain(name, kind)
    return pl.Series(name, texts.cast(arrow_type)).cast(polars_type(kind))


def _zoned(texts: pl.Series) -> pa.Array:
    """Appends Z to the texts that have no zone."""
    import polars as pl

    with_zone = texts.str.contains(f"{ZONE}$")
    return pl.select(pl.when(with_zone).then(texts).otherwise(texts + "Z")).to_series().to_arrow()


def _all(flags: Any) -> bool:
    """True if all flags are true. Nulls are ignored."""
    import pyarrow.compute as pc

    return bool(pc.all(flags, min_count=0).as_py())


def any_of(flags: Any) -> bool:
    import pyarrow.compute as pc

    return bool(pc.any(flags, min_count=0).as_py())
