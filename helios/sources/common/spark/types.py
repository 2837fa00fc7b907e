"""Types of file columns: the union of two files' types, and the casts from a file's type to the wanted one.

Spark's reader always gets the type that the file has. With another declared type, Spark reads some pairs of types
wrongly (a parquet decimal(8,1) as a double that is ten times too large). Such columns are cast here, and a value that
the cast would change is a bad row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce

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
"""Decimal digits of the integers, narrowest first."""

EXACT = {(ByteType, FloatType), (ShortType, FloatType), (FloatType, DoubleType)} | {
    (whole, DoubleType) for whole in (ByteType, ShortType, IntegerType)
}
"""Pairs of number types in which the second type represents every value of the first exactly."""

NUMBERS = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
INSTANTS = (DateType, TimestampType, TimestampNTZType)
PLAIN = (*NUMBERS, *INSTANTS, BooleanType, StringType, BinaryType)


def by_name(schema: StructType) -> dict[str, StructField]:
    """The fields of a struct by their names in lower case, as Spark compares them."""
    return {field.name.lower(): field for field in schema.fields}


def nullable(kind: DataType) -> DataType:
    """A type in which all fields, elements and values are nullable."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, nullable(f.dataType), True) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType), True)
    return kind


# the union of two types


def united(a: DataType, b: DataType, *, inferred: bool = False) -> DataType | None:
    """The narrowest type that can represent all values of both; None if there is none.

    Args:
        a: A type.
        b: Another type.
        inferred: Whether both were inferred from text: then string represents all values of any two types.

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
        return _structs(a, b, inferred)
    if isinstance(a, ArrayType) and isinstance(b, ArrayType):
        element = united(a.elementType, b.elementType, inferred=inferred)
        return ArrayType(element) if element is not None else None
    if isinstance(a, MapType) and isinstance(b, MapType):
        value = united(a.valueType, b.valueType, inferred=inferred)
        return MapType(a.keyType, value) if value is not None and a.keyType == b.keyType else None
    return _plain_union(a, b, inferred)


def _structs(a: StructType, b: StructType, inferred: bool) -> StructType | None:
    unmatched, fields = by_name(b), []
    for field in a.fields:
        match = unmatched.pop(field.name.lower(), None)
        kind = field.dataType if match is None else united(field.dataType, match.dataType, inferred=inferred)
        if kind is None:
            return None
        fields.append(StructField(field.name, kind))
    return StructType([*fields, *unmatched.values()])


def _plain_union(a: DataType, b: DataType, inferred: bool) -> DataType | None:
    kinds = {type(a), type(b)}
    if kinds <= set(DIGITS):
        return max(a, b, key=lambda kind: DIGITS[type(kind)])
    if kinds == {FloatType, DoubleType} or (inferred and kinds <= set(NUMBERS)):
        return DoubleType()
    left, right = _decimal(a), _decimal(b)
    if left is not None and right is not None:
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        return DecimalType(whole + scale, scale) if whole + scale <= 38 else None
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
"""A day, alone or with a time of midnight: Spark's cast to a date cuts off any other time."""
TIME_ALONE = r"^[\x00-\x20]*T?\d{1,2}:"
"""A time without a day: Spark would add the current day."""
NANOS = r"\.\d{6}\d*[1-9]"
"""A fraction of a second that is finer than microseconds."""
ZONE = r"\d:\d{1,2}(:\d{1,2}(\.\d+)?)?\s*[A-Za-z+-]"
"""A time with a zone."""
JAVA_NUMBER = r"(?i)^\s*[+-]?(0x|[\d.]+(e[+-]?\d+)?[df]\s*$)"
"""Hexadecimal numbers, and numbers with Java's suffix `d` or `f`."""


def lossless(own: DataType, wanted: DataType) -> bool:
    """True if a cast keeps every value. Nested fields match by name; wanted fields that are missing become null."""
    if own == wanted or isinstance(own, NullType):
        return True
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        stored = by_name(own)
        return all(
            lossless(stored[f.name.lower()].dataType, f.dataType) for f in wanted.fields if f.name.lower() in stored
        )
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return lossless(own.elementType, wanted.elementType)
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        return own.keyType == wanted.keyType and lossless(own.valueType, wanted.valueType)
    if type(own) in DIGITS and type(wanted) in DIGITS:
        return DIGITS[type(own)] <= DIGITS[type(wanted)]
    if isinstance(wanted, DecimalType):
        decimal = _decimal(own)
        return decimal is not None and _plain_union(decimal, wanted, False) == wanted
    if isinstance(wanted, (StringType, BinaryType)):
        return isinstance(own, (StringType, BinaryType)) or (isinstance(wanted, StringType) and isinstance(own, PLAIN))
    # The session's zone, UTC, converts between times with a zone and times without.
    instants = isinstance(wanted, (TimestampType, TimestampNTZType)) and isinstance(own, INSTANTS)
    return instants or (type(own), type(wanted)) in EXACT


