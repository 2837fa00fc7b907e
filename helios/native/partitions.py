"""Computes partition values by Iceberg's transforms, and writes them as JSON and as folder names."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from helios.native.program import NotNative
from helios.native.work import Partition

if TYPE_CHECKING:
    import polars as pl

DAY, HOUR = 86_400_000_000, 3_600_000_000
"""A day and an hour, in microseconds."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The limits of Python's dates, the years 1 to 9999, in days since 1970."""
TEMPORAL_TYPES = ("date", "timestamp", "timestamp_ntz")
PARTITION_TYPES = {
    "identity": ("boolean", "int", "bigint", "string", "date"),
    "year": TEMPORAL_TYPES,
    "month": TEMPORAL_TYPES,
    "day": TEMPORAL_TYPES,
    "hour": ("timestamp", "timestamp_ntz"),
    "truncate": ("int", "bigint", "string", "binary"),
    "bucket": ("int", "bigint", "string", "binary", "decimal", *TEMPORAL_TYPES),
}
"""For each transform, the types of columns to which the engine applies the transform."""

Values = tuple[Any, ...]


def grouped_by_partition(
    frame: pl.DataFrame, fields: Sequence[Partition]
) -> tuple[pl.DataFrame, list[tuple[Values, int, int]]]:
    """Groups rows by partition. The rows of a partition keep their order.

    Returns:
        The grouped rows, and for each partition its values, the index of its first row, and its number of rows.

    Raises:
        NotNative: A time lies outside of the years 1 to 9999.
    """
    import polars as pl

    names = [f"__helios_key_{index}" for index in range(len(fields))]
    keyed = frame.with_columns(_key(frame, field).alias(name) for field, name in zip(fields, names, strict=True))
    keys = keyed.select(names)
    differs_from_first = pl.all().ne_missing(pl.all().first()).any()
    if keys.select(pl.any_horizontal(differs_from_first)).item():
        keyed = keyed.sort(names, maintain_order=True)
        keys = keyed.select(names)
    runs = keys.select(pl.struct(names).rle_id().alias("run")).with_row_index("start").unique("run", keep="first")
    starts = runs.get_column("start").sort().to_list()
    spans = [(keys.row(start), start, end - start) for start, end in pairwise([*starts, len(keys)])]
    return keyed.drop(names), spans


def _key(frame: pl.DataFrame, field: Partition) -> pl.Series:
    values = frame.get_column(field.source)
    transform, width = parse_transform(field.transform)
    if field.kind in TEMPORAL_TYPES and transform != "bucket":
        _check_years(values, field.kind)
    return TRANSFORMS[transform](values, field.kind, width)


def parse_transform(transform: str) -> tuple[str, int]:
    """The name and the width of a transform in Iceberg's notation; the width is 0 for a transform without one.

    Examples:
        >>> parse_transform("bucket[16]"), parse_transform("day")
        (('bucket', 16), ('day', 0))
    """
    match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?", transform)
    return (match[1], int(match[2] or 0)) if match is not None else (transform, 0)


def _check_years(values: pl.Series, kind: str) -> None:
    days = values.to_physical() if kind == "date" else values.to_physical() // DAY
    first, last = days.min(), days.max()
    if first is not None and (first < FIRST_DAY or last > LAST_DAY):  # type: ignore[operator]
        raise NotNative("a time of a partition is outside of the years 1 to 9999")


def _days(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl

    return values.to_physical() if kind == "date" else (values.to_physical() // DAY).cast(pl.Int32)


def _hours(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl

    return (values.to_physical() // HOUR).cast(pl.Int32)


def _months(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl

    return (values.dt.year().cast(pl.Int32) - 1970) * 12 + values.dt.month().cast(pl.Int32) - 1


def _years(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl

    return values.dt.year().cast(pl.Int32) - 1970


def _truncated(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl

    if kind == "string":
        return values.str.slice(0, width)
    if kind == "binary":
        return values.bin.slice(0, width)
    return values - values % pl.Series([width], dtype=values.dtype)  # overflows at the smallest number, as in Java


def _buckets(values: pl.Series, kind: str, width: int) -> pl.Series:
    import polars as pl
    import pyarrow as pa
    from pyiceberg_core import transform

    array = values.to_arrow(compat_level=pl.CompatLevel.oldest())
    if kind == "timestamp":
        array = array.cast(pa.timestamp("us"))
    buckets = pl.from_arrow(transform.bucket(array, width))
    assert isinstance(buckets, pl.Series)
    return buckets


TRANSFORMS: dict[str, Callable[[pl.Series, str, int], pl.Series]] = {
    "identity": lambda values, kind, width: values.to_physical() if kind == "date" else values,
    "year": _years,
    "month": _months,
    "day": _days,
    "hour": _hours,
    "truncate": _truncated,
    "bucket": _buckets,
}


# partition values in metadata and in paths


def as_json(value: Any, field: Partition) -> Any:
    """A partition value in Iceberg's JSON single-value serialization."""
    if value is not None and _is_day(field):
        return _date(value).isoformat()
    return value.hex().upper() if isinstance(value, bytes) else value


def folder_name(value: Any, field: Partition) -> str:
    """The folder of a partition value, as Iceberg names it."""
    return f"{quote_plus(field.name)}={quote_plus(_text(value, field))}"


def _text(value: Any, field: Partition) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if _is_day(field):
        return _date(value).isoformat()
    transform, _width = parse_transform(field.transform)
    if transform == "hour":
        return f"{_date(value // 24).isoformat()}-{value % 24:02}"
    if transform == "month":
        return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
    return f"{1970 + value:04}" if transform == "year" else str(value)


def _is_day(field: Partition) -> bool:
    return field.transform == "day" or (field.transform == "identity" and field.kind == "date")


def _date(days: int) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
