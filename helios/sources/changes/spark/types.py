"""Types of Kafka Connect's schemas, as Debezium writes them into records, and the values of their columns.

Spark's parser reads a record's JSON into plain values (`Kind.stored`), such as a number. The schema may say that
such a number counts the days since 1970: this module turns it into a date (`Kind.column_type`).
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
"""A schema in a record, from JSON."""

DECIMAL = Path(__file__).with_name("ConnectDecimal.java")
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
"""The placeholder as the value of a text, of an hstore, of bytes in base64, and of a uuid in an array."""

DAY = {"millis": 86_400_000, "micros": 86_400_000_000, "nanos": 86_400_000_000_000}
"""The length of a day in each unit of times."""

DAYS = (-719_162, 2_932_896)
"""The first and the last day of the years 1 to 9999, since 1970. PostgreSQL's infinite times lie far outside."""

MOST_DIGITS = 38
"""The largest precision of Spark's decimals."""


@dataclass(frozen=True)
class Kind:
    """A type of a column.

    Attributes:
        rule: The function that makes a value, by its name in `RULES`; or "array", "map" or "struct".
        stored: The type that Spark's parser reads from the JSON.
        column_type: The type of the column.
        unit: The unit of a time, the form of a declared decimal, or the name of the schema of any other type; None if
            unknown.
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
    inner: tuple[tuple[str, Kind], ...] = ()


def of_connect(schema: Json) -> Kind:
    """The type of a field, by its schema."""
    name, kind = schema.get("name") or "", schema["type"]
    if name in NAMED:
        return NAMED[name](schema)
    if kind == "array":
        element = of_connect(schema["items"])
        return Kind("array", ArrayType(element.stored), ArrayType(element.column_type), inner=(("", element),))
    if kind == "map":
        value = of_connect(schema["values"])
        stored, column_type = MapType(StringType(), value.stored), MapType(StringType(), value.column_type)
        return Kind("map", stored, column_type, inner=(("", value),))
    if kind == "struct":
        return _struct(tuple((field["field"], of_connect(field)) for field in schema["fields"]))
    return replace(PLAIN[kind], unit=name) if name else PLAIN[kind]


def _struct(fields: tuple[tuple[str, Kind], ...]) -> Kind:
    stored = StructType([StructField(name, kind.stored) for name, kind in fields])
    return Kind(
        "struct", stored, StructType([StructField(name, kind.column_type) for name, kind in fields]), inner=fields
    )


def _decimal(schema: Json) -> Kind:
    parameters = schema.get("parameters") or {}
    scale = int(parameters.get("scale", 0))
    precision = int(parameters.get("connect.decimal.precision", MOST_DIGITS))
    fits = 0 <= scale <= precision <= MOST_DIGITS
    column_type: DataType = DecimalType(precision, scale) if fits else StringType()
    return Kind("decimal", StringType(), column_type, scale=scale)


def _enum(schema: Json) -> Kind:
    allowed = (schema.get("parameters") or {}).get("allowed") or ""
    return replace(PLAIN["string"], unit=schema["name"], allowed=allowed)


def _any_scale(_: Json) -> Kind:
    stored = StructType([StructField("scale", LongType()), StructField("value", StringType())])
    return Kind("any scale", stored, StringType())


def _always(kind: Kind) -> Callable[[Json], Kind]:
    return lambda _: kind


def _time(unit: str) -> Kind:
    return Kind("time", LongType(), StringType(), unit=unit)


def _timestamp(unit: str) -> Kind:
    return Kind("timestamp", LongType(), TimestampNTZType(), unit=unit)


PLAIN: Mapping[str, Kind] = {
    "int8": Kind("plain", LongType(), IntegerType()),
    "int16": Kind("plain", LongType(), IntegerType()),
    "int32": Kind("plain", LongType(), IntegerType()),
    "int64": Kind("plain", LongType(), LongType()),
    "float": Kind("plain", StringType(), FloatType()),
    "float32": Kind("plain", StringType(), FloatType()),
    "double": Kind("plain", StringType(), DoubleType()),
    "float64": Kind("plain", StringType(), DoubleType()),
    "boolean": Kind("plain", BooleanType(), BooleanType()),
    "string": Kind("plain", StringType(), StringType()),
    "bytes": Kind("base64", StringType(), BinaryType()),
}

_DATE = Kind("date", LongType(), DateType())
_TIME_OF = {"Time": "millis", "MicroTime": "micros", "NanoTime": "nanos"}
_TIMESTAMP_OF = {"Timestamp": "millis", "MicroTimestamp": "micros", "NanoTimestamp": "nanos"}

NAMED: Mapping[str, Callable[[Json], Kind]] = {
    "io.debezium.time.Date": _always(_DATE),
    "org.apache.kafka.connect.data.Date": _always(_DATE),
    **{f"io.debezium.time.{name}": _always(_time(unit)) for name, unit in _TIME_OF.items()},
    "org.apache.kafka.connect.data.Time": _always(_time("millis")),
    **{f"io.debezium.time.{name}": _always(_timestamp(unit)) for name, unit in _TIMESTAMP_OF.items()},
    "org.apache.kafka.connect.data.Timestamp": _always(_timestamp("millis")),
    "io.debezium.time.ZonedTimestamp": _always(Kind("zoned", StringType(), TimestampType())),
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _any_scale,
    "io.debezium.data.Enum": _enum,
}
"""The type of a schema with a name. A name that is not here does not change the plain type."""


def declared(kind: DataType, time: str | None, decimals: str | None) -> Kind:
    """The type of a declared column, for records that have no schema.

    Args:
        kind: The declared type.
        time: The unit of times that are numbers.
        decimals: The form of decimals, see `Cdc.debezium`.
    """
    if isinstance(kind, ArrayType):
        element = declared(kind.elementType, time, decimals)
        return Kind("array", ArrayType(element.stored), ArrayType(element.column_type), inner=(("", element),))
    if isinstance(kind, MapType):
        value = declared(kind.valueType, time, decimals)
        stored, column_type = MapType(StringType(), value.stored), MapType(kind.keyType, value.column_type)
        return Kind("map", stored, column_type, inner=(("", value),))
    if isinstance(kind, StructType):
        return _struct(tuple((field.name, declared(field.dataType, time, decimals)) for field in kind.fields))
    if isinstance(kind, (TimestampType, TimestampNTZType)):
        return Kind("declared time", StringType(), kind, unit=time)
    if isinstance(kind, DateType):
        return Kind("declared date", StringType(), kind)
    if isinstance(kind, DecimalType) and decimals == "precise":
        return Kind("decimal", StringType(), kind, scale=kind.scale)
    if isinstance(kind, DecimalType):
        return Kind("declared decimal", StringType(), kind, unit=decimals)
    if isinstance(kind, BinaryType):
        return PLAIN["bytes"]
    if isinstance(kind, BooleanType):
        return PLAIN["boolean"]
    return Kind("plain", StringType(), kind)


# values


def prepare(spark: SparkSession) -> None:
    """Registers the function for decimals in the session."""
    text = classes().org.apache.spark.sql.types.DataTypes.StringType
    spark._jsparkSession.udf().register(DECIMAL_FUNCTION, instance(spark, DECIMAL), text)


def converted(value: Column, kind: Kind) -> Column:
    """A parsed value with the type of the column; null if the value does not fit."""
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


def unfit(value: Column, kind: Kind, converted_value: Column | None = None) -> Column:
    """The condition that a parsed value, or a value inside it, does not fit its type.

    Args:
        value: The value.
        kind: The type of the value.
        converted_value: The result of `converted` for the value, if a column already has it.
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


