"""Writes a batch with the columnar engine: an append, or an overwrite of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from pyspark.sql.types import StructType

from helios.native.program import NotNative
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.types.files import JavaDataFile
from helios.spark.native.batch import NativeBatch, data_files
from helios.spark.native.spread import last_partition_count
from helios.spark.native.stores import store_of
from helios.spark.native.target import target_of

AddFiles: TypeAlias = "Callable[[Iterable[JavaDataFile]], None]"
"""A function that adds data files to a transaction."""


def try_write(
    pending: Transaction,
    native: NativeBatch,
    analyzed: StructType,
    stored: StructType,
    add: AddFiles,
) -> bool:
    """Writes a batch with the columnar engine; returns False, with nothing written, if Spark must write the batch.

    `analyzed` has the columns after the steps, according to Spark's analyzer; `stored` has the table's columns.
    """
    try:
        native.check_columns(analyzed, stored)
        store = store_of(pending.table, native.catalog)
        target = target_of(pending.spark, pending.table, store, pending.properties, stored)
        written = native.write(pending.spark, target, store, last_partition_count(pending.table))
    except NotNative as reason:
        native.leave_to_spark(reason)
        return False
    try:
        add(data_files(pending.table, written.files))
    except BaseException:
        written.delete()
        raise
    return True
