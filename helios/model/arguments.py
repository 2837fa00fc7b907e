"""Checks of the arguments of sources and sinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from helios.errors import DeclarationError, near_miss
from helios.model.expressions import SqlText, sql_text
from helios.model.values import caller

Word = TypeVar("Word", bound=str)
Number = TypeVar("Number", bound="int | None")
TimestampUnit: TypeAlias = Literal["s", "ms", "us"]

TIMESTAMPS: Mapping[str, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}
"""The values of `timestamps=`, each with the unit of a JSON number that is a timestamp."""

RESERVED_BY_ICEBERG = ("_file", "_partition")
"""Metadata fields whose names Iceberg reserves: a table cannot have a column of that name."""


def text_pairs(properties: Mapping[str, str], what: str) -> tuple[tuple[str, str], ...]:
    """The pairs of a mapping, checked: keys and values are text, and no key begins with `helios.`."""
    check_mapping(properties, what, '{"key": "value"}')
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DeclarationError(
                f"{what}: {key!r}: {value!r} must both be text.", where=caller(), fix=f'write {{"{key}": "{value}"}}.'
            )
        if key.startswith("helios."):
            raise DeclarationError(f"{what}: {key!r} is reserved for Helios.", where=caller(), fix="use another key.")
    return tuple(properties.items())


def check_mapping(value: object, call: str, example: str) -> None:
    """Refuses an argument that must be a mapping and is not.

    Args:
        value: The argument.
        call: The name of the call.
        example: A mapping that the call takes, as Python text.

    Raises:
        DeclarationError: The argument is not a mapping.
    """
    if not isinstance(value, Mapping):
        raise DeclarationError(
            f"{call} takes a mapping, not {shown(value)}.", where=caller(), fix=f"write {call}({example})."
        )


def listed(values: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a call that takes names one by one or as one list.

    Examples:
        >>> listed(("a", "b")), listed((["a", "b"],))
        (('a', 'b'), ('a', 'b'))
    """
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (list, tuple)) else tuple(values)


def metadata_columns(
    names: Sequence[Any], columns: Mapping[str, str], known: Iterable[str]
) -> tuple[tuple[str, str], ...]:
    """The columns that `.with_metadata` adds, each with its content.

    Args:
        names: Metadata fields, one by one or as one list. They name their columns, with `_source` before a name that
            Iceberg reserves.
        columns: Names of columns, each with the metadata field that the column stores.
        known: The metadata fields of the source.

    Raises:
        DeclarationError: An unknown field, or no field.

    Examples:
        >>> metadata_columns(["_file", "_modified"], {"came": "_arrived"}, ["_file", "_modified", "_arrived"])
        (('_source_file', '_file'), ('_modified', '_modified'), ('came', '_arrived'))
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


def text(value: str, what: str) -> str:
    """A text, checked: it must not be empty."""
    if not isinstance(value, str) or not value.strip():
        raise DeclarationError(
            f"{what} takes text, not {shown(value)}.", where=caller(), fix=column_fix(value) or "write it in quotes."
        )
    return value


def shown(value: object) -> str:
    """A value as messages show it. The text of a PySpark Column needs a running Spark, so its class is named."""
    return "a Column of PySpark" if _is_column(value) else repr(value)


def _is_column(value: object) -> bool:
    return type(value).__name__ == "Column" and type(value).__module__.partition(".")[0] == "pyspark"


def column_fix(value: object) -> str | None:
    """The fix for a PySpark Column that was passed in place of text; None for other values."""
    if not _is_column(value):
        return None
    return (
        'write it as Spark SQL text, "amount > 0", or with the columns of Helios: from helios import col, and '
        'col("amount") > 0. A callable from DataFrame to DataFrame is a step too.'
    )


def texts(values: Sequence[str], what: str) -> tuple[str, ...]:
    """The arguments of a step, checked: each must be a text that is not empty."""
    for value in values:
        if not isinstance(value, str) or not value.strip():
            raise DeclarationError(
                f"{what} takes text, not {shown(value)}.",
                where=caller(),
                fix=column_fix(value) or "pass column names or SQL expressions as text.",
            )
    return tuple(values)


def expression(value: SqlText, what: str) -> str:
    """The text of an expression, checked: it must not be empty."""
    return text(sql_text(value), what)


def expression_texts(values: Sequence[SqlText], what: str) -> tuple[str, ...]:
    """The texts of the expressions of a step, checked: none may be empty."""
    return texts([sql_text(value) for value in values], what)


def count(value: Number, what: str) -> Number:
    """A positive whole number or None, checked."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise DeclarationError(f"{what}={value!r} must be a positive whole number.", where=caller())
    return value


def columns_ddl(schema: str | Mapping[str, str] | None) -> str | None:
    """Columns as Spark SQL DDL. A mapping of names to types is converted; text and None stay as they are."""
    return ", ".join(f"`{name}` {kind}" for name, kind in schema.items()) if isinstance(schema, Mapping) else schema


def flag(value: bool, what: str) -> bool:
    """A value, checked: it must be True or False."""
    if not isinstance(value, bool):
        raise DeclarationError(f"{what} takes True or False, not {value!r}.", where=caller())
    return value


def one_of(value: Word, known: Iterable[str], what: str) -> Word:
    """A name, checked: it must be one of the known names."""
    names = tuple(known)
    if value not in names:
        raise DeclarationError(f"{what}({value!r}) is unknown. {near_miss(str(value), names)}", where=caller())
    return value


def key_columns(keys: Sequence[str | Sequence[str]], what: str) -> tuple[str, ...]:
    """Key columns, checked: at least one, each once."""
    named = tuple(text(key, what) for key in listed(keys))
    if not named or len({key.lower() for key in named}) != len(named):
        raise DeclarationError(f"{what} needs key columns, each once.", where=caller(), fix=f'write {what}("id").')
    return named
