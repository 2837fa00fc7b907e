"""`dedupe`: keeps one row of each key: per time span with `within`, else the first row that Spark finds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from helios.errors import DeclarationError
from helios.model.step import Step
from helios.plan.typing.dedupes import unbounded_dedupe_error
from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.errors import EVENT_TIME_PREFIX
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.java import JavaObject
from helios.spark.steps.row_check import check_rows
from helios.spark.steps.steps import Scope
from helios.steps.dedupe import Dedupe

JAVA_SOURCE = Path(__file__).with_name("Deduplicate.java")
MARK = "spark.watermarkDelayMs"
"""The key of the column metadata with which Spark marks the column of a watermark."""
TIME, TIE = "__helios_time", "__helios_tie"
"""The columns with the event time in microseconds, and with a number that orders rows of one time."""

JAVA8 = "spark.sql.datetime.java8API.enabled"
"""The setting with which Spark uses the date and time classes of Java 8."""
_JAVA8_LOCK = threading.Lock()


def apply_step(df: DataFrame, step: Dedupe, scope: Scope) -> DataFrame:
    """The rows that the step keeps.

    Raises:
        DeclarationError: `within` needs exactly one watermark, or the keys of a stream have no bound.
    """
    if step.within is not None:
        return _by_event_time(df, step, step.within)
    times = {field.name.lower() for field in watermark_columns(df)}
    if df.isStreaming and times.isdisjoint(key.lower() for key in step.keys):
        raise unbounded_dedupe_error(step)
    return df.dropDuplicates(list(step.keys))


def require_time(df: DataFrame, time: Column, name: str, step: Step) -> DataFrame:
    """The same rows, with a check that fails the batch if a row has no event time."""
    message = F.concat(F.lit(f"{EVENT_TIME_PREFIX}{step.text()} met a row whose {name} is null: "), _text(df))
    return check_rows(df, time.isNotNull(), message)


def mark_watermark(df: DataFrame, column: str, delay: int) -> DataFrame:
    """Marks the column of a watermark in a batch DataFrame: `withWatermark` sets the mark only in streams.

    Args:
        delay: The delay of the watermark in milliseconds.
    """
    df.withWatermark(column, f"{delay} milliseconds")  # raises if the column does not exist
    field = next((f for f in df.schema.fields if f.name.lower() == column.strip("`").lower()), None)
    return df.withMetadata(field.name, {**field.metadata, MARK: delay}) if field is not None else df


def watermark_columns(df: DataFrame) -> list[StructField]:
    """The columns that a watermark has marked."""
    return [field for field in df.schema.fields if MARK in field.metadata]


def _by_event_time(df: DataFrame, step: Dedupe, within: float) -> DataFrame:
    """The first row of each key by event time, and each row more than `within` after the last kept row of its key."""
    times = watermark_columns(df)
    if len(times) != 1:
        reason = f"there are several: {', '.join(field.name for field in times)}" if times else "there is none"
        raise DeclarationError(
            f"{step.text()} goes by the event time of the watermark's column, and {reason}.",
            where=step.origin,
            fix=f"drop the time that does not count, before {step.text()}."
            if times
            else 'write watermark("ts", "10 minutes") before it.',
        )
    [field] = times
    time = event_time(field)
    rows = require_time(df, time, field.name, step).withColumns({TIME: F.unix_micros(time), TIE: _tie(df)})
    out = _grouped(rows, step, round(within * 1_000_000))
    # The rows that a function returns have lost the marks of watermarks.
    columns = [F.col(quoted(f.name)).alias(f.name, metadata=f.metadata) for f in df.schema.fields]
    return out.select(*columns)


def event_time(field: StructField) -> Column:
    """The event time in a watermark's column."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, StructType):  # the window of an aggregate
        return column["end"]
    return column.cast("timestamp") if isinstance(field.dataType, TimestampNTZType) else column


def _tie(df: DataFrame) -> Column:
    """A hash of all values, which orders the rows of one key and time."""
    parts: list[Column] = []
    for field in df.schema.fields:
        column = F.col(quoted(field.name))
        # Spark's hash skips nulls, and does not accept every type.
        nested = isinstance(field.dataType, (StructType, ArrayType, MapType, VariantType))
        parts += [F.to_json(F.struct(column), {"ignoreNullFields": "false"}) if nested else column, column.isNull()]
    return F.xxhash64(*parts)


def _text(df: DataFrame) -> Column:
    return F.to_json(F.struct(*[quoted(name) for name in df.columns]), {"ignoreNullFields": "false"})


def _grouped(rows: DataFrame, step: Dedupe, within: int) -> DataFrame:
    """The rows that `Deduplicate.java` keeps, still with the columns `TIME` and `TIE`."""
    spark, schema = rows.sparkSession, rows.schema
    names = schema.fieldNames()
    function = instance(spark, JAVA_SOURCE, names.index(TIME), names.index(TIE), within)
    keys = _keys(rows, step.keys)
    state = StructType([StructField("last", LongType()), StructField("waiting", ArrayType(schema))])
    key, row, kept = _encoders(spark, rows.select(*keys).schema, schema, state)
    jvm = classes()
    column = jvm.org.apache.spark.sql.Column
    grouped = getattr(rows._jdf.groupBy(java_array(column, [key._jc for key in keys])), "as")(key, row)
    if rows.isStreaming:
        streaming = jvm.org.apache.spark.sql.streaming
        out = grouped.flatMapGroupsWithState(
            function, streaming.OutputMode.Append(), kept, row, streaming.GroupStateTimeout.EventTimeTimeout()
        )
    else:
        order = java_array(column, [F.col(name)._jc for name in (TIME, TIE)])
        out = grouped.flatMapSortedGroups(order, function, row)
    return DataFrame(out, spark)


def _keys(rows: DataFrame, names: Sequence[str]) -> list[Column]:
    """The key columns for grouping. 0.0 and -0.0 are one key: adding 0.0 turns -0.0 into 0.0."""
    types = {field.name.lower(): field.dataType for field in rows.schema.fields}
    floats = [name for name in names if isinstance(types.get(name.lower()), (FloatType, DoubleType))]
    return [F.col(quoted(n)) + F.lit(0.0).cast("float") if n in floats else F.col(quoted(n)) for n in names]


def _encoders(spark: SparkSession, *schemas: DataType) -> list[JavaObject]:
    """Encoders of rows that use the date and time classes of Java 8: the older classes change dates before 1582."""
    jvm = classes()
    sql = jvm.org.apache.spark.sql
    sql.SparkSession.setActiveSession(spark._jsparkSession)
    with _JAVA8_LOCK:
        before = spark.conf.get(JAVA8)
        spark.conf.set(JAVA8, "true")
        try:
            return [sql.Encoders.row(sql.types.DataType.fromJson(schema.json())) for schema in schemas]
        finally:
            spark.conf.set(JAVA8, str(before))
