"""Spark's types of number literals and of decimal arithmetic."""

from __future__ import annotations

from decimal import Decimal

from helios.plan.typing.types import MAX_PRECISION, UNKNOWN, SparkType, decimal


def number_type(text: str) -> SparkType:
    """The type of a number literal.

    Examples:
        >>> str(number_type("1")), str(number_type("3000000000")), str(number_type("1.50")), str(number_type("1e3"))
        ('int', 'bigint', 'decimal(3,2)', 'double')
    """
    if not text.isascii():
        return UNKNOWN  # an older sqlglot reads digits of other scripts as numbers
    if "e" in text.lower():
        return SparkType("double")
    if "." not in text:
        whole = int(text)
        if -(2**31) <= whole < 2**31:
            return SparkType("int")
        if -(2**63) <= whole < 2**63:
            return SparkType("bigint")
    return exact_type(text)


def exact_type(text: str) -> SparkType:
    """The narrowest decimal type that can represent a number."""
    _, digits, exponent = Decimal(text).as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    return decimal(precision, scale) if precision <= MAX_PRECISION else UNKNOWN


def bounded(precision: int, scale: int) -> SparkType:
    """Spark's adjustPrecisionScale: keeps the digits before the point, and at least six of those after it."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, 6)))


def sum_of(a: SparkType, b: SparkType) -> SparkType:
    """The type of a sum or difference of two decimals."""
    (p1, s1), (p2, s2) = a.numbers, b.numbers
    scale = max(s1, s2)
    return bounded(max(p1 - s1, p2 - s2) + scale + 1, scale)


def product_of(a: SparkType, b: SparkType) -> SparkType:
    """The type of a product of two decimals."""
    return bounded(a.numbers[0] + b.numbers[0] + 1, a.numbers[1] + b.numbers[1])


def quotient_of(a: SparkType, b: SparkType) -> SparkType:
    """The type of a quotient of two decimals."""
    (p1, s1), (p2, s2) = a.numbers, b.numbers
    scale = max(6, s1 + p2 + 1)
    return bounded(p1 - s1 + s2 + scale, scale)


def remainder_of(a: SparkType, b: SparkType) -> SparkType:
    """The type of a remainder of two decimals."""
    (p1, s1), (p2, s2) = a.numbers, b.numbers
    scale = max(s1, s2)
    return bounded(min(p1 - s1, p2 - s2) + scale, scale)
