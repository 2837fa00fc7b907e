"""Checks the literals in a filter over a table: each must fit the type of the compared column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from helios.errors import InputError

if TYPE_CHECKING:
    from sqlglot import exp

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""The width of each integer type."""
DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
DATE_TEXT = re.compile(r"(\d{4,})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](?P<time>.*))?)?)?")
"""A date, with or without a time of day, as Spark casts it from text: 2026, 2026-1, 2026-01-05, 2026-01-05 09:30."""
TIME_OF_DAY = re.compile(r"\d{1,2}(:\d{1,2}(:\d{1,2}(\.\d*)?\s*([A-Za-z+-].*)?)?)?|")
"""The time of day after a date, or nothing. Spark accepts a time zone only after seconds."""
TIME_ALONE = re.compile(r"T?\d{1,2}:.*")
"""A time of day without a date; Spark adds the date of today."""
MOMENT_WORDS = ("epoch", "now", "today", "tomorrow", "yesterday")
"""The words that Spark casts to a date or a timestamp."""
BOOLEANS = ("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0")
"""The texts that Spark casts to a boolean."""
EXAMPLES = {"date": "'2026-01-05'", "timestamp": "'2026-01-05 09:30:00'", "timestamp_ntz": "'2026-01-05 09:30:00'"}
"""For each type of dates and times, the literal that an error suggests."""


def refuse_values(parsed: Any, columns: Mapping[str, str], option: str) -> None:
    """Rejects a literal that Spark cannot compare with the column beside it.

    Nested columns and other expressions are not checked here: Spark checks them.

    Args:
        parsed: The filter, parsed by sqlglot.
        columns: The types of the columns, by their names in lower case.
        option: The command-line option that has the filter, for messages.

    Raises:
        InputError: A literal does not fit the type of its column; the fix has a literal that does.

    Examples:
        >>> from sqlglot import parse_one
        >>> refuse_values(parse_one("id >= -9223372036854775808", dialect="spark"), {"id": "bigint"}, "--where")
        >>> refuse_values(parse_one("day >= '2026-02-30'", dialect="spark"), {"day": "date"}, "--where")
        Traceback (most recent call last):
        ...
        helios.errors.InputError: --where, day: '2026-02-30' is not a date. Fix: write day >= '2026-01-05'.
    """
    for comparison, column, value in _comparisons(parsed):
        kind = columns.get(column.name.lower(), "") if len(column.parts) == 1 else ""
        sign = "-" if value.parent is not None and value.parent.key == "neg" else ""
        if kind and (why := why_misfit(kind, sign + value.this, is_text=value.is_string)):
            shown = sign + value.sql("spark")
            raise InputError(
                f"{option}, {column.name}: {shown} is {why}.",
                fix=_fix(comparison, column, value, kind),
            )


def why_misfit(kind: str, value: str, *, is_text: bool) -> str:
    """Why a value does not fit a type; empty if it fits, or if only Spark can tell.

    Examples:
        >>> why_misfit("date", "yesterdy", is_text=True), why_misfit("date", "2026-1-5", is_text=True)
        ('not a date', '')
        >>> why_misfit("bigint", "12x", is_text=True), why_misfit("string", "5", is_text=False)
        ('not a whole number', 'a number and not a text')
        >>> why_misfit("int", "2147483648", is_text=False), why_misfit("decimal(4,2)", "-100", is_text=True)
        ('not an int (at most 2147483647)', 'not a decimal(4,2) (at least -99.99)')
    """
    if not is_text:
        return _why_out_of_range(kind, value) or {
            "date": "a number and not a date",
            "timestamp": "a number and not a time",
            "timestamp_ntz": "a number and not a time",
            "string": "a number and not a text",
            "boolean": "a number and not true or false",
            "binary": "a number and not bytes",
        }.get(kind, "")
    text = value.strip()
    if kind in EXAMPLES:
        fits = (
            text.lower() in MOMENT_WORDS
            or _is_date(text, timed=kind != "date")
            or (kind != "date" and TIME_ALONE.fullmatch(text) is not None)
        )
        return "" if fits else "not a date" if kind == "date" else "not a time"
    if kind in BITS:
        return _why_out_of_range(kind, text) if re.fullmatch(r"[+-]?\d+", text) else "not a whole number"
    if kind.startswith("decimal"):
        return _why_out_of_range(kind, text) if _is_number(text) else "not a number"
    return "not true or false" if kind == "boolean" and text.lower() not in BOOLEANS else ""


def _is_date(text: str, *, timed: bool) -> bool:
    """True if a text is a date, or a date with a time of day.

    For a timestamp (`timed`), Spark parses the time of day, too; for a date, it ignores that part.
    """
    match = DATE_TEXT.fullmatch(text)
    if match is None or (timed and TIME_OF_DAY.fullmatch(match["time"] or "") is None):
        return False
    year, month, day = (int(part) if part else 1 for part in match.groups()[:3])
    with suppress(ValueError):
        # Spark also has the years that Python lacks. 2000 is a leap year, so the 29th of February is accepted.
        return bool(date(year if 1 <= year <= 9999 else 2000, month, day))
    return False


def _why_out_of_range(kind: str, value: str) -> str:
    """Why a number is beyond the range of a numeric type; empty if it is not."""
    if not _is_number(value):
        return ""
    number = Decimal(value)
    if kind in BITS:
        limit = 2 ** (BITS[kind] - 1)
        low, high = str(-limit), str(limit - 1)
        beyond = not -limit <= number <= limit - 1
    elif (match := DECIMAL.fullmatch(kind)) is not None:
        digits, scale = map(int, match.groups())
        high = ("9" * (digits - scale) or "0") + (f".{'9' * scale}" if scale else "")
        low = f"-{high}"
        beyond = number.copy_abs() >= 10 ** (digits - scale)
    else:
        return ""
    bound = f"at most {high}" if number > 0 else f"at least {low}"
    return f"not {'an' if kind == 'int' else 'a'} {kind} ({bound})" if beyond else ""


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def _comparisons(parsed: Any) -> Iterator[tuple[exp.Expression, exp.Column, exp.Literal]]:
    """Yields each comparison of a plain column with a literal: the comparison, the column and the literal."""
    from sqlglot import exp

    kinds = (exp.EQ, exp.NullSafeEQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.In, exp.Between)
    for comparison in parsed.find_all(*kinds):
        parts = list(comparison.iter_expressions())
        columns = [part for part in parts if isinstance(part, exp.Column)]
        values = [value for value in map(_literal, parts) if value is not None]
        yield from ((comparison, column, value) for column in columns[:1] for value in values)


def _literal(part: Any) -> exp.Literal | None:
    """The literal in an operand, also in `DATE '2026-01-05'` and in a negative number; None for other operands."""
    from sqlglot import exp

    of_time = isinstance(part, exp.Cast) and part.to.this.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ")
    inner = part.this if of_time or isinstance(part, exp.Neg) else part
    return inner if isinstance(inner, exp.Literal) else None


def _fix(comparison: exp.Expression, column: exp.Column, value: exp.Literal, kind: str) -> str:
    """The fix: the same comparison with a literal that fits."""
    number = value.this if not value.is_string else ""
    fitting = EXAMPLES.get(kind) or {"string": f"'{number}'", "boolean": "true"}.get(kind, "42")
    signs = {"EQ": "=", "NullSafeEQ": "<=>", "NEQ": "<>", "GT": ">", "GTE": ">=", "LT": "<", "LTE": "<="}
    sign = signs.get(type(comparison).__name__, ">=" if kind in EXAMPLES else "=")
    return f"write {column.name} {sign} {fitting}."
