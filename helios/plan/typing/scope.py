"""Name resolution: the columns, qualifiers, aliases and variables that an expression may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from helios.plan.typing.schema import Schema
from helios.plan.typing.types import UNKNOWN, SparkType, array

Node: TypeAlias = Any
"""An expression of sqlglot."""


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use.

    Args:
        schema: The columns; None if they are known only at run time.
        qualifiers: The names by which a query may qualify columns, in lower case, such as `t` in `t.id`.
        aliases: The types of the columns further left in the same SELECT, by name in lower case.
        variables: The types of the variables of lambda functions, by name in lower case.
    """

    schema: Schema | None
    qualifiers: frozenset[str] = frozenset()
    aliases: Mapping[str, SparkType] = field(default_factory=dict)
    variables: Mapping[str, SparkType] = field(default_factory=dict)

    def root(self, parts: list[str]) -> tuple[SparkType | None, list[str]]:
        """Resolves a dotted name: the type of the column or alias, None if unknown, and the nested field's path."""
        if self.schema is not None:
            if len(parts) > 1 and parts[0].lower() in self.qualifiers and self.schema.get(parts[1]):
                parts = parts[1:]
            column = self.schema.get(parts[0])
            if column is not None:
                return column.kind, parts[1:]
        return self.aliases.get(parts[0].lower()), parts[1:]


def member(kind: SparkType, name: str) -> SparkType | None:
    """The type of `kind.name`: a field of a struct or of structs in an array, or a map's value; None if missing."""
    if kind.name == "struct":
        return kind.field(name)
    if kind.name == "array" and kind.parts[0].name == "struct":
        inner = kind.parts[0].field(name)
        return array(inner) if inner else None
    return kind.parts[1] if kind.name == "map" else UNKNOWN