def castable(own: DataType, wanted: DataType) -> bool:
    """True if a file's type can be cast to the wanted type; values that do not fit are bad rows."""
    if lossless(own, wanted):
        return True
    if isinstance(own, StringType):
        return isinstance(wanted, PLAIN)
    dates = isinstance(own, INSTANTS) and isinstance(wanted, DateType)
    return dates or (isinstance(own, NUMBERS) and isinstance(wanted, NUMBERS))


def cast(value: Column, own: DataType, wanted: DataType) -> tuple[Column, Column | None]:
    """A value as the wanted type, and the condition that the cast changes the value; None if the cast never does."""
    if own == wanted:
        return value, None
    if isinstance(wanted, (StructType, ArrayType, MapType)) and not isinstance(own, NullType):
        return _nested(value, own, wanted), _unfit(value, own, wanted)
    if lossless(own, wanted):
        return value.cast(wanted), None
    converted = value.try_cast(wanted)
    if isinstance(own, StringType):
        changed = converted.isNull() | F.coalesce(_loses(value, converted, wanted), F.lit(False))
    else:
        changed = ~converted.try_cast(own).eqNullSafe(value)
    if isinstance(wanted, LongType) and isinstance(own, (FloatType, DoubleType)):
        changed = changed | (value >= 2.0**63)  # casts to the greatest bigint, which casts back to 2**63
    bad = value.isNotNull() & changed
    return F.when(~bad, converted), bad


def _loses(value: Column, converted: Column, wanted: DataType) -> Column:
    """The condition that Spark's cast of a text loses a part of the text: digits, a time of day, a zone."""
    if isinstance(wanted, DecimalType):
        exact = DecimalType(38, 38 - wanted.precision + wanted.scale)
        same = value.try_cast(exact).eqNullSafe(converted.cast(exact)) & (F.length(value) < 40)
        underflows = (converted == 0) & value.rlike("^[^eE]*[1-9]")
        inexact_power = value.rlike("[eE]") & (~same | underflows)
        extra_digits = value.rlike(rf"\.\d{{{wanted.scale}}}\d*[1-9]\d*[\x00-\x20]*$|[^\x00-\x7f]")
        return extra_digits | inexact_power
    if isinstance(wanted, DateType):
        return ~value.rlike(DAY)
    if isinstance(wanted, (TimestampType, TimestampNTZType)):
        lost = value.rlike(TIME_ALONE) | value.rlike(NANOS)
        return lost | value.rlike(ZONE) if isinstance(wanted, TimestampNTZType) else lost
    if isinstance(wanted, (FloatType, DoubleType)):
        overflows = converted.isin(float("inf"), float("-inf")) & ~value.rlike("(?i)inf")
        return value.rlike(JAVA_NUMBER) | overflows
    return F.lit(False)


def cast_nanos(value: Column, own: DataType, wanted: DataType) -> tuple[Column, Column | None]:
    """Nanoseconds since 1970 as the wanted type, and the condition that a value does not fit; None if all values fit.

    Args:
        value: The nanoseconds, a bigint.
        own: The timestamp type of the column in the file.
        wanted: The wanted type; a bigint gets the nanoseconds themselves.
    """
    if isinstance(wanted, LongType):
        return value, None
    micros = F.timestamp_micros(F.call_function("div", value, F.lit(1000))).cast(own)
    converted, bad = cast(micros, own, wanted)
    too_fine = value.isNotNull() & (value % 1000 != 0)
    bad = too_fine if bad is None else too_fine | bad
    return F.when(~bad, converted), bad


def _unfit(value: Column, own: DataType, wanted: DataType) -> Column | None:
    """The condition under which a cast would change a part of a nested value; None if the cast keeps every value."""
    if lossless(own, wanted):
        return None
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        stored = by_name(own)
        matches = [(stored[f.name.lower()], f) for f in wanted.fields if f.name.lower() in stored]
        parts = [_unfit(value.getField(match.name), match.dataType, field.dataType) for match, field in matches]
        faults = [part for part in parts if part is not None]
        return F.coalesce(any_of(faults), F.lit(False)) if faults else None
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return _any(value, own.elementType, wanted.elementType)
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        return _any(F.map_values(value), own.valueType, wanted.valueType)
    return cast(value, own, wanted)[1]


def _any(values: Column, own: DataType, wanted: DataType) -> Column:
    def bad(value: Column) -> Column:
        fault = _unfit(value, own, wanted)
        return fault if fault is not None else F.lit(False)

    return F.coalesce(F.exists(values, bad), F.lit(False))


