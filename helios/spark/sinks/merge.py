"""Upserts: finds the newest row or all versions of each key in a batch, and builds the MERGE that writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from helios.errors import Origin, RunError
from helios.model.columns import POSITION
from helios.model.modes import VALID_FROM, VALID_TO, Mode, Upsert
from helios.spark.checkpoint.upsert_state import DELETED, ORDER
from helios.spark.iceberg.merge_scope import Bound, MergeScope
from helios.spark.jvm.sql import quoted
from helios.spark.sinks import log_order

HELPERS = (ORDER, DELETED)
RANK = "__helios_rank"
BROADCAST_ROWS = 500_000
"""The maximum number of a batch's keys that are broadcast to the scan of the target: as a hash table about 50 MB."""
MAX_COLLECTED_KEYS = 5_000
"""The maximum number of rows of a batch whose keys the driver collects, to compare them with keys of other writers."""

BOUNDS: Mapping[type[DataType], Callable[[Column], Column]] = {
    IntegralType: lambda end: end,
    DecimalType: lambda end: end,
    StringType: lambda end: end,
    DateType: F.unix_date,
    TimestampType: lambda end: F.date_format(end, "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX"),  # old UTC offsets have seconds
}
"""The conversion of a key's lowest and highest value for Iceberg, by type. Keys of these types prune files."""
COMPARED: Mapping[type[DataType], Callable[[Column], Column]] = {
    **BOUNDS,
    DecimalType: lambda value: value.cast("string"),
}
"""The conversion of a key's value for Iceberg, by type.

Iceberg regards decimals of different scales as unequal, so a decimal becomes text, which keeps the scale.
"""


def marked(df: DataFrame, mode: Upsert) -> DataFrame:
    """The rows with the helper columns `ORDER` and `DELETED`: the order of a row, and whether it deletes its key."""
    order = F.expr(mode.order_by) if mode.order_by else F.lit(None).cast("bigint")
    deleted = F.coalesce(F.expr(mode.delete_when), F.lit(False)) if mode.delete_when else F.lit(False)
    return df.withColumns({ORDER: order, DELETED: deleted})


def ordering_terms(rows: DataFrame, mode: Upsert) -> dict[str, object]:
    """The key columns, the declared order and its type: two orders of a key can be compared only if all are equal."""
    kind = rows.schema[ORDER].dataType
    group = next((name for base, name in COMPARABLE_TYPES.items() if isinstance(kind, base)), None)
    return {
        "keys": sorted(key.lower() for key in mode.keys),
        "order": " ".join(str(mode.order_by).split()),
        "type": group or kind.simpleString(),
    }


COMPARABLE_TYPES: Mapping[type[DataType], str] = {IntegralType: "integer", FractionalType: "fraction"}
"""The names of groups of types: orders of two types in one group can be compared."""


def newest(df: DataFrame, keys: tuple[str, ...], *extra_columns: str) -> DataFrame:
    """The newest row of each key by its order; among equal orders, the row of the later source position.

    Rows without a position are ordered by a hash of their content, so that a replay picks the same row.

    Args:
        df: The rows, with `ORDER`.
        extra_columns: Columns that identify a row besides the keys.
    """
    plain = [F.col(quoted(f.name)) for f in df.schema.fields if not _unhashable(f.dataType) and f.name != POSITION]
    position = [F.col(POSITION).desc_nulls_last()] if POSITION in df.columns else []
    order = [F.col(ORDER).desc_nulls_last(), *position, F.xxhash64(*plain).desc()]
    rank = F.row_number().over(Window.partitionBy(*map(quoted, (*keys, *extra_columns))).orderBy(*order))
    return df.withColumn(RANK, rank).where(F.col(RANK) == 1).drop(RANK)


def _unhashable(kind: object) -> bool:
    if isinstance(kind, (MapType, VariantType)):
        return True
    if isinstance(kind, StructType):
        return any(_unhashable(field.dataType) for field in kind.fields)
    return _unhashable(kind.elementType) if isinstance(kind, ArrayType) else False


def null_key(keys: Iterable[str]) -> Column:
    """A condition that is true if a row has a null in its key."""
    condition = F.lit(False)
    for key in keys:
        condition = condition | F.col(quoted(key)).isNull()
    return condition


def invalid_reason(mode: Mode) -> Column:
    """The reason why a row is invalid, as a column; null for a valid row.

    A row is invalid if it has a null in its key, or no order although versions are kept.
    """
    names = [F.when(F.col(quoted(key)).isNull(), F.lit(key)) for key in mode.keys]
    reason = F.when(null_key(mode.keys), F.concat(F.lit("null key: "), F.concat_ws(", ", *names)))
    if mode.added_columns:
        reason = reason.when(F.expr(str(mode.order_by)).isNull(), F.lit(f"null order: {mode.order_by}"))
    return reason


