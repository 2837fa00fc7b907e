"""Types of file columns: the union of two files' types, and the casts from a file's type to the wanted type.

Helios lets Spark read each column with the type that the column has in the file. With another type, Spark would read
some values wrongly: a parquet decimal(8,1) that Spark reads as double is ten times too large. So this module casts the
columns after Spark has read them. If the cast would change a value, the row is a bad row.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
"""The decimal digits of each integer type, narrowest type first."""

EXACT = {(ByteType, FloatType), (ShortType, FloatType), (FloatType, DoubleType)} | {
    (integer, DoubleType) for integer in (ByteType, ShortType, IntegerType)
}
"""Pairs of number types in which the second type represents every value of the first exactly."""

NUMBERS = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
TIMES = (DateType, TimestampType, TimestampNTZType)
SCALARS = (*NUMBERS, *TIMES, BooleanType, StringType, BinaryType)
"""The supported types that are not nested."""


def by_name(schema: StructType) -> dict[str, StructField]:
    """The fields of a struct, by their names in lower case: Spark ignores the case of names."""
    return {field.name.lower(): field for field in schema.fields}


def _same_names(actual: StructType, wanted: StructType) -> list[tuple[StructField, StructField]]:
    """The pairs of an actual field and a wanted field with the same name."""
    fields = by_name(actual)
    return [(fields[field.name.lower()], field) for field in wanted.fields if field.name.lower() in fields]


def as_nullable(kind: DataType) -> DataType:
    """The same type, but all fields, elements and values are nullable."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, as_nullable(f.dataType), True) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(as_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(as_nullable(kind.keyType), as_nullable(kind.valueType), True)
    return kind


# the union of two types


def united(a: DataType, b: DataType, *, inferred: bool = False) -> DataType | None:
    """The narrowest type that can represent all values of two types; None if no type can.

    If the types were `inferred` from text, more pairs have a union: two different number types become double, unless
    both are integer types; most other pairs become string.

    Examples:
        >>> united(IntegerType(), LongType()).simpleString()
        'bigint'
        >>> united(DecimalType(8, 1), DecimalType(8, 3)).simpleString()
        'decimal(10,3)'
        >>> united(LongType(), DoubleType()) is None
        True
    """
    if a == b or isinstance(b, NullType):
        return a
    if isinstance(a, NullType):
        return b
    if isinstance(a, StructType) and isinstance(b, StructType):
        return _struct_union(a, b, inferred)
    if isinstance(a, ArrayType) and isinstance(b, ArrayType):
        element = united(a.elementType, b.elementType, inferred=inferred)
        return ArrayType(element) if element is not None else None
    if isinstance(a, MapType) and isinstance(b, MapType):
        value = united(a.valueType, b.valueType, inferred=inferred)
        return MapType(a.keyType, value) if value is not None and a.keyType == b.keyType else None
    return _scalar_union(a, b, inferred)


def _struct_union(a: StructType, b: StructType, inferred: bool) -> StructType | None:
    unmatched, fields = by_name(b), []
    for field in a.fields:
        match = unmatched.pop(field.name.lower(), None)
        kind = field.dataType if match is None else united(field.dataType, match.dataType, inferred=inferred)
        if kind is None:
            return None
        fields.append(StructField(field.name, kind))
    return StructType([*fields, *unmatched.values()])


def _scalar_union(a: DataType, b: DataType, inferred: bool) -> DataType | None:
    kinds = {type(a), type(b)}
    if kinds <= set(DIGITS):
        return max(a, b, key=lambda kind: DIGITS[type(kind)])
    if kinds == {FloatType, DoubleType} or (inferred and kinds <= set(NUMBERS)):
        return DoubleType()
    left, right = _decimal(a), _decimal(b)
    if left is not None and right is not None:
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return DecimalType(precision, scale) if precision <= 38 else None
    if inferred and kinds == {DateType, TimestampType}:
        return TimestampType()
    return StringType() if inferred else None


def _decimal(kind: DataType) -> DecimalType | None:
    """The narrowest decimal type for all values of an integer or decimal type; None for any other type."""
    if isinstance(kind, DecimalType):
        return kind
    return DecimalType(DIGITS[type(kind)], 0) if type(kind) in DIGITS else None


