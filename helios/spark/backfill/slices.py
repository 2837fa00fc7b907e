"""Cuts the rows of a backfill into slices; each slice is replaced in its own commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.plan.backfills import Cut
from helios.spark.iceberg.history import History
from helios.spark.jvm.sql import literal, quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.table.refs import BACKFILL

CATCH_UP = "rows that came meanwhile"
"""The name of the last slice of an ordered upsert. Its condition names the target's snapshot before the backfill."""
MAX_SLICES = 10_000
"""The maximum number of slices of one backfill."""
CUT, ROWS = "__helios_slice", "__helios_rows"
"""Two columns: the value by which rows are cut, as text, and the number of rows that have it."""
FORMATS = {"hour": "yyyy-MM-dd HH:00", "day": "yyyy-MM-dd", "month": "yyyy-MM"}


@dataclass(frozen=True)
class Slice:
    """One part of a backfill.

    Attributes:
        name: The name for messages.
        condition: The SQL condition, over the target's columns, for the rows of the slice. For a repair of commits, it
            has their snapshot ids; for the last slice of an ordered upsert, `since <snapshot id>`.
    """

    name: str
    condition: str


@dataclass(frozen=True)
class CountedSlice:
    """A slice with its number of rows in the target (`before`), and its number of rows after a repair (`after`)."""

    slice: Slice
    before: int
    after: int


def rows_by_cut(df: DataFrame, cut: Cut | None) -> DataFrame:
    """The number of rows for each value by which rows are cut into slices; the value is a text or null."""
    if cut is None:
        return df.select(F.lit("").alias(CUT)).groupBy(CUT).agg(F.count("*").alias(ROWS))
    column = F.col(quoted(cut.column))
    value = column.cast("string") if cut.unit is None else F.date_format(column, FORMATS[cut.unit])
    return df.select(value.alias(CUT)).groupBy(CUT).agg(F.count("*").alias(ROWS))


def slices_of(where: str, cut: Cut | None, before: DataFrame, after: DataFrame) -> list[CountedSlice]:
    """The slices that have rows now, or will have rows.

    Args:
        cut: How the rows are cut into slices; None for one slice.
        before: The rows of the target that meet the filter.
        after: The rows that the current script produces and that meet the filter.

    Raises:
        InputError: There are more than `MAX_SLICES`.
    """
    old = dict(_collected(rows_by_cut(before, cut)))
    new = dict(_collected(rows_by_cut(after, cut)))
    values = sorted({*old, *new}, key=lambda value: (value is not None, value or ""))
    if len(values) > MAX_SLICES:
        raise InputError(
            f"the backfill would have {len(values):,} slices, and at most {MAX_SLICES:,} are possible.",
            fix="cut by something coarser, or filter with --where.",
        )
    return [CountedSlice(slice_of(where, cut, value), old.get(value, 0), new.get(value, 0)) for value in values]


def _collected(counted: DataFrame) -> Sequence[tuple[str | None, int]]:
    return [(row[0], int(row[1])) for row in counted.limit(MAX_SLICES + 1).collect()]


def slice_of(where: str, cut: Cut | None, value: str | None) -> Slice:
    """The slice for one of the values that `rows_by_cut` returns.

    Examples:
        >>> slice_of("ts >= '2026-01-05'", Cut("ts", "day", "timestamp"), "2026-01-05").condition
        "(ts >= '2026-01-05') AND `ts` >= TIMESTAMP '2026-01-05 00:00:00Z' AND `ts` < TIMESTAMP '2026-01-06 00:00:00Z'"
        >>> slice_of("id > 3", Cut("day", None, "date"), None)
        Slice(name='day is null', condition='(id > 3) AND `day` IS NULL')
    """
    if cut is None:
        return Slice(where, f"({where})")
    column = quoted(cut.column)
    if value is None:
        return Slice(f"{cut.column} is null", f"({where}) AND {column} IS NULL")
    if cut.unit is None:
        return Slice(f"{cut.column} {value}", f"({where}) AND {column} = {_literal(cut.kind, value)}")
    begin, end = _bounds(cut.unit, value)
    before_end = f" AND {column} < {_time(cut.kind, end)}" if end is not None else ""
    return Slice(f"{cut.unit} {value}", f"({where}) AND {column} >= {_time(cut.kind, begin)}{before_end}")


def _literal(kind: str, value: str) -> str:
    if kind == "string":
        return literal(value)
    return f"DATE '{value}'" if kind == "date" else value


def _bounds(unit: str, value: str) -> tuple[str, str | None]:
    """The begin and the end of a slice of time, as `yyyy-mm-dd hh:mm:ss`; the end is None after the year 9999.

    Examples:
        >>> _bounds("month", "2026-12"), _bounds("day", "9999-12-31")
        (('2026-12-01 00:00:00', '2027-01-01 00:00:00'), ('9999-12-31 00:00:00', None))
    """
    from datetime import datetime, timedelta

    try:
        begin = datetime.fromisoformat(value if unit != "month" else f"{value}-01")
    except ValueError as error:
        raise InputError(
            f"--by: {value} is no {unit} of the years 1 to 9999.",
            fix="filter such rows out with --where, and repair them without --by.",
        ) from error
    try:
        if unit == "month":
            end = (begin + timedelta(days=31)).replace(day=1)
        else:
            end = begin + (timedelta(days=1) if unit == "day" else timedelta(hours=1))
    except OverflowError:
        return str(begin), None
    return str(begin), str(end)


def _time(kind: str, moment: str) -> str:
    if kind == "date":
        return f"DATE '{moment.partition(' ')[0]}'"
    return f"TIMESTAMP_NTZ '{moment}'" if kind == "timestamp_ntz" else f"TIMESTAMP '{moment}Z'"


def commits_since(catch_up: Slice, history: History, names: Iterable[str]) -> Iterator[JavaSnapshot]:
    """The commits of a pipeline's backfills since the snapshot that a catch-up slice names, newest first.

    After the last one, `history.is_cut` is True if further commits may have expired.
    """
    backfill_names, began = {f"{name}{BACKFILL}" for name in names}, catch_up.condition.rpartition(" ")[2]
    for snapshot in history:
        if str(snapshot.snapshotId()) == began:
            return
        if snapshot.summary().get("helios.pipeline") in backfill_names:
            yield snapshot