def validate_keys(
    df: DataFrame, mode: Mode, table: str, where: Origin | None, *, also: tuple[str, ...] = ()
) -> MergeScope:
    """Validates the keys of a batch before it is written, in one pass over the rows; returns the scope of its MERGE.

    Args:
        df: The batch; without an order, each key may occur only once.
        also: Further columns that a duplicate must share, such as the route.

    Raises:
        RunError: A key is null or occurs twice, or a version has no order; the message shows a row.
    """
    keys = mode.keys
    ordered = mode.upsert is None or mode.order_by is not None
    reason = invalid_reason(mode)
    kinds = {key: df.select(quoted(key)).schema[0].dataType for key in keys}
    bounded = {key: BOUNDS[base] for key, kind in kinds.items() for base in BOUNDS if isinstance(kind, base)}
    end_columns = [convert(end(quoted(key))) for key, convert in bounded.items() for end in (F.min, F.max)]
    rows_per_key = F.count(F.lit(1)).alias(RANK)
    grouped = df.withColumn(RANK, F.lit(1)) if ordered else df.groupBy(*map(quoted, (*keys, *also))).agg(rows_per_key)
    [row] = grouped.agg(F.count_if(reason.isNotNull()), F.max(RANK), F.sum(RANK), *end_columns).collect()
    nulls, most_per_key, total, *values = row
    if nulls:
        _refuse_invalid(df, reason, table, where)
    if most_per_key is not None and most_per_key > 1:
        _refuse_duplicate(grouped, also, table, where)
    rows = total or 0
    lows_and_highs = zip(bounded, values[::2], values[1::2], strict=True)
    can_collect = len(bounded) == len(keys) and rows <= MAX_COLLECTED_KEYS
    return MergeScope(
        narrow=key_filter(df, keys, rows),
        bounds={key: Bound(kinds[key], low, high) for key, low, high in lows_and_highs},
        rows=rows if mode.upsert is not None else 0,
        keys=lambda: collect_keys(df, kinds) if can_collect else None,
    )


def collect_keys(df: DataFrame, kinds: Mapping[str, DataType]) -> list[tuple[object, ...]]:
    """The keys of a batch, in the form that Iceberg's expressions need."""
    compared = {key: COMPARED[base] for key, kind in kinds.items() for base in COMPARED if isinstance(kind, base)}
    return [
        tuple(row) for row in df.select(*(convert(F.col(quoted(key))) for key, convert in compared.items())).collect()
    ]


def _refuse_invalid(df: DataFrame, reason: Column, table: str, where: Origin | None) -> None:
    row = df.where(reason.isNotNull()).withColumn(RANK, reason).head()
    assert row is not None
    values = row.asDict()
    kind, names = values.pop(RANK).split(": ", maxsplit=1)
    raise RunError(
        f"a row for {table} has a {kind}: {names} is null in {shown(values)}; nothing was written.",
        where=where,
        fix='leave such rows out with where("... IS NOT NULL"), or reject them with .quarantine(table).',
    )


def _refuse_duplicate(keys: DataFrame, extra_columns: tuple[str, ...], table: str, where: Origin | None) -> None:
    duplicate = keys.where(F.col(RANK) > 1).drop(*extra_columns).head()
    assert duplicate is not None
    row = duplicate.asDict()
    count = row.pop(RANK)
    raise RunError(
        f"{count} rows of the batch for {table} have the key {shown(row)}, and no order tells which is the newest; "
        "nothing was written.",
        where=where,
        fix='declare an order: .upsert(..., order_by="updated_at").',
    )


def key_filter(rows: DataFrame, keys: tuple[str, ...], count: int | None = None) -> Callable[[DataFrame], DataFrame]:
    """A filter that keeps the rows of a target whose key is in a batch.

    In the join of a MERGE that inserts, the rows of the batch are the preserved side, which Spark cannot broadcast. It
    would shuffle or broadcast the target. In a semi join, Spark can broadcast the keys of the batch instead.

    Args:
        rows: The batch.
        count: The number of the batch's rows; None if unknown. Spark's own estimate may make it shuffle the target.
    """
    names = {key: f"__helios_key_{i}" for i, key in enumerate(keys)}
    batch_keys = rows.select(*(F.col(quoted(key)).alias(name) for key, name in names.items()))
    if count is not None and count <= BROADCAST_ROWS:
        batch_keys = F.broadcast(batch_keys)
    same = [F.col(quoted(key)) == F.col(name) for key, name in names.items()]
    return lambda target: target.join(batch_keys, same, "left_semi")


def shown(row: dict[str, object]) -> str:
    """A row as messages show it: at most 200 characters, without the helper columns."""
    text = ", ".join(f"{k}={v!r}" for k, v in row.items() if k not in (*HELPERS, POSITION))
    return text if len(text) <= 200 else f"{text[:200]}..."


