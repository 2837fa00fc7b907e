"""The rows of Debezium's records: the columns of the envelopes, and the hidden columns of order and deletes.

The records of one batch may have several versions of the schema. Each record is parsed with its own version, and
columns are matched by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from helios.errors import InputError
from helios.model.columns import IS_DELETE, LOG_ORDER
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.spark import types as connect_types
from helios.sources.changes.spark.types import ConnectType
from helios.sources.changes.spark.versions import TableVersions, Version, versions_of
from helios.sources.common.spark import rejects
from helios.sources.common.spark.json_values import REST, bad_row_reason, json_line, object_text
from helios.sources.common.spark.run_state import RejectedInput
from helios.sources.common.spark.types import by_name, cast, castable, united
from helios.sources.kafka.spark.rows import BAD_REASON, CORRUPT, FEATURES, PARSING, RECORD, has_field, verdict
from helios.spark.jvm.functions import ddl
from helios.spark.jvm.sql import struct_of

EVENT, KEY, ROW = "__helios_event", "__helios_key", "__helios_row"
"""Hidden columns: the envelope, the record's key as JSON, and the row as JSON."""

KEY_TEXT = "__helios_key_text"
"""The hidden column with the record's key as text; null if the key is not UTF-8."""

WHY_NO_CHANGE = "__helios_not_a_change"
"""The hidden column with the reason why a record is not a change of a row; null for a change of a row."""

VALUES, CONVERTED = "__helios_values", "__helios_converted"
"""Hidden columns: the row's values as Spark parses them (`ConnectType.stored`), and in the types of their columns."""

ORIGIN = ("name", "db", "schema", "table")
"""The fields of an envelope's `source` that identify the table: the topic's prefix, the database, schema and table."""


def _text_fields(*names: str) -> list[StructField]:
    return [StructField(name, StringType()) for name in names]


SOURCE = StructType(
    _text_fields("connector", "snapshot", "file", *ORIGIN) + [StructField(n, LongType()) for n in ("lsn", "pos", "row")]
)
PAYLOAD = StructType([*_text_fields("op", "before", "after"), StructField("source", SOURCE)])
ENVELOPE = StructType([*PAYLOAD.fields, *_text_fields("schema"), StructField("payload", PAYLOAD)])
KEY_ENVELOPE = StructType(_text_fields("schema", "payload"))

SNAPSHOT_ENDS = ("last", "last_in_data_collection")
"""The marks of the last row of a snapshot, and of the last one of a table (Debezium's `SnapshotRecord`)."""

OPERATIONS = ("c", "r", "u", "d")
BINLOGS = ("mysql", "mariadb")


# envelopes


def events(records: DataFrame) -> DataFrame:
    """Records with their envelope, their key and the `schema` part of the envelope; tombstones are left out.

    If the value of a record is not one JSON object, `WHY_NO_CHANGE` has the reason.
    """
    spark = records.sparkSession
    record = F.struct(*[F.col(name) for name in records.columns])
    text, key = F.col("value").cast("string"), F.col("key").cast("string")
    df = records.where(F.col("value").isNotNull()).select(
        record.alias(RECORD),
        json_line(spark, F.when(F.is_valid_utf8(text), text), ENVELOPE.json(), (), FEATURES).alias(EVENT),
        json_line(spark, F.when(F.is_valid_utf8(key), key), KEY_ENVELOPE.json(), (), FEATURES).alias(KEY),
        F.when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8 text")).alias(WHY_NO_CHANGE),
        F.when(F.is_valid_utf8(key), key).alias(KEY_TEXT),
    )
    json_event, json_key = F.col(EVENT), F.col(KEY)
    parsed = F.from_json(object_text(json_event), ddl(spark, ENVELOPE), PARSING)
    parsed_key = F.from_json(object_text(json_key), ddl(spark, KEY_ENVELOPE), PARSING)
    reason = F.coalesce(
        F.col(WHY_NO_CHANGE),
        F.when(object_text(json_event).isNull(), F.lit("the value is not one JSON object")),
    )
    has_payload = F.col(EVENT)["payload"].isNotNull()  # with a schema part, the envelope is in the field `payload`
    payload = F.when(has_payload, F.col(EVENT)["payload"]).otherwise(
        F.struct(*[F.col(EVENT)[field.name].alias(field.name) for field in PAYLOAD.fields])
    )
    own_key = F.coalesce(F.when(F.col(KEY)["schema"].isNotNull(), F.col(KEY)["payload"]), F.col(KEY_TEXT))
    return (
        df.withColumns({EVENT: parsed, KEY: parsed_key, WHY_NO_CHANGE: reason})
        .withColumns({KEY: own_key, "schema": F.col(EVENT)["schema"], EVENT: payload})
        .drop(KEY_TEXT)
    )


