"""The pipelines of examples/, tested as their user would: with `helios.testing`."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from helios.testing import Lake

pytestmark = pytest.mark.promise("testing")

EXAMPLES = Path(__file__).parents[2] / "examples"
FLIGHT = {"carrier": "UA", "flight": 1, "tailnum": "N1", "origin": "EWR", "dep_time": 517, "arr_time": 830}


@pytest.fixture
def lake(shared_spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as made:
        yield made


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def flight(hour: int, **columns: Any) -> dict[str, Any]:
    return {**FLIGHT, "time_hour": f"2013-01-01T{hour:02}:00Z", "dep_delay": 2, "arr_delay": 20, **columns}


def test_flights_are_joined_and_delays_counted(lake: Lake) -> None:
    made = example("flights")
    test = lake.test(made["flights"], made["delays"])
    test.batch(
        flights=[flight(5), flight(5, flight=2, origin="LAX"), flight(9, dep_time=None, arr_delay=None)],
        weather=[{"origin": "EWR", "time_hour": "2013-01-01T05:00Z", "temp": 39.0}],
        airlines=[{"carrier": "UA", "name": "United"}],
        kill="after_commit",
    )
    columns = ("airline", "temp", "late", "cancelled")
    rows = [("United", 39.0, True, False), ("United", None, False, True)]
    test.expect([dict(zip(columns, row, strict=True)) for row in rows], table="nyc.flights")
    test.expect([{"carrier": "UA", "flights": 1, "dep_delay": 2.0}], table="nyc.delays")


def test_doubtful_flights_are_set_aside(lake: Lake) -> None:
    test = lake.test(example("checked")["checked"])
    test.batch(flights=[flight(5), flight(6, tailnum=None)])
    test.expect([{"tailnum": "N1", "cancelled": False}]).expect_rejected(count=1, reason="plane")
    test.batch(flights=[flight(7), flight(7)]).expect_error("once")


def test_the_newest_flight_of_a_plane_is_on_the_board(lake: Lake) -> None:
    columns = "tailnum string, airline string, dest string, time_hour timestamp, minute int, flight int"
    lake.table("nyc.flights", f"{columns}, cancelled boolean")
    test = lake.test(example("fleet")["fleet"])

    def seen(hour: int, dest: str, *, plane: str = "N1", cancelled: bool = False) -> dict[str, Any]:
        at = {"time_hour": f"2013-01-01T{hour:02}:00Z", "minute": 0, "flight": 1}
        return {"tailnum": plane, "airline": "United", "dest": dest, "cancelled": cancelled, **at}

    test.batch([seen(8, "IAH"), seen(9, "MIA"), seen(9, "BOS", plane="N2", cancelled=True)])
    test.batch([seen(7, "ORD"), seen(8, "SFO", plane="N2")])
    test.expect([{"tailnum": "N1", "dest": "MIA", "seen": "2013-01-01T09:00Z"}])
    test.invariant(cuts=1, replays=1, shuffles=1)


def test_clicks_land_and_are_counted(lake: Lake) -> None:
    made = example("clicks")
    test = lake.test(made["landed"], made["hours"])

    def click(hour: int, page: str = "/") -> dict[str, Any]:
        return {"visitor": "v", "page": page, "seconds": 3, "at": f"2026-01-01T{hour:02}:10:00Z"}

    test.batch(clicks=[click(9), click(9), b'{"page": "/"}'], kill="before_commit").batch(clicks=[click(12, "/help")])
    test.expect([{"page": "/", "offset": 0}, {"page": "/", "offset": 1}, {"page": "/help", "offset": 3}], "web.clicks")
    test.expect([{"page": "/", "clicks": 2, "seconds": 6}], "web.page_hours").expect_rejected(reason="missing")


def test_orders_are_as_their_last_delivery_says(lake: Lake) -> None:
    made = example("webhooks")
    test = lake.test(made["received"], made["orders"])

    def order(id: int, status: str, hour: int) -> dict[str, Any]:
        return {"id": id, "status": status, "amount": 9.5, "changed_at": f"2026-01-01T{hour:02}:00:00Z"}

    test.batch(orders=[order(1, "open", 8), order(2, "paid", 8), order(3, "lost", 8)], kill="before_commit")
    test.batch(orders=[order(1, "cancelled", 10), order(2, "open", 7)], kill="after_commit")
    test.batch(orders=[order(1, "paid", 9)])
    test.expect([{"id": 2, "status": "paid", "amount": "9.50"}], table="shop.orders")
    test.expect_rejected(['"id":3'], reason="status")
    assert len(test.rows("shop.deliveries")) == 5


def test_a_departure_has_the_weather_of_its_hour(lake: Lake) -> None:
    made = example("weather")
    test = lake.test(made["observations"], made["departures"])

    def seen(hour: int, temp: float) -> dict[str, Any]:
        return {"origin": "EWR", "time_hour": f"2013-01-01T{hour:02}:00Z", "temp": temp}

    def due(hour: int, minute: int) -> dict[str, Any]:
        return {"origin": "EWR", "time_hour": f"2013-01-01T{hour:02}:00Z", "minute": minute}

    test.batch(weather=[seen(5, 39.0), seen(6, 40.0)], flights=[due(4, 0), due(5, 15), due(7, 30)])
    test.expect([{"minute": 0, "temp": None}, {"minute": 15, "temp": 39.0}, {"minute": 30, "temp": 40.0}])


def test_the_tables_of_a_shop_are_mirrored(lake: Lake) -> None:
    test = lake.test(example("mirror")["mirrored"])
    ann, eve = {"id": 1, "name": "ann"}, {"id": 1, "name": "eve"}
    test.batch({"shop.public.users": [("c", None, ann)], "shop.public.orders": [("c", None, {"nr": 7})]})
    test.batch({"shop.public.users": [("u", ann, eve)], "shop.public.orders": [("d", {"nr": 7}, None)]})
    test.expect([eve], table="shop.users").expect([], table="shop.orders")


def test_what_was_shipped_is_summed_without_deleted_lines(lake: Lake) -> None:
    made = example("tpch")
    test = lake.test(made["lineitem"], made["pricing"])

    def line(number: int, seq: int, op: str = "I", quantity: float = 2.0) -> dict[str, Any]:
        key = {"l_orderkey": 1, "l_linenumber": number, "seq": seq, "op": op, "l_shipdate": date(1998, 1, 1)}
        price = {"l_quantity": quantity, "l_extendedprice": 10.0, "l_discount": 0.5}
        return {**key, **price, "l_returnflag": "A", "l_linestatus": "F"}

    test.batch(lineitem=[line(1, 1), line(2, 2), line(2, 2)], kill="before_commit")
    test.batch(lineitem=[line(1, 4, "D"), line(1, 3), line(3, 5, quantity=3.0)])
    test.expect([{"l_returnflag": "A", "quantity": 5.0, "discounted": 10.0, "lines": 2}])