def unavailable(value: Column, kind: Kind) -> Column:
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


def _plain(value: Column, kind: Kind) -> Column:
    return value if kind.stored == kind.column_type else cast(value, kind.stored, kind.column_type)[0]


def _base64(value: Column, kind: Kind) -> Column:
    return F.try_to_binary(value, F.lit("base64"))


def _date(value: Column, kind: Kind) -> Column:
    return F.when(value.between(*DAYS), F.date_from_unix_date(value.cast("int")))


def _instant(value: Column, unit: str | None) -> Column:
    """A number since 1970 as an instant. Null outside of the years 1 to 9999, and for a fraction of a microsecond."""
    if unit is None:
        return F.lit(None).cast("timestamp")
    micros = {"millis": value * 1000, "micros": value, "nanos": F.call_function("div", value, F.lit(1000))}[unit]
    first_day, last_day = DAYS
    first = max(-(2**63), first_day * DAY[unit])
    last = min(2**63 - 1, (last_day + 1) * DAY[unit] - 1)
    whole_micros = value % 1000 == 0 if unit == "nanos" else F.lit(True)
    return F.when(value.between(first, last) & whole_micros, F.timestamp_micros(micros))


def _timestamps(value: Column, kind: Kind) -> Column:
    return _instant(value, kind.unit).cast(kind.column_type)


