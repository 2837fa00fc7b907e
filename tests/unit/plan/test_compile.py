"""Compiling: paths, triggers, checkpoints and every problem at once, without a JVM."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from helios import (
    Catalog,
    Files,
    Iceberg,
    Memory,
    aggregate,
    bucket,
    day,
    dedupe,
    hour,
    join,
    select,
    step,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.errors import CheckFailed, HeliosError
from helios.model import flow
from helios.model.mirror import MirrorSink
from helios.model.output import Output
from helios.model.values import show_seconds
from helios.plan import Context, Plan, ReadPath, Trigger, compile_pipelines, components_before_compiling, infer_schema
from helios.sources.kinds import KINDS

pytestmark = pytest.mark.promise("commands")


def compiled(context: Context, *pipelines: Any) -> tuple[list[Plan], list[str]]:
    plans, problems = compile_pipelines(pipelines, context)
    return plans, [str(p) for p in problems]


ORDERS = Iceberg.source("a.orders")
FOLLOWED = ORDERS.incremental(poll="30s")
SINK = Iceberg.sink("a.t")
CSV = Files.source("x", "csv", schema="id bigint, ts timestamp")


@pytest.mark.parametrize(
    ("pipeline", "path"),
    [
        (ORDERS >> SINK, ReadPath.BATCH),
        (FOLLOWED >> where("id > 1") >> SINK, ReadPath.RANGES),
        (FOLLOWED >> join(ORDERS, on="id", how="semi") >> SINK, ReadPath.RANGES),
        (FOLLOWED >> SINK.flush(rows=10), ReadPath.RANGES),
        (FOLLOWED >> SINK.tune("balanced"), ReadPath.RANGES),
        (ORDERS.incremental(max_files=2) >> SINK, ReadPath.RANGES),
        (FOLLOWED.changes("id") >> where("_change_type <> 'DELETE'") >> SINK, ReadPath.RANGES),
        (FOLLOWED >> watermark("ts", "1h") >> dedupe("id", within="1d") >> SINK.tune("balanced"), ReadPath.STATEFUL),
        (FOLLOWED >> union(FOLLOWED) >> SINK, ReadPath.RANGES),
        (FOLLOWED >> union(FOLLOWED) >> SINK.flush(rows=10), ReadPath.RANGES),
        (CSV.incremental() >> SINK, ReadPath.RANGES),
        (CSV.incremental() >> SINK.tune("low_latency"), ReadPath.RANGES),
        (FOLLOWED >> watermark("ts", "1h") >> dedupe("id", within="1d") >> SINK, ReadPath.STATEFUL),
        (FOLLOWED >> watermark("ts", "1h") >> window("ts", "1h").agg(n="count(*)") >> SINK, ReadPath.STATEFUL),
        (FOLLOWED >> select("id") >> join(FOLLOWED >> select("id"), on="id") >> SINK, ReadPath.STATEFUL),
        (FOLLOWED >> select("id", "ts") >> union(CSV.incremental()) >> SINK, ReadPath.RANGES),
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else "",
)
def test_read_paths(context: Context, pipeline: Any, path: ReadPath) -> None:
    plans, problems = compiled(context, pipeline)
    assert problems == []
    assert plans[0].path is path
    assert plans[0].why
    assert (plans[0].trigger is None) == (path is ReadPath.BATCH)


def test_every_node_has_a_lowering() -> None:
    def concrete(base: type) -> set[type]:
        below = {kind for kind in base.__subclasses__() if kind.__module__.startswith("helios.")}
        # A class that others are made of, as the sink is of its parts, is declared by nobody.
        return {c for b in below for c in concrete(b) or {b}}

    assert concrete(flow.Source) == {resolve_name(kind).declared for kind in KINDS.values()}
    outputs = concrete(Output)
    assert concrete(flow.Sink) == outputs | {MirrorSink}  # a mirror is an IcebergSink of many tables
    assert all(hasattr(resolve_name(output.writer), "deliver") for output in outputs)


POLL = "the smallest poll of the sources"


ENDS = ("as a columnar batch", "what is new in its sources", "that the source's log names")


def on(every: float, why: str, max_rows: int | None = None, bound: str = "", max_files: int | None = None) -> Trigger:
    return Trigger(every=every, why=why, max_rows=max_rows, bound=bound, max_files=max_files)


BOUNDED = ORDERS.incremental(poll="30s", max_rows=5_000, max_files=3)
ROWS = "incremental(max_rows=)"


@pytest.mark.parametrize(
    ("pipeline", "trigger"),
    [
        (FOLLOWED >> SINK, on(30.0, POLL)),
        (FOLLOWED >> SINK.flush(every="5m"), on(300.0, "flush(every=)")),
        (FOLLOWED >> SINK.tune("low_latency"), on(10.0, "tune(low_latency)", 1_000, "tune(low_latency)")),
        (
            FOLLOWED >> SINK.tune("low_latency").flush(every=5),
            on(5.0, "flush(every=)", 1_000, "tune(low_latency)"),
        ),
        (
            FOLLOWED >> SINK.flush(rows=7).tune("high_throughput"),
            on(300.0, "tune(high_throughput)", 7, "flush(rows=)"),
        ),
        (FOLLOWED >> SINK.flush(rows=7).flush(every=9), on(9.0, "flush(every=)", 7, "flush(rows=)")),
        (
            FOLLOWED >> watermark("ts", "1h") >> dedupe("id", within="1d") >> SINK.tune("balanced"),
            on(60.0, "tune(balanced)"),
        ),
        (
            FOLLOWED >> watermark("ts", "1h") >> dedupe("id", within="1d") >> SINK.flush(rows=7),
            on(30.0, POLL, 7, "flush(rows=)"),
        ),
        (CSV.incremental(poll=9) >> SINK.tune("balanced"), on(60.0, "tune(balanced)")),
        (FOLLOWED >> select("id", "ts") >> union(CSV.incremental(9)) >> SINK, on(9.0, POLL)),
        (BOUNDED >> SINK, on(30.0, POLL, 5_000, ROWS, 3)),
        (BOUNDED >> SINK.flush(rows=6_000), on(30.0, POLL, 5_000, ROWS, 3)),
        (BOUNDED >> SINK.flush(rows=4_000), on(30.0, POLL, 4_000, "flush(rows=)", 3)),
        (BOUNDED >> SINK.tune("low_latency"), on(10.0, "tune(low_latency)", 1_000, "tune(low_latency)", 3)),
        (
            BOUNDED >> watermark("ts", "1h") >> dedupe("id", within="1d") >> SINK.tune("low_latency"),
            on(10.0, "tune(low_latency)", 5_000, ROWS, 3),
        ),
        (BOUNDED >> union(ORDERS.incremental(poll=9, max_rows=7, max_files=1)) >> SINK, on(9.0, POLL, 7, ROWS, 1)),
        (CSV.incremental(poll=9, max_files=2) >> SINK, on(9.0, POLL, max_files=2)),
    ],
    ids=lambda value: value.text() if hasattr(value, "text") else "",
)
def test_the_trigger_says_which_settings_won(context: Context, pipeline: Any, trigger: Trigger) -> None:
    ((plan,), _) = compiled(context, pipeline)
    assert plan.trigger == trigger
    assert plan.as_json()["trigger"]["bound"] == trigger.bound
    assert f"every {show_seconds(trigger.every)} ({trigger.why})" in str(plan)
    bounded = trigger.max_rows is not None
    assert (f"at most about {trigger.max_rows or 0:,} rows a batch ({trigger.bound})" in str(plan)) == bounded
    files = trigger.max_files is not None
    assert ("(incremental(max_files=))" in str(plan)) == files
    if plan.path is ReadPath.RANGES:
        cut = [trigger.bound] * bounded + ["incremental(max_files=)"] * files
        ends = (f", cut between files by {' and '.join(cut)}",) if cut else ENDS
        assert plan.why.endswith(ends)


def test_every_problem_is_told_at_once_with_its_line(context: Context) -> None:
    _, problems = compiled(
        context,
        Iceberg.source("a.oders") >> SINK,
        ORDERS >> where("amout > 1") >> Iceberg.sink("a.u"),
        ORDERS >> Iceberg.sink("nope.a.t"),
        ORDERS >> Iceberg.sink("a.v").partition_by(day("nam"), hour("name")),
        ORDERS >> Iceberg.sink("a.w").checkpoint("ftp://host/x"),
        ORDERS >> Iceberg.sink("b.t", catalog="locl"),
    )
    text = "\n".join(problems)
    for expected in (
        "table a.oders does not exist in catalog 'local'. Did you mean 'a.orders'?",
        "no column 'amout'",
        "'nope'",
        "partition_by(day(nam)): no column 'nam'. Did you mean 'name'?",
        "partition_by(hour(name)): hour does not take string. Fix: it takes timestamp or timestamp_ntz.",
        "Spark cannot keep a checkpoint on ftp://.",
        "Did you mean 'local'?",
    ):
        assert expected in text, expected
    assert all("test_compile.py:" in problem for problem in problems)


def test_existing_targets_are_compared(context: Context) -> None:
    other_spec = Memory.source([{"id": 1}]) >> Iceberg.sink("a.orders").partition_by(bucket(4, "id"))
    extra = Memory.source([{"id": 1, "x": 2}]) >> Iceberg.sink("a.orders")
    _, problems = compiled(context, other_spec.named("one"), extra.named("two"))
    assert "a.orders is partitioned by [day(ts)], not by [bucket(4, id)]" in problems[0]
    assert len(problems) == 1
    (plan,), none = compiled(context, Memory.source([{"id": 1}]) >> Iceberg.sink("a.orders").partition_by(day("ts")))
    assert none == []
    assert plan.write.exists is True


def test_identities_must_differ(context: Context) -> None:
    one, two = ORDERS >> SINK, ORDERS >> where("id > 1") >> SINK
    _, problems = compiled(context, one, two)
    assert "two pipelines write local.a.t" in problems[0]
    plans, problems = compiled(context, one, two.named("other"))
    assert problems == []
    assert [p.pipeline for p in plans] == ["local.a.t", "other"]
    _, problems = compiled(context, one.named("x"), (ORDERS >> Iceberg.sink("a.u")).named("x"))
    assert "two pipelines are called 'x'" in problems[0]
    shared = [ORDERS >> Iceberg.sink(f"a.{t}").checkpoint("/cp") for t in "xy"]
    _, problems = compiled(context, *shared)
    assert "share the checkpoint /cp" in problems[0]


def test_of_pipelines_that_clash_none_has_a_plan_and_the_others_do(context: Context) -> None:
    fine = ORDERS >> Iceberg.sink("a.fine")
    wrong = ORDERS >> where("id") >> Iceberg.sink("a.wrong")
    one, two = (ORDERS >> Iceberg.sink("a.t") for _ in "12")
    shared = [ORDERS >> Iceberg.sink(f"a.{t}").checkpoint("/cp") for t in "xy"]
    plans, problems = compile_pipelines([one, wrong, shared[0], fine, two, shared[1]], context)
    assert [plan.pipeline for plan in plans] == ["local.a.fine"]
    assert len(problems) == 3


def test_aggregates_over_a_stream_need_a_watermark_and_a_window(context: Context) -> None:
    _, problems = compiled(context, FOLLOWED >> aggregate("id", n="count(*)") >> SINK)
    assert "are never final" in problems[0]
    _, problems = compiled(context, FOLLOWED >> watermark("ts", "1h") >> aggregate("id", n="count(*)") >> SINK)
    assert "only the groups of a time window become final" in problems[0]


def test_exactly_once_refuses_steps_that_are_another_each_time(context: Context) -> None:
    for shape in (
        where("rand() < 0.5"),
        with_columns(key="uuid()"),
        select("id") >> with_columns(n="Shuffle(array(1))"),
    ):
        _, problems = compiled(context, ORDERS >> shape >> Iceberg.sink("a.t").exactly_once())
        assert "gives other values when a batch is run again" in problems[0]
        assert compiled(context, ORDERS >> shape >> SINK)[1] == []
    fine = where("name <> 'rand()'") >> with_columns(brand="concat(name, ' uuid()')")
    assert compiled(context, ORDERS >> fine >> SINK.exactly_once())[1] == []


def test_two_catalogs_of_one_name_are_refused(context: Context, tmp_path: Path) -> None:
    lake, other = (Catalog.local("lake", path=tmp_path / name) for name in ("x", "y"))
    _, problems = compiled(
        context, ORDERS >> Iceberg.sink("a.t", catalog=lake), ORDERS >> Iceberg.sink("a.u", catalog=other)
    )
    assert "two different catalogs are called 'lake'" in problems[0]


def test_a_union_of_followed_and_read_once_is_refused(context: Context) -> None:
    _, problems = compiled(context, FOLLOWED >> union(ORDERS) >> SINK)
    assert "one side is followed and the other is read once" in problems[0]


def test_a_table_that_another_pipeline_makes_may_be_missing(context: Context) -> None:
    first = Memory.source([{"id": 1}]) >> Iceberg.sink("a.new")
    second = Iceberg.source("a.new").incremental() >> Iceberg.sink("a.newer")
    plans, problems = compiled(context, second, first)
    assert problems == []
    assert plans[0].schema == plans[1].schema
    assert "made by this script" in str(plans[0])


def test_offline_reads_no_catalog(context: Context) -> None:
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    plans, problems = compile_pipelines([Iceberg.source("a.oders") >> SINK], offline)
    assert problems == []
    assert "not looked up" in str(plans[0])


def test_the_plan_as_text_and_json(context: Context) -> None:
    pipeline = (
        FOLLOWED
        >> where("id > 1")
        >> with_columns(n="id * 2")
        >> Iceberg.sink("a.t").partition_by(day("ts")).table_properties({"a": "b"}).snapshot_properties({"c": "d"})
    )
    (plan,), _ = compiled(context, pipeline)
    text = str(plan)
    for line in (
        "read      Iceberg.source(a.orders).incremental(poll=30 s)",
        "path      snapshot ranges: ",
        "step      where(id > 1)",
        "write     local.a.t, append, exactly once; will be created",
        "format v2, partitioned by day(ts)",
        "properties a=b",
        "snapshot properties c=d",
        "schema    id bigint, name string, ts timestamp, n bigint",
        "trigger   every 30 s (the smallest poll of the sources)",
    ):
        assert line in text, line
    tree = plan.as_json()
    assert tree["target"]["partitioning"] == ["day(ts)"]
    assert tree["schema"][3]["name"] == "n"
    assert '"pipeline": "local.a.t"' in plan.to_json()


def test_the_fingerprint_follows_declared_steps_only(context: Context) -> None:
    plans = [
        compiled(context, FOLLOWED >> s >> SINK)[0][0]
        for s in (where("id > 1"), where("id > 2"), step(lambda df: df), step(lambda df: df.limit(1)))
    ]
    assert plans[0].fingerprint != plans[1].fingerprint
    assert plans[2].fingerprint == plans[3].fingerprint


def test_the_fingerprint_follows_what_a_source_reads(context: Context) -> None:
    same = [ORDERS, ORDERS.batch_size(5), ORDERS.incremental(poll=5), ORDERS.incremental(start="latest", max_rows=5)]
    other = [
        ORDERS.where("id > 1"),
        ORDERS.where("id > 2"),
        ORDERS.select("id", "ts"),
        FOLLOWED.changes(),
        FOLLOWED.changes("id"),
    ]
    (one,) = {compiled(context, source >> SINK)[0][0].fingerprint for source in same}
    assert len({one, *(compiled(context, source >> SINK)[0][0].fingerprint for source in other)}) == 1 + len(other)


def test_schemas_are_known_up_to_a_callable(context: Context) -> None:
    assert infer_schema(ORDERS >> select("id"), context).names == ("id",)
    assert infer_schema(ORDERS >> step(lambda df: df), context) is None
    with pytest.raises(CheckFailed, match="no column 'x'"):
        infer_schema(ORDERS >> select("x"), context)


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = Memory.source([{"id": 1}]) >> where("id > 0") >> Iceberg.sink("a.t")
    pipeline.check()
    assert pipeline.plan().write.exists is False
    assert pipeline.schema().names == ("id",)
    bad = Memory.source([{"id": 1}]) >> where("di > 0") >> Iceberg.sink("a.t")
    for ask in (bad.check, bad.plan):
        with pytest.raises(HeliosError, match="no column 'di'"):
            ask()
    assert not (tmp_path / ".helios").exists()


def test_the_jars_are_known_ahead_of_every_problem(context: Context) -> None:
    rows = Memory.source([{"id": 1}])
    assert components_before_compiling([rows >> SINK.quarantine("a.q")], context) == ("iceberg", "sqlite")
    assert components_before_compiling([rows >> SINK.quarantine("nope.a.q")], context) == ()
    lake = Catalog.rest("lake", uri="http://localhost:1", warehouse="s3://lake/w")
    assert components_before_compiling([rows >> Iceberg.sink("a.t", catalog=lake)], context) == (
        "iceberg",
        "aws",
        "s3a",
    )
    assert "s3a" in components_before_compiling([rows >> SINK.checkpoint("s3://lake/progress")], context)


def test_columns_go_through_the_tables_that_the_same_script_makes(context: Context) -> None:
    """Also where the reader is declared first, and two tables lie between."""
    daily = CSV >> with_columns(day="date(ts)") >> Iceberg.sink("new.daily")
    kept = Iceberg.source("new.daily").incremental() >> where("id > 1") >> Iceberg.sink("new.kept")
    counted = Iceberg.source("new.kept") >> aggregate("day", n="count(*)") >> Iceberg.sink("new.counts").upsert("dya")
    wrong = Iceberg.source("new.daily") >> select("id", "dat") >> Iceberg.sink("new.wrong")
    plans, problems = compiled(context, wrong, counted, kept, daily)
    assert len(problems) == 2
    assert "no column 'dat'" in problems[0]
    assert "did you mean ts, day or id" in problems[0] or "day" in problems[0]
    assert "dya" in problems[1]
    assert {plan.pipeline for plan in plans} == {"local.new.daily", "local.new.kept"}
    [read] = next(plan for plan in plans if plan.pipeline == "local.new.kept").reads
    assert read.schema is not None
    assert [column.name for column in read.schema.columns] == ["id", "ts", "day"]


def test_columns_of_a_table_that_several_write_or_that_reads_itself_are_known_at_run(context: Context) -> None:
    one = CSV >> Iceberg.sink("new.both")
    other = ORDERS >> Iceberg.sink("new.both")
    reader = Iceberg.source("new.both") >> where("anything > 1") >> Iceberg.sink("new.out")
    there = Iceberg.source("new.b") >> Iceberg.sink("new.a")
    back = Iceberg.source("new.a") >> where("x > 1") >> Iceberg.sink("new.b")
    _, problems = compiled(context, one.named("one"), other.named("other"), reader, there, back)
    assert not [problem for problem in problems if "anything" in problem or "'x'" in problem], problems
