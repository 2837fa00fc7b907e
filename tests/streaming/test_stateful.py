"""Streams that keep state: windows after a watermark, deduplication, stream-stream joins, callables that aggregate."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from helios import (
    Files,
    aggregate,
    dedupe,
    join,
    session_window,
    sql,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.errors import CheckFailed, CheckpointError, InputError

pytestmark = pytest.mark.promise("stateful")

AT = "timestamp_seconds(1767225600 + id * 600)"
"""One row every ten minutes from 2026-01-01."""


def hours(world: Any) -> Any:
    return (
        world.source("a.s").incremental(poll=1)
        >> watermark("ts", "1 hour")
        >> window("ts", "1 hour").group_by("kind").agg(n="count(*)", total="sum(id)")
        >> world.sink("a.t")
    )


@pytest.mark.short
def test_windows_are_appended_once_when_the_watermark_has_passed_them(world: Any, forget_commit: Any) -> None:
    columns = {"ts": AT, "kind": "if(id % 2 = 0, 'a', 'b')"}
    pipeline = hours(world)
    for begin in range(0, 60, 20):
        world.fill("a.s", range(begin, begin + 20), **columns)
        world.run(pipeline)
    last = world.checkpoint(pipeline)
    forget_commit(last, max(int(p.name) for p in (last / "commits").iterdir() if p.name.isdigit()))
    world.run(pipeline)
    # The newest row is at 9:50 of the first day, so windows that end by 8:50 are complete.
    expected = {}
    for hour in range(8):
        for kind, odd in (("a", 0), ("b", 1)):
            ids = [i for i in range(hour * 6, hour * 6 + 6) if i % 2 == odd]
            expected[kind, len(ids), sum(ids)] = 1
    assert world.rows("a.t", "kind", "n", "total") == expected
    # Those of 8 and 9 o'clock are told.
    [*_, end] = world.events
    assert end.message == (
        "4 groups wait for the watermark, which is at 2026-01-01T08:50:00.000Z; later rows move it on"
    )


def sessions_of(rows: list[tuple[int, str]], gap: int) -> Counter[tuple[str, int, int, int]]:
    """By kind: the begin, end and number of rows of each session."""
    found: Counter[tuple[str, int, int, int]] = Counter()
    for kind in {kind for _, kind in rows}:
        times = sorted(at for at, of in rows if of == kind)
        cuts = [i for i, at in enumerate(times) if i == 0 or at - times[i - 1] > gap]
        for begin, end in zip(cuts, [*cuts[1:], len(times)], strict=True):
            found[kind, times[begin], times[end - 1] + gap, end - begin] += 1
    return found


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.cases(slow="True")
@pytest.mark.cases(landing="False")
def test_sessions_equal_the_reference(world: Any, followed: bool) -> None:
    some = random.Random(3)
    rows = [(minute, some.choice("abc")) for minute in sorted(some.sample(range(3_000), 150))]
    batches = [rows[begin : begin + 30] for begin in range(0, len(rows), 30)]
    source = world.source("a.s")
    pipeline = (
        (source.incremental(poll=1) >> watermark("ts", "20 minutes") if followed else source)
        >> session_window("ts", "30 minutes").group_by("kind").agg(n="count(*)")
        >> with_columns(begin="unix_seconds(window_start) div 60", end="unix_seconds(window_end) div 60")
        >> world.sink("a.t")
    )
    # Rows that come up to 20 minutes after later ones are not late.
    for batch in batches if followed else [rows]:
        shuffled = sorted(batch, key=lambda row: row[0] + some.randint(0, 10))
        for part in (shuffled[:15], shuffled[15:]) if followed else (shuffled,):
            minutes = ",".join(f"{at}" for at, _ in part)
            kinds = ",".join(f"'{kind}'" for _, kind in part)
            world.fill(
                "a.s",
                range(len(part)),
                ts=f"timestamp_seconds(array({minutes})[int(id)] * 60)",
                kind=f"array({kinds})[int(id)]",
            )
            world.run(pipeline) if followed else None
    world.run(pipeline)
    expected = sessions_of(rows, 30)
    if followed:  # those that the watermark has not passed wait
        passed = max(at for at, _ in rows) - 20
        expected = Counter({session: n for session, n in expected.items() if session[2] <= passed})
    assert world.rows("a.t", "kind", "begin", "end", "n") == expected


def test_sessions_that_spark_cannot_close_are_refused(world: Any) -> None:
    world.fill("a.s", range(3), ts=AT, kind="'a'")
    followed = world.source("a.s").incremental(poll=1) >> watermark("ts", "1 hour")
    sessions = session_window("ts", "1 hour")
    with pytest.raises(CheckFailed, match="sessions of a followed source need a group"):
        world.run(followed >> sessions.agg(n="count(*)") >> world.sink("a.t"))
    upserted = world.sink("a.t").upsert("window_start", "window_end", "kind")
    with pytest.raises(CheckFailed, match="an upsert would keep its earlier rows too"):
        world.run(followed >> sessions.group_by("kind").agg(n="count(*)") >> upserted)


@pytest.mark.short
def test_a_changed_aggregate_is_refused(world: Any) -> None:
    world.fill("a.s", range(20), ts=AT, kind="'a'")
    world.run(hours(world))
    changed = (
        world.source("a.s").incremental(poll=1)
        >> watermark("ts", "1 hour")
        >> window("ts", "2 hours").group_by("kind").agg(n="count(*)", total="sum(id)")
        >> world.sink("a.t")
    )
    with pytest.raises(CheckpointError, match=r"the state in the checkpoint .* was built by"):
        world.run(changed)


def test_a_group_with_an_alias_is_a_key_and_a_column_for_its_aggregates(world: Any) -> None:
    world.fill("a.s", range(10))
    by_rest = aggregate("id % 4 AS g", n="count(*)", top="max(id + g)", sure="max(g) = g")
    world.run(world.source("a.s").incremental(poll=1) >> by_rest >> world.sink("a.t").upsert("g"))
    world.run(world.source("a.s") >> by_rest >> world.sink("a.u"))
    expected = Counter({(0, 3, 8, True): 1, (1, 3, 10, True): 1, (2, 2, 8, True): 1, (3, 2, 10, True): 1})
    assert world.rows("a.t") == world.rows("a.u") == expected


def test_an_aggregate_without_a_watermark_is_a_check_error(world: Any) -> None:
    world.fill("a.s", [1])
    endless = world.source("a.s").incremental() >> aggregate("id", n="count(*)") >> world.sink("a.t")
    with pytest.raises(CheckFailed, match=r"are never final.*append after a watermark"):
        world.run(endless)


def test_a_callable_that_aggregates_a_stream_is_refused_as_spark_refuses_it(world: Any) -> None:
    world.fill("a.s", [1])
    hidden = step(lambda df: df.groupBy("id").count())
    with pytest.raises(InputError, match="watermark"):
        world.run(world.source("a.s").incremental() >> hidden >> world.sink("a.t"))
    assert not world.catalog.exists("a.t")


def test_a_callable_that_keeps_state_runs_as_a_stream(world: Any) -> None:
    world.fill("a.s", [1, 1, 2], ts=AT)
    pipeline = (
        world.source("a.s").incremental(poll=1) >> step(lambda df: df.dropDuplicates(["id"])) >> world.sink("a.t")
    )
    world.run(pipeline)
    world.fill("a.s", [2, 3], ts=AT)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


def test_a_callable_that_leaves_the_stream_is_refused(world: Any) -> None:
    world.fill("a.s", [1])
    leave = step(lambda df: df.sparkSession.range(3))
    with pytest.raises(InputError, match="turned the stream into a batch"):
        world.run(world.source("a.s").incremental() >> leave >> world.sink("a.t"))


@pytest.mark.short
def test_dedupe_within_a_watermark(world: Any) -> None:
    world.fill("a.s", [1, 2, 2], ts=AT)
    pipeline = (
        world.source("a.s").incremental(poll=1)
        >> watermark("ts", "1 hour")
        >> dedupe("id", within="1 hour")
        >> world.sink("a.t")
    )
    world.run(pipeline)
    assert world.ids("a.t") == []  # all wait: an earlier row of their keys may still come
    world.fill("a.s", [2, 3, 60], ts=AT)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


@pytest.mark.short
def test_two_streams_are_joined(world: Any) -> None:
    world.fill("a.left", [1, 2], l="id * 10")
    world.fill("a.right", [2, 3], r="id * 100")
    pipeline = (
        world.source("a.left").incremental(poll=1)
        >> join(world.source("a.right").incremental(poll=1), on="id")
        >> world.sink("a.t")
    )
    world.run(pipeline)
    world.fill("a.left", [3], l="id * 10")
    world.run(pipeline)
    assert world.rows("a.t", "id", "l", "r") == {(2, 20, 200): 1, (3, 30, 300): 1}


def test_a_stateful_pipeline_begins_with_the_state_that_is_left(world: Any) -> None:
    world.fill("a.s", range(10))
    world.sql("DELETE FROM local.a.s WHERE id = 3")
    once = step(lambda df: df.dropDuplicates(["id"]))
    pipeline = world.source("a.s").incremental(poll=1) >> once >> world.sink("a.t")
    world.run(pipeline)
    world.fill("a.s", range(8, 12))
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2, *range(4, 12)]


def test_a_filter_before_the_state(world: Any) -> None:
    world.fill("a.s", [1, 2, 3], ts=AT)
    once = step(lambda df: df.dropDuplicates(["id"]))
    pipeline = world.source("a.s").incremental(poll=1) >> where("id <> 2") >> once >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 3]


@pytest.mark.landing
def test_a_changed_query_that_groups_is_refused(world: Any) -> None:
    world.fill("a.s", range(20), ts=AT, a="'a'", b="'b'")

    def counted(key: str) -> Any:
        query = f"SELECT {key} AS k, count(*) AS n FROM input GROUP BY window(ts, '1 hour'), {key}"
        shape = step(lambda df: df.withWatermark("ts", "1 hour")) >> sql(query)
        return world.source("a.s").incremental(poll=1) >> shape >> world.sink("a.t")

    world.run(counted("a"))
    with pytest.raises(CheckpointError, match=r"the state in the checkpoint .* was built by"):
        world.run(counted("b"))


def test_a_folder_that_is_still_empty_beside_a_table(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    world.fill("a.s", [1, 2])
    files = Files.source(str(folder), "csv", schema="id bigint").incremental(poll=1)
    pipeline = (world.source("a.s").incremental(poll=1) >> union(files) >> world.sink("a.t")).named("both")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]
    (folder / "one.csv").write_text("id\n10\n")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 10]


def test_a_table_and_a_folder_followed_together(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    (folder / "one.csv").write_text("id\n10\n11\n")
    world.fill("a.s", [1, 2])
    files = Files.source(str(folder), "csv", schema="id bigint").incremental(poll=1)
    pipeline = (world.source("a.s").incremental(poll=1) >> union(files) >> world.sink("a.t")).named("both")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 10, 11]
    (folder / "two.csv").write_text("id\n12\n")
    world.fill("a.s", [3])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 10, 11, 12]


def test_a_group_column_may_have_the_name_of_sparks_window(world: Any) -> None:
    world.fill("a.s", range(6), ts=AT, window="id % 2")
    counted = world.source("a.s") >> window("ts", "1 hour").group_by("window").agg(n="count(*)")
    world.run(counted >> world.sink("a.t"))
    assert world.rows("a.t", "window", "n") == {(0, 3): 1, (1, 3): 1}
