"""Differences between the columns that a file has and the declared columns: additional and missing fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from helios.sources.common.spark.types import any_of, by_name


def extras(actual: StructType, wanted: StructType) -> list[str]:
    """The dotted names of the fields that a file has and `wanted` lacks, at any depth."""
    return list(_extras(actual, wanted, ""))


def _extras(actual: DataType, wanted: DataType, path: str) -> Iterator[str]:
    """The fields as in `extras`; `path` is the prefix of their names."""
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        known = by_name(wanted)
        for field in actual.fields:
            match = known.get(field.name.lower())
            if match is None:
                yield f"{path}{field.name}"
            else:
                yield from _extras(field.dataType, match.dataType, f"{path}{field.name}.")
    elif isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        yield from _extras(actual.elementType, wanted.elementType, path)
    elif isinstance(actual, MapType) and isinstance(wanted, MapType):
        yield from _extras(actual.valueType, wanted.valueType, path)
    elif isinstance(actual, StructType) and isinstance(wanted, MapType):  # a map in JSON is inferred as a struct
        for field in actual.fields:
            yield from _extras(field.dataType, wanted.valueType, f"{path}{field.name}.")


def undeclared_part(value: Column, actual: DataType, wanted: DataType | None) -> tuple[Column, Column] | None:
    """The undeclared fields of a value, and the condition that the value has any; None if its type has none.

    `wanted` is the declared type; None if the whole value is undeclared.
    """
    if wanted is None:
        return value, value.isNotNull()
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        return undeclared_parts([(field, value.getField(field.name)) for field in actual.fields], wanted)
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        return _undeclared_elements(F.transform, value, value, actual.elementType, wanted.elementType)
    if isinstance(actual, MapType) and isinstance(wanted, MapType):

        def transform(entries: Column, change: Callable[[Column], Column]) -> Column:
            return F.transform_values(entries, lambda _, item: change(item))

        return _undeclared_elements(transform, value, F.map_values(value), actual.valueType, wanted.valueType)
    return None


def undeclared_parts(fields: Iterable[tuple[StructField, Column]], wanted: StructType) -> tuple[Column, Column] | None:
    """The undeclared parts of several fields, as one struct; otherwise like `undeclared_part`."""
    known = by_name(wanted)
    parts, conditions = [], []
    for field, value in fields:
        match = known.get(field.name.lower())
        undeclared = undeclared_part(value, field.dataType, match.dataType if match is not None else None)
        if undeclared is not None:
            part, exists = undeclared
            parts.append(F.when(exists, part).alias(field.name))
            conditions.append(exists)
    return (F.struct(*parts), any_of(conditions)) if parts else None


def _undeclared_elements(
    transform: Callable[..., Column], value: Column, elements: Column, actual: DataType, wanted: DataType
) -> tuple[Column, Column] | None:
    """The undeclared parts of the elements of an array or the values of a map; None if their type has none.

    `transform` changes each element of `value`, and `elements` has the elements as an array. `actual` and `wanted` are
    types of an element.
    """
    if not list(_extras(actual, wanted, "")):
        return None

    def undeclared(item: Column) -> tuple[Column, Column]:
        pair = undeclared_part(item, actual, wanted)
        assert pair is not None
        return pair

    def part(item: Column) -> Column:
        undeclared_value, exists = undeclared(item)
        return F.when(exists, undeclared_value)

    return transform(value, part), F.coalesce(F.exists(elements, lambda item: undeclared(item)[1]), F.lit(False))


def missing(actual: StructType, wanted: StructType) -> list[str]:
    """The wanted columns that a file lacks."""
    known = by_name(actual)
    return [field.name for field in wanted.fields if field.name.lower() not in known]


def with_extras(wanted: DataType, actual: DataType) -> DataType:
    """The wanted type with the additional fields of a file."""
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        unmatched = by_name(actual)
        fields = []
        for field in wanted.fields:
            match = unmatched.pop(field.name.lower(), None)
            kind = with_extras(field.dataType, match.dataType) if match is not None else field.dataType
            fields.append(StructField(field.name, kind))
        return StructType([*fields, *unmatched.values()])
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(with_extras(wanted.elementType, actual.elementType))
    if isinstance(actual, MapType) and isinstance(wanted, MapType):
        return MapType(wanted.keyType, with_extras(wanted.valueType, actual.valueType))
    if isinstance(actual, StructType) and isinstance(wanted, MapType):
        values = (field.dataType for field in actual.fields)
        return MapType(wanted.keyType, reduce(with_extras, values, wanted.valueType))
    return wanted
