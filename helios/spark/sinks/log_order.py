"""Makes the orders of changes comparable. An order is a position in the log of a database or in a topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from helios.spark.checkpoint.upsert_state import ORDER
from helios.spark.jvm.errors import BAD_ROW_PREFIX
from helios.spark.jvm.sql import quoted

EPOCH = "epoch"
"""The field of a change's order that identifies the last Debezium snapshot of its table before the change."""

TOPIC_POSITION = ("offset", "partition")
"""The fields of an order that consists only of the position in a topic."""


def in_log_order(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """The changes of a batch, with orders that can be compared within each key."""
    fields = _order_fields(rows)
    if EPOCH in fields:
        return _in_epochs(rows, keys)
    return _in_one_partition(rows, keys) if fields == TOPIC_POSITION else rows


def comparable(rows: DataFrame, order: Column, stored: Column, keys: tuple[str, ...]) -> tuple[Column, Column]:
    """The order of a change and the stored order of its key, completed so that they can be compared.

    Spark raises an error if both are only positions in a topic, and in different partitions.

    Args:
        rows: The changes; only the type of their order is used.
        stored: The stored order of the change's key; null without one.
    """
    fields = _order_fields(rows)
    if fields == TOPIC_POSITION:
        former, partition = stored["partition"], order["partition"]
        order = F.when(former != partition, _raise_two_partitions(former, partition, keys)).otherwise(order)
    return _with_both_epochs(order, stored) if EPOCH in fields else (order, stored)


def _order_fields(rows: DataFrame) -> tuple[str, ...]:
    """The fields of an order that is a struct; empty for any other order."""
    data_type = rows.schema[ORDER].dataType
    return tuple(data_type.names) if isinstance(data_type, StructType) else ()


def _in_epochs(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Changes of a database. Each gets the epoch of the last snapshot record that its key has before the change."""
    order = F.col(ORDER)
    snapshot_position = F.struct(*[order[name].alias(name) for name in ("partition", "offset", EPOCH)])
    snapshot = F.when(order[EPOCH].isNotNull(), snapshot_position)
    snapshots = F.collect_list(snapshot).over(Window.partitionBy(*map(quoted, keys)))

    def before(record: Column) -> Column:
        """True if a snapshot record comes before the change: by offset in one partition, by time across partitions."""
        same = record["partition"] == order["partition"]
        return F.when(same, record["offset"] <= order["offset"]).otherwise(record[EPOCH] <= order["time"])

    epoch = F.array_max(F.transform(F.filter(snapshots, before), lambda snapshot: snapshot[EPOCH]))
    return rows.withColumn(ORDER, order.withField(EPOCH, epoch))


def _with_both_epochs(order: Column, stored: Column) -> tuple[Column, Column]:
    """The order of a change and the stored order of its key, with epochs by which they can be compared.

    If one order comes after the snapshot of the other order, it gets the epoch of that snapshot.
    """
    same = order["partition"] == stored["partition"]
    order_follows = same | (order["time"] >= stored[EPOCH])
    stored_follows = ~same & (stored["time"] >= order[EPOCH])
    epoch = F.greatest(order[EPOCH], F.when(order_follows, stored[EPOCH]))
    stored_epoch = F.when(stored_follows, F.greatest(stored[EPOCH], order[EPOCH])).otherwise(stored[EPOCH])
    return order.withField(EPOCH, epoch), F.when(stored.isNotNull(), stored.withField(EPOCH, stored_epoch))


def _in_one_partition(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Changes that are ordered by their offset. Spark raises an error if a key has changes in two partitions."""
    per_key, partition = Window.partitionBy(*map(quoted, keys)), F.col(ORDER)["partition"]
    first, last = F.min(partition).over(per_key), F.max(partition).over(per_key)
    return rows.withColumn(
        ORDER, F.when(first != last, _raise_two_partitions(first, last, keys)).otherwise(F.col(ORDER))
    )


def _raise_two_partitions(partition: Column, other: Column, keys: tuple[str, ...]) -> Column:
    """A column that raises an error in Spark, for a key with changes in two partitions."""
    message = F.struct(
        F.concat(F.lit("partitions "), partition.cast("string"), F.lit(" and "), other.cast("string")).alias("at"),
        F.lit("both have changes of one key, and nothing says which are newer").alias("why"),
        F.to_json(F.struct(*map(quoted, keys))).alias("text"),
        F.lit(
            'declare their order, Cdc.json(..., order="version"), or write the changes of a key into one partition, '
            "by the key of the record, and refill the table."
        ).alias("fix"),
    )
    return F.raise_error(F.concat(F.lit(BAD_ROW_PREFIX), F.to_json(message)))
