"""The columns of a flow, and how they are derived from PyIceberg, Arrow, DDL text or Python rows."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from helios.errors import DeclarationError, Origin, near_miss
from helios.plan.typing.types import (
    KNOWN,
    UNKNOWN,
    VOID,
    SparkType,
    TypeProblem,
    array,
    decimal,
    parse_columns,
    parse_type,
    struct,
)  # fmt: skip

if TYPE_CHECKING:
    import pyarrow
    import pyiceberg.schema


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        name: The name that Spark will give the column.
        type: Spark SQL type in lower case, such as `bigint` or `struct<a:int>`; `unknown` if it is known only at run
            time.
        nullable: Whether the column may have nulls; True if that is not certain.
        exact: Whether the name is certain. The name that Spark gives an expression without an alias is not.
    """

    name: str
    type: str
    nullable: bool = True
    exact: bool = field(default=True, compare=False, repr=False)

    @classmethod
    def of(cls, name: str, kind: SparkType, nullable: bool = True) -> Column:
        """A column of a type; the type is `unknown` if a part of it is."""
        return cls(name, str(kind if kind.certain else UNKNOWN), nullable)

    @property
    def kind(self) -> SparkType:
        """The parsed type."""
        return parse_type(self.type)


@dataclass(frozen=True)
class Schema:
    """Columns in order. As in Spark, names are compared without regard to case."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def exact(self) -> bool:
        """True if every name is certain, so that a name that is not listed is certainly missing."""
        return all(c.exact for c in self.columns)

    def get(self, name: str) -> Column | None:
        """The column with a name; None if there is no such column."""
        lowered = name.lower()
        return next((c for c in self.columns if c.name.lower() == lowered), None)

    def text(self) -> str:
        """The columns as text, one in each line.

        Examples:
            >>> print(Schema((Column("id", "bigint", False), Column("amount", "double"))).text())
            id      bigint  not null
            amount  double
        """
        name_width = max((len(n) for n in self.names), default=0)
        type_width = max((len(c.type) for c in self.columns), default=0)
        return "\n".join(
            f"{c.name:<{name_width}}  {c.type:<{type_width}}  {'' if c.nullable else 'not null'}".rstrip()
            for c in self.columns
        )

    def as_json(self) -> list[dict[str, object]]:
        return [{"name": c.name, "type": c.type, "nullable": c.nullable} for c in self.columns]


def from_ddl(text: str, where: Origin | None = None) -> Schema:
    """The schema that a Spark DDL text declares.

    Args:
        text: Such as "id bigint NOT NULL, `my col` decimal(10,2), s struct<a:int>".

    Raises:
        DeclarationError: An unknown type, a column without a type, or invalid DDL.
    """
    try:
        declared = parse_columns(text)
    except TypeProblem as problem:
        hint = f" {near_miss(problem.unknown, KNOWN)}" if problem.unknown else ""
        raise DeclarationError(
            f"schema {text!r}: {problem}.{hint}",
            where=where,
            fix='write columns and Spark SQL types: "id bigint, name string".',
        ) from None
    return Schema(tuple(Column.of(d.name, d.type, d.nullable) for d in declared))


_ICEBERG = {
    "BooleanType": "boolean", "IntegerType": "int", "LongType": "bigint", "FloatType": "float", "DoubleType": "double",
    "DateType": "date", "TimestampType": "timestamp_ntz", "TimestamptzType": "timestamp", "StringType": "string",
    "UUIDType": "string", "FixedType": "binary", "BinaryType": "binary", "UnknownType": "void",
}  # fmt: skip
"""The Spark type of each Iceberg type. Spark cannot read Iceberg's other types (time, nanoseconds)."""


def from_pyiceberg(schema: pyiceberg.schema.Schema) -> Schema:
    """The columns of an Iceberg table as Spark reads them."""
    return Schema(tuple(Column.of(f.name, _iceberg(f.field_type), not f.required) for f in schema.fields))


def types_that_spark_lacks(schema: pyiceberg.schema.Schema) -> list[str]:
    """The columns of an Iceberg table whose types Spark does not have, as text such as `opens time`."""
    return [f"{f.name} {f.field_type}" for f in schema.fields if _is_lacking(f.field_type)]


def _is_lacking(kind: Any) -> bool:
    match type(kind).__name__:
        case "ListType":
            return _is_lacking(kind.element_type)
        case "MapType":
            return _is_lacking(kind.key_type) or _is_lacking(kind.value_type)
        case "StructType":
            return any(_is_lacking(f.field_type) for f in kind.fields)
        case name:
            return name in ("TimeType", "TimestampNanoType", "TimestamptzNanoType", "GeometryType", "GeographyType")


