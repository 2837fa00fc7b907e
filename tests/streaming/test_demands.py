"""What every row must meet stops the batch, whatever stands behind it: Spark would drop the row first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import functions as F

from helios import Memory, dedupe, expect, join, session_window, sql, watermark, where, window
from helios.errors import RunError
from helios.spark.steps.row_check import check_rows

pytestmark = [pytest.mark.promise("expect"), pytest.mark.sampled(2)]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def events(world: Any, *hours: int | None) -> None:
    """Rows of a table that is followed; None is a row without a time."""
    rows = [(i, "k", None if hour is None else NOON.replace(hour=hour)) for i, hour in enumerate(hours)]
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.spark.createDataFrame(rows, "id int, k string, ts timestamp").writeTo("local.a.events").createOrReplace()


@pytest.mark.parametrize(
    "behind",
    [
        where("amount > 3"),
        where("amount IS NOT NULL"),
        where("id = 1"),
        join(Memory.source([{"amount": 5, "x": 1}]), on="amount"),
        sql("SELECT * FROM input WHERE amount > 3"),
    ],
    ids=["where", "not null", "other column", "join", "sql"],
)
@pytest.mark.cases(landing="where")
def test_an_expectation_sees_every_row_whatever_stands_behind_it(world: Any, behind: Any) -> None:
    rows = Memory.source([{"id": 1, "amount": 5}, {"id": 2, "amount": None}, {"id": 3, "amount": -1}])
    checks = expect({"positive": "amount > 0"})
    with pytest.raises(RunError, match=r"positive \(amount > 0\)"):
        world.run(rows >> checks >> behind >> world.sink("a.t"))
    assert not world.catalog.exists("a.t") or world.rows("a.t") == {}
    # What stands before it decides what it sees.
    world.run(rows >> where("amount > 3") >> checks >> behind >> world.sink("a.t"))
    assert world.ids("a.t") == [1]


def test_an_expectation_sees_rows_that_the_scan_of_a_table_would_leave_out(world: Any) -> None:
    world.fill("a.s", range(10), amount="id - 5")
    with pytest.raises(RunError, match="positive"):
        world.run(world.source("a.s") >> expect({"positive": "amount > 0"}) >> where("amount > 3") >> world.sink("a.t"))


@pytest.mark.parametrize(
    ("state", "late"),
    [
        (window("ts", "1 hour").group_by("k").agg(n="count(*)"), "drop"),
        (window("ts", "1 hour").group_by("k").agg(n="count(*)"), "quarantine"),
        (window("ts", "1 hour", "30 minutes").group_by("k").agg(n="count(*)"), "drop"),
        (session_window("ts", "1 hour").group_by("k").agg(n="count(*)"), "drop"),
        (dedupe("k", within="1 hour"), "drop"),
    ],
    ids=["window", "late rows kept", "sliding", "session", "dedupe"],
)
def test_a_row_without_an_event_time_stops_the_run(world: Any, state: Any, late: Any) -> None:
    events(world, 1, None)
    source = world.source("a.events").incremental(start="earliest") >> watermark("ts", "1 minute", on_late=late)
    sink = world.sink("a.t").quarantine("a.q") if late == "quarantine" else world.sink("a.t")
    with pytest.raises(RunError, match=r"test_demands.py:\d+: .* met a row whose ts is null: .*\"id\":1") as raised:
        world.run(source >> state >> sink)
    assert 'where("<column> IS NOT NULL")' in str(raised.value.fix)


def test_a_window_of_a_batch_does_not_lose_a_row_without_a_time(world: Any) -> None:
    events(world, 1, None)
    hours = window("ts", "1 hour").group_by("k").agg(n="count(*)")
    with pytest.raises(RunError, match="met a row whose ts is null"):
        world.run(world.source("a.events") >> hours >> world.sink("a.t"))
    world.run(world.source("a.events") >> where("ts IS NOT NULL") >> hours >> world.sink("a.t"))
    assert list(world.rows("a.t", "n")) == [(1,)]


@pytest.mark.parametrize(("how", "stops"), [("inner", False), ("left", True)])
def test_a_left_row_without_a_time_stops_a_join_that_keeps_it(world: Any, how: Any, stops: bool) -> None:
    events(world, 1, None)
    world.sql("CREATE TABLE local.a.other AS SELECT k, ts AS at, id AS other FROM local.a.events")
    left, right = (world.source(f"a.{name}").incremental(start="earliest") for name in ("events", "other"))
    other = right >> watermark("at", "1 minute")
    pipeline = left >> watermark("ts", "1 minute") >> join(other, on="k", how=how, within="1 hour") >> world.sink("a.t")
    if stops:
        with pytest.raises(RunError, match="met a row whose ts is null"):
            world.run(pipeline)
    else:
        world.run(pipeline)
        assert world.ids("a.t") == [0]


def test_a_demand_is_no_filter_of_sparks(world: Any) -> None:
    df = world.spark.range(5).withColumn("n", F.when(F.col("id") > 1, F.col("id")))
    plan = check_rows(df, F.col("n").isNotNull(), F.lit("none")).where("n > 3")
    assert plan._jdf.queryExecution().optimizedPlan().toString().count("Filter") == 2
