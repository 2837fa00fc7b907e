"""Operands whose types Spark certainly refuses, such as `amount + ts`; in doubt there is no problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from helios.errors import DeclarationError, HeliosError, Origin
from helios.plan.typing.expression import missing
from helios.plan.typing.functions import unknown_functions
from helios.plan.typing.results import DATETIMES
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.scope import Node, Scope
from helios.plan.typing.types import NUMERIC, SparkType

_TIME, _NUMBER = "a time", "a number"
_SORTS = {
    **dict.fromkeys(NUMERIC, _NUMBER),
    **dict.fromkeys(DATETIMES, _TIME),
    **{name: name for name in ("boolean", "binary", "array", "map", "struct")},
}
"""Types that Spark converts into one another, by what they are; text and intervals fit too many others to tell."""
_DAYS = ("tinyint", "smallint", "int")
"""Numbers that a date takes as days."""
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
}
_SIGNS |= {"GTE": ">=", "LT": "<", "LTE": "<=", "NullSafeEQ": "<=>", "And": "AND", "Or": "OR", "Not": "NOT", "Neg": "-"}

TIME_FIX = 'add an interval, as in "ts + INTERVAL 1 HOUR"; take a number of it, as in "unix_timestamp(ts)".'


def faults(node: Node, scope: Scope, named: str, where: Origin | None) -> list[HeliosError]:
    """The problems of an expression that is parsed: missing columns, unknown functions, operands that do not fit.

    Args:
        node: The expression.
        scope: The names that it may use.
        named: How messages name it.
        where: The line to blame.
    """
    absent: list[HeliosError] = [*missing(node, scope, named, where), *_bare_dates(node, named, where)]
    return [*(absent or _mismatches(node, scope, named, where)), *unknown_functions(node, named, where)]


def _bare_dates(node: Node, named: str, where: Origin | None) -> list[HeliosError]:
    """Dates without quotes, which SQL reads as subtractions."""
    from sqlglot import exp

    problems: dict[str, HeliosError] = {}
    for difference in node.find_all(exp.Sub):
        match = re.fullmatch(r"((?:19|20)\d\d) - (0?[1-9]|1[0-2]) - (0?[1-9]|[12]\d|3[01])", difference.sql("spark"))
        if match is None:
            continue
        year, month, day = match.groups()
        what = f"{named}: {year}-{month}-{day} is the number {int(year) - int(month) - int(day)} in SQL, and no date."
        fix = f"write DATE '{year}-{month:>02}-{day:>02}'."
        problems.setdefault(what, DeclarationError(what, where=where, fix=fix))
    return list(problems.values())


def _mismatches(node: Node, scope: Scope, named: str, where: Origin | None) -> list[HeliosError]:
    from sqlglot import exp

    problems: dict[str, HeliosError] = {}
    # A subquery has columns of its own.
    for operation in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        rule = _REFUSES.get(type(operation).__name__)
        kinds = [
            safe_kind_of(part, scope) for part in (operation.this, operation.args.get("expression")) if part is not None
        ]
        if rule is None or any(kind.name not in _SORTS for kind in kinds) or not rule(*kinds):
            continue
        sign = _SIGNS[type(operation).__name__]
        types = f" {sign} ".join(map(str, kinds)) if len(kinds) > 1 else f"{sign} {kinds[0]}"
        time = any(kind.name in DATETIMES for kind in kinds)
        what = f"{named}: Spark has no {types}, as in {operation.sql('spark')!r}."
        fix = TIME_FIX if time else "convert one side, as in cast(name AS double)."
        problems.setdefault(what, DeclarationError(what, where=where, fix=fix))
    return list(problems.values())


def _calculates(sign: str) -> Callable[[SparkType, SparkType], bool]:
    """A test that is true if arithmetic with a sign is refused."""

    def refused(left: SparkType, right: SparkType) -> bool:
        sorts = _SORTS[left.name], _SORTS[right.name]
        if sorts == (_NUMBER, _NUMBER):
            return False
        if sorts == (_TIME, _TIME):
            return sign != "Sub"
        days = left.name == "date" and right.name in _DAYS
        return not (days and sign in ("Add", "Sub")) and not (
            sign == "Add" and right.name == "date" and left.name in _DAYS
        )

    return refused


def _compares(left: SparkType, right: SparkType) -> bool:
    """True if a comparison is refused. A number and a boolean can be compared without ANSI."""
    sorts = {_SORTS[left.name], _SORTS[right.name]}
    return len(sorts) > 1 and sorts != {_NUMBER, "boolean"}


def _decides(*kinds: SparkType) -> bool:
    """True if AND, OR or NOT is refused."""
    return any(kind.name != "boolean" for kind in kinds)


def _negates(kind: SparkType) -> bool:
    return kind.name not in NUMERIC


_REFUSES: Mapping[str, Callable[..., bool]] = {
    **{name: _calculates(name) for name in ("Add", "Sub", "Mul", "Div", "Mod", "IntDiv")},
    **dict.fromkeys(("EQ", "NEQ", "GT", "GTE", "LT", "LTE", "NullSafeEQ"), _compares),
    **dict.fromkeys(("And", "Or", "Not"), _decides),
    "Neg": _negates,
}
"""By the name of sqlglot's class: whether Spark refuses operands of these types, with ANSI and without."""
