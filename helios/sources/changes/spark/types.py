"""Types of Kafka Connect's schemas, as Debezium writes them, and the conversion of values into columns.

Spark's parser reads a record's JSON into plain values (`ConnectType.stored`), such as a number. The schema may say that
such a number counts the days since 1970: this module turns it into a date (`ConnectType.column_type`).
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from helios.sources.common.spark.types import cast
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance

Json: TypeAlias = "Mapping[str, Any]"
"""A schema of Kafka Connect as parsed JSON."""

DECIMAL_CODE = Path(__file__).with_name("ConnectDecimal.java")
DECIMAL_FUNCTION = "helios_connect_decimal"

PLACEHOLDER = "__debezium_unavailable_value"
"""The placeholder that Debezium writes for a value that the database's log does not have."""

_BYTES = PLACEHOLDER.encode()
PLACEHOLDERS = (
    PLACEHOLDER,
    f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}',
    base64.b64encode(_BYTES).decode(),
    str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3)),
)
"""The placeholder in each of its forms: as text, as an hstore, as bytes in base64, and as a uuid in an array."""

DAY_LENGTH = {"millis": 86_400_000, "micros": 86_400_000_000, "nanos": 86_400_000_000_000}
"""The length of a day in each unit."""

DAY_RANGE = (-719_162, 2_932_896)
"""The first day of the year 1 and the last of 9999, as days since 1970. PostgreSQL's infinite times lie far outside."""

MOST_DIGITS = 38
"""The largest precision of Spark's decimals."""


@dataclass(frozen=True)
class ConnectType:
    """The type of a field: how its value is stored in the JSON, and how it becomes a value of a column.

    Attributes:
        rule: The name in `RULES` of the function that converts a value; or "array", "map" or "struct".
        stored: The type that Spark's parser reads from the JSON.
        unit: The unit of a time, or the form of a decimal in a record without a schema; None if the script declares
            neither. For any other type, the name of the schema, if any: if the name changes, the type is another one,
            even if values are converted as before.
        scale: The scale of a decimal in base64.
        allowed: The values of an enum, separated by commas.
        inner: The element of an array or map, or the fields of a struct by name.
    """

    rule: str
    stored: DataType
    column_type: DataType
    unit: str | None = None
    scale: int = 0
    allowed: str = ""
    inner: tuple[tuple[str, ConnectType], ...] = ()


def of_connect(schema: Json) -> ConnectType:
    """The type of a field, by its schema."""
    name, plain_type = schema.get("name") or "", schema["type"]
    if name in NAMED:
        return NAMED[name](schema)
    if plain_type == "array":
        element = of_connect(schema["items"])
        return ConnectType("array", ArrayType(element.stored), ArrayType(element.column_type), inner=(("", element),))
    if plain_type == "map":
        value = of_connect(schema["values"])
        stored, column_type = MapType(StringType(), value.stored), MapType(StringType(), value.column_type)
        return ConnectType("map", stored, column_type, inner=(("", value),))
    if plain_type == "struct":
        return _struct_type(tuple((field["field"], of_connect(field)) for field in schema["fields"]))
    return replace(PLAIN[plain_type], unit=name) if name else PLAIN[plain_type]


def _struct_type(fields: tuple[tuple[str, ConnectType], ...]) -> ConnectType:
    stored = StructType([StructField(name, kind.stored) for name, kind in fields])
    return ConnectType(
        "struct", stored, StructType([StructField(name, kind.column_type) for name, kind in fields]), inner=fields
    )


def _decimal_type(schema: Json) -> ConnectType:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", MOST_DIGITS))
    fits = 0 <= scale <= precision <= MOST_DIGITS
    column_type: DataType = DecimalType(precision, scale) if fits else StringType()
    return ConnectType("decimal", StringType(), column_type, scale=scale)


def _enum_type(schema: Json) -> ConnectType:
    allowed = (schema.get("parameters") or {}).get("allowed") or ""
    return replace(PLAIN["string"], unit=schema["name"], allowed=allowed)


