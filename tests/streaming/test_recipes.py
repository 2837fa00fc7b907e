"""The recipes of docs/recipes.md over readings and a shop, beside pandas."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pytest

from helios import Pipeline
from tests.suite.pages import blocks

pytestmark = pytest.mark.promise("documents")

T0 = pd.Timestamp("2026-01-01", tz="UTC")
FAR = T0 + pd.Timedelta(days=30)
CLOSING = "zz"
"""The sensor, or the item, whose row lets the watermark pass all others."""


def create(world: Any, table: str, columns: str) -> None:
    world.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{table.split('.', maxsplit=1)[0]}")
    world.sql(f"CREATE TABLE local.{table} ({columns}) USING iceberg")


def append(world: Any, table: str, frame: pd.DataFrame) -> None:
    rows = [tuple(row) for row in frame.astype(object).itertuples(index=False)]
    rows = [tuple(v.to_pydatetime() if isinstance(v, pd.Timestamp) else v for v in row) for row in rows]
    schema = world.spark.table(f"local.{table}").schema
    world.spark.createDataFrame(rows, schema).coalesce(1).writeTo(f"local.{table}").append()


def readings() -> pd.DataFrame:
    """Readings of three sensors at odd times, with silences, in the order in which they arrive."""
    some = random.Random(5)
    rows = []
    for sensor in "abc":
        ts = T0
        for _ in range(60):
            ts += pd.Timedelta(seconds=some.choice([20, 90, 200, 400, 2_500]) + some.random())
            rows.append((sensor, ts.floor("us"), float(some.randint(0, 100))))
    rows.sort(key=lambda row: row[1] + pd.Timedelta(seconds=some.randint(0, 500)))
    return pd.DataFrame(rows, columns=["sensor", "ts", "value"])


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    return readings()


class Page:
    """The page's pipelines, each run as it is declared."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.made: dict[str, Any] = {}
        for block in blocks("docs/recipes.md"):
            exec(block, self.made)
        self.pipelines = {name: value for name, value in self.made.items() if isinstance(value, Pipeline)}

    def run(self, name: str) -> Any:
        return self.world.run(self.pipelines[name])

    def rows(self, table: str, *columns: str) -> pd.DataFrame:
        found = self.world.load(table).iceberg.scan(selected_fields=columns).to_pandas()[list(columns)]
        first = found.columns[0]
        return ordered(found[found[first] != CLOSING])


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    plain = frame.copy()
    for name in plain.columns:
        if isinstance(plain[name].dtype, pd.DatetimeTZDtype):
            plain[name] = plain[name].astype("datetime64[us, UTC]")
    return plain.sort_values(list(plain.columns), ignore_index=True)


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    pd.testing.assert_frame_equal(found, ordered(expected[list(found.columns)]), check_dtype=False)


def in_buckets(measured: pd.DataFrame) -> pd.DataFrame:
    in_order = measured.sort_values("ts").assign(window_start=measured["ts"].dt.floor("5min"))
    return in_order.groupby(["sensor", "window_start"], as_index=False).agg(
        mean=("value", "mean"), low=("value", "min"), high=("value", "max"), last=("value", "last"), n=("value", "size")
    )


