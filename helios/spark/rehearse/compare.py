"""Compares the changes of commits with the changes of their rehearsal: as multisets of rows, commit by commit.

If the mode only adds rows, the rows that each commit added are compared. For any other mode, the rows of the keys that
a commit changed are compared as both tables have them after the commit. Both tables start with the same rows. So their
difference after a commit is the sum of the differences of all changes up to that commit. Without keys, a whole row
counts as its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructField

from helios.catalog.names import TableName
from helios.iceberg import Iceberg
from helios.model.columns import CHANGE_COLUMNS
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.spark.changelog import DELETE, UPDATE_BEFORE, read_changes
from helios.spark.iceberg.multiset import net
from helios.spark.iceberg.plain_values import plain_values
from helios.spark.iceberg.tables import spark_schema
from helios.spark.jvm.sql import JSON_TIMES, quoted
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.rehearse.report import Counts, Values

COMMIT, SIGN, KEY = "__helios_commit", "__helios_sign", "__helios_key"
ADDED, MISSING, ROWS, IS_PAIR = "__helios_added", "__helios_missing", "__helios_rows", "__helios_pair"
TOUCHED_BY, TOUCHED_KEY = "__helios_of", "__helios_touched"
"""The columns with a commit that changed a key, and with that key."""
ALL = -1
"""The value of `COMMIT` for the sum over all commits."""
UNORDERED = re.compile(r"\bmap<|\bvariant\b")
"""Matches the text of a type by which Spark cannot group rows: a map or a variant at any depth."""
DIGITS = {DoubleType: 12, FloatType: 6}
"""The significant digits of floating-point numbers that are compared, since sums depend on the order of rows."""
JSON_OPTIONS = {**JSON_TIMES, "ignoreNullFields": "false"}


@dataclass(frozen=True)
class Side:
    """The changes of one table.

    Attributes:
        after: The snapshot before the first change; None if the table had no snapshot before.
        to: The snapshot of the last change; None if there is no change.
        commit_of: The snapshots whose changes are compared, each with the index of the commit to which it belongs.
    """

    name: TableName
    table: JavaTable
    after: int | None
    to: int | None
    commit_of: Mapping[int, int]


@dataclass(frozen=True)
class Differences:
    """How the changes of two tables differ.

    Attributes:
        by_commit: The counts of each commit with differences, by the commit's index.
        total: The counts after all commits.
        added: A sample of the rows that only the second table has.
        missing: A sample of the rows that only the first table has.
        changed: A sample of the rows with other values, each as a pair: in the first table and in the second.
    """

    by_commit: Mapping[int, Counts]
    total: Counts
    added: Sequence[Values]
    missing: Sequence[Values]
    changed: Sequence[tuple[Values, Values]]


def compare(
    spark: SparkSession,
    real: Side,
    rehearsed: Side,
    columns: Sequence[str],
    keys: Sequence[str],
    *,
    appends: bool,
    samples: int,
) -> Differences:
    """Compares the changes of two tables.

    Args:
        real: The target.
        columns: The columns to compare, which both tables have.
        keys: The columns that pair a row of one table with a row of the other; empty to compare whole rows.
        appends: Whether the changes only add rows.
        samples: How many rows of each kind are returned.
    """
    field_of = {field.name.lower(): field for field in spark_schema(spark, rehearsed.table).fields}
    fields = [field_of[name.lower()] for name in columns]
    parts = [_signed(spark, real, fields, keys, -1), _signed(spark, rehearsed, fields, keys, 1)]
    with _delta([part for part in parts if part is not None], fields, keys) as delta:
        if delta is None:
            return Differences({}, Counts(), (), (), ())
        after = delta if appends else _after_each(delta, fields)
        by_commit = dict(_counted(after, fields, paired=bool(keys)))
        overall = net(delta.withColumn(COMMIT, F.lit(ALL)), fields, (COMMIT, KEY), SIGN)
        total = dict(_counted(overall, fields, paired=bool(keys))).get(ALL, Counts())
        added, missing, changed = _samples(overall, fields, samples, paired=bool(keys))
        return Differences(by_commit, total, added, missing, changed)


def _signed(
    spark: SparkSession, side: Side, fields: Sequence[StructField], keys: Sequence[str], sign: int
) -> DataFrame | None:
    """The rows that a table's changes added, with the sign, and the rows that they removed, with the opposite sign.

    Each row also has its `COMMIT`. Returns None if there are no changes.
    """
    read = ReadPlan(source=Iceberg.source(side.name.name_in_catalog, catalog=side.name.catalog), table=side.name)
    own = spark_schema(spark, side.table).fields
    # Without row lineage, `read_changes` needs keys for merge-on-read changes, to pair the old and the new image of a
    # row. Here each image counts alone, so any columns can be the keys.
    pairing = tuple(keys) or tuple(field.name for field in own if not UNORDERED.search(field.dataType.simpleString()))
    if side.to is None or not side.commit_of:
        return None
    rows = read_changes(spark, read, side.after, side.to, pairing)
    kind, _, commit = CHANGE_COLUMNS
    index = F.create_map(*(F.lit(value) for pair in side.commit_of.items() for value in pair))
    signs = F.when(F.col(kind).isin(DELETE, UPDATE_BEFORE), -sign).otherwise(sign).cast("bigint")
    values = [_value(field).alias(field.name) for field in fields]
    owned = rows.withColumn(COMMIT, F.try_element_at(index, F.col(commit))).where(F.col(COMMIT).isNotNull())
    return owned.select(COMMIT, signs.alias(SIGN), *values)


def _value(field: StructField) -> Column:
    """The values of a column to compare: floating-point numbers are rounded to `DIGITS`."""
    value = F.col(quoted(field.name)).cast(field.dataType)
    digits = next((n for kind, n in DIGITS.items() if isinstance(field.dataType, kind)), None)
    if digits is None:
        return value
    rounded = F.format_string(f"%.{digits - 1}e", value.cast("double")).cast(field.dataType)
    return F.when(value.isNull() | F.isnan(value), value).otherwise(rounded)


@contextmanager
def _delta(
    parts: Sequence[DataFrame], fields: Sequence[StructField], keys: Sequence[str]
) -> Iterator[DataFrame | None]:
    """For each commit, the rows that the two tables changed differently, with their sign and `KEY`; None for no rows.

    The rows are cached until the `with` block ends.
    """
    if not parts:
        yield None
        return
    differing = net(reduce(DataFrame.unionAll, parts), fields, (COMMIT,), SIGN)
    names = keys or [field.name for field in fields]
    key = F.to_json(F.struct(*map(quoted, names)), JSON_OPTIONS)
    cached = differing.withColumn(KEY, key).persist()
    try:
        yield None if cached.isEmpty() else cached
    finally:
        cached.unpersist()


def _after_each(delta: DataFrame, fields: Sequence[StructField]) -> DataFrame:
    """The difference of the two tables after each commit, at the keys that the commit changed in either table."""
    touched = delta.select(F.col(COMMIT).alias(TOUCHED_BY), F.col(KEY).alias(TOUCHED_KEY)).distinct()
    changed_until_then = (F.col(KEY) == F.col(TOUCHED_KEY)) & (F.col(COMMIT) <= F.col(TOUCHED_BY))
    joined = touched.join(delta, changed_until_then).drop(COMMIT, TOUCHED_KEY).withColumnRenamed(TOUCHED_BY, COMMIT)
    return net(joined, fields, (COMMIT, KEY), SIGN)


def _grouped(rows: DataFrame, fields: Sequence[StructField], *, paired: bool) -> DataFrame:
    """One row for each commit and key, with its differing rows, their number on each side, and `IS_PAIR`.

    If `paired`, `IS_PAIR` is true where each side has one row: the two rows count as one changed row.
    """
    values = F.struct(F.col(SIGN), *(F.col(quoted(field.name)) for field in fields))
    sides = rows.groupBy(COMMIT, KEY).agg(
        F.sum(F.greatest(F.col(SIGN), F.lit(0))).alias(ADDED),
        F.sum(F.greatest(-F.col(SIGN), F.lit(0))).alias(MISSING),
        F.collect_list(values).alias(ROWS),
    )
    pair = (F.col(ADDED) == 1) & (F.col(MISSING) == 1) if paired else F.lit(False)
    return sides.withColumn(IS_PAIR, pair)


def _counted(rows: DataFrame, fields: Sequence[StructField], *, paired: bool) -> Iterator[tuple[int, Counts]]:
    changed = F.when(F.col(IS_PAIR), 1).otherwise(0)
    sums = (F.sum(F.col(ADDED) - changed), F.sum(F.col(MISSING) - changed), F.sum(changed))
    for row in _grouped(rows, fields, paired=paired).groupBy(COMMIT).agg(*sums).collect():
        yield int(row[0]), Counts(added=int(row[1]), missing=int(row[2]), changed=int(row[3]))


def _samples(
    rows: DataFrame, fields: Sequence[StructField], limit: int, *, paired: bool
) -> tuple[list[Values], list[Values], list[tuple[Values, Values]]]:
    """Samples of added, missing and changed rows, in the order of their keys."""
    grouped = _grouped(rows, fields, paired=paired)
    pairs = grouped.where(IS_PAIR).orderBy(KEY).limit(limit).collect()
    changed = [_pair(row[ROWS], fields) for row in pairs]
    sides: dict[int, list[Values]] = {1: [], -1: []}
    for sign, count in ((1, ADDED), (-1, MISSING)):
        for group in grouped.where(~F.col(IS_PAIR) & (F.col(count) > 0)).orderBy(KEY).limit(limit).collect():
            for row in group[ROWS]:
                sides[sign] += [plain_values(row, fields)] * max(0, row[SIGN] * sign)
    return sides[1][:limit], sides[-1][:limit], changed


def _pair(rows: Sequence[Row], fields: Sequence[StructField]) -> tuple[Values, Values]:
    before, now = sorted(rows, key=lambda row: int(row[SIGN]))
    return plain_values(before, fields), plain_values(now, fields)
