"""Upserts by the columnar engine; upserts that it does not support are MERGEs by Spark."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, DecimalType, TimestampType

from helios.model.columns import POSITION
from helios.native.program import NotNative
from helios.plan.native.upserts import check_mode, columns_of
from helios.spark.iceberg.merge_scope import Bound, MergeScope
from helios.spark.jvm.sql import quoted
from helios.spark.native.upsert import KeyBounds, UpsertKeys, try_upsert
from helios.spark.sinks import merge

if TYPE_CHECKING:
    from helios.model.modes import Upsert
    from helios.spark.iceberg.transaction import Transaction
    from helios.spark.native.batch import NativeBatch
    from helios.spark.sinks.modes import ModeBatch

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def upsert(batch: ModeBatch[Upsert], native: NativeBatch) -> Callable[[Transaction], bool] | None:
    """The columnar engine's writer of an upsert; None if Spark must write it.

    Sometimes only the writer finds out that Spark must write. It then returns False, and has written nothing.
    """
    try:
        check_mode(batch.mode)
        schema = batch.df.drop(POSITION).schema
        keys, order = columns_of(batch.mode, schema.names)
        if order is not None and POSITION not in batch.df.columns:
            raise NotNative("the steps do not keep the source position of each row")
        if batch.left_out:
            raise NotNative(f"the table does not store {', '.join(batch.left_out)}")
        if {(field.name, field.dataType) for field in schema} != batch.stored_columns:
            raise NotNative("the columns of the batch are not those of the table")
    except NotNative as reason:
        native.leave_to_spark(reason)
        return None
    stored = batch.aligned().schema
    keyed = UpsertKeys(keys, order, lambda rows, ends: _scope(batch, keys, rows, ends))
    return lambda pending: try_upsert(pending, native, schema, stored, keyed)


def _scope(batch: ModeBatch[Upsert], keys: tuple[str, ...], rows: int, ends: KeyBounds) -> MergeScope:
    """The scope of a batch's changes: the same as for a MERGE by Spark."""
    kinds = {key: batch.df.schema[key].dataType for key in keys}
    bounded = [key for key, kind in kinds.items() if isinstance(kind, tuple(merge.BOUNDS))]
    can_collect = len(bounded) == len(keys) and rows <= merge.MAX_COLLECTED_KEYS
    return MergeScope(
        narrow=merge.key_filter(batch.df, keys, rows),
        bounds={key: Bound(kinds[key], *(_for_iceberg(end, kinds[key]) for end in ends[key])) for key in bounded},
        rows=rows,
        keys=lambda: merge.collect_keys(batch.df.select(*map(quoted, keys)).distinct(), kinds) if can_collect else None,
    )


def _for_iceberg(end: object, kind: DataType) -> object:
    """A bound of a key, in the form that Iceberg's expressions need.

    Raises:
        NotNative: The bound is a time outside of the years 1 to 9999.
    """
    if isinstance(kind, DecimalType) and isinstance(end, str):
        return Decimal(end)
    if not isinstance(kind, TimestampType) or not isinstance(end, int):
        return end
    try:
        return (EPOCH + datetime.timedelta(microseconds=end)).isoformat()
    except OverflowError:
        raise NotNative("a time of a key lies outside of the years 1 to 9999") from None
