"""`join(as_of=)`: a table as it was at each row's time, by validity beside pandas, by commit times beside Spark."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql.functions import udf

from helios import (
    Memory,
    aggregate,
    cast,
    drop,
    expect,
    join,
    rename,
    select,
    step,
    watermark,
    where,
    window,
)
from helios.errors import DeclarationError, HeliosError, RunError
from helios.spark.replay.replay import Replay
from tests.suite.deaths import dies_before_commit

pytestmark = pytest.mark.promise("joins-as-of")

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PRICED = ("id", "price")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def table(world: Any, name: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    """Appends rows in one commit."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    df = world.spark.createDataFrame(rows, columns).coalesce(1)
    if world.catalog.exists(f"a.{name}"):
        df.writeTo(f"local.a.{name}").append()
    else:
        df.writeTo(f"local.a.{name}").using("iceberg").create()


def events(world: Any, *rows: tuple[int, int | None, datetime | None], name: str = "events") -> None:
    table(world, name, "id bigint, k bigint, ts timestamp", list(rows))


def versions(
    world: Any, *rows: tuple[int | None, float, datetime | None, datetime | None], name: str = "prices"
) -> None:
    table(world, name, "k bigint, price double, valid_from timestamp, valid_to timestamp", list(rows))


# by validity


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Versions of some keys, with gaps between some of them, and events around their borders."""
    known: list[tuple[Any, ...]] = []
    for key in range(draw(st.integers(1, 4))):
        begins = sorted(draw(st.sets(st.integers(0, 50), min_size=1, max_size=12)))
        for number, begin in enumerate(begins):
            last = number + 1 == len(begins)
            end = None if last and draw(st.booleans()) else begin + draw(st.integers(1, 60))
            if not last:
                end = min(end or 99, begins[number + 1])
            known.append((key, float(key * 100 + number), at(begin), at(end) if end is not None else None))
    found = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(-5, 70)), min_size=20, max_size=60))
    return known, [(n, key, at(second)) for n, (key, second) in enumerate(found)]


def asof(known: list[tuple[Any, ...]], found: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """What pandas makes of it: the last version that has begun, unless it has ended."""
    right = pd.DataFrame(known, columns=["k", "price", "valid_from", "valid_to"])
    left = pd.DataFrame(found, columns=["id", "k", "ts"])
    right["valid_to"] = pd.to_datetime(right["valid_to"], utc=True)
    merged = pd.merge_asof(
        left.sort_values("ts"), right.sort_values("valid_from"), left_on="ts", right_on="valid_from", by="k"
    )
    ended = merged["valid_to"].notna() & (merged["valid_to"] <= merged["ts"])
    prices = merged["price"].mask(ended)
    return Counter((int(n), None if pd.isna(p) else float(p)) for n, p in zip(merged["id"], prices, strict=True))


def equal_to_pandas(world: Any, known: list[tuple[Any, ...]], found: list[tuple[Any, ...]]) -> None:
    number = world.examples = getattr(world, "examples", 0) + 1
    versions(world, *known, name=f"prices{number}")
    events(world, *found, name=f"events{number}")
    right = world.source(f"a.prices{number}")
    left = world.source(f"a.events{number}")
    world.run(left >> join(right, on="k", how="left", as_of="ts") >> world.sink(f"a.t{number}"))
    assert world.rows(f"a.t{number}", *PRICED) == asof(known, found)


FEW = settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@FEW
@given(drawn=histories())
def test_by_validity_a_join_is_pandas_merge_asof(world: Any, drawn: Any) -> None:
    equal_to_pandas(world, *drawn)


@pytest.mark.slow
@settings(FEW, max_examples=40, derandomize=False)
@given(drawn=histories())
def test_many_histories_by_validity(world: Any, drawn: Any) -> None:
    equal_to_pandas(world, *drawn)


@pytest.mark.slow
def test_a_history_that_an_upsert_keeps(world: Any) -> None:
    columns = "k bigint, price double, seen timestamp"
    table(world, "changes", columns, [(k, float(k * 10 + n), at(n * 10)) for k in range(3) for n in (0, 2, 3)])
    kept = world.source("a.changes").incremental(poll=1) >> rename({"seen": "valid"})
    kept = kept >> world.sink("a.prices").upsert("k", order_by="valid", history=True)
    world.run(kept)
    table(world, "changes", columns, [(k, float(k * 10 + 1), at(10)) for k in range(3)])  # late
    world.run(kept)
    found = [(n, n % 4, at(n - 2)) for n in range(45)]
    events(world, *found)
    history = world.source("a.prices") >> drop("valid")
    joined = world.source("a.events").incremental(poll=1)
    world.run(joined >> join(history, on="k", how="left", as_of="ts") >> world.sink("a.left"))
    world.run(joined >> join(history, on="k", as_of="ts") >> world.sink("a.inner"))
    known = [(k, float(k * 10 + n), at(n * 10), at(n * 10 + 10) if n < 3 else None) for k in range(3) for n in range(4)]
    expected = asof(known, found)
    assert world.rows("a.left", *PRICED) == expected
    assert world.rows("a.inner", *PRICED) == Counter({row: n for row, n in expected.items() if row[1] is not None})
    assert world.load("a.left").iceberg.schema().column_names == [
        "k", "id", "ts", "price", "valid_from", "valid_to",
    ]  # fmt: skip


BORDERS = [
    (1, 1.0, at(0), at(10)),
    (1, 2.0, at(10), None),  # still valid
    (2, 3.0, None, at(10)),  # since ever
    (3, 4.0, None, None),
    (4, 5.0, at(10), at(10)),  # never
    (5, 6.0, at(0), at(20)),
    (5, 7.0, at(10), at(30)),  # both are valid for a while
    (None, 8.0, None, None),
]
MICRO = timedelta(microseconds=1)


@pytest.mark.short
def test_the_borders_of_versions(world: Any) -> None:
    versions(world, *BORDERS)
    found: dict[tuple[int | None, datetime | None], tuple[float, ...]] = {
        (1, at(0) - MICRO): (), (1, at(0)): (1.0,), (1, at(10) - MICRO): (1.0,), (1, at(10)): (2.0,),
        (1, at(9_999_999)): (2.0,), (1, None): (),
        (2, at(-9_999_999)): (3.0,), (2, at(10) - MICRO): (3.0,), (2, at(10)): (), (2, None): (),
        (3, at(5)): (4.0,), (3, None): (),
        (4, at(10)): (), (4, at(10) - MICRO): (),
        (5, at(5)): (6.0,), (5, at(10)): (6.0, 7.0), (5, at(20)): (7.0,), (5, at(30)): (),
        (None, at(5)): (), (6, at(5)): (),
    }  # fmt: skip
    events(world, *[(n, key, ts) for n, (key, ts) in enumerate(found)])
    right = world.source("a.prices")
    for how in ("left", "inner"):
        world.run(world.source("a.events") >> join(right, on=["K"], how=how, as_of="TS") >> world.sink(f"a.{how}"))
    prices = list(found.values())
    inner = Counter((n, price) for n, some in enumerate(prices) for price in some)
    assert world.rows("a.inner", *PRICED) == inner
    assert world.rows("a.left", *PRICED) == inner + Counter((n, None) for n, some in enumerate(prices) if not some)


@pytest.mark.slow
def test_days_and_times_without_a_zone(world: Any) -> None:
    versions(world, (1, 1.0, at(0), at(86400)), (1, 2.0, at(86400), None))
    events(world, (0, 1, at(86399)), (1, 1, at(86400)))
    days = world.source("a.prices") >> cast(valid_from="date", valid_to="date")
    plain = world.source("a.events") >> cast(ts="timestamp_ntz") >> where("id >= 0")
    world.run(plain >> join(days, on="k", as_of="ts") >> world.sink("a.t"))
    assert world.rows("a.t", *PRICED) == {(0, 1.0): 1, (1, 2.0): 1}


@pytest.mark.slow
def test_a_history_in_memory_and_what_is_known_only_at_run(world: Any) -> None:
    events(world, (0, 1, at(5)))
    rows = [{"k": 1, "price": 1.0, "valid_from": at(0), "valid_to": None}]
    right = Memory.source(rows, schema="k bigint, price double, valid_from timestamp, valid_to timestamp")
    hidden = step(lambda df: df)
    world.run(world.source("a.events") >> join(right >> hidden, on="k", as_of="ts") >> world.sink("a.t"))
    assert world.rows("a.t", *PRICED) == {(0, 1.0): 1}
    for wrong, what in (
        (hidden >> cast(valid_from="bigint"), "'valid_from' of the right side is bigint, not a timestamp"),
        (hidden >> drop("valid_to"), "has 'valid_from' and no 'valid_to'"),
        (hidden >> drop("valid_to", "valid_from"), r"Memory.source\(1 rows\) keeps no earlier states"),
    ):
        with pytest.raises(DeclarationError, match=what):
            world.run(world.source("a.events") >> join(right >> wrong, on="k", as_of="ts") >> world.sink("a.u"))


@pytest.mark.slow
def test_windows_over_rows_that_were_joined_by_validity(world: Any) -> None:
    versions(world, (1, 1.0, at(0), at(3600)), (1, 2.0, at(3600), None))
    events(world, *[(n, 1, at(n * 600)) for n in range(24)])
    steps = watermark("ts", "1 minute") >> join(world.source("a.prices"), on="k", as_of="ts")
    hours = window("ts", "1 hour").group_by("k").agg(total="sum(price)")
    world.run(world.source("a.events").incremental(poll=1) >> steps >> hours >> world.sink("a.t"))
    assert world.rows("a.t", "window_start", "total") == {(at(0), 6.0): 1, (at(3600), 12.0): 1, (at(7200), 12.0): 1}


# by commit times


def commits(world: Any) -> list[datetime]:
    """A table whose prices change in each commit; the times of its states."""
    columns = "k bigint, price double"
    table(world, "prices", columns, [(1, 1.0), (2, 2.0)])
    table(world, "prices", columns, [(3, 3.0)])
    world.sql("UPDATE local.a.prices SET price = price + 10 WHERE k = 1")
    world.compact("a.prices")
    world.sql("ALTER TABLE local.a.prices ADD COLUMN unit string")
    world.sql("DELETE FROM local.a.prices WHERE k = 2")
    before = world.load("a.prices").current_snapshot().id
    world.sql("UPDATE local.a.prices SET price = -1")  # a mistake
    world.sql(f"CALL local.system.rollback_to_snapshot('a.prices', {before})")
    world.sql("INSERT INTO local.a.prices VALUES (2, 20.0, 'EUR')")
    log = world.load("a.prices").iceberg.metadata.snapshot_log
    return [datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC) for entry in log]


def then(world: Any, found: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """What Spark's time travel gives for each event, as a left join."""
    expected: Counter[tuple[Any, ...]] = Counter()
    begins = min(e.timestamp_ms for e in world.load("a.prices").iceberg.metadata.snapshot_log)
    states: dict[datetime, list[Any]] = {}
    for n, key, ts in found:
        if ts not in states:
            query = f"SELECT k, price FROM local.a.prices TIMESTAMP AS OF '{ts:%Y-%m-%d %H:%M:%S.%f}'"
            states[ts] = world.sql(query) if ts.timestamp() * 1000 >= begins else []
        expected.update([(n, price) for k, price in states[ts] if k == key] or [(n, None)])
    return expected


