"""Checks of the arguments of sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from helios.errors import DeclarationError, near_miss
from helios.model.expressions import SqlText, sql_text
from helios.model.values import Secret, caller

Word = TypeVar("Word", bound=str)
Number = TypeVar("Number", bound="int | None")
TimestampUnit: TypeAlias = Literal["s", "ms", "us"]

TIMESTAMPS: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
"""The units that `timestamps=` accepts for timestamps that are JSON numbers, each with its name in words."""

RESERVED_BY_ICEBERG = ("_file", "_partition")
"""Metadata fields whose names Iceberg reserves: a table cannot have a column of that name."""


def text_pairs(properties: Mapping[str, str], call: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of a mapping. Refuses keys and values that are not text, and keys that begin with `helios.`."""
    check_mapping(properties, call, '{"key": "value"}')
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DeclarationError(
                f"{call}: {key!r}: {value!r} must both be text.", where=caller(), fix=f'write {{"{key}": "{value}"}}.'
            )
        if key.startswith("helios."):
            raise DeclarationError(f"{call}: {key!r} is reserved for Helios.", where=caller(), fix="use another key.")
    return tuple(properties.items())


def check_mapping(value: object, call: str, example: str) -> None:
    """Refuses an argument that is not a mapping. `example` is a valid mapping, as Python text."""
    if not isinstance(value, Mapping):
        raise DeclarationError(
            f"{call} takes a mapping, not {shown(value)}.", where=caller(), fix=f"write {call}({example})."
        )


def listed(values: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the arguments of a call that takes names one by one or as one list.

    Examples:
        >>> listed(("a", "b")), listed((["a", "b"],))
        (('a', 'b'), ('a', 'b'))
    """
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else tuple(values)


def metadata_columns(
    names: Sequence[Any], columns: Mapping[str, str], known: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """Returns the columns that `.with_metadata` adds, each with the metadata field that it stores.

    Args:
        names: Metadata fields, one by one or as one list. They name their columns, with `_source` before a name that
            Iceberg reserves.
        columns: Names of columns, each with the metadata field that the column stores.
        known: The metadata fields of the source.

    Raises:
        DeclarationError: A field is unknown, or there is none.

    Examples:
        >>> metadata_columns(["_file", "_modified"], {"arrived_at": "_arrived"}, ["_file", "_modified", "_arrived"])
        (('_source_file', '_file'), ('_modified', '_modified'), ('arrived_at', '_arrived'))
    """
    fields = list(known)
    added = {f"_source{name}" if name in RESERVED_BY_ICEBERG else name: name for name in listed(names)} | dict(columns)
    for name in added.values():
        one_of(name, fields, "with_metadata")
    if not added:
        raise DeclarationError(
            "with_metadata() needs the names of columns.",
            where=caller(),
            fix=f"write .with_metadata({', '.join(map(repr, fields))}).",
        )
    return tuple(added.items())


def text(value: str, call: str) -> str:
    """Returns a text unchanged. Refuses other values and empty text."""
    if not isinstance(value, str) or not value.strip():
        fix = "write a text that is not blank." if isinstance(value, str) else "write it in quotes."
        raise DeclarationError(f"{call} takes text, not {shown(value)}.", where=caller(), fix=column_fix(value) or fix)
    return value


def secret(value: str | Secret, call: str) -> Secret:
    """Returns a secret. Refuses other values and empty text, without showing them."""
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise DeclarationError(
            f"{call} takes text, not {type(value).__name__}.", where=caller(), fix="write it in quotes."
        )
    return Secret(text(value, call))


def shown(value: object) -> str:
    """Returns a value as messages show it. A PySpark Column is shown by its type: its text needs a running Spark."""
    return "a Column of PySpark" if _is_pyspark_column(value) else repr(value)


def _is_pyspark_column(value: object) -> bool:
    return type(value).__name__ == "Column" and type(value).__module__.partition(".")[0] == "pyspark"


def column_fix(value: object) -> str | None:
    """The fix for a PySpark Column that was passed in place of text; None for other values."""
    if not _is_pyspark_column(value):
        return None
    return (
        'write it as Spark SQL text, "amount > 0", or with the columns of Helios: from helios import col, and '
        'col("amount") > 0. A callable from DataFrame to DataFrame is a step too.'
    )


def texts(values: Sequence[str], call: str) -> tuple[str, ...]:
    """Returns the arguments of a step as a tuple. Refuses arguments that are not text, and empty text."""
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise DeclarationError(
                f"{call} takes text, not {shown(value)}.",
                where=caller(),
                fix=column_fix(value) or "pass column names or SQL expressions as text.",
            )
    return tuple(values)


def expression(value: SqlText, call: str) -> str:
    """Returns the SQL text of an expression. Refuses an empty one."""
    return text(sql_text(value), call)


def expression_texts(values: Sequence[SqlText], call: str) -> tuple[str, ...]:
    """Returns the SQL texts of a step's expressions. Refuses empty ones."""
    return texts([sql_text(value) for value in values], call)


def count(value: Number, argument: str) -> Number:
    """Returns a positive whole number or None unchanged. Refuses other values."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise DeclarationError(f"{argument}={value!r} must be a positive whole number.", where=caller())
    return value


def columns_ddl(schema: str | Mapping[str, str] | None) -> str | None:
    """Returns columns as Spark SQL DDL: converts a mapping of names to types, and returns text and None unchanged."""
    if not isinstance(schema, Mapping):
        return schema
    for name, kind in schema.items():
        if not isinstance(name, str) or not isinstance(kind, str):
            raise DeclarationError(
                f"schema={{{name!r}: {kind!r}}}: a column and its type must both be text.",
                where=caller(),
                fix='write {"id": "bigint"}.',
            )
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in schema.items())


def flag(value: bool, call: str) -> bool:
    """Returns True or False unchanged. Refuses other values."""
    if not isinstance(value, bool):
        raise DeclarationError(f"{call} takes True or False, not {value!r}.", where=caller())
    return value


def one_of(value: Word, known: Iterable[str], call: str) -> Word:
    """Returns a name unchanged. Refuses a name that is not one of the known names."""
    names = tuple(known)
    if value not in names:
        raise DeclarationError(f"{call}({value!r}) is unknown. {near_miss(str(value), names)}", where=caller())
    return value


def key_columns(keys: Sequence[str | Sequence[str]], call: str) -> tuple[str, ...]:
    """Returns the names of key columns. Refuses an empty list, and a name that occurs twice."""
    named = tuple(text(key, call) for key in listed(keys))
    if not named or len({key.lower() for key in named}) != len(named):
        raise DeclarationError(f"{call} needs key columns, each once.", where=caller(), fix=f'write {call}("id").')
    return named
