"""The keys of a batch as an expression of Iceberg's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helios.spark.iceberg.batch_keys import one_of


def holds(expression: Mapping[str, Any], row: Mapping[str, object]) -> bool:
    """Whether a row meets an expression, by what Iceberg says of its kinds."""
    match expression["type"]:
        case "and":
            return holds(expression["left"], row) and holds(expression["right"], row)
        case "or":
            return holds(expression["left"], row) or holds(expression["right"], row)
        case "eq":
            return row[expression["term"]] == expression["value"]
        case "in":
            return row[expression["term"]] in expression["values"]
    raise AssertionError(expression)


def depth(expression: Mapping[str, Any]) -> int:
    return 1 + max((depth(expression[side]) for side in ("left", "right") if side in expression), default=0)


small = st.integers(0, 3)


@given(keys=st.lists(st.tuples(small, small, small), min_size=1), row=st.tuples(small, small, small))
def test_it_holds_for_the_keys_alone(keys: list[tuple[int, int, int]], row: tuple[int, int, int]) -> None:
    columns = ("a", "b", "c")
    assert holds(one_of(columns, keys), dict(zip(columns, row, strict=True))) == (row in keys)


def test_thousands_of_keys_are_no_deep_recursion() -> None:
    assert depth(one_of(("a", "b"), [(i, str(i)) for i in range(5_000)])) < 20
