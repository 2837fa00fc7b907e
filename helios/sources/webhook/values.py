"""Decides which JSON values a column accepts: only those that the reader of segments reads without changing them.

Segments are read by `helios.sources.files.spark.json_lines` and Spark's parser. A value that the
reader refuses would stop a run or go to the quarantine, although its sender was answered with 200. So each rule here
is at least as strict as the reader.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from math import isfinite
from typing import Any, NamedTuple

from helios.plan.typing.types import SparkType

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""The number of bits of each integer type."""

LONGEST_WITH_EXPONENT = 39
"""The most characters of a decimal that is written with an exponent: a longer one might lose digits when it is read.
Also the largest exponent of a zero."""

NUMBER = re.compile(r"-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[T ](?:[01]\d|2[0-3]):\d{2}(?:(:\d{2})(?:\.(\d+))?(Z|[+-]\d{2}(?::?\d{2})?)?)?)?", re.ASCII
)
"""ISO 8601 as Spark's cast accepts it: no week dates, no basic format, and a zone only after the seconds."""

MOST_OFFSET_HOURS = 18
"""The largest offset of a time zone in hours, as in Java."""


class Real(NamedTuple):
    """A number with a fraction or an exponent, kept as text."""

    text: str


def fits(value: Any, kind: SparkType, extras: bool = False) -> bool:
    """Returns True if a column of a type stores a JSON value unchanged. The value is not null.

    Args:
        value: The value, with fractions as `Real`.
        extras: Whether a struct may have fields that its type lacks.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> [fits(value, parse_type("int")) for value in (5, 2**31, True, "5")]
        [True, False, False, False]
        >>> fits({"a": [1, 2]}, parse_type("struct<a:array<bigint>>"))
        True
        >>> [fits(value, parse_type("date")) for value in ("2026-01-01", "20260101")]
        [True, False]
    """
    if kind.name in INTEGER_BITS:
        limit = 2 ** (INTEGER_BITS[kind.name] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if kind.name in ("array", "map", "struct"):
        return _nested(value, kind, extras)
    test = SCALARS.get(kind.name)
    return test is not None and test(value, kind)


def preview(value: Any) -> str:
    """The beginning of a value, to be quoted in the answer to a sender."""
    return value.text[:100] if isinstance(value, Real) else json.dumps(value, default=str)[:100]


def has_excess_digits(value: Any, kind: SparkType) -> bool:
    """Returns True if a text is no valid timestamp, but becomes one when its fraction is cut to six digits.

    Examples:
        >>> from helios.plan.typing.types import parse_type
        >>> kind = parse_type("timestamp")
        >>> [has_excess_digits(f"2026-01-01T10:00:00.{digits}Z", kind) for digits in ("123456", "123456789")]
        [False, True]
    """
    if kind.name not in TIMES or not isinstance(value, str):
        return False
    return not fits(value, kind) and fits(cut_to_micros(value), kind)


def cut_to_micros(text: str) -> str:
    """Cuts the fraction of a timestamp to six digits; returns any other text unchanged.

    Examples:
        >>> cut_to_micros("2026-01-01T10:00:00.123456789Z")
        '2026-01-01T10:00:00.123456Z'
    """
    match = TIME.fullmatch(text)
    if match is None or len(match[2] or "") <= 6:
        return text
    return text[: match.start(2) + 6] + text[match.end(2) :]


def _nested(value: Any, kind: SparkType, extras: bool) -> bool:
    if kind.name == "array":
        return isinstance(value, list) and all(item is None or fits(item, kind.parts[0], extras) for item in value)
    if not isinstance(value, dict):
        return False
    if kind.name == "map":
        has_text_keys = kind.parts[0].name == "string"  # Spark's JSON parser supports no other keys
        return has_text_keys and all(item is None or fits(item, kind.parts[1], extras) for item in value.values())
    fields = by_column(value, kind.fields)
    if fields is None or (not extras and len(fields) < len(value)):
        return False
    parts = dict(zip(kind.fields, kind.parts, strict=True))
    return all(item is None or fits(item, parts[name], extras) for name, item in fields.items())


def by_column(value: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any] | None:
    """The fields that are columns, by the names of the columns, ignoring case; None if a column occurs twice.

    Examples:
        >>> by_column({"ID": 1, "more": 2}, ("id",)), by_column({"ID": 1, "id": 2}, ("id",))
        ({'id': 1}, None)
    """
    columns = {name.lower(): name for name in names}
    pairs = [(columns[name.lower()], item) for name, item in value.items() if name.lower() in columns]
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else None


def _text(value: Any, kind: SparkType) -> bool:
    return True  # a string column stores numbers and objects as JSON text


def _boolean(value: Any, kind: SparkType) -> bool:
    return isinstance(value, bool)


def _floating(value: Any, kind: SparkType) -> bool:
    if not isinstance(value, int | Real) or isinstance(value, bool):
        return False
    try:
        number = float(value.text if isinstance(value, Real) else value)
        struct.pack(
            "<f" if kind.name == "float" else "<d", number
        )  # "<f" raises an error for a number that is too large; "f" does not
    except OverflowError:
        return False
    return isfinite(number)


def _decimal(value: Any, kind: SparkType) -> bool:
    if not isinstance(value, int | Real) or isinstance(value, bool):
        return False
    text = value.text if isinstance(value, Real) else str(value)
    match = NUMBER.fullmatch(text)
    if match is None or (match[3] is not None and len(text) > LONGEST_WITH_EXPONENT):
        return False
    numbers = kind.numbers or (10, 0)
    precision, scale = numbers if len(numbers) == 2 else (numbers[0], 0)
    whole, fraction, power = match[1], match[2] or "", int(match[3] or "0")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return abs(power) <= LONGEST_WITH_EXPONENT
    significant = digits.rstrip("0")
    exponent = power - len(fraction) + len(digits) - len(significant)  # the value is significant * 10 ** exponent
    return -exponent <= scale and len(significant) + exponent <= precision - scale


def _date(value: Any, kind: SparkType) -> bool:
    return isinstance(value, str) and DAY.fullmatch(value) is not None and _parses(date.fromisoformat, value)


def _time(value: Any, kind: SparkType) -> bool:
    match = TIME.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    zone, fraction = match[3], match[2] or ""
    if fraction[6:].strip("0") or (zone and kind.name == "timestamp_ntz"):
        return False
    if zone and zone != "Z":
        offset = zone[1:].replace(":", "").ljust(4, "0")
        if int(offset[2:]) > 59 or int(offset) > MOST_OFFSET_HOURS * 100:
            return False
    return _parses(_instant, cut_to_micros(value))


def _instant(text: str) -> datetime:
    """Parses a time in the years 1 to 9999, also in UTC: the range of Python's readers of tables."""
    instant = datetime.fromisoformat(text)
    return instant.astimezone(UTC) if instant.tzinfo is not None else instant


def _base64(value: Any, kind: SparkType) -> bool:
    """Returns True if a text is base64 in its canonical form, since readers decode other forms differently."""
    if not isinstance(value, str) or not _parses(lambda text: base64.b64decode(text, validate=True), value):
        return False
    return base64.b64encode(base64.b64decode(value)).decode() == value


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except (ValueError, OverflowError):
        return False
    return True


TIMES = ("timestamp", "timestamp_ntz")

SCALARS: dict[str, Callable[[Any, SparkType], bool]] = {
    "string": _text,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _time,
    "timestamp_ntz": _time,
    "binary": _base64,
}
"""The functions that test a JSON value, for each type that is neither an integer nor nested."""
