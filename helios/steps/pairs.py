"""Pairs of a column's name and its expression or type. Most steps are declared with these pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import expression_texts
from helios.model.expressions import SqlText
from helios.model.values import caller

Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


def column_pairs(
    values: Mapping[str, SqlText] | None, call: str, keywords: Mapping[str, SqlText] | None = None
) -> Pairs:
    """The pairs that a call declares, in a mapping or as keyword arguments.

    Raises:
        DeclarationError: The call names no column, or a name or a value is not text.
    """
    if values is not None and not isinstance(values, Mapping):
        raise DeclarationError(
            f"{call} takes columns by name, not {values!r}.", where=caller(), fix=f'name it: {call}(..., n="{values}").'
        )
    values = {**(values or {}), **(keywords or {})}
    if not values:
        raise DeclarationError(f"{call} needs at least one column.", where=caller())
    checked = expression_texts([*values, *values.values()], call)
    return tuple(zip(values, checked[len(values) :], strict=True))


def shown(pairs: Pairs) -> str:
    """The text that plans show for pairs."""
    return ", ".join(f"{name}={expression}" for name, expression in pairs)


def expressions(pairs: Pairs) -> tuple[str, ...]:
    return tuple(expression for _, expression in pairs)
