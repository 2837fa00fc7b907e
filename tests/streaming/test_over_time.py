"""Windows, sessions, `dedupe` and joins of streams over shuffled events, beside a batch over the same rows.

And the rows that come too late: counted, and set aside.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from helios import Files, dedupe, drop, expect, join, rename, session_window, step, watermark, where, window
from helios.errors import RunError
from tests.suite.deaths import dies_before_commit

pytestmark = pytest.mark.promise("stateful")

T0 = 1767225600
"""2026-01-01T00:00:00Z"""
DELAY, FAR = 30, 100_000

WINDOWS = window("ts", "20 minutes").group_by("k").agg(n="count(*)", total="sum(id)")
SLIDING = window("ts", "20 minutes", "10 minutes").group_by("k").agg(n="count(*)", total="sum(id)")
SESSIONS = session_window("ts", "15 minutes").group_by("k").agg(n="count(*)", total="sum(id)")
UNIQUE = dedupe("k", within="25 minutes")

FEW = settings(
    max_examples=1,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MANY = settings(FEW, max_examples=5, derandomize=False)

Row = tuple[int, int, int]


def write(world: Any, table: str, rows: list[Row]) -> None:
    """One commit of one file: a batch of its own."""
    df = world.spark.createDataFrame(rows, "id bigint, k bigint, minute bigint")
    df = df.withColumn("ts", F.expr(f"timestamp_seconds({T0} + minute * 60)")).coalesce(1)
    world.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{table.split('.', maxsplit=1)[0]}")
    if world.catalog.exists(table):
        df.writeTo(f"local.{table}").append()
    else:
        df.writeTo(f"local.{table}").using("iceberg").create()


def followed(world: Any, table: str) -> Any:
    return world.source(table).incremental(poll=1, start="earliest", max_files=1)


def late(on_late: Any = "quarantine") -> Any:
    return watermark("ts", f"{DELAY} minutes", on_late=on_late)


def payloads(world: Any, table: str) -> Counter[tuple[int, ...]]:
    """The rows in a quarantine."""
    if not world.catalog.exists(table):
        return Counter()
    found = [json.loads(payload) for (payload,) in world.rows(table, "payload").elements()]
    return Counter((row["id"], row["k"], row["minute"]) for row in found)


@st.composite
def shuffled(draw: st.DrawFn, latest: int = DELAY - 1, cuts: int = 3) -> list[list[Row]]:
    """Rows of some keys that come late by up to some minutes, cut into batches in so many places at most."""
    minutes = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), min_size=30, max_size=90))
    delays = draw(st.lists(st.integers(0, latest), min_size=len(minutes), max_size=len(minutes)))
    rows = [(n, key, minute) for n, (key, minute) in enumerate(minutes)]
    rows = [rows[n] for n in sorted(range(len(rows)), key=lambda n: rows[n][2] + delays[n])]
    places = draw(st.lists(st.integers(1, len(rows) - 1), min_size=1, max_size=cuts, unique=True))
    return [rows[a:b] for a, b in pairwise([0, *sorted(places), len(rows)])]


class Example:
    """The tables of one example."""

    def __init__(self, world: Any) -> None:
        self.world, self.number = world, getattr(world, "examples", 0) + 1
        world.examples = self.number

    def __call__(self, name: str) -> str:
        return f"a.{name}{self.number}"

    def streamed(self, cut: list[list[Row]], steps: Any, *, at_once: bool) -> int:
        """Runs a stream over batches into `stream`, late rows aside; the number that the metrics have of them.

        Args:
            cut: The batches.
            steps: The steps behind the watermark.
            at_once: Whether one run has all batches, rather than each its own.
        """
        counted = 0
        pipeline = followed(self.world, self("s")) >> late() >> steps
        pipeline = pipeline >> self.world.sink(self("stream")).quarantine(self("late"))
        for rows in (*cut, [(-1, -1, FAR)]):  # the last one's watermark passes all others
            write(self.world, self("s"), rows)
            counted += 0 if at_once else self.world.run(pipeline).metrics().records_late
        return self.world.run(pipeline).metrics().records_late if at_once else counted

    def recomputed(self, steps: Any, aside: Counter[Row]) -> Counter[tuple[Any, ...]]:
        """A batch over the rows that did not come too late."""
        ids = ", ".join(str(row[0]) for row in aside)
        rows = self.world.source(self("s")) >> where(f"k >= 0 AND id NOT IN ({ids or '-9'})") >> late("drop")
        self.world.run(rows >> steps >> self.world.sink(self("whole")))
        return self.world.rows(self("whole"))


def equal_to_a_batch(world: Any, steps: Any, cut: list[list[Row]], *, inside: bool, at_once: bool = False) -> None:
    example = Example(world)
    counted = example.streamed(cut, steps, at_once=at_once)
    aside = payloads(world, example("late"))
    assert all(n == 1 for n in aside.values())
    found = Counter({row: n for row, n in world.rows(example("stream")).items() if -1 not in row})
    assert found == example.recomputed(steps, aside)
    if inside:
        assert not aside
        assert counted == 0
    elif steps is UNIQUE:
        assert counted == len(aside)
    else:  # Spark counts what each task has left of them
        assert bool(counted) == bool(aside)
        assert counted <= len(aside)


INSIDE = [WINDOWS, SLIDING, SESSIONS, UNIQUE]
NAMES = ["windows", "sliding", "sessions", "dedupe"]


@pytest.mark.slow
@FEW
@given(steps=st.sampled_from([WINDOWS, SESSIONS]), cut=shuffled(cuts=1))
@pytest.mark.landing
def test_shuffled_events_inside_the_watermark_give_what_a_batch_gives(world: Any, steps: Any, cut: Any) -> None:
    equal_to_a_batch(world, steps, cut, inside=True, at_once=True)


@FEW
@given(steps=st.sampled_from([WINDOWS, UNIQUE]), cut=shuffled(latest=4 * DELAY, cuts=2))
def test_what_comes_later_is_set_aside_and_the_rest_is_what_a_batch_gives(world: Any, steps: Any, cut: Any) -> None:
    equal_to_a_batch(world, steps, cut, inside=False, at_once=True)


@pytest.mark.slow
@pytest.mark.parametrize("steps", INSIDE, ids=NAMES)
@MANY
@given(cut=shuffled())
def test_many_shuffled_events_inside_the_watermark(world: Any, steps: Any, cut: Any) -> None:
    equal_to_a_batch(world, steps, cut, inside=True)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [WINDOWS, UNIQUE], ids=["windows", "dedupe"])
@MANY
@given(cut=shuffled(latest=4 * DELAY))
def test_many_late_events(world: Any, steps: Any, cut: Any) -> None:
    equal_to_a_batch(world, steps, cut, inside=False)


# late rows


@pytest.mark.promise("late")
@pytest.mark.short
def test_late_rows_go_to_the_quarantine_once_through_a_replay(world: Any, forget_commit: Any) -> None:
    shape = where("k < 9") >> rename({"minute": "m"})
    pipeline = followed(world, "a.s") >> shape >> late() >> WINDOWS >> world.sink("a.t").quarantine("a.q")
    write(world, "a.s", [(0, 1, 10), (1, 1, 200)])
    world.run(pipeline)
    write(world, "a.s", [(2, 1, 15), (3, 9, 15), (4, 1, 165), (5, 2, 160), (6, 1, 210)])  # 170 is the watermark
    with dies_before_commit():
        world.run(pipeline)
    before = world.rows("a.q").total()
    run = world.run(pipeline)
    aside = list(world.rows("a.q", "payload", "reason", "step", "position", "batch").elements())
    assert [json.loads(row[0])["id"] for row in aside] == [2]  # the windows of 4 and 5 are open until 180
    [(payload, reason, said, position, batch)] = aside
    assert json.loads(payload) == {"id": 2, "k": 1, "m": 15, "ts": "2026-01-01T00:15:00.000000Z"}
    assert reason == (
        "late: 2026-01-01 00:15:00, whose window ended at 2026-01-01 00:20:00, and the watermark is at "
        "2026-01-01 02:50:00"
    )
    assert said == "watermark(ts, 30 min, on_late=quarantine)" or said.startswith("watermark(ts, 1800 s")
    assert json.loads(position)["sources"][0]["source"] == "local.a.s"
    assert batch >= 1
    assert before <= 1
    assert run.metrics().records_late == 1
    assert run.metrics().records_failed == (1 - before)
    last = world.checkpoint(pipeline)
    for batch in sorted((int(p.name) for p in (last / "commits").iterdir() if p.name.isdigit()), reverse=True)[:2]:
        forget_commit(last, batch)
    world.run(pipeline)
    assert world.rows("a.q").total() == 1


@pytest.mark.slow
def test_of_overlapping_windows_one_that_has_ended_is_enough(world: Any) -> None:
    pipeline = followed(world, "a.s") >> late() >> SLIDING >> world.sink("a.t").quarantine("a.q")
    write(world, "a.s", [(0, 1, 200)])
    world.run(pipeline)
    write(world, "a.s", [(n, 1, minute) for n, minute in enumerate((149, 150, 159, 160, 169, 170, 180))])
    run = world.run(pipeline)
    # At 170: windows of 150 end at 160 and 170, those of 160 at 170 and 180, those of 170 at 180 and 190.
    assert sorted(row[2] for row in payloads(world, "a.q")) == [149, 150, 159, 160, 169]
    assert run.metrics().records_late > 0
    write(world, "a.s", [(-1, -1, FAR)])
    world.run(pipeline)
    windows = world.rows("a.t", "window_start", "n")
    assert {((start.timestamp() - T0) // 60, n) for start, n in windows} == {
        (160, 3), (170, 2), (180, 1), (190, 1), (200, 1),
    }  # fmt: skip


@pytest.mark.slow
def test_late_lines_of_a_followed_folder(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()

    def land(name: str, *minutes: int) -> None:
        lines = [
            f"{n},1,{minute},2026-01-01T{minute // 60:02}:{minute % 60:02}:00Z" for n, minute in enumerate(minutes)
        ]
        (folder / name).write_text("\n".join(["id,k,minute,ts", *lines, ""]))

    source = Files.source(str(folder), "csv", schema="id bigint, k bigint, minute bigint, ts timestamp")
    checked = expect({"known": "k IS NOT NULL"}) >> late() >> dedupe("k", "ts")
    pipeline = source.incremental(poll=1) >> checked >> world.sink("a.t").quarantine("a.q")
    land("one.csv", 10, 200)
    world.run(pipeline)
    land("two.csv", 20, 170, 171, 210)
    world.run(pipeline)
    assert sorted(row[2] for row in payloads(world, "a.q")) == [20, 170]
    assert sorted(row[0] for row in world.rows("a.t", "minute").elements()) == [10, 171, 200, 210]


@pytest.mark.slow
def test_where_late_rows_go_may_change(world: Any) -> None:
    def pipeline(on_late: str) -> Any:
        return followed(world, "a.s") >> late(on_late) >> WINDOWS >> world.sink("a.t").quarantine("a.q")

    write(world, "a.s", [(0, 1, 200)])
    world.run(pipeline("drop"))
    write(world, "a.s", [(1, 1, 10)])
    assert world.run(pipeline("drop")).metrics().records_late == 1
    write(world, "a.s", [(2, 1, 10)])
    world.run(pipeline("quarantine"))
    assert payloads(world, "a.q") == {(2, 1, 10): 1}


@pytest.mark.slow
def test_a_callable_that_keeps_state_hides_which_rows_are_late(world: Any) -> None:
    write(world, "a.s", [(0, 1, 200)])
    hidden = step(lambda df: df.dropDuplicates(["id", "ts"]))
    pipeline = followed(world, "a.s") >> late() >> hidden >> WINDOWS >> world.sink("a.t").quarantine("a.q")
    with pytest.raises(RunError, match="the late rows are unknown: a callable keeps state"):
        world.run(pipeline)


# joins of streams


def joined(world: Any, example: Example, how: Any, within: Any, source: Callable[[str], Any]) -> Any:
    right = source(example("right")) >> rename({"id": "r", "minute": "m", "ts": "seen"})
    right = right >> watermark("seen", f"{DELAY} minutes")
    before, after = (minutes * 60 for minutes in within)
    return source(example("left")) >> late("drop") >> join(right, on="k", how=how, within=(before, after))


def equal_to_a_batch_join(world: Any, how: str, within: Any, cuts: Any, *, at_once: bool = False) -> None:
    example = Example(world)
    stream = joined(world, example, how, within, lambda table: followed(world, table)) >> drop("ts", "seen")
    pipeline = stream >> world.sink(example("stream"))
    ends = [([(-1, -1, FAR)], [(-1, -2, FAR)])]
    for left, right in [*zip(*cuts, strict=False), *ends]:
        write(world, example("left"), left)
        write(world, example("right"), right)
        assert at_once or world.run(pipeline).metrics().records_late == 0
    assert not at_once or world.run(pipeline).metrics().records_late == 0
    whole = joined(world, example, how, within, world.source) >> where("k >= 0") >> drop("ts", "seen")
    world.run(whole >> world.sink(example("whole")))
    found = world.rows(example("stream"))
    assert Counter({row: n for row, n in found.items() if row[0] >= 0}) == world.rows(example("whole"))
    # By hand, too.
    left, right = ([row for rows in side[: len(min(cuts, key=len))] for row in rows] for side in cuts)
    before, after = within
    expected: Counter[tuple[Any, ...]] = Counter()
    for n, key, minute in left:
        met = [(r, m) for r, k, m in right if k == key and minute - before <= m <= minute + after]
        expected.update((key, n, minute, r, m) for r, m in met)
        expected.update([(key, n, minute, None, None)] if how == "left" and not met else [])
    assert world.rows(example("whole"), "k", "id", "minute", "r", "m") == expected


@FEW
@given(how=st.sampled_from(["inner", "left"]), cuts=st.tuples(shuffled(cuts=1), shuffled(cuts=1)))
@pytest.mark.landing
def test_two_streams_within_bounds_give_what_a_batch_gives(world: Any, how: str, cuts: Any) -> None:
    equal_to_a_batch_join(world, how, (5, 20), cuts, at_once=True)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["inner", "left"])
@MANY
@given(within=st.sampled_from([(0, 10), (10, 10), (15, 0)]), cuts=st.tuples(shuffled(), shuffled()))
def test_many_streams_within_bounds(world: Any, how: str, within: Any, cuts: Any) -> None:
    equal_to_a_batch_join(world, how, within, cuts)
