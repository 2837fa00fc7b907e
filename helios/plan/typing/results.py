"""The result types of functions, by the types of their arguments."""

from __future__ import annotations

from collections.abc import Iterable

from helios.plan.typing.fixed import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP
from helios.plan.typing.types import INTEGRAL, MAX_PRECISION, NUMERIC, UNKNOWN, SparkType, decimal, struct

DATETIMES = ("date", "timestamp", "timestamp_ntz")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFWEEK", "DOY", "HOUR", "MINUTE")


def summed(kind: SparkType) -> SparkType:
    """The type of SUM.

    Examples:
        >>> str(summed(SparkType("int"))), str(summed(decimal(10, 2)))
        ('bigint', 'decimal(20,2)')
    """
    if kind.name == "decimal":
        return decimal(min(kind.numbers[0] + 10, MAX_PRECISION), kind.numbers[1])
    if kind.name in INTEGRAL:
        return BIGINT
    return DOUBLE if kind.name in ("float", "double") else UNKNOWN


def averaged(kind: SparkType) -> SparkType:
    """The type of AVG."""
    if kind.name == "decimal":
        return decimal(*(min(n + 4, MAX_PRECISION) for n in kind.numbers))
    return DOUBLE if kind.name in NUMERIC else UNKNOWN


def rounded(kind: SparkType, digits: int) -> SparkType:
    """The type of a decimal rounded to a number of digits: Spark's `RoundBase` caps the precision, not the scale.

    Examples:
        >>> str(rounded(decimal(38, 18), 18)), str(rounded(decimal(10, 2), -1)), str(rounded(decimal(3, 2), -5))
        ('decimal(38,18)', 'decimal(9,0)', 'decimal(6,0)')
    """
    precision, scale = kind.numbers
    whole_digits = precision - scale + 1
    if digits < 0:
        return decimal(min(max(whole_digits, 1 - digits), MAX_PRECISION), 0)
    kept = min(scale, digits)
    return decimal(min(whole_digits + kept, MAX_PRECISION), kept)


def floored(kind: SparkType) -> SparkType:
    """The type of FLOOR and CEIL of a number."""
    if kind.name != "decimal":
        return BIGINT
    precision, scale = kind.numbers
    return decimal(precision - scale + 1, 0) if scale else kind


def concatenated(kinds: Iterable[SparkType]) -> SparkType:
    """The type of CONCAT and ||."""
    distinct = set(kinds)
    names = {kind.name for kind in distinct}
    if len(distinct) == 1 and names <= {"array", "binary"}:
        return distinct.pop()
    uncertain = names & {"array", "unknown"} or names <= {"binary", "void"}
    return UNKNOWN if uncertain else STRING


def extracted(unit: str, kind: SparkType) -> SparkType:
    """The type of EXTRACT of a unit from a date or a timestamp."""
    if kind.name not in DATETIMES:
        return UNKNOWN
    if unit.upper() in ("SECOND", "SECONDS", "SEC", "S"):
        return decimal(8, 6)
    return INT if unit.upper() in _UNITS else UNKNOWN


def shifted(moment: SparkType, unit: str | None) -> SparkType:
    """The type of a date or timestamp plus or minus an interval; the unit is None if the interval has several units."""
    if moment.name in ("timestamp", "timestamp_ntz"):
        return moment
    if unit in ("DAY", "MONTH", "YEAR"):
        return DATE
    return TIMESTAMP if unit in ("HOUR", "MINUTE", "SECOND") else UNKNOWN


def window_of(kind: SparkType) -> SparkType:
    """The struct of a time window over a column of a type."""
    bound = window_bound(kind)
    return struct([("start", bound), ("end", bound)]) if bound != UNKNOWN else UNKNOWN


def window_bound(kind: SparkType) -> SparkType:
    """The type of a time window's start and end over a column of a type."""
    if kind.name == "timestamp_ntz":
        return kind
    return TIMESTAMP if kind.name in ("timestamp", "date", "string") else UNKNOWN