def _nested(value: Column, own: DataType, wanted: DataType) -> Column:
    """A nested value rebuilt by the names of its fields: Spark's own cast of a struct matches fields by position."""
    if own == wanted:
        return value
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        stored = by_name(own)
        fields = [
            (
                _nested(value.getField(stored[f.name.lower()].name), stored[f.name.lower()].dataType, f.dataType)
                if f.name.lower() in stored
                else F.lit(None).cast(f.dataType)
            ).alias(f.name)
            for f in wanted.fields
        ]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        element, to = own.elementType, wanted.elementType
        return F.transform(value, lambda item: _nested(item, element, to))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        element, to = own.valueType, wanted.valueType
        return F.transform_values(value, lambda _, item: _nested(item, element, to))
    return cast(value, own, wanted)[0]


# differences of two schemas


def extras(own: StructType, wanted: StructType) -> list[str]:
    """The dotted names of the unwanted fields of a file, at any depth."""
    return list(_extras(own, wanted, ""))


def _extras(own: DataType, wanted: DataType, path: str) -> Iterator[str]:
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        known = by_name(wanted)
        for field in own.fields:
            match = known.get(field.name.lower())
            if match is None:
                yield f"{path}{field.name}"
            else:
                yield from _extras(field.dataType, match.dataType, f"{path}{field.name}.")
    elif isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        yield from _extras(own.elementType, wanted.elementType, path)
    elif isinstance(own, MapType) and isinstance(wanted, MapType):
        yield from _extras(own.valueType, wanted.valueType, path)
    elif isinstance(own, StructType) and isinstance(wanted, MapType):  # a map in JSON is inferred as a struct
        for field in own.fields:
            yield from _extras(field.dataType, wanted.valueType, f"{path}{field.name}.")


def leftover(value: Column, own: DataType, wanted: DataType | None) -> tuple[Column, Column] | None:
    """The unwanted part of a value, and the condition that it exists; None if all fields of the type are wanted.

    Args:
        value: The value.
        own: The type of the value.
        wanted: The wanted type; None if no part of the value is wanted.
    """
    if wanted is None:
        return value, value.isNotNull()
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        return leftovers([(field, value.getField(field.name)) for field in own.fields], wanted)
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return _each(F.transform, value, value, own.elementType, wanted.elementType)
    if isinstance(own, MapType) and isinstance(wanted, MapType):

        def transform(entries: Column, change: Callable[[Column], Column]) -> Column:
            return F.transform_values(entries, lambda _, item: change(item))

        return _each(transform, value, F.map_values(value), own.valueType, wanted.valueType)
    return None


def leftovers(fields: Iterable[tuple[StructField, Column]], wanted: StructType) -> tuple[Column, Column] | None:
    """The unwanted parts of several fields, as one struct; otherwise as `leftover`."""
    known = by_name(wanted)
    parts, conditions = [], []
    for field, value in fields:
        match = known.get(field.name.lower())
        unwanted = leftover(value, field.dataType, match.dataType if match is not None else None)
        if unwanted is not None:
            part, exists = unwanted
            parts.append(F.when(exists, part).alias(field.name))
            conditions.append(exists)
    return (F.struct(*parts), any_of(conditions)) if parts else None


def _each(
    transform: Callable[..., Column], value: Column, elements: Column, own: DataType, wanted: DataType
) -> tuple[Column, Column] | None:
    if not list(_extras(own, wanted, "")):
        return None

    def unwanted(item: Column) -> tuple[Column, Column]:
        pair = leftover(item, own, wanted)
        assert pair is not None
        return pair

    def part(item: Column) -> Column:
        unwanted_part, exists = unwanted(item)
        return F.when(exists, unwanted_part)

    return transform(value, part), F.coalesce(F.exists(elements, lambda item: unwanted(item)[1]), F.lit(False))


def missing(own: StructType, wanted: StructType) -> list[str]:
    """The wanted columns that a file lacks."""
    known = by_name(own)
    return [field.name for field in wanted.fields if field.name.lower() not in known]


def with_extras(wanted: DataType, own: DataType) -> DataType:
    """A wanted type, extended by the fields that only the file has."""
    if isinstance(own, StructType) and isinstance(wanted, StructType):
        unmatched = by_name(own)
        fields = []
        for field in wanted.fields:
            match = unmatched.pop(field.name.lower(), None)
            kind = with_extras(field.dataType, match.dataType) if match is not None else field.dataType
            fields.append(StructField(field.name, kind))
        return StructType([*fields, *unmatched.values()])
    if isinstance(own, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(with_extras(wanted.elementType, own.elementType))
    if isinstance(own, MapType) and isinstance(wanted, MapType):
        return MapType(wanted.keyType, with_extras(wanted.valueType, own.valueType))
    if isinstance(own, StructType) and isinstance(wanted, MapType):
        values = (field.dataType for field in own.fields)
        return MapType(wanted.keyType, reduce(with_extras, values, wanted.valueType))
    return wanted


def any_of(conditions: list[Column]) -> Column:
    """The disjunction of conditions, as a balanced tree: a chain of thousands would overflow Java's stack."""
    middle = len(conditions) // 2
    return conditions[0] if middle == 0 else any_of(conditions[:middle]) | any_of(conditions[middle:])
