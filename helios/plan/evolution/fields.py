"""Columns as trees with the nullability of nested fields, and the casts from one schema to another.

The parts of nested types are named as in Iceberg's paths: `points.element.x`, `prices.value.amount`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.plan.typing import schema as columns
from helios.plan.typing.types import INTEGRAL, MAX_PRECISION, VOID, SparkType, decimal, quoted

if TYPE_CHECKING:
    import pyiceberg.schema

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = tuple["Field", ...]

PARTS = {"array": ("element",), "map": ("key", "value")}
"""The names of the parts of an array and of a map."""
METADATA_COLUMNS = ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
"""Names that Iceberg reserves: Spark cannot read a table with such a column."""


@dataclass(frozen=True)
class Field:
    """A column, a field of a struct, the `element` of an array, the `key` or the `value` of a map.

    Args:
        name: The name in the schema; names are compared without regard to case.
        type: A plain type, or only the name `struct`, `array` or `map`.
        nullable: Whether the field may be null; None if that is known only at run time.
        parts: The fields of a struct, the element of an array, or the key and the value of a map.
        default: The SQL of the value that is written for a row without the field; None for null. Iceberg has such
            defaults since v3.
        doc: The field's comment.
    """

    name: str
    type: SparkType
    nullable: bool | None = True
    parts: Fields = ()
    default: str | None = None
    doc: str | None = field(default=None, compare=False)

    @property
    def nested(self) -> bool:
        return self.type.name in ("struct", "array", "map")

    @property
    def full_type(self) -> SparkType:
        """The type including its parts, such as `array<int>`."""
        names = tuple(p.name for p in self.parts) if self.type.name == "struct" else ()
        return replace(self.type, parts=tuple(p.full_type for p in self.parts), fields=names)

    @classmethod
    def of(cls, name: str, kind: SparkType, nullable: bool | None) -> Field:
        """A field of a type, with parts whose nullability is unknown."""
        names = PARTS.get(kind.name, kind.fields)
        parts = (cls.of(n, part, None) for n, part in zip(names, kind.parts, strict=True))
        return cls(name, SparkType(kind.name, kind.numbers), nullable, _with_required_keys(kind.name, parts))

    def as_added(self) -> Field:
        """The field as it is added to a table: optional in every part, with Iceberg's types."""
        parts = _with_required_keys(self.type.name, (part.as_added() for part in self.parts))
        return replace(self, type=iceberg_type(self.type), nullable=True, parts=parts, default=None)


def _with_required_keys(container: str, parts: Iterable[Field]) -> Fields:
    """The parts of a type, with the key of a map made required, because it is never null."""
    return tuple(replace(p, nullable=False) if (container, p.name) == ("map", "key") else p for p in parts)


def from_schema(schema: columns.Schema) -> Fields:
    """The columns of an inferred schema, whose `nullable=True` means unknown."""
    return tuple(Field.of(c.name, c.kind, None if c.nullable else False) for c in schema.columns)


def from_pyiceberg(schema: pyiceberg.schema.Schema) -> Fields:
    """The columns of an Iceberg table as Spark reads them."""
    read = columns.from_pyiceberg(schema).columns
    return tuple(_iceberg(Field.of(c.name, c.kind, c.nullable), f) for c, f in zip(read, schema.fields, strict=True))


_ICEBERG_PARTS: Mapping[str, Callable[[Any], tuple[Any, ...]]] = {
    "struct": lambda kind: tuple(kind.fields),
    "array": lambda kind: (kind.element_field,),
    "map": lambda kind: (kind.key_field, kind.value_field),
}


def _iceberg(field: Field, iceberg: Any) -> Field:
    """A field, with the nullability, the default and the comment of PyIceberg's field.

    The default is Python's text of the value, not SQL: a plan only needs to know that there is one.
    """
    inner = _ICEBERG_PARTS.get(field.type.name, lambda _: ())(iceberg.field_type)
    parts = tuple(_iceberg(p, i) for p, i in zip(field.parts, inner, strict=True))
    default = repr(iceberg.write_default) if iceberg.write_default is not None else None
    return replace(field, nullable=not iceberg.required, parts=parts, default=default, doc=iceberg.doc)