def _any_scale_type(_: Json) -> ConnectType:
    stored = StructType([StructField("scale", LongType()), StructField("value", StringType())])
    return ConnectType("any scale", stored, StringType())


def _always(kind: ConnectType) -> Callable[[Json], ConnectType]:
    return lambda _: kind


def _time_type(unit: str) -> ConnectType:
    return ConnectType("time", LongType(), StringType(), unit=unit)


def _timestamp_type(unit: str) -> ConnectType:
    return ConnectType("timestamp", LongType(), TimestampNTZType(), unit=unit)


PLAIN: Mapping[str, ConnectType] = {
    "int8": ConnectType("plain", LongType(), IntegerType()),
    "int16": ConnectType("plain", LongType(), IntegerType()),
    "int32": ConnectType("plain", LongType(), IntegerType()),
    "int64": ConnectType("plain", LongType(), LongType()),
    "float": ConnectType("plain", StringType(), FloatType()),
    "float32": ConnectType("plain", StringType(), FloatType()),
    "double": ConnectType("plain", StringType(), DoubleType()),
    "float64": ConnectType("plain", StringType(), DoubleType()),
    "boolean": ConnectType("plain", BooleanType(), BooleanType()),
    "string": ConnectType("plain", StringType(), StringType()),
    "bytes": ConnectType("base64", StringType(), BinaryType()),
}

_DATE = ConnectType("date", LongType(), DateType())
_TIME_OF = {"Time": "millis", "MicroTime": "micros", "NanoTime": "nanos"}
_TIMESTAMP_OF = {"Timestamp": "millis", "MicroTimestamp": "micros", "NanoTimestamp": "nanos"}

NAMED: Mapping[str, Callable[[Json], ConnectType]] = {
    "io.debezium.time.Date": _always(_DATE),
    "org.apache.kafka.connect.data.Date": _always(_DATE),
    **{f"io.debezium.time.{name}": _always(_time_type(unit)) for name, unit in _TIME_OF.items()},
    "org.apache.kafka.connect.data.Time": _always(_time_type("millis")),
    **{f"io.debezium.time.{name}": _always(_timestamp_type(unit)) for name, unit in _TIMESTAMP_OF.items()},
    "org.apache.kafka.connect.data.Timestamp": _always(_timestamp_type("millis")),
    "io.debezium.time.ZonedTimestamp": _always(ConnectType("zoned", StringType(), TimestampType())),
    "org.apache.kafka.connect.data.Decimal": _decimal_type,
    "io.debezium.data.VariableScaleDecimal": _any_scale_type,
    "io.debezium.data.Enum": _enum_type,
}
"""The functions that return the type of a named schema. A schema with any other name has its plain type."""


def declared(column_type: DataType, time: str | None, decimals: str | None) -> ConnectType:
    """The type of a declared column, for records that have no schema.

    Args:
        time: The unit of times that are numbers.
        decimals: The form of decimals, see `Cdc.debezium`.
    """
    if isinstance(column_type, ArrayType):
        element = declared(column_type.elementType, time, decimals)
        return ConnectType("array", ArrayType(element.stored), ArrayType(element.column_type), inner=(("", element),))
    if isinstance(column_type, MapType):
        value = declared(column_type.valueType, time, decimals)
        stored, map_type = MapType(StringType(), value.stored), MapType(column_type.keyType, value.column_type)
        return ConnectType("map", stored, map_type, inner=(("", value),))
    if isinstance(column_type, StructType):
        fields = column_type.fields
        return _struct_type(tuple((field.name, declared(field.dataType, time, decimals)) for field in fields))
    if isinstance(column_type, (TimestampType, TimestampNTZType)):
        return ConnectType("declared time", StringType(), column_type, unit=time)
    if isinstance(column_type, DateType):
        return ConnectType("declared date", StringType(), column_type)
    if isinstance(column_type, DecimalType) and decimals == "precise":
        return ConnectType("decimal", StringType(), column_type, scale=column_type.scale)
    if isinstance(column_type, DecimalType):
        return ConnectType("declared decimal", StringType(), column_type, unit=decimals)
    if isinstance(column_type, BinaryType):
        return PLAIN["bytes"]
    if isinstance(column_type, BooleanType):
        return PLAIN["boolean"]
    return ConnectType("plain", StringType(), column_type)