def table_versions(changes: DataFrame) -> TableVersions:
    """The schema versions and the key of one table, from all its changes as `events` returns them."""
    return versions_of(schema_rows(changes))


def schema_rows(changes: DataFrame, *by: str) -> list[Row]:
    """A row for each schema part, key and value of `by` in the records that `events` returns, oldest first.

    A row tells of its records: the log positions of the `first` and `last` change, the positions at which snapshots
    were `taken` and `ended`, whether some are rows of a `snapshot`, and the first record (`begin`).
    """
    key = F.array_sort(F.coalesce(F.json_object_keys(KEY), F.array().cast("array<string>")))
    good = F.col(WHY_NO_CHANGE).isNull() & F.coalesce(F.col(EVENT)["op"].isin(*OPERATIONS), F.lit(False))
    newest = F.max(F.struct(F.col(RECORD)["timestamp"], F.col(RECORD)["offset"])).alias("newest")
    position = _log_position()
    at = F.when(position["file"].isNotNull() & position["position"].isNotNull(), position)
    grouped = changes.groupBy(*by, "schema", key.alias("names"), good.alias("good"))
    record, op = F.col(RECORD), F.col(EVENT)["op"]
    begin = F.min(F.struct(record["timestamp"], record["partition"], record["offset"], op.alias("op")))
    first, last = F.min(at).alias("first"), F.max(at).alias("last")
    snapshot = F.max(F.coalesce(op == "r", F.lit(False))).alias("snapshot")
    taken = F.min(F.when(_is_full_snapshot_row(), at)).alias("taken")
    ended = F.max(F.when(_ends_snapshot(), at)).alias("ended")
    return grouped.agg(newest, first, last, begin.alias("begin"), snapshot, taken, ended).orderBy("newest").collect()


# columns


def columns(versions: Iterable[Version], source: CdcSource) -> StructType:
    """The columns of all versions; a column's type holds the values of all versions.

    Raises:
        InputError: A column has had several types, and no type holds the values of all; or two columns of a version
            differ only by case.
    """
    fields: dict[str, StructField] = {}
    for version in versions:
        _refuse_same_names(version, source)
        for name, kind in version.fields:
            before = fields.get(name.lower())
            common = united(before.dataType, kind.column_type) if before is not None else kind.column_type
            if common is None:
                assert before is not None
                raise InputError(
                    f"{source.label()}: column {name} was {before.dataType.simpleString()} and is "
                    f"{kind.column_type.simpleString()} now, and no type holds the values of both.",
                    where=source.origin,
                    fix='declare its type: Cdc.debezium(..., schema="id bigint, ...").',
                )
            fields[name.lower()] = StructField(before.name if before is not None else name, common)
    return StructType(list(fields.values()))


def _refuse_same_names(version: Version, source: CdcSource, wanted: StructType | None = None) -> None:
    """Refuses a version with two columns whose names differ only by case, of which Spark would read one.

    `wanted` has the columns that are read: only these count. By default, all columns count.
    """
    names: dict[str, str] = {}
    for name, _ in version.fields:
        other = names.setdefault(name.lower(), name)
        if other != name and (wanted is None or name.lower() in by_name(wanted)):
            raise InputError(
                f"{source.label()}: the columns {other} and {name} differ only by case, and Spark reads one column "
                "of such a name.",
                where=source.origin,
                fix="rename one of them in the database, or leave it out: Debezium's column.exclude.list.",
            )


def declared_columns(source: CdcSource) -> StructType | None:
    """The declared columns; None if no schema is declared."""
    return struct_of(source.declared_schema) if source.declared_schema is not None else None


def with_null_order(df: DataFrame) -> DataFrame:
    """Adds the hidden columns of order (null) and deletes (false) to rows, for a batch without changes."""
    return df.select("*", F.lit(None).cast(LOG_TYPE).alias(LOG_ORDER), F.lit(False).alias(IS_DELETE))


def visible(df: DataFrame) -> DataFrame:
    """The rows for a preview: without hidden columns, and without deletes, whose rows have only a key."""
    return df.where(~F.col(IS_DELETE)).drop(LOG_ORDER, IS_DELETE)


LOG_TYPE = "struct<epoch:bigint,file:bigint,position:bigint,row:bigint,partition:int,offset:bigint,time:bigint>"
"""The type of a change's order: the last snapshot before the change (`epoch`), then the change's position in the
database's log, then in Kafka. If partitions were added to the topic, `time` orders a snapshot among their changes."""


def _log_position() -> Column:
    source = F.col(EVENT)["source"]
    binlog = source["connector"].isin(*BINLOGS)
    file = F.when(binlog, F.regexp_extract(source["file"], r"\.(\d+)$", 1).try_cast("bigint")).otherwise(F.lit(0))
    position = F.when(binlog, source["pos"]).otherwise(source["lsn"])
    return F.struct(file.cast("bigint").alias("file"), position.alias("position"))


