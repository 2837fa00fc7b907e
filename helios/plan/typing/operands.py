"""Finds operands whose types Spark certainly refuses, such as in `amount + ts`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from helios.errors import DeclarationError, HeliosError, Origin
from helios.plan.typing.expression import missing_column_problems
from helios.plan.typing.functions import unknown_functions
from helios.plan.typing.results import DATETIMES
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.scope import Node, Scope
from helios.plan.typing.types import NUMERIC, SparkType

_TIME, _NUMBER = "a time", "a number"
_CLASSES = {
    **dict.fromkeys(NUMERIC, _NUMBER),
    **dict.fromkeys(DATETIMES, _TIME),
    **{name: name for name in ("boolean", "binary", "array", "map", "struct")},
}
"""The class of each type: Spark converts types of the same class into each other. Strings and intervals have no class,
because Spark converts them to many other types."""
_DAYS = ("tinyint", "smallint", "int")
"""The integer types that can be added to a date, as a number of days."""
_SIGNS = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Div": "/",
    "Mod": "%",
    "IntDiv": "div",
    "EQ": "=",
    "NEQ": "<>",
    "GT": ">",
    "GTE": ">=",
    "LT": "<",
    "LTE": "<=",
    "NullSafeEQ": "<=>",
    "And": "AND",
    "Or": "OR",
    "Not": "NOT",
    "Neg": "-",
}

LOGIC_FIX = 'write a condition in its place, such as "amount > 0".'
TIME_FIX = 'add an interval, as in "ts + INTERVAL 1 HOUR", or make the time a number, as in "unix_timestamp(ts)".'


def expression_problems(node: Node, scope: Scope, named: str, where: Origin | None) -> list[HeliosError]:
    """The problems of a parsed expression: missing columns, unknown functions, operands that Spark refuses.

    Args:
        scope: The names that the expression may use.
        named: The name of the expression in messages.
        where: The line to blame.
    """
    absent: list[HeliosError] = [*missing_column_problems(node, scope, named, where), *_bare_dates(node, named, where)]
    return [*(absent or _mismatches(node, scope, named, where)), *unknown_functions(node, named, where)]


def _bare_dates(node: Node, named: str, where: Origin | None) -> list[HeliosError]:
    """The problems of dates without quotes, which SQL reads as subtractions."""
    from sqlglot import exp

    problems: dict[str, HeliosError] = {}
    for difference in node.find_all(exp.Sub):
        match = re.fullmatch(r"((?:19|20)\d\d) - (0?[1-9]|1[0-2]) - (0?[1-9]|[12]\d|3[01])", difference.sql("spark"))
        if match is None:
            continue
        year, month, day = match.groups()
        number = int(year) - int(month) - int(day)
        message = f"{named}: {year}-{month}-{day} is the number {number} in SQL, not a date."
        fix = f"write DATE '{year}-{month:>02}-{day:>02}'."
        problems.setdefault(message, DeclarationError(message, where=where, fix=fix))
    return list(problems.values())


def _mismatches(node: Node, scope: Scope, named: str, where: Origin | None) -> list[HeliosError]:
    """A problem for each operation whose operands Spark refuses."""
    from sqlglot import exp

    problems: dict[str, HeliosError] = {}
    # The names in a subquery refer to other columns.
    for operation in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        refuses = _REFUSES.get(type(operation).__name__)
        operands = filter(None, (operation.this, operation.args.get("expression")))
        kinds = [safe_kind_of(operand, scope) for operand in operands]
        if refuses is None or any(kind.name not in _CLASSES for kind in kinds) or not refuses(*kinds):
            continue
        sign = _SIGNS[type(operation).__name__]
        types = f" {sign} ".join(map(str, kinds)) if len(kinds) > 1 else f"{sign} {kinds[0]}"
        time = any(kind.name in DATETIMES for kind in kinds)
        message = f"{named}: Spark has no {types}, as in {operation.sql('spark')!r}."
        fix = TIME_FIX if time else "convert one operand, as in cast(name AS double)."
        if refuses is _logic_refused:
            fix = LOGIC_FIX
        problems.setdefault(message, DeclarationError(message, where=where, fix=fix))
    return list(problems.values())


def _arithmetic_refused(operator: str) -> Callable[[SparkType, SparkType], bool]:
    """Returns a function that is true if Spark refuses an arithmetic operator between two types."""

    def refused(left: SparkType, right: SparkType) -> bool:
        classes = _CLASSES[left.name], _CLASSES[right.name]
        if classes == (_NUMBER, _NUMBER):
            return False
        if classes == (_TIME, _TIME):
            return operator != "Sub"
        if left.name == "date" and right.name in _DAYS:
            return operator not in ("Add", "Sub")
        return not (operator == "Add" and right.name == "date" and left.name in _DAYS)

    return refused


def _comparison_refused(left: SparkType, right: SparkType) -> bool:
    """True if Spark refuses a comparison. Without ANSI, a number and a boolean can be compared."""
    classes = {_CLASSES[left.name], _CLASSES[right.name]}
    return len(classes) > 1 and classes != {_NUMBER, "boolean"}


def _logic_refused(*kinds: SparkType) -> bool:
    return any(kind.name != "boolean" for kind in kinds)


def _minus_refused(kind: SparkType) -> bool:
    return kind.name not in NUMERIC


_REFUSES: Mapping[str, Callable[..., bool]] = {
    **{name: _arithmetic_refused(name) for name in ("Add", "Sub", "Mul", "Div", "Mod", "IntDiv")},
    **dict.fromkeys(("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "NullSafeEQ"), _comparison_refused),
    **dict.fromkeys(("And", "Or", "Not"), _logic_refused),
    "Neg": _minus_refused,
}
"""For the name of each class in sqlglot: a function that is true if Spark refuses operands of these types, both with
and without ANSI mode."""
