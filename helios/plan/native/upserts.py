"""Checks whether the columnar engine supports an upsert."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from helios.model.modes import Mode, Upsert
from helios.native.program import NotNative

if TYPE_CHECKING:
    from helios.plan.nodes import WritePlan

VECTORS_SINCE = 3
"""The first format version that has deletion vectors."""
EQUALLY_ORDERED = ("int", "bigint", "string", "date", "timestamp", "timestamp_ntz", "decimal")
"""The types whose values Spark and Polars order in the same way."""


def check_upsert(write: WritePlan, mode: Upsert, kinds: Mapping[str, str]) -> None:
    """Raises `NotNative` for an upsert that the engine does not support; `kinds` has the types of the columns."""
    check_mode(mode)
    if write.left_out:
        raise NotNative(f"the table does not store {', '.join(write.left_out)}")
    if write.format_version < VECTORS_SINCE:
        raise NotNative(f"the table has format v{write.format_version}, whose deletes the engine does not write")
    if write.iceberg.row_changes == "copy-on-write":
        raise NotNative("changed rows are written copy-on-write")
    check_kinds(*columns_of(mode, kinds), kinds)


def check_mode(mode: Upsert) -> None:
    """Raises `NotNative` for an upsert that does more than keep the newest row of each declared key."""
    for feature, declared in (
        ("keeps versions", mode.history),
        ("deletes", mode.delete_when),
        ("takes the key of the records", not mode.keys),
    ):
        if declared:
            raise NotNative(f"the upsert {feature}")


def check_kinds(keys: Iterable[str], order: str | None, kinds: Mapping[str, str]) -> None:
    """Raises `NotNative` for keys or an order of a type that the two engines may compare differently."""
    for name in (*keys, *([order] if order is not None else [])):
        if kinds[name].partition("(")[0] not in EQUALLY_ORDERED:
            raise NotNative(f"the upsert compares {name}, a {kinds[name]}")


def columns_of(mode: Mode, columns: Iterable[str]) -> tuple[tuple[str, ...], str | None]:
    """The key columns and the order column of an upsert, spelled as in `columns`; None without an order.

    Raises:
        NotNative: A key or the order is not a column.
    """
    known = {name.lower(): name for name in columns}
    order = mode.order_by.strip("` ").lower() if mode.order_by is not None else None
    if order is not None and order not in known:
        raise NotNative(f"the upsert is ordered by {mode.order_by}, which is not a column")
    missing = next((key for key in mode.keys if key.lower() not in known), None)
    if missing is not None:
        raise NotNative(f"the upsert has the key {missing}, which is not a column")
    return tuple(known[key.lower()] for key in mode.keys), known[order] if order is not None else None