# values


def register_decimal_function(spark: SparkSession) -> None:
    """Registers the Java function of `DECIMAL_FUNCTION` in a session."""
    text = classes().org.apache.spark.sql.types.DataTypes.StringType
    spark._jsparkSession.udf().register(DECIMAL_FUNCTION, instance(spark, DECIMAL_CODE), text)


def converted(value: Column, kind: ConnectType) -> Column:
    """A parsed value with the type of the column, with null for a value or nested value that does not fit."""
    if kind.rule == "array":
        [(_, element)] = kind.inner
        return (
            value
            if element.stored == element.column_type
            else F.transform(value, lambda item: converted(item, element))
        )
    if kind.rule == "map":
        [(_, element)] = kind.inner
        return F.transform_values(value, lambda _, item: converted(item, element))
    if kind.rule == "struct":
        fields = [converted(value.getField(name), inner).alias(name) for name, inner in kind.inner]
        return F.when(value.isNotNull(), F.struct(*fields))
    return RULES[kind.rule](value, kind)


def unfit(value: Column, kind: ConnectType, converted_value: Column | None = None) -> Column:
    """The condition that a parsed value, or a value nested in it, does not fit its type.

    `converted_value` is the result of `converted` for the value, if a column already has it.
    """
    if kind.rule in ("array", "map"):
        [(_, element)] = kind.inner
        values = value if kind.rule == "array" else F.map_values(value)
        return F.coalesce(F.exists(values, lambda item: unfit(item, element)), F.lit(False))
    if kind.rule == "struct":
        any_unfit = F.lit(False)
        for name, inner in kind.inner:
            any_unfit = any_unfit | unfit(value.getField(name), inner)
        return F.coalesce(any_unfit, F.lit(False))
    return value.isNotNull() & (converted_value if converted_value is not None else converted(value, kind)).isNull()


def unavailable(value: Column, kind: ConnectType) -> Column:
    """The condition that a value is the placeholder of a value that Debezium did not have."""
    missing = F.lit(False)
    if isinstance(kind.stored, StringType):
        missing = value.isin(*PLACEHOLDERS)
    elif isinstance(kind.stored, MapType):
        missing = F.map_contains_key(value, PLACEHOLDER)
    elif isinstance(kind.stored, ArrayType) and isinstance(kind.stored.elementType, StringType):
        missing = (F.size(value) == 1) & F.try_element_at(value, F.lit(1)).isin(*PLACEHOLDERS)
    elif isinstance(kind.stored, ArrayType) and isinstance(kind.stored.elementType, LongType):
        missing = value == F.array(*[F.lit(byte).cast("bigint") for byte in _BYTES])
    return F.coalesce(missing, F.lit(False))


def _to_plain(value: Column, kind: ConnectType) -> Column:
    return value if kind.stored == kind.column_type else cast(value, kind.stored, kind.column_type)[0]


def _to_binary(value: Column, kind: ConnectType) -> Column:
    return F.try_to_binary(value, F.lit("base64"))


def _to_date(value: Column, kind: ConnectType) -> Column:
    return F.when(value.between(*DAY_RANGE), F.date_from_unix_date(value.cast("int")))


def _instant(value: Column, unit: str | None) -> Column:
    """The instant that a number of units since 1970 stands for.

    It is null outside of the years 1 to 9999, for a fraction of a microsecond, and if the unit is unknown.
    """
    if unit is None:
        return F.lit(None).cast("timestamp")
    micros = {"millis": value * 1000, "micros": value, "nanos": F.call_function("div", value, F.lit(1000))}[unit]
    first_day, last_day = DAY_RANGE
    first = max(-(2**63), first_day * DAY_LENGTH[unit])
    last = min(2**63 - 1, (last_day + 1) * DAY_LENGTH[unit] - 1)
    whole_micros = value % 1000 == 0 if unit == "nanos" else F.lit(True)
    return F.when(value.between(first, last) & whole_micros, F.timestamp_micros(micros))


