"""A number of 38 digits keeps them all in a filter of the engine."""

from __future__ import annotations

from decimal import Decimal

import pytest

from helios.plan.native.literals import _decimal

pytestmark = pytest.mark.promise("engine")


@pytest.mark.parametrize(
    "text", ["12345678901234567890123456789012.55", "0.01", "-999999999999999999999999999999999999.99"]
)
def test_all_digits_are_kept(text: str) -> None:
    term = _decimal(Decimal(text), "decimal(38,2)")
    assert term is not None
    assert Decimal(str(term.text)) == Decimal(text)


def test_a_number_that_does_not_fit() -> None:
    assert _decimal(Decimal("0.001"), "decimal(38,2)") is None
    assert _decimal(Decimal("9" * 37), "decimal(38,2)") is None
