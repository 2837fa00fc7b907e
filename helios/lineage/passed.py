"""Finds the columns that steps pass on unchanged from the source, by the texts of the steps in a kept plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helios.sources.common.lookup import SourceLookup
from helios.table.step_texts import RAW_OR_COMMENT, split_arguments


def source_column(steps: Sequence[str], column: str) -> tuple[str, None] | tuple[None, str]:
    """Finds the column of the source that the steps pass on as a column of the table.

    Args:
        steps: The steps as the plan shows them, from the source to the sink.

    Returns:
        The column of the source and None; or None and the step that may compute the column.

    Examples:
        >>> source_column(["where(id > 0)", "select(other_id AS id, name)"], "id")
        ('other_id', None)
        >>> source_column(["with_columns(id=id + 1)"], "id")
        (None, 'with_columns(id=id + 1)')
    """
    for step in reversed(steps):
        call, _, rest = step.partition("(")
        rule = RULES.get(call, _unknown)
        # `split_arguments` cannot split a step whose text has raw strings or comments.
        source = (
            None
            if rule is not _same and RAW_OR_COMMENT.search(step)
            else rule(split_arguments(rest.removesuffix(")")), column)
        )
        if source is None:
            return None, step
        column = source
    return column, None


def key_in_source(steps: Sequence[str] | None, key: Mapping[str, Any]) -> tuple[Mapping[str, Any], SourceLookup | None]:
    """Translates a key to the columns of the source, or returns why its rows cannot be looked up there.

    Args:
        steps: The steps as the plan shows them; None if no plan is stored.

    Returns:
        The translated key and None; or an empty key, and a look-up result without rows, whose note says the reason.
    """
    if not key:
        return key, None
    if steps is None:
        return {}, SourceLookup(
            by=tuple(key), note="the rows of the source are not looked up: the plan with the steps is not kept."
        )
    by_source: dict[str, Any] = {}
    for column, value in key.items():
        source, step = source_column(steps, column)
        if source is None:
            return {}, SourceLookup(
                by=(column,), note=f"the rows of the source are not looked up: {step} may compute {column}."
            )
        by_source[source] = value
    return by_source, None


_NAMED = re.compile(r"(?:(?:(?:`[^`]+`|\w+)\.)*|.*\sAS\s+)(`[^`]+`|\w+)", re.IGNORECASE | re.DOTALL)
"""An argument of `select` whose name in the result is certain: a column, a field, or an expression with AS."""


VALUES = ("null", "true", "false", "current_date", "current_timestamp", "current_user", "localtimestamp", "user")
"""SQL values that look like names of columns."""


def _same(parts: list[str], column: str) -> str | None:
    return column


def _unknown(parts: list[str], column: str) -> str | None:
    return None


def _is_column(expression: str) -> bool:
    """True if an expression is the name of a column, and not a value that looks like one."""
    return expression.isidentifier() and expression.lower() not in VALUES


def _assigned(parts: list[str], column: str) -> str | None:
    """The source of a column after `with_columns`: the assigned column or itself; None if the step computes it."""
    for part in parts:
        name, _, expression = part.partition("=")
        if name.lower() == column.lower():
            return expression if _is_column(expression) else None
    return column


def _cast(parts: list[str], column: str) -> str | None:
    return None if any(part.partition("=")[0].lower() == column.lower() for part in parts) else column


def _selected(parts: list[str], column: str) -> str | None:
    for part in parts:
        plain = part.strip("`")
        if plain.lower() == column.lower():
            return plain
        words = part.split()
        if words[1:2] and words[-2].upper() == "AS" and words[-1].strip("`").lower() == column.lower():
            source = " ".join(words[:-2]).strip("`")
            return source if _is_column(source) else None
    others = [_NAMED.fullmatch(part) for part in parts if part != "*"]
    certain = all(other is not None and other[1].strip("`").lower() != column.lower() for other in others)
    return column if "*" in parts and certain else None  # an argument whose name is not certain may have this name


def _renamed(parts: list[str], column: str) -> str | None:
    # Spark applies the renames in order: a later one sees the new names.
    for old, new in reversed([part.split(" -> ") for part in parts if " -> " in part]):
        if new.lower() == column.lower():
            column = old
        elif old.lower() == column.lower():
            return None  # after the step, no column has the old name
    return column


def _exploded(parts: list[str], column: str) -> str | None:
    return None if f"as_={column}".lower() in map(str.lower, parts) else column


def _grouped(parts: list[str], column: str) -> str | None:
    """The source of a column after `aggregate`, whose first argument lists the group columns."""
    return column if column in split_arguments(parts[0].strip("[]")) else None


RULES: Mapping[str, Callable[[list[str], str], str | None]] = {
    "where": _same,
    "expect": _same,
    "dedupe": _same,
    "sample": _same,
    "watermark": _same,
    "drop": _same,
    "cast": _cast,
    "with_columns": _assigned,
    "select": _selected,
    "rename": _renamed,
    "explode": _exploded,
    "aggregate": _grouped,
}
"""For each step, the function that returns the source of a column, or None if the step may compute the column. A step
that is not listed may compute every column."""
