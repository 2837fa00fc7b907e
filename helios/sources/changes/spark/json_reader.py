"""Reads a change log: JSON records become changes, with hidden columns for their order and deletes."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, StructType
from typing_extensions import override

from helios.errors import NotFound, near_miss
from helios.model.columns import IS_DELETE, LOG_ORDER
from helios.plan.checks.carried_order import former_names
from helios.sources.changes.json import ChangeLogSource
from helios.sources.changes.spark.rows import visible
from helios.sources.changes.spark.topic import TopicChangesReader
from helios.sources.kafka.spark import rows as kafka_rows
from helios.sources.kafka.spark.rows import BAD_REASON, RECORD
from helios.sources.kafka.topics import TopicsPosition
from helios.spark.jvm.sql import quoted

OPERATION, ORDER = "__helios_operation", "__helios_order_value"
"""Hidden columns: the operation of a change, and the value of the declared order."""

POSITION_FIELDS = ("offset", "partition")
"""The fields of a record that order changes without a declared order, and among equal values of a declared order."""


class ChangeLogReader(TopicChangesReader):
    """Reads the changes of a change log."""

    @property
    @override
    def _changes_source(self) -> ChangeLogSource:
        assert isinstance(self.read_plan.source, ChangeLogSource)
        return self.read_plan.source

    def keys(self) -> tuple[str, ...]:
        """The key columns: the declared ones, or those of the upsert."""
        plan = self.context.plan
        return self._changes_source.key or former_names(plan.write.mode.keys, plan.stream.steps)

    @override
    def schema(self) -> StructType:
        operation = self._changes_source.op_column.lower()
        return StructType([field for field in super().schema().fields if field.name.lower() != operation])

    @override
    def _rows(self, records: DataFrame, end: TopicsPosition, *, positioned: bool) -> DataFrame:
        source = self._with_value_columns(end.topics)
        self._inferred.keep()
        rejected = self.context.rejected_input
        rows = kafka_rows.rows(
            records, source, rejected, positioned=False, transform=lambda df: changes(df, self._changes_source)
        )
        return rows if self._ordered else visible(rows)

    @override
    def empty(self, spark: SparkSession) -> DataFrame:
        empty = super().empty(spark)
        if not self._ordered:
            return empty
        source = self._changes_source
        position = F.struct(*[F.lit(None).cast("bigint").alias(name) for name in POSITION_FIELDS]).alias(RECORD)
        # The declared order may use the column of the operation, so its type comes from the columns of the topic.
        records = spark.createDataFrame([], super().schema())
        order = [F.expr(source.order).alias(ORDER)] if source.order is not None else []
        rows = records.select("*", position, *order)
        return rows.select(
            *map(quoted, empty.columns), _order(rows, source).alias(LOG_ORDER), F.lit(False).alias(IS_DELETE)
        )


def changes(df: DataFrame, source: ChangeLogSource) -> DataFrame:
    """Turns parsed records into changes: adds the hidden columns, and the reason if a record is not a change.

    Args:
        df: The parsed records, with `kafka_rows.RECORD` and `BAD_REASON`.

    Raises:
        NotFound: The records do not have the column of the operation.
    """
    names = [name for name in df.columns if name not in (RECORD, BAD_REASON)]
    if source.op_column.isidentifier() and source.op_column.lower() not in map(str.lower, names):
        raise NotFound(
            f"{source.label()}: the records have no column {source.op_column!r}. {near_miss(source.op_column, names)}",
            where=source.origin,
            fix='name the column of the operation: Cdc.json(..., op="type").',
        )
    order = [F.expr(source.order).alias(ORDER)] if source.order is not None else []
    df = df.select("*", F.expr(source.op).cast("string").alias(OPERATION), *order)
    ignored = F.col(BAD_REASON).isNull() & _means("ignore", source)
    columns = [F.col(quoted(name)) for name in names if name.lower() != source.op_column.lower()]
    return df.where(~ignored).select(
        *columns,
        _order(df, source).alias(LOG_ORDER),
        _means("delete", source).alias(IS_DELETE),
        RECORD,
        F.coalesce(BAD_REASON, _bad_reason(source)).alias(BAD_REASON),
    )


def _means(meaning: str, source: ChangeLogSource) -> Column:
    """The condition that the operation of a change means `meaning`."""
    values = [value for value, its_meaning in source.operations if its_meaning == meaning]
    return F.coalesce(F.lower(OPERATION).isin(values), F.lit(False)) if values else F.lit(False)


def _bad_reason(source: ChangeLogSource) -> Column:
    """The reason why a parsed record is not a change; null for a change."""
    operation = F.col(OPERATION)
    known = [value for value, _ in source.operations]
    unknown = F.concat(F.lit(f"{source.op} is '"), operation, F.lit(f"', which is none of {', '.join(known)}"))
    reason = (
        F.when(F.col(RECORD)["value"].isNull(), F.lit(f"the record has no value, and so no {source.op}"))
        .when(operation.isNull(), F.lit(f"{source.op} is null: the operation of the change is unknown"))
        .when(~F.lower(operation).isin(known), unknown)
    )
    if source.order is not None:
        reason = reason.when(F.col(ORDER).isNull(), F.lit(f"{source.order} is null: the change has no order"))
    return reason


def _order(df: DataFrame, source: ChangeLogSource) -> Column:
    """The order of a change.

    The name of the first field contains the declared expression. If the expression changes later, the new name differs
    from the name that the target has stored, and the target refuses the new orders.
    """
    position = [F.col(RECORD)[name].cast("bigint").alias(name) for name in POSITION_FIELDS]
    if source.order is None:
        return F.struct(*position)
    value = F.col(ORDER)
    if isinstance(df.schema[ORDER].dataType, IntegralType):
        value = value.cast("bigint")
    return F.struct(value.alias(f"by {' '.join(source.order.split())}"), *position)
