"""The stamp `helios.sources`."""

from __future__ import annotations

import json

from helios.spark.sinks.options import CommitOptions
from helios.table.positions import Batch, Span

ORDERS = {"kind": "iceberg", "name": "local.a.orders", "uuid": "u1"}
PRICES = {"kind": "iceberg", "name": "local.a.prices", "uuid": "u2"}


def read(uuid: str) -> Batch:
    return Batch(3, (Span("local.a.orders", None, None, {"source": "local.a.orders", "uuid": uuid, "to": 7}),))


def test_sources_that_the_position_names_are_not_stamped_again() -> None:
    assert CommitOptions(sources=[ORDERS]).source_stamp(read("u1")) == {}
    assert CommitOptions().source_stamp(read("u1")) == {}


def test_joined_and_replaced_sources_are_stamped() -> None:
    stamped = CommitOptions(sources=[ORDERS, PRICES]).source_stamp(read("u1"))
    assert json.loads(stamped["helios.sources"]) == [PRICES]
    stamped = CommitOptions(sources=[ORDERS]).source_stamp(read("another table of that name"))
    assert json.loads(stamped["helios.sources"]) == [ORDERS]