def around(times: list[datetime]) -> list[tuple[Any, ...]]:
    """Events on, before and after each commit."""
    offsets = (-MICRO, timedelta(0), MICRO)
    instants = [time + off for time in times for off in offsets] + [times[0] - timedelta(days=1), at(10**9)]
    return [(n, n % 4, instant) for n, instant in enumerate(instants * 4)]


SLOW = pytest.mark.slow


@pytest.mark.parametrize("version", [pytest.param(1, marks=SLOW), 2, pytest.param(3, marks=SLOW)])
def test_by_commit_times_a_join_is_sparks_time_travel(world: Any, version: int) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql(
        "CREATE TABLE local.a.prices (k bigint, price double) USING iceberg TBLPROPERTIES "
        f"('format-version'='{version}', 'write.update.mode'='{'copy-on-write' if version < 3 else 'merge-on-read'}')"
    )
    times = commits(world)
    found = around(times)
    events(world, *found)
    left, right = world.source("a.events"), world.source("a.prices")
    world.run(left >> join(right, on="k", how="left", as_of="ts") >> world.sink("a.left"))
    expected = then(world, found)
    assert len({price for _, price in expected}) > 5
    assert world.rows("a.left", *PRICED) == expected
    if version == 2:
        return
    kept = where("price < 5") >> aggregate("k", price="max(price)")
    world.run(left >> join(right >> kept, on="k", as_of="ts") >> world.sink("a.inner"))
    assert world.rows("a.inner", *PRICED) == Counter(
        {row: n for row, n in expected.items() if row[1] is not None and row[1] < 5}
    )