def _iceberg(kind: Any) -> SparkType:
    """The Spark type of a type of PyIceberg."""
    match type(kind).__name__:
        case "DecimalType":
            return decimal(kind.precision, kind.scale)
        case "ListType":
            return array(_iceberg(kind.element_type))
        case "MapType":
            return SparkType("map", parts=(_iceberg(kind.key_type), _iceberg(kind.value_type)))
        case "StructType":
            return struct((f.name, _iceberg(f.field_type)) for f in kind.fields)
        case name:
            return SparkType(_ICEBERG.get(name, "unknown"))


_ARROW = {
    "bool": "boolean", "int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "uint8": "smallint",
    "uint16": "int", "uint32": "bigint", "float": "float", "double": "double", "string": "string",
    "large_string": "string", "string_view": "string", "binary": "binary", "large_binary": "binary",
    "binary_view": "binary", "date32[day]": "date", "null": "void",
}  # fmt: skip
"""Spark types by the text of Arrow's types; unsigned integers have the types that Spark reads from Parquet."""


def from_arrow(schema: pyarrow.Schema) -> Schema:
    """The columns of an Arrow schema, as Spark reads them from Parquet that Arrow wrote."""
    return Schema(tuple(Column.of(f.name, _arrow(f.type), f.nullable) for f in schema))


def _arrow(kind: Any) -> SparkType:
    """The Spark type of a type of Arrow."""
    from pyarrow import types

    if types.is_decimal(kind):
        in_range = 0 <= kind.scale <= kind.precision <= 38
        return decimal(kind.precision, kind.scale) if in_range else UNKNOWN
    if types.is_timestamp(kind):
        if kind.tz:
            return SparkType("timestamp")
        # Arrow reads Parquet's INT96 as nanoseconds without a zone, Spark as a timestamp with a zone.
        return SparkType("timestamp_ntz") if kind.unit != "ns" else UNKNOWN
    if types.is_dictionary(kind):
        return _arrow(kind.value_type)
    if types.is_map(kind):
        return SparkType("map", parts=(_arrow(kind.key_type), _arrow(kind.item_type)))
    if types.is_struct(kind):
        return struct((f.name, _arrow(f.type)) for f in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return array(_arrow(kind.value_type))
    if types.is_fixed_size_binary(kind):
        return SparkType("binary")
    if types.is_uint64(kind):
        return decimal(20, 0)
    return SparkType(_ARROW.get(str(kind), "unknown"))


_PYTHON: dict[type, SparkType] = {
    type(None): VOID,
    bool: SparkType("boolean"),
    int: SparkType("bigint"),
    float: SparkType("double"),
    str: SparkType("string"),
    bytes: SparkType("binary"),
    bytearray: SparkType("binary"),
    Decimal: decimal(38, 18),
    datetime.date: SparkType("date"),
    datetime.datetime: SparkType("timestamp"),
    datetime.timedelta: SparkType("interval day to second"),
    datetime.time: SparkType("time", (6,)),
}
"""The types that pyspark's createDataFrame infers from Python values."""


def from_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Schema:
    """The schema that pyspark's createDataFrame infers from Python rows; `void` if a column has only nulls."""
    kinds = [VOID] * len(columns)
    for row in rows:
        kinds = [_merge(kind, _python(value)) for kind, value in zip(kinds, row, strict=False)]
    return Schema(tuple(Column.of(n, k) for n, k in zip(columns, kinds, strict=True)))


def _python(value: Any) -> SparkType:
    """The type that pyspark infers from a Python value."""
    known = _PYTHON.get(type(value))
    if known is not None:
        return known
    if isinstance(value, dict):
        keys = (_python(k) for k in value if k is not None)
        return SparkType("map", parts=(reduce(_merge, keys, VOID), reduce(_merge, map(_python, value.values()), VOID)))
    if isinstance(value, list):
        return array(reduce(_merge, map(_python, value), VOID))
    if isinstance(value, tuple):
        names = getattr(value, "__fields__", None) or getattr(value, "_fields", None)  # of a Row, of a NamedTuple
        names = names or [f"_{number + 1}" for number in range(len(value))]
        return struct((name, _python(part)) for name, part in zip(names, value, strict=False))
    return UNKNOWN


def _merge(a: SparkType, b: SparkType) -> SparkType:
    """The type of two values in one column; `unknown` if pyspark refuses to merge them."""
    if b in (a, VOID):
        return a
    if a == VOID:
        return b
    if a.name == b.name == "struct":
        right = dict(zip(b.fields, b.parts, strict=True))
        merged = [(n, _merge(t, right.get(n, VOID))) for n, t in zip(a.fields, a.parts, strict=True)]
        extra = [(n, t) for n, t in zip(b.fields, b.parts, strict=True) if n not in a.fields]
        return struct([*merged, *extra])
    if a.name == b.name and a.parts:
        return SparkType(a.name, parts=tuple(_merge(x, y) for x, y in zip(a.parts, b.parts, strict=True)))
    atomic = not (a.parts or b.parts) and UNKNOWN not in (a, b)
    return SparkType("string") if atomic and "string" in (a.name, b.name) else UNKNOWN