def _times(value: Column, kind: Kind) -> Column:
    """A time of day as text, with as many digits after the second as the time needs."""
    day, instant = DAY[str(kind.unit)], _instant(value, kind.unit)
    whole_second = value % (day // 86_400) == 0
    with_fraction = F.regexp_replace(F.date_format(instant, "HH:mm:ss.SSSSSS"), "0+$", "")
    text = F.when(whole_second, F.date_format(instant, "HH:mm:ss")).otherwise(with_fraction)
    return F.when(value == day, F.lit("24:00:00")).when(value.between(0, day - 1), text)


def _zoned(value: Column, kind: Kind) -> Column:
    instant, _ = cast(value, StringType(), kind.column_type)
    return F.when(F.year(F.to_utc_timestamp(instant, "UTC")).between(1, 9999), instant)


def _decimals(value: Column, kind: Kind) -> Column:
    text = F.call_function(DECIMAL_FUNCTION, value, F.lit(kind.scale))
    return text if isinstance(kind.column_type, StringType) else cast(text, StringType(), kind.column_type)[0]


def _any_scales(value: Column, kind: Kind) -> Column:
    return F.call_function(DECIMAL_FUNCTION, value.getField("value"), value.getField("scale").cast("int"))


NUMBER = r"^-?\d{1,19}$"


def _declared_time(value: Column, kind: Kind) -> Column:
    from_text, _ = cast(value, StringType(), kind.column_type)
    from_number = _instant(value.try_cast("bigint"), kind.unit).cast(kind.column_type)
    return F.when(value.rlike(NUMBER), from_number).otherwise(from_text)


def _declared_date(value: Column, kind: Kind) -> Column:
    from_text, _ = cast(value, StringType(), kind.column_type)
    return F.when(value.rlike(NUMBER), _date(value.try_cast("bigint"), kind)).otherwise(from_text)


def _declared_decimal(value: Column, kind: Kind) -> Column:
    if kind.unit is None:
        return F.lit(None).cast(kind.column_type)
    return cast(value, StringType(), kind.column_type)[0]


RULES: Mapping[str, Callable[[Column, Kind], Column]] = {
    "plain": _plain,
    "base64": _base64,
    "date": _date,
    "timestamp": _timestamps,
    "time": _times,
    "zoned": _zoned,
    "decimal": _decimals,
    "any scale": _any_scales,
    "declared time": _declared_time,
    "declared date": _declared_date,
    "declared decimal": _declared_decimal,
}

UNIT_ARGUMENTS = {"declared time": "time=", "declared decimal": "decimals="}
"""The argument of `Cdc.debezium` that sets the unit of a declared type."""


def misfit(name: str, kind: Kind) -> str:
    """The reason for a bad value: it does not fit the type of its column."""
    message = f"{name} does not fit {kind.column_type.simpleString()}"
    argument = UNIT_ARGUMENTS.get(kind.rule) if kind.unit is None else None
    return f"{message}: pass {argument} to Cdc.debezium() to say how the value is written" if argument else message
