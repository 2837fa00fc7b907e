"""`dedupe(within=)` by event time: equal for any cutting into batches; and rows that a watermark drops are counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from helios import dedupe, rename, step, watermark, where, window, with_columns
from helios.cli.progress import JsonLines, Lines
from helios.errors import CheckpointError, InputError, RunError
from helios.spark.sinks.audit import AuditedSink

pytestmark = pytest.mark.promise("dedupe")

T0 = 1767225600
"""2026-01-01T00:00:00Z"""
AT = f"timestamp_seconds({T0} + n * 60)"


def followed(world: Any, table: str = "a.s") -> Any:
    """A batch for each commit, in their order: a state would be read in any order of its files."""
    return world.source(table).incremental(poll=1, start="earliest", max_files=1)


def write(
    world: Any, table: str, rows: Sequence[tuple[Any, ...]], names: str = "id bigint, k bigint, n bigint"
) -> None:
    """One commit of one file: a batch of its own."""
    df = world.spark.createDataFrame(list(rows), names).withColumn("ts", F.expr(AT)).coalesce(1)
    world.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{table.split('.', maxsplit=1)[0]}")
    if world.catalog.exists(table):
        df.writeTo(f"local.{table}").append()
    else:
        df.writeTo(f"local.{table}").using("iceberg").create()


def kept(rows: Sequence[tuple[int, int, int]], within: int) -> Counter[tuple[int, int]]:
    """The keys and minutes that the spec keeps of rows `(id, key, minute)`."""
    found: Counter[tuple[int, int]] = Counter()
    last: dict[int, int] = {}
    for _, key, minute in sorted(rows, key=lambda row: row[2]):
        if key not in last or minute - last[key] > within:
            last[key] = minute
            found[key, minute] += 1
    return found


DELAY, FAR = 30, 100_000


@st.composite
def batches(draw: st.DrawFn) -> list[list[tuple[int, int, int]]]:
    """Rows of some keys that come late by less than the watermark's delay, cut into batches."""
    minutes = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 300)), min_size=40, max_size=160))
    delays = draw(st.lists(st.integers(0, DELAY - 1), min_size=len(minutes), max_size=len(minutes)))
    rows = [(i, key, minute) for i, (key, minute) in enumerate(minutes)]
    rows = [rows[i] for i in sorted(range(len(rows)), key=lambda i: rows[i][2] + delays[i])]
    cuts = draw(st.lists(st.integers(1, len(rows) - 1), max_size=4, unique=True))
    edges = [0, *sorted(cuts), len(rows)]
    return [rows[a:b] for a, b in pairwise(edges)]


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=batches(), within=st.sampled_from([1, 20, 45, 120]))
def test_any_cutting_into_batches_keeps_the_same_rows(world: Any, cut: list[Any], within: int) -> None:
    world.examples = getattr(world, "examples", 0) + 1
    source, steps = f"a.s{world.examples}", watermark("ts", f"{DELAY} minutes") >> dedupe("k", within=within * 60)
    for rows in cut:
        write(world, source, rows)
    write(world, source, [(-1, -1, FAR)])  # the watermark passes all others
    world.events.clear()
    run = world.run(followed(world, source) >> steps >> world.sink(f"a.cut{world.examples}"))
    assert sum(event.batch is not None for event in world.events) > len(cut)
    assert run.metrics().records_late == 0
    world.run(world.source(source) >> steps >> where("k >= 0") >> world.sink(f"a.whole{world.examples}"))
    found = world.rows(f"a.cut{world.examples}", "k", "n")
    assert found == kept([row for rows in cut for row in rows], within)
    # Rows of one key and minute are told apart by what they hold, in one batch as in many.
    assert world.rows(f"a.cut{world.examples}") == world.rows(f"a.whole{world.examples}")


@pytest.mark.short
def test_a_backfill_keeps_rows_of_a_key_that_lie_far_apart(world: Any, forget_commit: Any) -> None:
    day = 1440
    rows = [(0, 1, 0), (1, 1, day), (2, 1, 2 * day), (3, 1, 19 * day), (4, 2, 19 * day), (5, 2, 40 * day)]
    write(world, "a.s", rows)
    steps = watermark("ts", "2 hours") >> dedupe("k", within="1 day")
    pipeline = followed(world) >> steps >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == [0, 2, 3, 4]  # 1 lies a day after 0 and not later; 5 waits behind the watermark
    last = world.checkpoint(pipeline)
    forget_commit(last, max(int(p.name) for p in (last / "commits").iterdir() if p.name.isdigit()))
    world.run(pipeline)
    write(world, "a.s", [(6, 3, 60 * day), (7, 2, 40 * day + 1)])
    world.run(pipeline)
    assert world.ids("a.t") == [0, 2, 3, 4, 5]
    world.run(world.source("a.s") >> steps >> world.sink("a.whole"))
    assert world.ids("a.whole") == [0, 2, 3, 4, 5, 6]