# casts

DAY = r"^\s*[+-]?\d{4,7}-\d{1,2}-\d{1,2}([T ]0{1,2}:00(:00(\.0+)?)?(Z|[+-]00:?00)?)?\s*$"
"""A day, alone or with the time of midnight. Spark's cast to a date would drop any other time."""
TIME_ALONE = r"^[\x00-\x20]*T?\d{1,2}:"
"""A time without a day. Spark's cast would add the current day."""
NANOS = r"\.\d{6}\d*[1-9]"
"""A fraction of a second that is finer than a microsecond."""
ZONE = r"\d:\d{1,2}(:\d{1,2}(\.\d+)?)?\s*[A-Za-z+-]"
"""A time with a time zone."""
JAVA_NUMBER = r"(?i)^\s*[+-]?(0x|[\d.]+(e[+-]?\d+)?[df]\s*$)"
"""Hexadecimal numbers, and numbers with Java's suffix `d` or `f`."""


def lossless(actual: DataType, wanted: DataType) -> bool:
    """Returns True if a cast keeps every value. Nested fields match by name, and missing fields become null."""
    if actual == wanted or isinstance(actual, NullType):
        return True
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        return all(lossless(own.dataType, field.dataType) for own, field in _same_names(actual, wanted))
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        return lossless(actual.elementType, wanted.elementType)
    if isinstance(actual, MapType) and isinstance(wanted, MapType):
        return actual.keyType == wanted.keyType and lossless(actual.valueType, wanted.valueType)
    if type(actual) in DIGITS and type(wanted) in DIGITS:
        return DIGITS[type(actual)] <= DIGITS[type(wanted)]
    if isinstance(wanted, DecimalType):
        decimal = _decimal(actual)
        return decimal is not None and _scalar_union(decimal, wanted, False) == wanted
    if isinstance(wanted, (StringType, BinaryType)):
        return isinstance(actual, (StringType, BinaryType)) or (
            isinstance(wanted, StringType) and isinstance(actual, SCALARS)
        )
    # The session is in UTC. So a cast between a time with a zone and a time without a zone keeps the hours.
    times_fit = isinstance(wanted, (TimestampType, TimestampNTZType)) and isinstance(actual, TIMES)
    return times_fit or (type(actual), type(wanted)) in EXACT


def castable(actual: DataType, wanted: DataType) -> bool:
    """Returns True if a file's type can be cast to the wanted type, even if some values do not fit."""
    if lossless(actual, wanted):
        return True
    if isinstance(actual, StringType):
        return isinstance(wanted, SCALARS)
    days_fit = isinstance(actual, TIMES) and isinstance(wanted, DateType)
    return days_fit or (isinstance(actual, NUMBERS) and isinstance(wanted, NUMBERS))


def cast(value: Column, actual: DataType, wanted: DataType) -> tuple[Column, Column | None]:
    """Casts a value.

    Returns:
        The value as the wanted type, and a boolean column: true where the cast would change the value. The boolean
        column is None if the cast keeps every value.
    """
    if actual == wanted:
        return value, None
    if isinstance(wanted, (StructType, ArrayType, MapType)) and not isinstance(actual, NullType):
        return _cast_nested(value, actual, wanted), _any_changed(value, actual, wanted)
    if lossless(actual, wanted):
        return value.cast(wanted), None
    converted = value.try_cast(wanted)
    if isinstance(actual, StringType):
        changed = converted.isNull() | F.coalesce(_loses(value, converted, wanted), F.lit(False))
    else:
        changed = ~converted.try_cast(actual).eqNullSafe(value)
    if isinstance(wanted, LongType) and isinstance(actual, (FloatType, DoubleType)):
        # 2**63 becomes the greatest bigint, and casts back to 2**63. So the comparison above does not see the change.
        changed = changed | (value >= 2.0**63)
    bad = value.isNotNull() & changed
    return F.when(~bad, converted), bad