def _is_full_snapshot_row() -> Column:
    """The condition that a record is a row of a snapshot that is not incremental."""
    event = F.col(EVENT)
    return (event["op"] == "r") & (F.coalesce(event["source"]["snapshot"], F.lit("true")) != "incremental")


def _ends_snapshot() -> Column:
    """The condition that a record is the last row of its table in a snapshot."""
    event = F.col(EVENT)
    return (event["op"] == "r") & event["source"]["snapshot"].isin(*SNAPSHOT_ENDS)


def _change_order() -> Column:
    """The order of a change, as `LOG_TYPE`."""
    event, record = F.col(EVENT), F.col(RECORD)
    source, position = event["source"], _log_position()
    # The log continues while a snapshot is taken, so the log cannot order the snapshot's rows among the changes. Kafka
    # orders them: the sink gives each change the time of the last snapshot before it as `epoch`. The log does order the
    # rows of an incremental snapshot.
    is_full_snapshot = _is_full_snapshot_row()
    binlog = source["connector"].isin(*BINLOGS)
    first = F.lit(-1).cast("bigint")  # before all changes of the epoch
    return F.struct(
        F.when(is_full_snapshot, F.unix_millis(record["timestamp"])).alias("epoch"),
        F.when(is_full_snapshot, first).otherwise(position["file"]).alias("file"),
        position["position"].alias("position"),
        F.when(binlog, source["row"]).otherwise(F.lit(0)).cast("bigint").alias("row"),
        record["partition"].alias("partition"),
        record["offset"].alias("offset"),
        F.unix_millis(record["timestamp"]).alias("time"),
    )


def _envelope_reason(keys: Sequence[str]) -> Column:
    """The reason why a record is not a change of a row; null for a change of a row."""
    event, order = F.col(EVENT), _change_order()
    op, names = event["op"], F.json_object_keys(F.col(KEY))
    own_key = F.array_sort(F.transform(names, F.lower))
    upsert_key = F.array(*[F.lit(key) for key in sorted(key.lower() for key in keys)]).cast("array<string>")
    other_key = F.concat(
        F.lit("its key is ("),
        F.array_join(names, ", "),
        F.lit(f"), and the upsert is by ({', '.join(keys)}): Debezium deletes rows by the record's own key alone"),
    )
    unordered = order["position"].isNull() | order["file"].isNull()
    return (
        F.when(F.col(WHY_NO_CHANGE).isNotNull(), F.col(WHY_NO_CHANGE))
        .when(op.isNull(), F.lit("the value is not an envelope of Debezium: it has no op"))
        .when(op == "t", F.lit("the table was truncated, which an upsert cannot follow"))
        .when(~op.isin(*OPERATIONS), F.concat(F.lit("its op "), op, F.lit(" is not a change of a row")))
        .when(unordered, F.lit("its source has no position in a log that Helios knows (PostgreSQL, MySQL, MariaDB)"))
        .when(F.coalesce(F.size(names), F.lit(0)) < 1, F.lit("the record has no key that is JSON"))
        .when(own_key != upsert_key, other_key)
        .when((op != "d") & event["after"].isNull(), F.lit("the change has no row: after is null"))
    )


# rows

NO_SCHEMA = "the record has no schema part: pass schema= to Cdc.debezium()"


def rows(
    changes: DataFrame,
    source: CdcSource,
    table: TableVersions,
    *,
    keys: Sequence[str],
    known: StructType,
    rejected: RejectedInput,
    no_schema: str = NO_SCHEMA,
) -> DataFrame:
    """The rows of changes, as `events` returns them, with the hidden columns.

    Args:
        known: The columns to return if no schema is declared and no record has a schema part.
        no_schema: The reason for records without a schema part, if no columns are declared.
    """
    connect_types.register_decimal_function(changes.sparkSession)
    df = changes.withColumn(WHY_NO_CHANGE, _envelope_reason(keys))
    # Only the record's key is used for a delete: `before` may not even have the key columns of the deleted row.
    df = df.withColumn(ROW, F.when(F.col(EVENT)["op"] == "d", F.col(KEY)).otherwise(F.col(EVENT)["after"]))
    declared, schema = declared_columns(source), F.col("schema")
    wanted = declared or (columns(table.versions, source) if table.versions else known)
    for version in table.versions if declared is not None else ():
        _refuse_same_names(version, source, declared)
    parsed = [
        _parsed(df.where(schema.isin(*version.schema_parts)), version.fields, source, wanted)
        for version in table.versions
    ]
    if table.has_other_records:
        texts = [text for version in table.versions for text in version.schema_parts]
        others = df.where(schema.isNull() | ~schema.isin(*texts)) if texts else df
        parsed.append(_parsed_without_version(others, source, wanted, no_schema))
    union = reduce(DataFrame.unionByName, parsed)
    return rejects.without_bad_rows(union, verdict(source.kafka, f"{source.label()}.on_bad_row"), rejected)


