"""Turns Kafka records into rows: values become columns, and the policy of the source handles bad records.

Spark's `from_json` accepts values that it silently changes: it replaces bytes that are not UTF-8, reads only the first
of several objects, and leaves out fields that the schema lacks. Here, records with such values are bad.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from helios.model.columns import POSITION
from helios.sources.common.spark import rejects
from helios.sources.common.spark.json_values import (
    READ_AS_TEXT_IN_JSON,
    REST,
    as_texts,
    bad_row_reason,
    is_no_object,
    json_line,
    object_text,
    schema_of_json,
)
from helios.sources.common.spark.plain_json import parse_plain_json
from helios.sources.common.spark.run_state import RejectedInput
from helios.sources.common.spark.types import cast
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark import avro as kafka_avro
from helios.spark.jvm.functions import ddl
from helios.spark.jvm.sql import struct_of

RECORD, JSON, AVRO = "__helios_record", "__helios_json", "__helios_avro"
PARSED, BAD_REASON = "__helios_parsed", "__helios_why"
"""Hidden columns.

RECORD: the Kafka record. JSON: the result of `json_line` for the value. AVRO: the value in the schema of the source.
PARSED: `JSON` or `AVRO` as Spark parses it. BAD_REASON: the reason why the record is bad; null for a good one.
"""

PLAIN = "__helios_plain"
"""The hidden column with a value as a struct, if the fast parser of `plain_json` can read the value; otherwise null.

The columns `JSON` and `PARSED` have the values that the fast parser cannot read.
"""

HEADER_LENGTH = 5
"""The number of bytes before a value with a registry: the byte 0, and the id of the schema in four bytes."""

TO_THE_END = 2**31 - 1
"""A length with which `substring` returns all remaining bytes."""

CORRUPT = "__helios_corrupt"
"""The field of a parsed value in which Spark puts the text of the value, if the value does not fit the schema."""

PARSING = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, "allowNonNumericNumbers": "false"}
FEATURES = ("ALONE",)
"""The features of `json_line`. `ALONE`: only white space may follow a value. Jackson's lenient features are off."""

SHOWN_BYTES = 100
"""An error shows at most this many bytes of a bad value that is not text."""

SHOWN_CHARACTERS = 400
"""An error shows at most this many characters of a bad value."""

FIELDS = {
    "key": "key",
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestamp_type": "timestampType",
    "headers": "headers",
}
"""The metadata fields of a record, with Spark's names of their columns."""