def renamed_columns(schemas: Iterable[Mapping[int, str]], current: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    """The former and the present name of each column and nested field that was renamed in a table.

    Args:
        schemas: All schemas that the table has had, as names by field ids.
        current: The current schema, as names by field ids.

    Examples:
        >>> renamed_columns([{1: "id", 2: "price"}, {1: "id", 2: "cost"}], {1: "id", 2: "cost", 3: "note"})
        (('price', 'cost'),)
    """
    pairs = ((name, current[id]) for schema in schemas for id, name in schema.items() if id in current)
    return tuple(dict.fromkeys((former, name) for former, name in pairs if former != name))


def sql_path(path: Path) -> str:
    """A path in SQL."""
    return ".".join(map(quoted, path))


def is_or_contains(path: Path, names: Iterable[str]) -> bool:
    """True if a field is one of the dotted names, or contains one of them."""
    key = ".".join(path).lower()
    return any(f"{name.lower()}.".startswith(f"{key}.") for name in names)


# types


_STORED_AS = {"tinyint": "int", "smallint": "int", "char": "string", "varchar": "string"}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""The greatest number of decimal digits of each integer type."""
_EXACT_IN = {"float": ("tinyint", "smallint"), "double": ("tinyint", "smallint", "int", "float")}
"""The types whose values fit into a float (24 bits) or a double (53 bits) without rounding."""
_PROMOTED = {"int": "bigint", "float": "double"}
"""The type to which Iceberg promotes a plain type, besides decimals."""


def iceberg_type(kind: SparkType) -> SparkType:
    """Iceberg's type for a plain type of Spark."""
    name = "string" if kind.name.startswith("string collate") else _STORED_AS.get(kind.name, kind.name)
    return SparkType(name) if name != kind.name else kind


def lossless(stream: SparkType, table: SparkType) -> bool:
    """True if a cast between two plain types keeps every value.

    Examples:
        >>> lossless(SparkType("int"), SparkType("double")), lossless(SparkType("bigint"), SparkType("double"))
        (True, False)
    """
    if stream == VOID or table in (stream, iceberg_type(stream)):
        return True
    if table.name in INTEGRAL and stream.name in INTEGRAL:
        return INTEGRAL.index(stream.name) <= INTEGRAL.index(table.name)
    if table.name == "decimal" and stream.name in ("decimal", *_DIGITS):
        precision, scale = stream.numbers or (_DIGITS[stream.name], 0)
        return scale <= table.numbers[1] and precision - scale <= table.numbers[0] - table.numbers[1]
    return stream.name in _EXACT_IN.get(table.name, ())


def promotions(table: SparkType) -> tuple[SparkType, ...]:
    """The types to which Iceberg 1.12 promotes a type, narrowest first, in every format version.

    They are those of `TypeUtil.isPromotionAllowed`. Iceberg 1.12 lacks the promotions that v3 adds:
    `date` to `timestamp_ntz`, and `void` to any type.
    """
    if table.name == "decimal":
        precision, scale = table.numbers
        return tuple(decimal(wide, scale) for wide in range(precision + 1, MAX_PRECISION + 1))
    return (SparkType(_PROMOTED[table.name]),) if table.name in _PROMOTED else ()


# rows


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The conversion of one field from a row of the stream to the table: unchanged, rebuilt by its parts, or cast.

    Args:
        name: The name of the field in the table.
        type: The type of the field in the table.
        source: The name of the field in the stream; None if the stream lacks the field. Then `default` is written.
        unchanged: Whether the value is written as it is.
        default: The SQL of the value that is written if the stream lacks the field; None for null.
        parts: The parts of a value that is rebuilt: fields of a struct, element of an array, key and value of a map.
    """

    name: str
    type: SparkType
    source: str | None
    unchanged: bool = False
    default: str | None = None
    parts: tuple[Cell, ...] = ()

    def texts(self, within: Path = ()) -> Iterator[str]:
        """The conversion as text: a line for each cast, and for each field that the stream lacks."""
        path = (*within, self.name)
        if self.source is None:
            yield f"{sql_path(path)}: {self.default or 'NULL'}"
        elif not (self.unchanged or self.parts):
            yield f"{sql_path(path)}: CAST AS {self.type}"
        for part in self.parts:
            yield from part.texts(path)


def cast_plan(stream: Fields, table: Fields) -> tuple[Cell, ...]:
    """The conversions of the stream's columns to the table's, by name at every level, in the table's order.

    Args:
        stream: The columns of the stream, for which `evolve` has found no problem.
        table: The columns of the table after the changes: `Evolution.fields`.

    Examples:
        >>> from helios.plan.typing.schema import from_ddl
        >>> stream = from_schema(from_ddl("id int, s struct<b: float>, tags array<string>"))
        >>> table = from_schema(from_ddl("id bigint, s struct<a: date, b: double>, tags array<string>"))
        >>> [step for cell in cast_plan(stream, table) for step in cell.texts()]
        ['id: CAST AS bigint', 's.a: NULL', 's.b: CAST AS double']
    """
    ours = {f.name.lower(): f for f in stream}
    return tuple(_cell(ours.get(f.name.lower()), f) for f in table)


def _cell(ours: Field | None, theirs: Field) -> Cell:
    kind = theirs.full_type
    if ours is None:
        return Cell(name=theirs.name, type=kind, source=None, default=theirs.default)
    if ours.full_type == kind:
        return Cell(name=theirs.name, type=kind, source=ours.name, unchanged=True)
    rebuilt = ours.nested and ours.type == theirs.type
    parts = cast_plan(ours.parts, theirs.parts) if rebuilt else ()
    return Cell(name=theirs.name, type=kind, source=ours.name, parts=parts)