def drop_late(df: DataFrame, known: DataFrame | None, keys: tuple[str, ...], *, changes: bool = False) -> DataFrame:
    """Drops the rows that are older than the stored order of their key, or have no order although one is stored.

    Args:
        known: The stored orders; None if there are none.
        changes: Whether the rows are changes in the order of their log. Their epochs are then compared, too, and Spark
            raises an error for a change that is ordered by its offset and is not in the stored partition.
    """
    if known is None:
        return df
    # Only the batch's keys are compared: the state may hold every key of the target.
    before = key_filter(df, keys)(known).select(
        *(F.col(quoted(key)).alias(f"__helios_key_{i}") for i, key in enumerate(keys)),
        F.col(ORDER).alias("__helios_seen"),
    )
    same = F.lit(True)
    for i, key in enumerate(keys):
        same = same & (df[quoted(key)] == before[f"__helios_key_{i}"])
    joined = df.join(before, same, "left")
    if changes:
        order, stored = log_order.comparable(df, F.col(ORDER), F.col("__helios_seen"), keys)
        joined = joined.withColumns({ORDER: order, "__helios_seen": stored})
    late = F.col("__helios_seen").isNotNull() & (F.col(ORDER).isNull() | (F.col(ORDER) < F.col("__helios_seen")))
    return joined.where(~late).select(*(quoted(c) for c in df.columns))


def merge_text(
    keys: tuple[str, ...],
    columns: Iterable[str],
    insertable: Iterable[str],
    *,
    newer: str,
    deletes: bool,
    equal: str = "=",
) -> str:
    """The SQL text of an upsert's MERGE.

    The MERGE always updates, too: Spark would run one that only inserts as an append, and appends do not conflict.

    Args:
        columns: The columns that are updated in a matched row.
        insertable: The columns of an inserted row.
        newer: The condition under which a matched row is changed.
        deletes: Whether rows may delete their key.
        equal: The comparison of keys; with "<=>" a null is a key.
    """
    on = " AND ".join(f"t.{quoted(key)} {equal} s.{quoted(key)}" for key in keys)
    sets = ", ".join(f"t.{quoted(c)} = s.{quoted(c)}" for c in columns)
    names = list(insertable)
    into = ", ".join(quoted(c) for c in names)
    values = ", ".join(f"s.{quoted(c)}" for c in names)
    clauses = [f"MERGE INTO target t USING batch s ON {on}"]
    if deletes:
        clauses.append(f"WHEN MATCHED AND s.{DELETED} AND {newer} THEN DELETE")
    clauses.append(f"WHEN MATCHED AND {newer} THEN UPDATE SET {sets}")
    not_deleted = f" AND NOT s.{DELETED}" if deletes else ""
    clauses.append(f"WHEN NOT MATCHED{not_deleted} THEN INSERT ({into}) VALUES ({values})")
    return " ".join(clauses)


def versions(events: DataFrame, target: DataFrame, keys: tuple[str, ...], remembered: DataFrame | None) -> DataFrame:
    """The new and changed versions of the batch's keys. A version is valid until the next row or delete of its key.

    Args:
        events: The batch: one row per key and order, aligned with the target, with the helper columns; `valid_from` is
            the order.
        target: The target before the batch.
        remembered: The stored orders, with the key columns, `ORDER` and `DELETED`; only those of deletes are used.

    Returns:
        Rows of the target's columns with the helper columns, to be merged by key and `valid_from`.
    """
    columns = target.columns
    named = [quoted(key) for key in keys]
    touched = events.select(*named).distinct()
    old = target.join(touched, list(keys), "left_semi")
    known = old.select(
        *map(quoted, columns), F.lit(False).alias(DELETED), F.lit(0).alias("__helios_new"),
        F.col(VALID_TO).alias("__helios_until"),
    )  # fmt: skip
    new = events.select(
        *map(quoted, columns),
        DELETED,
        F.lit(1).alias("__helios_new"),
        F.lit(None).cast(events.schema[VALID_TO].dataType).alias("__helios_until"),
    )
    # An ended version without a successor was ended by a delete.
    ends = old.where(F.col(VALID_TO).isNotNull()).select(*named, F.col(VALID_TO).alias(VALID_FROM))
    if remembered is not None:
        tombstones = (
            remembered.join(touched, list(keys), "left_semi")
            .where(DELETED)
            .select(*named, F.col(ORDER).alias(VALID_FROM))
        )
        ends = ends.unionByName(tombstones)
    deletes = ends.select("*", F.lit(True).alias(DELETED), F.lit(-1).alias("__helios_new"))
    every = known.unionByName(new).unionByName(deletes, allowMissingColumns=True)
    new_first = Window.partitionBy(*named, VALID_FROM).orderBy(F.col("__helios_new").desc())
    deduplicated = every.withColumn(RANK, F.row_number().over(new_first)).where(F.col(RANK) == 1).drop(RANK)
    following = Window.partitionBy(*named).orderBy(VALID_FROM)
    ended = deduplicated.withColumn(VALID_TO, F.lead(VALID_FROM).over(following))
    # Versions whose end has not changed are left out, and so are the known deletes: they end versions, but are not any.
    # A delete of the batch stays, since it may delete the version that begins at its time.
    changed = (F.col("__helios_new") == 1) | ~F.col(VALID_TO).eqNullSafe(F.col("__helios_until"))
    return ended.where(changed & (F.col("__helios_new") >= 0)).drop("__helios_new", "__helios_until")