def rows(
    df: DataFrame,
    source: KafkaSource,
    rejected: RejectedInput,
    *,
    positioned: bool,
    transform: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """The rows of Kafka records.

    Args:
        positioned: Whether each row carries its position, which orders the records of a partition.
        transform: A function that changes rows with `RECORD` and `BAD_REASON` before bad records are removed. It is not
            called if the format has no bad records.
    """
    record = F.struct(*[F.col(name) for name in df.columns])
    columns, why = VALUE_COLUMNS[source.values.format](source)
    metadata = [F.col(FIELDS[field_name]).alias(column) for column, field_name in source.metadata_pairs]
    hidden = [F.struct("offset", "partition", "topic").alias(POSITION)] if positioned else []
    if why is None:
        return df.select(*columns, *metadata, *hidden)
    if source.values.format in PARSERS:
        df = PARSERS[source.values.format](df, source)
    # The record is one struct, since columns of the value may have the same names as its fields.
    df = df.select(*columns, *metadata, *hidden, record.alias(RECORD), why.alias(BAD_REASON))
    rows_with_records = transform(df) if transform is not None else _without_bytes_of_good_records(df)
    return rejects.without_bad_rows(rows_with_records, verdict(source, f"{source.label()}.on_bad_row"), rejected)


def _without_bytes_of_good_records(df: DataFrame) -> DataFrame:
    """Sets `RECORD` to null in good rows, so that Spark does not copy the bytes of their records."""
    return df.withColumn(RECORD, F.when(F.col(BAD_REASON).isNotNull(), F.col(RECORD)))


def value_columns(source: KafkaSource) -> StructType:
    return struct_of(str(source.values.columns))


def inferred(df: DataFrame, source: KafkaSource) -> StructType:
    """The columns that Spark infers from those values of records that are JSON objects."""
    content, _ = _content(source)
    text = F.when(F.is_valid_utf8(content), content)
    lines = df.select(json_line(df.sparkSession, text, "", READ_AS_TEXT_IN_JSON, FEATURES).alias("line"))
    schema = schema_of_json(df.sparkSession, lines.where(F.col("line").startswith("{")), PARSING)
    return StructType([field for field in schema.fields if field.name != CORRUPT])


# the value


def _bytes(source: KafkaSource) -> tuple[list[Column], Column | None]:
    return [F.col("value")], None


def _string(source: KafkaSource) -> tuple[list[Column], Column | None]:
    return [_text().alias("value")], F.when(~F.is_valid_utf8(_text()), F.lit("the value is not UTF-8 text"))


def _json(source: KafkaSource) -> tuple[list[Column], Column | None]:
    parsed, json, plain_value = F.col(PARSED), F.col(JSON), F.col(PLAIN)
    text, has_header = _content(source)
    is_plain = plain_value.isNotNull()
    columns, misfits, missing = [], [], []
    wanted = value_columns(source)
    for field in wanted.fields:
        parsed_type = as_texts(field.dataType, READ_AS_TEXT_IN_JSON)
        value, bad = cast(parsed[field.name], parsed_type, field.dataType)
        columns.append(F.when(is_plain, plain_value[field.name]).otherwise(value).alias(field.name))
        misfit = F.lit(f"{field.name} does not fit {field.dataType.simpleString()}")
        # A field that Spark's parser cannot read is null, although the JSON has a value for it.
        lost = parsed[CORRUPT].isNotNull() & parsed[field.name].isNull() & has_field(json, field.name)
        misfits.append(F.when(lost | bad if bad is not None else lost, misfit))
        if not field.nullable:
            is_missing = F.when(is_plain, plain_value[field.name].isNull()).otherwise(parsed[field.name].isNull())
            missing.append(F.when(is_missing, F.lit(f"{field.name} is missing")))
    reasons = F.concat_ws(", ", *misfits)
    no_value = F.lit("the record has no value" if missing else None).cast("string")
    first_missing = F.coalesce(*missing, F.lit(None).cast("string"))
    # For a bad value, `json` is "!" and the reason.
    why = (
        F.when(F.col("value").isNull(), no_value)
        .when(~has_header, F.lit("the value does not begin with the byte 0 and the id of a schema"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8 text"))
        .when(json.startswith("!its "), F.concat(F.lit("the value: "), bad_row_reason(json)))
        .when(is_no_object(json), F.lit("the value is JSON, but not an object"))
        .when(json.isNull() | json.startswith("!"), F.lit("the value is not one JSON object"))
        .when(reasons != "", reasons)
        .when(parsed.isNull() | parsed[CORRUPT].isNotNull(), F.lit("the value does not fit the schema"))
        .otherwise(first_missing)
    )
    if source.values.extra == "fail":
        rest, names = parsed[REST], F.array(*[F.lit(name) for name in wanted.names])
        top_level = F.array_join(F.array_except(F.json_object_keys(rest), names), ", ")
        # If the top level has no undeclared field, the undeclared fields are nested: the JSON shows where they are.
        undeclared = F.when(top_level == "", rest).otherwise(top_level)
        why = F.coalesce(why, F.when(rest.isNotNull(), F.concat(F.lit("fields that the schema lacks: "), undeclared)))
    return columns, F.when(is_plain, first_missing).otherwise(why)


def _avro(source: KafkaSource) -> tuple[list[Column], Column | None]:
    return [F.col(PARSED)[name].alias(name) for name in value_columns(source).names], F.col(AVRO)[kafka_avro.BAD_REASON]


def _read_avro(df: DataFrame, source: KafkaSource) -> DataFrame:
    """Adds the hidden columns `AVRO` and `PARSED`."""
    df = df.withColumn(AVRO, kafka_avro.resolved(df.sparkSession, source))
    return df.withColumn(PARSED, kafka_avro.parsed(F.col(AVRO), str(source.values.avro)))


def has_field(json: Column, name: str) -> Column:
    """The condition that a JSON object has a field that is not null; false if a JSON path cannot name the field."""
    return F.get_json_object(json, f"$['{name}']").isNotNull() if "'" not in name else F.lit(False)


def _read_json(df: DataFrame, source: KafkaSource) -> DataFrame:
    """Adds the hidden columns `PLAIN`, `JSON` and `PARSED`.

    `JSON` is a text whose values `from_json` does not change.
    """
    columns = value_columns(source)
    content, _ = _content(source)
    rest = REST if source.values.extra == "fail" else ""
    df = df.withColumn(PLAIN, parse_plain_json(df.sparkSession, _json_bytes(source), columns, skips_unknown=not rest))
    text = F.when(F.col(PLAIN).isNull() & F.is_valid_utf8(content), content)
    spark, unit = df.sparkSession, source.values.timestamps
    line = json_line(spark, text, columns.json(), READ_AS_TEXT_IN_JSON, FEATURES, rescued=rest, timestamps=unit)
    df = df.withColumn(JSON, line)
    stored = as_texts(columns, READ_AS_TEXT_IN_JSON)
    assert isinstance(stored, StructType)
    schema = StructType([*stored.fields, StructField(REST, StringType()), StructField(CORRUPT, StringType())])
    return df.withColumn(PARSED, F.from_json(object_text(F.col(JSON)), ddl(df.sparkSession, schema), PARSING))


def _text() -> Column:
    return F.col("value").cast("string")


def _content(source: KafkaSource) -> tuple[Column, Column]:
    """The JSON of a value as text, and whether the value has the registry's header; true without a registry."""
    has_header = F.lit(True) if source.values.registry is None else _has_header()
    return _json_bytes(source).cast("string"), has_header


def _json_bytes(source: KafkaSource) -> Column:
    """The bytes of a value's JSON; null if the source has a registry and the value lacks the header."""
    value = F.col("value")
    if source.values.registry is None:
        return value
    return F.when(_has_header(), F.substring(value, HEADER_LENGTH + 1, TO_THE_END))


def _has_header() -> Column:
    value = F.col("value")
    return (F.length(value) >= HEADER_LENGTH) & (F.substring(value, 1, 1) == F.lit(b"\0"))


VALUE_COLUMNS: dict[str, Callable[[KafkaSource], tuple[list[Column], Column | None]]] = {
    "bytes": _bytes,
    "string": _string,
    "json": _json,
    "avro": _avro,
}
"""For each format: the columns of a value, and the reason why a record is bad; None if no record can be bad."""

PARSERS: dict[str, Callable[[DataFrame, KafkaSource], DataFrame]] = {"json": _read_json, "avro": _read_avro}
"""The functions that add the hidden columns from which `VALUE_COLUMNS` makes the columns of a value."""


# bad records


def verdict(source: KafkaSource, step: str) -> rejects.Verdict:
    """The verdict by `RECORD` and `BAD_REASON`: which records are bad, and how the source's policy handles them.

    Messages name `step`, the call that sets the policy.
    """
    record, why = F.col(RECORD), F.col(BAD_REASON)
    value = record["value"]
    text = value.cast("string")
    valid = F.is_valid_utf8(text)
    shown = F.when(valid, F.substring(text, 1, SHOWN_CHARACTERS)).otherwise(
        F.concat(F.lit("0x"), F.hex(F.substring(value, 1, SHOWN_BYTES)))
    )
    at = F.concat(
        record["topic"],
        F.lit(", partition "),
        record["partition"].cast("string"),
        F.lit(", offset "),
        record["offset"].cast("string"),
    )
    kept = [record[name].alias(name) for name in ("topic", "partition", "offset", "timestamp", "key", "value")]
    return rejects.Verdict(
        bad=why.isNotNull(),
        why=why,
        action=source.bad_row,
        place=F.struct(at.alias("at"), why.alias("why"), shown.alias("text")),
        # JSON has no type for bytes, so key and value are in base64. A value that is text is also in the field `text`.
        payload=F.struct(*kept, F.when(valid, text).alias("text")),
        step=step,
        hidden=(RECORD, BAD_REASON),
    )