COLUMNS = """
    id bigint, ts timestamp, d date, t timestamp, z timestamp_ntz, f double, g float, m decimal(38, 18), b binary,
    s string, o boolean, i int, nested struct<a: bigint, l: array<struct<x: date, y: string>>>,
    p map<string, array<timestamp>>
"""
VALUES = """
    (1, TIMESTAMP '2026-01-01 00:00:00.000001', DATE '1582-10-10', TIMESTAMP '0001-01-01 00:00:00.000001',
     TIMESTAMP_NTZ '1582-10-10 01:02:03.000004', CAST('NaN' AS double), CAST(0.1 AS float),
     CAST('12345678901234567890.123456789012345678' AS decimal(38, 18)), X'00FF', 'ä\\n', true, 7,
     named_struct('a', 5L, 'l', array(named_struct('x', DATE '0001-01-01', 'y', CAST(null AS string)))),
     map('k', array(TIMESTAMP '9999-12-31 23:59:59.999999', null))),
    (2, TIMESTAMP '2026-01-01 00:00:00.000001', null, null, null, null, null, null, null, null, null, null, null, null)
"""


def test_rows_wait_with_all_their_values(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql(f"CREATE TABLE local.a.s ({COLUMNS}) USING iceberg")
    world.sql(f"INSERT INTO local.a.s VALUES {VALUES}")
    steps = watermark("ts", "1 hour") >> dedupe("id", within="1 hour")
    pipeline = world.source("a.s").incremental(poll=1) >> steps >> world.sink("a.t")
    world.run(pipeline)
    world.sql("INSERT INTO local.a.s (id, ts) VALUES (3, TIMESTAMP '2026-02-01 00:00:00')")
    world.run(pipeline)
    world.run(world.source("a.s") >> steps >> where("id < 3") >> world.sink("a.whole"))

    def texts(table: str) -> list[str]:
        return sorted(
            row.text for row in world.sql(f"SELECT CAST(struct(*) AS string) AS text FROM local.a.{table} WHERE id < 3")
        )

    assert texts("t") == texts("s") == texts("whole")
    assert [f.name for f in world.load("a.t").iceberg.schema().fields] == [
        f.name for f in world.load("a.s").iceberg.schema().fields
    ]


@pytest.mark.landing
def test_a_key_may_be_null_and_zero_has_no_sign(world: Any) -> None:
    write(world, "a.s", [(0, None, 0), (1, None, 1), (2, 0, 2), (3, 0, 3), (9, 9, 9999)])
    keyed = with_columns(f="if(id = 2, -0.0D, CAST(k AS double))") >> rename({"ts": "at"})
    steps = watermark("ts", "1 minute") >> keyed >> dedupe("f", within="1 hour")
    world.run(followed(world) >> steps >> world.sink("a.t"))
    assert world.ids("a.t") == [0, 2]


def test_a_row_without_an_event_time_stops_the_run(world: Any) -> None:
    write(world, "a.s", [(0, 1, 0), (1, 1, None)])
    steps = watermark("ts", "1 minute") >> dedupe("k", within="1 hour")
    for target, source in (("a.t", followed(world)), ("a.whole", world.source("a.s"))):
        with pytest.raises(
            RunError, match=r"test_dedupe.py:\d+: dedupe\(k, within=1 h\) met a row whose ts is null: .*1"
        ) as told:
            world.run(source >> steps >> world.sink(target))
        assert "IS NOT NULL" in (told.value.fix or "")
        assert not world.catalog.exists(target) or world.ids(target) == []


def test_within_needs_a_watermark(world: Any) -> None:
    write(world, "a.s", [(0, 1, 0)])
    hidden = step(lambda df: df)  # what a callable returns is known only at run
    for source in (followed(world), world.source("a.s")):
        with pytest.raises(
            InputError, match=r"goes by the event time of the watermark's column, and there is none"
        ) as told:
            world.run(source >> hidden >> dedupe("k", within="1 hour") >> world.sink("a.t"))
        assert "watermark(" in (told.value.fix or "")


def test_keys_that_a_callable_leaves_unbounded_are_refused(world: Any) -> None:
    write(world, "a.s", [(0, 1, 0), (1, 1, 0)])
    plain, marked = step(lambda df: df), step(lambda df: df.withWatermark("ts", "1 hour"))
    with pytest.raises(InputError, match=r"would remember every key for ever.*within="):
        world.run(followed(world) >> plain >> dedupe("k") >> world.sink("a.t"))
    world.run(followed(world) >> marked >> dedupe("k", "ts") >> world.sink("a.t"))
    assert len(world.ids("a.t")) == 1


@pytest.mark.landing
def test_another_span_is_refused(world: Any) -> None:
    write(world, "a.s", [(0, 1, 0)])

    def of(within: str) -> Any:
        return followed(world) >> watermark("ts", "1 hour") >> dedupe("k", within=within) >> world.sink("a.t")

    world.run(of("1 hour"))
    with pytest.raises(CheckpointError, match=r"built by .*dedupe\(k, within=1 h\) by event time; .*within=2 h"):
        world.run(of("2 hours"))


# rows that a watermark drops

LATE = watermark("ts", "10 minutes")


@pytest.mark.parametrize(
    ("steps", "sink", "late"),
    [
        (LATE >> dedupe("k", within="1 hour"), lambda sink: sink, 2),
        (LATE >> dedupe("k", within="1 hour"), lambda sink: sink.upsert("id", order_by="n"), 2),
        (LATE >> dedupe("id", "ts"), lambda sink: sink, 2),
        (LATE >> window("ts", "1 hour").group_by("id").agg(n="count(*)"), lambda sink: sink, 2),
    ],
    ids=["dedupe", "upserted", "spark", "window"],
)
@pytest.mark.promise("late")
@pytest.mark.cases(short="dedupe")
def test_late_rows_are_counted_and_told_with_their_batch(
    world: Any, capsys: pytest.CaptureFixture[str], steps: Any, sink: Any, late: int
) -> None:
    pipeline = followed(world) >> steps >> sink(world.sink("a.t"))
    write(world, "a.s", [(0, 1, 0), (1, 1, 600)])
    first = world.run(pipeline)
    assert first.metrics().records_late == 0
    write(world, "a.s", [(2, 5, 10), (3, 6, 20), (4, 7, 700), (5, 8, 701)])
    world.events.clear()
    run = world.run(pipeline)
    assert run.metrics().records_late == late
    assert json.loads(run.metrics().to_json())["records_late"] == late
    assert f'iceberg_records_late_total{{pipeline="{run.plan.pipeline}"' in run.metrics().to_prometheus()
    told = [event for event in world.events if event.late]
    assert [event.late for event in told] == [late]
    for shown in (Lines(), JsonLines()):
        shown.open([run.plan.pipeline])
        shown.emit(told[0])
    plain, as_json = capsys.readouterr().out.splitlines()[-2:]
    assert plain.endswith(f"; {late} late rows dropped by the watermark")
    assert json.loads(as_json)["late"] == late


@pytest.mark.promise("late")
def test_late_rows_of_a_batch_that_is_written_or_run_again_are_counted_once(
    world: Any, monkeypatch: pytest.MonkeyPatch, forget_commit: Callable[[Path, int], None]
) -> None:
    world.spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    windows = window("ts", "1 hour").group_by("id").agg(n="count(*)")
    sink = world.sink("a.t").audit({"some": "count(*) > 0"}).publish()
    pipeline = followed(world) >> LATE >> windows >> sink
    for minute in (665, 800):  # a batch drops what is behind the watermark of the one before
        write(world, "a.s", [(4, 1, minute)])
    world.run(pipeline)
    write(world, "a.s", [(2, 5, 10), (3, 6, 20), (4, 7, 801)])
    audit, tries = AuditedSink._audit, []

    def moved(self: AuditedSink, *arguments: Any) -> None:
        tries.append(arguments)
        if len(tries) == 1:
            world.sql("INSERT INTO local.a.t VALUES (TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-01', 9, 9)")
        audit(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(AuditedSink, "_audit", moved)
        run = world.run(pipeline)
    assert len(tries) == 2
    assert world.rows("a.t", "id", "n") == Counter([(9, 9), (4, 1)])
    assert run.metrics().records_late == 2
    assert [event.late for event in world.events if event.late] == [2]
    forget_commit(world.checkpoint(pipeline), 2)
    again = world.run(pipeline)
    assert world.kinds()[-2:] == ["skipped", "finished"]
    assert again.metrics().records_late == 0
    assert [event.late for event in world.events if event.late] == [2]