@pytest.mark.slow
def test_a_null_time_and_a_table_without_commits(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.prices (k bigint, price double) USING iceberg")
    events(world, (0, 1, None), (1, 1, at(10**9)))
    right = world.source("a.prices")

    def joined(how: Any, name: str) -> Any:
        return world.source("a.events") >> join(right, on="k", how=how, as_of="ts") >> world.sink(name)

    world.run(joined("left", "a.none"))
    assert world.rows("a.none", *PRICED) == {(0, None): 1, (1, None): 1}
    table(world, "prices", "k bigint, price double", [(1, 1.0)])
    world.run(joined("left", "a.left"))
    assert world.rows("a.left", *PRICED) == {(0, None): 1, (1, 1.0): 1}
    world.run(joined("inner", "a.inner"))
    assert world.rows("a.inner", *PRICED) == {(1, 1.0): 1}


@pytest.mark.parametrize("by", ["pyiceberg", pytest.param("spark", marks=pytest.mark.slow)])
@pytest.mark.cases(landing="pyiceberg")
def test_a_row_before_the_retained_history_stops_the_run(world: Any, by: str) -> None:
    columns = "k bigint, price double"
    for n in range(4):
        table(world, "prices", columns, [(n, float(n))])
    retained = world.load("a.prices").iceberg
    times = [datetime.fromtimestamp(e.timestamp_ms / 1000, UTC) for e in retained.metadata.snapshot_log]
    if by == "spark":
        world.expire("a.prices")
        oldest = times[-1]
    else:  # takes the parent's id away, and leaves the older ones in the log
        retained.maintenance.expire_snapshots().by_id(retained.snapshots()[1].snapshot_id).commit()
        oldest = times[2]
    right = world.source("a.prices")
    pipeline = world.source("a.events").incremental(poll=1) >> join(right, on="k", how="left", as_of="ts")
    pipeline = pipeline >> world.sink("a.t")
    events(world, (0, 3, at(10**9)), (1, 2, oldest))
    world.run(pipeline)
    events(world, (2, 1, oldest - MICRO), (3, 1, at(10**9)))
    with pytest.raises(
        RunError, match=r"test_as_of.py:\d+: join\(on=k, as_of=ts\): a row's time is .*retained"
    ) as told:
        world.run(pipeline)
    assert "history=True" in (told.value.fix or "")
    assert f"{oldest:%Y-%m-%d %H:%M:%S}" in told.value.what
    assert world.ids("a.t") == [0, 1]
    later = world.source("a.events").incremental(poll=1) >> where(f"ts >= '{oldest.isoformat()}'")
    world.run(later >> join(right, on="k", how="left", as_of="ts") >> world.sink("a.later"))
    assert world.ids("a.later") == [0, 1, 3]


# exactly once


@pytest.mark.parametrize("way", ["commits", pytest.param("validity", marks=pytest.mark.slow)])
@pytest.mark.cases(landing="commits")
def test_a_replay_sees_the_table_as_the_batch_that_died_did(world: Any, way: str) -> None:
    if way == "validity":
        versions(world, (1, 1.0, at(0), None))
    else:
        table(world, "prices", "k bigint, price double", [(1, 1.0)])
    right = world.source("a.prices") >> select("k", "price", *(("valid_from", "valid_to") if way == "validity" else ()))
    pipeline = world.source("a.events").incremental(poll=1) >> join(right, on="k", how="left", as_of="ts")
    pipeline = pipeline >> world.sink("a.t").exactly_once()
    events(world, (0, 1, at(10**9)))
    world.run(pipeline)
    events(world, (1, 1, at(10**9)))
    with dies_before_commit():
        world.run(pipeline)
    pinned = world.load("a.prices").current_snapshot().id
    world.sql("UPDATE local.a.prices SET price = 2.0")
    world.run(pipeline)
    assert world.rows("a.t", *PRICED) == {(0, 1.0): 1, (1, 1.0): 1}
    assert str(pinned) in world.load("a.t").current_snapshot().summary["helios.position"]
    events(world, (2, 1, at(10**9)))
    world.run(pipeline)
    assert world.rows("a.t", *PRICED) == {(0, 1.0): 1, (1, 1.0): 1, (2, 2.0): 1}


@pytest.mark.slow
def test_rows_that_are_replayed_from_a_quarantine_see_their_own_time(world: Any) -> None:
    table(world, "prices", "k bigint, price double", [(1, 1.0)])
    first = datetime.fromtimestamp(world.load("a.prices").iceberg.metadata.snapshot_log[0].timestamp_ms / 1000, UTC)
    world.sql("UPDATE local.a.prices SET price = 2.0")

    def pipeline(least: int) -> Any:
        checked = world.source("a.events").incremental(poll=1) >> expect({"id": f"id >= {least}"}, on_fail="quarantine")
        priced = checked >> join(world.source("a.prices"), on="k", as_of="ts")
        return priced >> world.sink("a.t").quarantine("a.q")

    events(world, (0, 1, first), (1, 1, at(10**9)), (2, 1, at(10**9)))
    world.run(pipeline(2))
    assert world.rows("a.t", *PRICED) == {(2, 2.0): 1}
    Replay(world.plan(pipeline(0)), world.spark).run()
    assert world.rows("a.t", *PRICED) == {(0, 1.0): 1, (1, 2.0): 1, (2, 2.0): 1}


@pytest.mark.slow
def test_a_preview_sees_the_past(world: Any) -> None:
    times = commits(world)
    events(world, (0, 1, times[0]), (1, 1, times[-1]))
    stream = world.source("a.events") >> join(world.source("a.prices"), on="k", how="left", as_of="ts")
    assert sorted(stream.preview(spark=world.spark)["price"].to_pylist()) == [1.0, 11.0]


def test_what_a_callable_makes_stateful_cannot_choose_commits(world: Any) -> None:
    table(world, "prices", "k bigint, price double", [(1, 1.0)])
    events(world, (0, 1, at(10**9)))
    once = step(lambda df: df.dropDuplicates(["id"]))
    stream = world.source("a.events").incremental(poll=1) >> join(world.source("a.prices"), on="k", as_of="ts") >> once
    with pytest.raises(HeliosError, match="Spark plans this stateful stream only once"):
        world.run(stream >> world.sink("a.t"))


@pytest.mark.slow
def test_a_time_that_changes_when_it_is_read_again_stops_the_run(world: Any) -> None:
    for n in range(2):
        table(world, "prices", "k bigint, price double", [(n, float(n))])
    log = world.load("a.prices").iceberg.metadata.snapshot_log
    times = [datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC) for entry in log]
    events(world, (0, 1, times[-1]))
    read, first, last = str(world.folder / "read"), times[0], times[-1]

    def moved(_):  # type: ignore[no-untyped-def]  # Spark would look at its types
        if os.path.exists(read):
            return last
        open(read, "w").close()
        return first

    left = world.source("a.events") >> step(lambda df: df.withColumn("ts", udf(moved, "timestamp")("id")))
    pipeline = left >> join(world.source("a.prices"), on="k", how="left", as_of="ts") >> world.sink("a.t")
    with pytest.raises(RunError, match="the time of a row is not the same when it is read again"):
        world.run(pipeline)
