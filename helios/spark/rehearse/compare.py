"""The changes that commits made, beside those that their rehearsal made: as multisets of rows, commit by commit.

Both sides begin with the same rows, so the difference of the target after a commit is the sum of the differences of all
changes up to it. An append is compared by what it added; any other commit by the rows, or the keys, that it touched.
"""

from __future__ import annotations

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

OWNER, SIGN, KEY = "__helios_owner", "__helios_sign", "__helios_key"
ADDED, MISSING, ROWS, KIND = "__helios_added", "__helios_missing", "__helios_rows", "__helios_kind"
ALL = -1
"""The owner of the sum of all commits."""
DIGITS = {DoubleType: 12, FloatType: 6}
"""Significant digits by which floating numbers are compared: their sums depend on the order of rows."""
JSON = {**JSON_TIMES, "ignoreNullFields": "false"}


@dataclass(frozen=True)
class Side:
    """The changes of one table.

    Attributes:
        name: The table.
        table: Iceberg's object.
        after: The snapshot before the first change; None for all from the first.
        to: The last snapshot; None where nothing was changed.
        owners: The snapshots whose changes count, each with the number of the commit that it counts for.
    """

    name: TableName
    table: JavaTable
    after: int | None
    to: int | None
    owners: Mapping[int, int]


@dataclass(frozen=True)
class Differences:
    """How the changes of two tables differ.

    Attributes:
        each: By commit; none where they are the same.
        total: After all of them.
        added: Some rows that only the second table has.
        missing: Some that only the first one has.
        changed: Some rows of one key: in the first, and in the second.
    """

    each: Mapping[int, Counts]
    total: Counts
    added: Sequence[Values]
    missing: Sequence[Values]
    changed: Sequence[tuple[Values, Values]]


def compare(
    spark: SparkSession,
    real: Side,
    ours: Side,
    columns: Sequence[str],
    keys: Sequence[str],
    *,
    appends: bool,
    some: int,
) -> Differences:
    """Compares the changes of two tables.

    Args:
        spark: The session.
        real: The commits as they are.
        ours: The rehearsal.
        columns: The columns that are compared; both have them.
        keys: Those that pair the rows of both; none where rows are only there or not.
        appends: Whether both only add rows.
        some: How many rows of each kind are given.
    """
    kinds = {field.name.lower(): field for field in spark_schema(spark, ours.table).fields}
    fields = [kinds[name.lower()] for name in columns]
    parts = [_signed(spark, real, fields, keys, -1), _signed(spark, ours, fields, keys, 1)]
    with _delta([part for part in parts if part is not None], fields, keys) as delta:
        if delta is None:
            return Differences({}, Counts(), (), (), ())
        after = delta if appends else _after_each(delta, fields)
        each = dict(_counted(after, fields, paired=bool(keys)))
        whole = net(delta.withColumn(OWNER, F.lit(ALL)), fields, (OWNER, KEY), SIGN)
        total = dict(_counted(whole, fields, paired=bool(keys))).get(ALL, Counts())
        added, missing, changed = _samples(whole, fields, some, paired=bool(keys))
        return Differences(each, total, added, missing, changed)


def _signed(
    spark: SparkSession, side: Side, fields: Sequence[StructField], keys: Sequence[str], sign: int
) -> DataFrame | None:
    """The rows that a table's changes added, with a sign, and those that they removed, with the other one."""
    read = ReadPlan(source=Iceberg.source(side.name.within, catalog=side.name.catalog), table=side.name)
    own = spark_schema(spark, side.table).fields
    # Without lineage, deleted positions need a key: which one pairs the images of an update does not matter here.
    by = tuple(keys) or tuple(field.name for field in own if field.dataType.typeName() not in ("map", "variant"))
    if side.to is None or not side.owners:
        return None
    rows = read_changes(spark, read, side.after, side.to, by)
    kind, _, commit = CHANGE_COLUMNS
    owner = F.create_map(*(F.lit(value) for pair in side.owners.items() for value in pair))
    signs = F.when(F.col(kind).isin(DELETE, UPDATE_BEFORE), -sign).otherwise(sign).cast("bigint")
    values = [_value(field).alias(field.name) for field in fields]
    counted = rows.withColumn(OWNER, F.try_element_at(owner, F.col(commit))).where(F.col(OWNER).isNotNull())
    return counted.select(OWNER, signs.alias(SIGN), *values)


