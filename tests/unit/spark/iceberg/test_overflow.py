"""Where partition transforms overflow, compared with Java's arithmetic done step by step."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helios.spark.iceberg.overflow import MICROS_PER_HOUR, NEVER_ORDERED, ordered_range

pytestmark = pytest.mark.promise("pushdown")

BITS = {"int": 32, "long": 64}


def wrapped(value: int, bits: int) -> int:
    """A number as Java keeps it."""
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def remainder(value: int, by: int) -> int:
    """Java's, which has the sign of the value."""
    return abs(value) % by * (1 if value >= 0 else -1)


def truncated(value: int, width: int, bits: int) -> int:
    """`v - (((v % W) + W) % W)`, as Iceberg's Truncate has it."""
    inner = wrapped(remainder(value, width) + width, bits)
    return wrapped(value - remainder(inner, width), bits)


def near(kind: str) -> st.SearchStrategy[int]:
    half = 1 << (BITS[kind] - 1)
    ends = [st.integers(-half, -half + 5_000), st.integers(half - 5_000, half - 1), st.integers(-half, half - 1)]
    return st.one_of(*ends)


@given(
    kind_and_values=st.sampled_from(["int", "long"]).flatmap(
        lambda kind: st.tuples(st.just(kind), near(kind), near(kind))
    ),
    width=st.one_of(st.integers(1, 5_000), st.integers(1, (1 << 31) - 1)),
)
@example(kind_and_values=("int", -(1 << 31), 99), width=10)
@example(kind_and_values=("long", -(1 << 63), -(1 << 63) + 7), width=10)
@example(kind_and_values=("int", (1 << 31) - 1, 0), width=2_000_000_000)
def test_values_that_are_held_have_partitions_in_their_order(kind_and_values: tuple[str, int, int], width: int) -> None:
    kind, one, other = kind_and_values
    bits = BITS[kind]
    known = ordered_range(kind, f"truncate[{width}]")
    low, high = sorted((one, other))
    first, last = truncated(low, width, bits), truncated(high, width, bits)
    if known is None or (known.contains(low) and known.contains(high)):
        assert first <= last
    elif known is not NEVER_ORDERED:
        # The partition of a value that is not held is one by which a manifest is known to hold such values.
        for value in (low, high):
            place = truncated(value, width, bits)
            assert known.contains(value) or not known.partitions[0] <= place <= known.partitions[1]


@given(one=st.integers(-(1 << 63), (1 << 63) - 1), other=st.integers(-(1 << 63), (1 << 63) - 1))
@example(one=(1 << 31) * MICROS_PER_HOUR - 1, other=(1 << 31) * MICROS_PER_HOUR)
@example(one=-(1 << 31) * MICROS_PER_HOUR, other=-(1 << 31) * MICROS_PER_HOUR - 1)
@example(one=(1 << 63) - 1, other=-(1 << 63))
def test_hours_that_are_held_are_in_their_order(one: int, other: int) -> None:
    known = ordered_range("timestamptz", "hour")
    assert known is not None
    low, high = sorted((one, other))
    hours = {value: wrapped(value // MICROS_PER_HOUR, 32) for value in (low, high)}
    if known.contains(low) and known.contains(high):
        assert hours[low] <= hours[high]
    for value, hour in hours.items():
        assert known.contains(value) or not known.partitions[0] <= hour <= known.partitions[1]