def _to_timestamp(value: Column, kind: ConnectType) -> Column:
    instant = _instant(value, kind.unit)
    return _in_utc(instant) if isinstance(kind.column_type, TimestampNTZType) else instant.cast(kind.column_type)


def _in_utc(instant: Column) -> Column:
    """The date and time of an instant in UTC, as a timestamp without a zone. A cast would use the session's zone."""
    seconds = (F.unix_micros(instant).cast("decimal(19,0)") * Decimal("0.000001")).cast("decimal(18,6)")
    return F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)


def _to_time(value: Column, kind: ConnectType) -> Column:
    """A time of day as text, with as many digits after the second as the time needs."""
    day, instant = DAY_LENGTH[str(kind.unit)], _in_utc(_instant(value, kind.unit))
    whole_second = value % (day // 86_400) == 0
    with_fraction = F.regexp_replace(F.date_format(instant, "HH:mm:ss.SSSSSS"), "0+$", "")
    text = F.when(whole_second, F.date_format(instant, "HH:mm:ss")).otherwise(with_fraction)
    return F.when(value == day, F.lit("24:00:00")).when(value.between(0, day - 1), text)


def _to_zoned(value: Column, kind: ConnectType) -> Column:
    instant, _ = cast(value, StringType(), kind.column_type)
    return F.when(F.year(F.to_utc_timestamp(instant, "UTC")).between(1, 9999), instant)


def _to_decimal(value: Column, kind: ConnectType) -> Column:
    text = F.call_function(DECIMAL_FUNCTION, value, F.lit(kind.scale))
    return text if isinstance(kind.column_type, StringType) else cast(text, StringType(), kind.column_type)[0]


def _to_decimal_text(value: Column, kind: ConnectType) -> Column:
    return F.call_function(DECIMAL_FUNCTION, value.getField("value"), value.getField("scale").cast("int"))


NUMBER = r"^-?\d{1,19}$"


def _to_declared_time(value: Column, kind: ConnectType) -> Column:
    from_text, _ = cast(value, StringType(), kind.column_type)
    from_number = _to_timestamp(value.try_cast("bigint"), kind)
    return F.when(value.rlike(NUMBER), from_number).otherwise(from_text)


def _to_declared_date(value: Column, kind: ConnectType) -> Column:
    from_text, _ = cast(value, StringType(), kind.column_type)
    return F.when(value.rlike(NUMBER), _to_date(value.try_cast("bigint"), kind)).otherwise(from_text)


def _to_declared_decimal(value: Column, kind: ConnectType) -> Column:
    if kind.unit is None:
        return F.lit(None).cast(kind.column_type)
    return cast(value, StringType(), kind.column_type)[0]


RULES: Mapping[str, Callable[[Column, ConnectType], Column]] = {
    "plain": _to_plain,
    "base64": _to_binary,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "time": _to_time,
    "zoned": _to_zoned,
    "decimal": _to_decimal,
    "any scale": _to_decimal_text,
    "declared time": _to_declared_time,
    "declared date": _to_declared_date,
    "declared decimal": _to_declared_decimal,
}
"""The functions that convert a parsed value into a value of the column, or into null if it does not fit."""

UNIT_ARGUMENTS = {"declared time": "time=", "declared decimal": "decimals="}
"""The argument of `Cdc.debezium` that sets `ConnectType.unit` of a declared type."""


def misfit(name: str, kind: ConnectType) -> str:
    """The reason for a bad value: it does not fit the type of its column."""
    message = f"{name} does not fit {kind.column_type.simpleString()}"
    argument = UNIT_ARGUMENTS.get(kind.rule) if kind.unit is None else None
    return f"{message}: pass {argument} to Cdc.debezium() to say how the value is written" if argument else message