def _parsed_without_version(df: DataFrame, source: CdcSource, wanted: StructType, no_schema: str) -> DataFrame:
    """The rows of records that have none of the versions.

    A record without a schema part is parsed with the declared columns. All other records are bad.
    """
    declared = declared_columns(source)
    reason = F.when(F.col("schema").isNotNull(), F.lit("its schema part is not that of an envelope"))
    if declared is None:
        nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in wanted.fields]
        return _with_hidden(df, nulls, F.coalesce(reason, F.lit(no_schema)))
    kinds = [(f.name, connect_types.declared(f.dataType, source.time, source.decimals)) for f in declared.fields]
    return _parsed(df.withColumn(WHY_NO_CHANGE, F.coalesce(WHY_NO_CHANGE, reason)), tuple(kinds), source, wanted)


def _parsed(
    df: DataFrame, fields: tuple[tuple[str, ConnectType], ...], source: CdcSource, wanted: StructType
) -> DataFrame:
    """The rows of records of one version: the wanted columns and the hidden columns."""
    spark = df.sparkSession
    rest = REST if source.declared_schema is not None and source.extra == "fail" else ""
    used_fields = {name.lower(): (name, kind) for name, kind in fields if name.lower() in by_name(wanted)}
    stored = StructType([StructField(name, kind.stored) for name, kind in used_fields.values()])
    df = df.withColumn(ROW, json_line(spark, F.col(ROW), stored.json(), (), FEATURES, rescued=rest))
    parsing = StructType([*stored.fields, *_text_fields(REST, CORRUPT)])
    df = df.withColumn(VALUES, F.from_json(object_text(F.col(ROW)), ddl(spark, parsing), PARSING))
    converted = [connect_types.converted(F.col(VALUES)[name], kind).alias(name) for name, kind in used_fields.values()]
    df = df.withColumn(CONVERTED, F.struct(*converted) if converted else F.lit(None))
    selected, reasons = [], []
    for field in wanted.fields:
        if field.name.lower() in used_fields:
            value, why = _value(field, *used_fields[field.name.lower()])
            selected.append(value.alias(field.name))
            reasons.append(why)
        else:
            selected.append(F.lit(None).cast(field.dataType).alias(field.name))
    why, row, values = F.concat_ws(", ", *reasons), F.col(ROW), F.col(VALUES)
    why = (
        F.when(row.startswith("!"), F.concat(F.lit("the row: "), bad_row_reason(row)))
        .when(why != "", why)
        .when(values.isNull() | values[CORRUPT].isNotNull(), F.lit("the row does not fit its schema"))
    )
    if rest:
        names = F.array_join(F.json_object_keys(values[REST]), ", ")
        undeclared = F.concat(F.lit("columns that the schema lacks: "), names)
        why = F.coalesce(why, F.when(values[REST].isNotNull(), undeclared))
    return _with_hidden(df, selected, why)


def _value(field: StructField, name: str, kind: ConnectType) -> tuple[Column, Column]:
    """The value of a column, and the reason if the value is bad; null for a good one."""
    values, is_delete = F.col(VALUES), F.col(EVENT)["op"] == "d"
    value, converted = values[name], F.col(CONVERTED)[name]
    # A field that Spark's parser cannot read is null, although the JSON has a value for it.
    lost = values[CORRUPT].isNotNull() & value.isNull() & has_field(F.col(ROW), name)
    bad = connect_types.unfit(value, kind, converted) | lost
    if castable(kind.column_type, field.dataType):
        converted, changed = cast(converted, kind.column_type, field.dataType)
        bad = bad | changed if changed is not None else bad
    else:
        converted, bad = F.lit(None).cast(field.dataType), value.isNotNull()
    absent = F.lit(f"{field.name} was not in the log: set the table's REPLICA IDENTITY to FULL")
    misfit = F.lit(connect_types.misfit(field.name, kind))
    return converted, F.when(~is_delete & connect_types.unavailable(value, kind), absent).when(bad, misfit)


def _with_hidden(df: DataFrame, columns: list[Column], why: Column) -> DataFrame:
    """The columns with the hidden columns of order, deletes and bad records."""
    gone = F.coalesce(F.col(EVENT)["op"] == "d", F.lit(False))
    return df.select(
        *columns,
        _change_order().alias(LOG_ORDER),
        gone.alias(IS_DELETE),
        F.col(RECORD),
        F.coalesce(F.col(WHY_NO_CHANGE), why).alias(BAD_REASON),
    )
