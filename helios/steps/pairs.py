"""Columns by name, with an expression or a type each, as most steps take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import texts
from helios.model.values import caller

Pairs: TypeAlias = "tuple[tuple[str, str], ...]"


def named(values: Mapping[str, str] | None, what: str, more: Mapping[str, str] | None = None) -> Pairs:
    """The columns that a call names, by a mapping or by keywords.

    Args:
        values: The mapping.
        what: The call.
        more: The keywords.

    Raises:
        DeclarationError: It names none, or they are no texts.
    """
    if values is not None and not isinstance(values, Mapping):
        raise DeclarationError(
            f"{what} takes columns by name, not {values!r}.", where=caller(), fix=f'name it: {what}(..., n="{values}").'
        )
    values = {**(values or {}), **(more or {})}
    if not values:
        raise DeclarationError(f"{what} needs at least one column.", where=caller())
    texts(list(values), what)
    texts(list(values.values()), what)
    return tuple(values.items())


def shown(pairs: Pairs) -> str:
    """Pairs as the plan shows them."""
    return ", ".join(f"{name}={expression}" for name, expression in pairs)


def expressions(pairs: Pairs) -> tuple[str, ...]:
    """The second of each pair."""
    return tuple(expression for _, expression in pairs)