@pytest.mark.slow
def test_the_recipes_of_series(world: Any, measured: pd.DataFrame) -> None:
    page = Page(world)
    create(world, "iot.readings", "sensor string, ts timestamp, value double")
    for begin in range(0, len(measured), 60):
        append(world, "iot.readings", measured[begin : begin + 60])
        for name in ("resampled", "kept_apart", "moving", "latest", "sessions"):
            page.run(name)
    append(world, "iot.readings", pd.DataFrame([(CLOSING, FAR, 0.0)]))
    for name in ("resampled", "kept_apart", "moving", "latest", "sessions"):
        page.run(name)
    late = pd.DataFrame([("a", T0 + pd.Timedelta(minutes=1), 1.0)])
    append(world, "iot.readings", late)
    assert page.run("kept_apart").metrics().records_late == 1

    buckets = in_buckets(measured)
    names = ("sensor", "window_start", "mean", "low", "high", "last", "n")
    same(page.rows("iot.five_minutes", *names), buckets)
    same(page.rows("iot.on_time", *names), buckets)
    assert world.rows("iot.late", "step").total() == 1

    page.run("filled")
    grids = [
        pd.DataFrame({"sensor": sensor, "window_start": pd.date_range(times.min(), times.max(), freq="5min")})
        for sensor, times in buckets.groupby("sensor")["window_start"]
    ]
    filled = pd.concat(grids).merge(buckets, on=["sensor", "window_start"], how="left")
    filled["filled"] = filled["n"].isna()
    filled["mean"] = filled.groupby("sensor")["mean"].ffill()
    assert filled["filled"].any()
    same(page.rows("iot.without_gaps", "sensor", "window_start", "filled", "mean"), filled)

    newest = measured.sort_values("ts").groupby("sensor", as_index=False).last()
    same(page.rows("iot.latest", "sensor", "ts", "value"), newest)

    hours = []
    for shift in range(12):
        starts = (measured["ts"] - pd.Timedelta(minutes=5 * shift)).dt.floor("5min")
        hours.append(measured.assign(window_start=starts))
    moving = pd.concat(hours).groupby(["sensor", "window_start"], as_index=False).agg(mean_1h=("value", "mean"))
    same(page.rows("iot.moving", "sensor", "window_start", "mean_1h"), moving)

    in_order = measured.sort_values(["sensor", "ts"], ignore_index=True)
    silent = in_order.groupby("sensor")["ts"].diff() > pd.Timedelta(minutes=30)
    sessions = in_order.assign(number=silent.cumsum()).groupby(["sensor", "number"], as_index=False)
    sessions = sessions.agg(window_start=("ts", "min"), last=("ts", "max"), n=("value", "size"), mean=("value", "mean"))
    sessions["window_end"] = sessions["last"] + pd.Timedelta(minutes=30)
    assert len(sessions) > 6
    same(page.rows("iot.sessions", "sensor", "window_start", "window_end", "n", "mean"), sessions)


@pytest.mark.slow
def test_moving_averages_of_a_table_that_is_read_once(world: Any, measured: pd.DataFrame) -> None:
    page = Page(world)
    create(world, "iot.readings", "sensor string, ts timestamp, value double")
    append(world, "iot.readings", measured)
    page.run("smoothed")
    in_order = measured.sort_values(["sensor", "ts"], ignore_index=True)
    means = in_order.set_index("ts").groupby("sensor")["value"].rolling("3600s", closed="both").mean()
    expected = means.rename("mean_1h").reset_index()
    same(page.rows("iot.smoothed", "sensor", "ts", "mean_1h"), expected)


@pytest.mark.slow
def test_the_recipes_of_a_shop(world: Any) -> None:
    page = Page(world)
    create(world, "shop.price_changes", "item string, price double, since timestamp")
    create(world, "shop.orders", "id bigint, item string, quantity int, ts timestamp")
    create(world, "shop.payments", "id bigint, amount double, ts timestamp")
    some = random.Random(7)
    changes = pd.DataFrame(
        [(item, float(n), T0 + pd.Timedelta(minutes=60 * n + 7)) for item in "xyz" for n in range(10)],
        columns=["item", "price", "since"],
    )
    orders = pd.DataFrame(
        [(n, some.choice("wxyz"), 1 + n % 5, T0 + pd.Timedelta(minutes=some.randint(0, 700))) for n in range(150)],
        columns=["id", "item", "quantity", "ts"],
    ).sort_values("ts")
    append(world, "shop.price_changes", changes.sample(frac=1, random_state=3)[:20])
    page.run("prices")
    append(world, "shop.price_changes", changes.sample(frac=1, random_state=3)[20:])  # some of them late
    page.run("prices")
    append(world, "shop.orders", orders)
    page.run("valued")
    expected = pd.merge_asof(orders, changes.sort_values("since"), left_on="ts", right_on="since", by="item").assign(
        total=lambda frame: frame["quantity"] * frame["price"]
    )
    assert expected["total"].isna().any()
    same(page.rows("shop.valued", "item", "id", "price", "total"), expected)

    payments = orders.sample(frac=0.7, random_state=1)[["id", "ts"]]
    delays = [pd.Timedelta(minutes=some.choice([0, 10, 60, 61])) for _ in range(len(payments))]
    payments = payments.assign(amount=1.0, ts=payments["ts"] + pd.Series(delays, index=payments.index))
    append(world, "shop.payments", payments[["id", "amount", "ts"]])
    page.run("settled")
    append(world, "shop.orders", pd.DataFrame([(-1, CLOSING, 1, FAR)]))
    append(world, "shop.payments", pd.DataFrame([(-2, 0.0, FAR)]))
    page.run("settled")
    paid = payments.rename(columns={"ts": "paid_at"}).merge(orders, on="id")
    paid = paid[paid["paid_at"] <= paid["ts"] + pd.Timedelta(hours=1)][["id", "paid_at"]]
    assert 0 < len(paid) < len(payments)
    same(page.rows("shop.settled", "item", "id", "paid_at"), orders.merge(paid, on="id", how="left"))