def _loses(value: Column, converted: Column, wanted: DataType) -> Column:
    """A column that is true where Spark's cast of a text drops a part: digits, a time of day or a time zone."""
    if isinstance(wanted, DecimalType):
        exact = DecimalType(38, 38 - wanted.precision + wanted.scale)
        is_same = value.try_cast(exact).eqNullSafe(converted.cast(exact)) & (F.length(value) < 40)
        is_underflow = (converted == 0) & value.rlike("^[^eE]*[1-9]")
        inexact_exponent_form = value.rlike("[eE]") & (~is_same | is_underflow)
        extra_digits = value.rlike(rf"\.\d{{{wanted.scale}}}\d*[1-9]\d*[\x00-\x20]*$|[^\x00-\x7f]")
        return extra_digits | inexact_exponent_form
    if isinstance(wanted, DateType):
        return ~value.rlike(DAY)
    if isinstance(wanted, (TimestampType, TimestampNTZType)):
        lost = value.rlike(TIME_ALONE) | value.rlike(NANOS)
        return lost | value.rlike(ZONE) if isinstance(wanted, TimestampNTZType) else lost
    if isinstance(wanted, (FloatType, DoubleType)):
        is_overflow = converted.isin(float("inf"), float("-inf")) & ~value.rlike("(?i)inf")
        return value.rlike(JAVA_NUMBER) | is_overflow
    return F.lit(False)


def cast_nanos(value: Column, actual: DataType, wanted: DataType) -> tuple[Column, Column | None]:
    """Casts nanoseconds since 1970. A wanted bigint gets the nanoseconds themselves.

    Args:
        actual: The timestamp type of the column in the file.

    Returns:
        The value as the wanted type, and a boolean column: true where a value does not fit. The boolean column is None
        if all values fit.
    """
    if isinstance(wanted, LongType):
        return value, None
    micros = F.timestamp_micros(F.call_function("div", value, F.lit(1000))).cast(actual)
    converted, bad = cast(micros, actual, wanted)
    too_fine = value.isNotNull() & (value % 1000 != 0)
    bad = too_fine if bad is None else too_fine | bad
    return F.when(~bad, converted), bad


def _any_changed(value: Column, actual: DataType, wanted: DataType) -> Column | None:
    """A column that is true where a cast changes any part of a value; None if the cast keeps every value."""
    if lossless(actual, wanted):
        return None
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        pairs = _same_names(actual, wanted)
        parts = [_any_changed(value.getField(own.name), own.dataType, field.dataType) for own, field in pairs]
        faults = [part for part in parts if part is not None]
        return F.coalesce(any_of(faults), F.lit(False)) if faults else None
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        return _any_element_changed(value, actual.elementType, wanted.elementType)
    if isinstance(actual, MapType) and isinstance(wanted, MapType):
        return _any_element_changed(F.map_values(value), actual.valueType, wanted.valueType)
    return cast(value, actual, wanted)[1]


def _any_element_changed(values: Column, actual: DataType, wanted: DataType) -> Column:
    """A column that is true where a cast changes any element of an array."""

    def bad(value: Column) -> Column:
        fault = _any_changed(value, actual, wanted)
        return fault if fault is not None else F.lit(False)

    return F.coalesce(F.exists(values, bad), F.lit(False))


def _cast_nested(value: Column, actual: DataType, wanted: DataType) -> Column:
    """Casts a nested value. Fields match by name. (In Spark's own cast of a struct, fields match by position.)"""
    if actual == wanted:
        return value
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        own_fields, fields = by_name(actual), []
        for field in wanted.fields:
            own = own_fields.get(field.name.lower())
            part = F.lit(None).cast(field.dataType)
            if own is not None:
                part = _cast_nested(value.getField(own.name), own.dataType, field.dataType)
            fields.append(part.alias(field.name))
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        element, to = actual.elementType, wanted.elementType
        return F.transform(value, lambda item: _cast_nested(item, element, to))
    if isinstance(actual, MapType) and isinstance(wanted, MapType):
        element, to = actual.valueType, wanted.valueType
        return F.transform_values(value, lambda _, item: _cast_nested(item, element, to))
    return cast(value, actual, wanted)[0]


def any_of(conditions: list[Column]) -> Column:
    """Joins conditions with OR, as a balanced tree. A chain of thousands of conditions would overflow Java's stack."""
    middle = len(conditions) // 2
    return conditions[0] if middle == 0 else any_of(conditions[:middle]) | any_of(conditions[middle:])