def _value(field: StructField) -> Column:
    """A column as it is compared."""
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
    """The rows of each commit that one side changed otherwise, with how often, and their key; kept meanwhile."""
    if not parts:
        yield None
        return
    counted = net(reduce(DataFrame.unionAll, parts), fields, (OWNER,), SIGN)
    names = keys or [field.name for field in fields]
    key = F.to_json(F.struct(*map(quoted, names)), JSON)
    kept = counted.withColumn(KEY, key).persist()
    try:
        yield None if kept.isEmpty() else kept
    finally:
        kept.unpersist()


def _after_each(delta: DataFrame, fields: Sequence[StructField]) -> DataFrame:
    """The difference of the two tables after each commit, by the keys that the commit changed in any of them."""
    touched = delta.select(F.col(OWNER).alias(ALL_OWNER), F.col(KEY).alias(ALL_KEY)).distinct()
    so_far = (F.col(KEY) == F.col(ALL_KEY)) & (F.col(OWNER) <= F.col(ALL_OWNER))
    joined = touched.join(delta, so_far).drop(OWNER, ALL_KEY).withColumnRenamed(ALL_OWNER, OWNER)
    return net(joined, fields, (OWNER, KEY), SIGN)


ALL_OWNER, ALL_KEY = "__helios_of", "__helios_touched"


def _grouped(rows: DataFrame, fields: Sequence[StructField], *, paired: bool) -> DataFrame:
    """Rows by commit and key: how many only one side has, and which."""
    values = F.struct(F.col(SIGN), *(F.col(quoted(field.name)) for field in fields))
    sides = rows.groupBy(OWNER, KEY).agg(
        F.sum(F.greatest(F.col(SIGN), F.lit(0))).alias(ADDED),
        F.sum(F.greatest(-F.col(SIGN), F.lit(0))).alias(MISSING),
        F.collect_list(values).alias(ROWS),
    )
    pair = (F.col(ADDED) == 1) & (F.col(MISSING) == 1) if paired else F.lit(False)
    return sides.withColumn(KIND, pair)


def _counted(rows: DataFrame, fields: Sequence[StructField], *, paired: bool) -> Iterator[tuple[int, Counts]]:
    changed = F.when(F.col(KIND), 1).otherwise(0)
    sums = (F.sum(F.col(ADDED) - changed), F.sum(F.col(MISSING) - changed), F.sum(changed))
    for row in _grouped(rows, fields, paired=paired).groupBy(OWNER).agg(*sums).collect():
        yield int(row[0]), Counts(added=int(row[1]), missing=int(row[2]), changed=int(row[3]))


def _samples(
    rows: DataFrame, fields: Sequence[StructField], some: int, *, paired: bool
) -> tuple[list[Values], list[Values], list[tuple[Values, Values]]]:
    """Some rows of each kind, in the order of their keys."""
    grouped = _grouped(rows, fields, paired=paired)
    pairs = grouped.where(KIND).orderBy(KEY).limit(some).collect()
    changed = [_pair(row[ROWS], fields) for row in pairs]
    sides: dict[int, list[Values]] = {1: [], -1: []}
    for sign, count in ((1, ADDED), (-1, MISSING)):
        for group in grouped.where(~F.col(KIND) & (F.col(count) > 0)).orderBy(KEY).limit(some).collect():
            for row in group[ROWS]:
                sides[sign] += [plain_values(row, fields)] * max(0, row[SIGN] * sign)
    return sides[1][:some], sides[-1][:some], changed


def _pair(rows: Sequence[Row], fields: Sequence[StructField]) -> tuple[Values, Values]:
    before, now = sorted(rows, key=lambda row: int(row[SIGN]))
    return plain_values(before, fields), plain_values(now, fields)
