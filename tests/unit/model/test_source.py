"""An Iceberg source as a value: what its calls keep, refuse, and show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helios import Iceberg
from helios.errors import DeclarationError
from helios.sources.iceberg.declare import At, Between, Changes, IcebergSource

pytestmark = pytest.mark.promise("words")

ORDERS = Iceberg.source("a.orders")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("source", "label"),
    [
        (ORDERS, ""),
        (ORDERS.as_of("2026-01-01"), ".as_of('2026-01-01')"),
        (ORDERS.as_of(NEW_YEAR), ".as_of('2026-01-01T00:00:00+00:00')"),
        (ORDERS.at_snapshot(5), ".at_snapshot(5)"),
        (ORDERS.at_ref("v1").incremental("30s"), ".at_ref('v1').incremental(poll=30 s)"),
        (
            ORDERS.incremental(start=5, max_rows=10, max_files=2),
            ".incremental(poll=60 s, start=5, max_rows=10, max_files=2)",
        ),
        (ORDERS.incremental().changes(), ".incremental(poll=60 s).changes()"),
        (ORDERS.incremental().changes("id"), ".incremental(poll=60 s).changes(keys=['id'])"),
        (ORDERS.between(5, NEW_YEAR), ".between(5, '2026-01-01T00:00:00+00:00')"),
        (ORDERS.changes_between("v1", "main"), ".changes_between('v1', 'main')"),
        (ORDERS.changes_between(5, 6, ["id", "day"]), ".changes_between(5, 6, keys=['id', 'day'])"),
        (ORDERS.where("id > 1").where("x"), ".where('id > 1').where('x')"),
        (ORDERS.select("id", "`my col`"), ".select('id', 'my col')"),
        (
            ORDERS.incremental().on_overwrite("skip").on_expired("rebootstrap"),
            ".incremental(poll=60 s).on_overwrite('skip').on_expired('rebootstrap')",
        ),
        (ORDERS.on_overwrite("fail").on_expired("fail").batch_size(100), ""),
    ],
)
def test_the_label_shows_what_was_said(source: IcebergSource, label: str) -> None:
    assert source.label() == f"Iceberg.source(a.orders){label}"


def test_calls_give_new_values_in_any_order() -> None:
    one = ORDERS.where("id > 1").incremental().as_of("2026-01-01").select("id").batch_size(7)
    other = ORDERS.batch_size(7).select("id").as_of("2026-01-01").where("id > 1").incremental()
    assert one == other
    assert one.origin.line == ORDERS.origin.line
    assert Iceberg.source("a.orders") == ORDERS
    assert (one.at, one.vector, one.streaming) == (At("as_of", "2026-01-01"), 7, True)
    assert ORDERS.incremental(timedelta(minutes=2)).poll == 120


def test_history_as_rows_or_as_changes() -> None:
    assert ORDERS.changes_between(1, 2, "id").changed == Changes(("id",))
    assert ORDERS.changes_between(1, 2, "id").between(1, 2).changed is None
    assert ORDERS.changes("id").between(1, 2).changed == Changes(("id",))
    assert ORDERS.between(1, 2).changes(["id"]) == ORDERS.changes_between(1, 2, "`id`")
    assert ORDERS.between(1, 2).between_points == Between(1, 2)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: ORDERS.as_of("yesterday"), r"as_of\('yesterday'\): this is not a time.*ISO 8601.*\.at_ref\(name\)"),
        (lambda: ORDERS.as_of(20260101), r"as_of\(20260101\): this is not a time.*\.at_snapshot\(id\)"),
        (lambda: ORDERS.at_snapshot("5"), "a snapshot id is a whole number"),
        (lambda: ORDERS.at_snapshot(True), "a snapshot id is a whole number"),
        (lambda: ORDERS.at_ref(""), "give the name of a tag or a branch"),
        (lambda: ORDERS.at_ref(5), "give the name of a tag or a branch"),
        (lambda: ORDERS.between(1, None), r"between\(None\): this does not name a snapshot"),
        (lambda: ORDERS.between(1.5, 2), r"between\(1.5\): this does not name a snapshot"),
        (lambda: ORDERS.changes_between("", 2), r"changes_between\(''\): this does not name a snapshot"),
        (lambda: ORDERS.incremental(start="lates"), "unknown start. Did you mean 'latest'.*a time goes into .as_of"),
        (lambda: ORDERS.incremental(start="2026-01-01"), "a time goes into .as_of"),
        (lambda: ORDERS.incremental(start=True), "unknown start"),
        (lambda: ORDERS.incremental(max_rows=0), "max_rows=0 must be a positive whole number"),
        (lambda: ORDERS.incremental(max_files=1.5), "max_files=1.5 must be a positive whole number"),
        (lambda: ORDERS.batch_size(-1), "must be a positive whole number"),
        (lambda: ORDERS.changes(keys=5), "keys are column names"),
        (lambda: ORDERS.changes(keys=["id", ""]), "keys are column names"),
        (lambda: ORDERS.changes_between(1, 2, keys=[None]), "keys are column names"),
        (lambda: ORDERS.on_overwrite("skp"), "Did you mean 'skip'"),
        (lambda: ORDERS.on_expired("restart"), "Known: fail, rebootstrap|Did you mean"),
        (lambda: ORDERS.where(" "), "where.. needs a predicate"),
        (lambda: ORDERS.where(None), "where.. needs a predicate"),
        (ORDERS.select, "select.. needs column names"),
        (lambda: ORDERS.select("id", 5), "select.. needs column names"),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as error:
        declare()
    assert "test_source.py:" in str(error.value)
