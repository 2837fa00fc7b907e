"""Sources, sinks, steps and values refuse what cannot be, with the line and the fix."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios import (
    Files,
    Iceberg,
    Memory,
    aggregate,
    bucket,
    day,
    dedupe,
    drop,
    expect,
    explode,
    identity,
    join,
    param,
    rename,
    sample,
    select,
    step,
    truncate,
    union,
    watermark,
    where,
    window,
    with_columns,
)
from helios.errors import DeclarationError, near_miss
from helios.model import values
from helios.model.maintenance import Maintenance
from helios.model.modes import MODES, Append, Delete, MergeSql, Mode, Overwrite, OverwritePartitions, Upsert
from helios.model.retry import Retry
from helios.model.sink import PROFILES, Evolution, IcebergSink
from helios.model.values import Identifier, Secret, duration, show_seconds, size

pytestmark = pytest.mark.promise("words")

SINK = Iceberg.sink("a.t")
SOURCE = Memory.source([{"id": 1}])


@pytest.mark.parametrize(
    ("given_", "seconds"),
    [
        (60, 60),
        ("30s", 30),
        ("5 minutes", 300),
        ("1h", 3600),
        ("200ms", 0.2),
        ("2 days", 172800),
        (timedelta(hours=1), 3600),
        ("7", 7),
    ],
)
def test_durations(given_: Any, seconds: float) -> None:
    assert duration(given_, "poll") == pytest.approx(seconds)


@given(st.integers(1, 10**6), st.sampled_from(["s", "m", "h", "d"]))
def test_durations_say_what_they_are(number: int, unit: str) -> None:
    seconds = duration(f"{number}{unit}", "poll")
    assert duration(show_seconds(seconds), "poll") == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize("name", ["a.b", "c.a.b", "a.`b.c`", "ünï.tablé", "a.b-c", "a.with space"])
def test_names_that_are_tables(name: str) -> None:
    assert str(Identifier.parse(name)) == name


@pytest.mark.parametrize(
    "name", ["", "orders", "a..b", ".a.b", "a.b.", "a/../b.c", "../../etc.x", "a.b\n", "a.``", "a\\b.c", "a. "]
)
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(DeclarationError):
        Iceberg.source(name)


@given(st.text(max_size=12))
def test_an_accepted_name_is_safe_and_round_trips(text: str) -> None:
    try:
        parsed = Identifier.parse(text)
    except DeclarationError:
        return
    assert all(part.strip() and not set("/\\") & set(part) and part != ".." for part in parsed.parts)
    assert Identifier.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Iceberg.source("a.t").incremental(poll="5 parsecs"), r"unknown unit 'parsecs'\. Known: "),
        (lambda: Iceberg.source("a.t").incremental(poll="5 minuts"), "Did you mean 'minutes'"),
        (lambda: Iceberg.source("a.t").incremental(poll=0), "not a positive duration"),
        (lambda: Iceberg.source("a.t").incremental(poll=True), "not a duration"),
        (lambda: Iceberg.source("a.t").incremental(poll="soon"), "not a duration"),
        (lambda: Iceberg.source("../x.t"), "is not a table name"),
        (lambda: Iceberg.source("sales`.orders"), "backticks must enclose a whole part"),
        (lambda: Iceberg.source("a.b`c`"), "backticks must enclose a whole part"),
        (lambda: Iceberg.source(5), "must be text"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("orders"), 'has no namespace.*"namespace.orders"'),
        (lambda: Iceberg.sink("a.t").partition_by(), "needs fields"),
        (lambda: Iceberg.sink("a.t").partition_by(5), "not 5"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("a.t").partition_by(day("a"), day("a")), "each once"),
        (lambda: Iceberg.sink("a.t").format_version(1), "2 or 3"),
        (lambda: Iceberg.sink("a.t").flush(rows=0), "flush: rows=0 must be a positive whole number"),
        (lambda: Iceberg.sink("a.t").checkpoint(""), "needs a location"),
        (lambda: Iceberg.sink("a.t").snapshot_properties({"helios.batch": "1"}), "reserved for Helios"),
        (lambda: Iceberg.sink("a.t").snapshot_properties({"total-records": "1"}), "reserved for Iceberg"),
        (lambda: Iceberg.sink("a.t").table_properties({"a": 1}), "must both be text"),  # type: ignore[dict-item]
        (lambda: SINK.overwrite(""), "overwrite takes text, not ''"),
        (lambda: SINK.upsert("id", "ID"), "upsert needs key columns, each once"),
        (lambda: SINK.upsert("id", order_by=" "), "order_by takes text"),
        (lambda: SINK.upsert("id", delete_when=5), "delete_when takes text, not 5"),  # type: ignore[arg-type]
        (lambda: SINK.upsert("id", tombstones="7 fortnights"), "tombstones='7 fortnights': unknown unit"),
        (lambda: SINK.upsert("id", history=True), "history=True. needs an order.*order_by="),
        (SINK.delete, "delete needs key columns"),
        (lambda: SINK.merge_sql("DELETE FROM target"), "takes a MERGE INTO target.*MERGE INTO target USING batch"),
        (lambda: SINK.merge_sql("MERGE INTO orders USING batch"), "takes a MERGE INTO target"),
        (lambda: SINK.write_mode("merge_on_read"), "Did you mean 'merge-on-read'"),
        (lambda: SINK.evolve_schema("add"), "evolve_schema.'add'. is unknown"),
        (lambda: SINK.renames({}), "renames.. needs names"),
        (lambda: SINK.renames({"a": ""}), "renames takes text"),
        (SINK.drops, "drops.. needs columns"),
        (lambda: SINK.tune("low-latency"), "Did you mean 'low_latency'"),
        (lambda: SINK.target_file_size("128 parsecs"), "unknown unit 'parsecs'"),
        (lambda: SINK.target_file_size("big"), "target_file_size='big' is not a size.*128MB"),
        (lambda: SINK.target_file_size(0), "not a positive size"),
        (lambda: SINK.target_file_size(True), "is not a size"),
        (lambda: SINK.compression("zstdd"), "compression.'zstdd'. is unknown. Did you mean 'zstd'"),
        (lambda: SINK.compression("zstd", "high"), "must be a whole number"),  # type: ignore[arg-type]
        (SINK.sort_by, "at least one column"),
        (lambda: SINK.sort_by(""), "sort_by takes text"),
        (lambda: SINK.distribution("hashed"), "Did you mean 'hash'"),
        (lambda: SINK.branch("main"), "'main' cannot name a branch"),
        (lambda: SINK.branch("a/b"), "cannot name a branch"),
        (lambda: SINK.branch(".."), "cannot name a branch"),
        (lambda: SINK.branch("123"), "is not main or digits alone"),
        (lambda: SINK.branch("helios_audit_x"), "does not begin with 'helios_'"),
        (lambda: SINK.create("no"), "create takes True or False, not 'no'"),
        (lambda: SINK.partition_by("a", evolve="no"), "takes True or False"),
        (lambda: SINK.upsert("a", order_by="b", history="no"), "takes True or False"),
        (SINK.flush, "needs rows or a time"),
        (lambda: SINK.branch(""), "branch takes text"),
        (lambda: SINK.audit({}), "at least one check"),
        (lambda: SINK.audit({"a": ""}), "audit takes text"),
        (lambda: SINK.route(by=""), "route takes text"),
        (lambda: SINK.quarantine("rejected"), "has no namespace"),
        (lambda: SINK.retry(-1), r"retry\(retries=-1"),
        (lambda: SINK.retry(True), "needs a count"),
        (lambda: SINK.retry(backoff=0), "a positive number of seconds"),
        (lambda: SINK.retry(backoff="1s"), "a positive number of seconds"),  # type: ignore[arg-type]
        (lambda: SINK.retry(outage="-1s"), "not a duration"),
        (SINK.maintain, "needs at least one setting"),
        (lambda: SINK.maintain(compact="big"), "is not a size"),
        (lambda: SINK.maintain(expire="soon"), "is not a duration"),
        (lambda: SINK.maintain(orphans="1m"), "part of a commit under way"),
        (lambda: SINK.maintain(compact=True, readers=["/cp"]), "has no effect without expire="),
        (lambda: expect({}), "at least one condition"),
        (lambda: expect({"a": "x > 0"}, on_fail="quarantined"), "Did you mean 'quarantine'"),
        (lambda: bucket(0, "a"), "needs a number from 1"),
        (lambda: bucket("a", 4), "needs a number from 1 to 2,147,483,647, then a column"),  # type: ignore[arg-type]
        (lambda: truncate(-1, "a"), "needs a number from 1"),
        (lambda: bucket(2**31, "a"), "needs a number from 1"),
        (lambda: day(None), r"day\(None\) needs the name of a column"),  # type: ignore[arg-type]
        (lambda: expect({"a": "x > 0"}, on_fail=None), r"on_fail=None\) is unknown"),  # type: ignore[arg-type]
        (lambda: aggregate(None, n="count(*)"), "aggregate takes text, not None"),  # type: ignore[arg-type]
        (lambda: join(SOURCE, on=None), "join takes text, not None"),  # type: ignore[arg-type]
        (lambda: Files.source("x.csv").incremental(poll=10**400), "is not a positive duration"),
        (lambda: SINK.target_file_size("9" * 400), "is not a positive size"),
        (lambda: SINK.target_file_size(10**400), "is not a positive size"),
        (lambda: Memory.source(None), "takes a list of rows, not None"),  # type: ignore[arg-type]
        (lambda: Memory.source([], {"id": int}), "must both be text"),  # type: ignore[dict-item]
        (lambda: Files.source("data/x"), "the format is not clear"),
        (lambda: Files.source("data/x", "parket"), "Did you mean 'parquet'"),
        (lambda: Files.source(""), "needs a path"),
        (lambda: Files.source(7), "needs a path"),  # type: ignore[arg-type]
        (lambda: Files.source(Path("s3://bucket/in")), r'pass it as text: "s3://bucket/in"'),
        (lambda: Files.source("x", "csv", "id int", extra="ignor"), "Did you mean 'ignore'"),  # type: ignore[arg-type]
        (lambda: Files.source("x.csv").incremental(max_files=0), "max_files=0 must be a positive whole number"),
        (lambda: Files.source("x.csv").on_missing("skp"), r"on_missing\('skp'\) is unknown\. Did you mean 'skip'"),
        (lambda: Files.source("x.csv").on_change("rered"), r"on_change\('rered'\) is unknown\. Did you mean 'reread'"),
        (lambda: Memory.source([]), "the columns are not clear from the rows"),
        (lambda: Memory.source([(1,)]), "the columns are not clear from the rows"),
        (lambda: where(5), "where takes text"),  # type: ignore[arg-type]
        (select, "at least one column"),
        (drop, "at least one column"),
        (dedupe, "at least one key"),
        (with_columns, "at least one column"),
        (lambda: rename({"a": ""}), "rename takes text"),
        (lambda: aggregate("a"), "at least one column"),
        (lambda: aggregate("a", "count(*)"), r"aggregate takes columns by name, not 'count\(\*\)'"),  # type: ignore[arg-type]
        (lambda: with_columns("a"), "with_columns takes columns by name"),  # type: ignore[arg-type]
        (lambda: expect("a > 0"), r"expect takes a mapping, not 'a > 0'\. Fix: write expect\(\{"),  # type: ignore[arg-type]
        (lambda: rename(["a"]), r"rename takes a mapping, not \['a'\]\. Fix: write rename\(\{"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("a.b").audit("count(*) > 0"), "audit takes a mapping, not"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("a.b").renames("a"), "renames takes a mapping, not 'a'"),  # type: ignore[arg-type]
        (lambda: Iceberg.sink("a.b").table_properties("a=b"), "table_properties takes a mapping"),  # type: ignore[arg-type]
        (lambda: join(SOURCE, on="id", how="iner"), "Did you mean 'inner'"),
        (lambda: join(SOURCE, on="id", how="left_ant"), "Did you mean 'left_anti'"),
        (lambda: join(SOURCE, on=[]), "at least one column in on="),
        (lambda: join(SOURCE, on=[], as_of="ts"), "at least one column in on="),
        (lambda: join(SOURCE, on="id", how="full", as_of="ts"), r"join\(as_of=, how='full'\).*is inner or left"),
        (lambda: join(SOURCE, on="id", as_of=" "), r"join\(as_of=\) takes text"),
        (
            lambda: join(SOURCE, on="id", as_of="ts", within=5),
            "as_of= is for a table as it was, within= for two streams",
        ),
        (lambda: join(SOURCE, on="id", within=0), r"join\(within=0\) is neither a duration above zero"),
        (lambda: join(SOURCE, on="id", within=(1, 2, 3)), r"within=\(1, 2, 3\)\) is neither .* nor a pair"),  # type: ignore[arg-type]
        (lambda: join(SOURCE, on="id", within="an hour"), "not a duration"),
        (lambda: watermark("ts", "1h", on_late="keep"), r"watermark\(on_late=\).*'keep'"),  # type: ignore[arg-type]
        (lambda: join("a.t", on="id"), "takes a source or a stream, not str"),  # type: ignore[arg-type]
        (lambda: union(5), "takes a source or a stream"),  # type: ignore[arg-type]
        (lambda: step(5), "is not callable"),  # type: ignore[arg-type]
        (lambda: sample(1.5), r"sample\(1.5\): a fraction is a number from 0 to 1"),
        (lambda: sample(True), "a fraction is a number"),
        (lambda: sample(0.5, seed=2**63), r"is not a whole number of 64 bits"),
        (lambda: sample(0.5, seed=0.5), r"sample\(seed=0.5\) is not a whole number"),  # type: ignore[arg-type]
        (lambda: explode("a", as_=""), r"explode\(?\)? takes text"),
        (lambda: watermark("ts", "-1s"), "not a duration"),
    ],
)
def test_refusals(declare: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as caught:
        declare()
    assert caught.value.where is not None
    assert caught.value.where.file.endswith("test_declarations.py")


def test_builders_return_new_values() -> None:
    sink = Iceberg.sink("a.t")
    built = sink.partition_by(day("ts"), "kind").exactly_once().append().create(False).flush(rows=5, every="1m")
    assert sink.partitioning is None
    assert built.partitioning == (day("ts"), identity("kind"))
    assert (built.flush_rows, built.flush_every, built.creates) == (5, 60.0, False)
    assert built.flush(rows=6).flush_every == 60.0
    assert built.flush(every=5).flush_rows == 5


@pytest.mark.parametrize(
    ("sink", "mode", "text"),
    [
        (SINK, Append(), "append"),
        (SINK.upsert("id").append(), Append(), "append"),
        (SINK.overwrite(), Overwrite(), "overwrite"),
        (SINK.overwrite("d = 1"), Overwrite(filter="d = 1"), "overwrite where d = 1"),
        (SINK.overwrite_partitions(), OverwritePartitions(), "overwrite the touched partitions"),
        (SINK.upsert("id", "day"), Upsert(keys=("id", "day"), tombstones=604800.0), "upsert by id, day"),
        (
            SINK.upsert("id", order_by="ts", delete_when="op = 'd'", tombstones="1h", history=True),
            Upsert(keys=("id",), order_by="ts", delete_when="op = 'd'", tombstones=3600.0, history=True),
            "upsert by id, newest by ts, delete when op = 'd', remembered for 1 h, all versions kept",
        ),
        (SINK.delete("id"), Delete(keys=("id",)), "delete by id"),
        (
            SINK.merge_sql("merge into target\n using batch"),
            MergeSql(query="merge into target\n using batch"),
            "merge_sql(merge into target using batch)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_write_modes(sink: IcebergSink, mode: Mode, text: str) -> None:
    assert sink.mode == mode
    assert sink.mode.text() == text
    assert sink.mode.traits.rewrites_same_inputs == (not isinstance(mode, Append))
    assert SINK.mode == Append()


def test_every_mode_is_known() -> None:
    # A run makes the groups of a view's upsert.
    assert set(MODES) == set(Mode.__subclasses__())
    assert all(callable(getattr(IcebergSink, mode.call)) for mode in MODES)


@pytest.mark.parametrize(
    ("sink", "changed"),
    [
        (SINK.partition_by("a", evolve=True), {"partitioning": (identity("a"),), "evolves_partitioning": True}),
        (SINK.partition_by("a", evolve=True).partition_by("b"), {"partitioning": (identity("b"),)}),
        (SINK.write_mode("copy-on-write"), {"row_changes": "copy-on-write"}),
        (
            SINK.evolve_schema("full").renames({"a": "b"}).drops("c", "d"),
            {"evolution": Evolution(mode="full", renames=(("a", "b"),), drops=("c", "d"))},
        ),
        (SINK.drops("c").evolve_schema("strict"), {"evolution": Evolution(mode="strict", drops=("c",))}),
        (SINK.tune("balanced"), {"tuning": "balanced"}),
        (SINK.target_file_size("64MB"), {"file_size": 64 << 20}),
        (SINK.compression("gzip", 5), {"codec": "gzip", "codec_level": 5}),
        (SINK.compression("gzip", 5).compression("zstd"), {"codec": "zstd"}),
        (SINK.sort_by("a", "b desc"), {"sort": ("a", "b desc")}),
        (SINK.distribution("range"), {"distributes": "range"}),
        (SINK.branch("audit"), {"branch_name": "audit"}),
        (SINK.audit({"a": "count(*) > 0"}).publish(), {"audits": (("a", "count(*) > 0"),), "publishes": True}),
        (SINK.route(by="lower(c)"), {"routing": "lower(c)"}),
        (SINK.quarantine("x.a.q"), {"quarantine_table": Identifier(("x", "a", "q"))}),
        (SINK.retry(5, backoff=1, outage="1m"), {"retry_policy": Retry(retries=5, backoff=1.0, outage=60.0)}),
        (SINK.retry(outage=0), {"retry_policy": Retry(outage=0.0)}),
        (
            SINK.maintain(compact="1GB", expire="7d", orphans="3d", readers=["/cp"]),
            {"maintenance": Maintenance(compact=1 << 30, expire=604800.0, orphans=259200.0, readers=("/cp",))},
        ),
    ],
)
def test_each_builder_changes_its_own_fields(sink: IcebergSink, changed: dict[str, Any]) -> None:
    assert sink == replace(SINK, **changed)
    assert Iceberg.sink("a.t") == SINK


def test_an_explicit_call_wins_over_a_profile() -> None:
    tuned = SINK.tune("low_latency")
    assert (tuned.max_rows, tuned.bytes_per_file, tuned.profile) == (1_000, 32 << 20, PROFILES["low_latency"])
    explicit = SINK.flush(rows=7).target_file_size("1MB").tune("low_latency")
    assert (explicit.max_rows, explicit.bytes_per_file) == (7, 1 << 20)
    assert (SINK.max_rows, SINK.bytes_per_file, SINK.profile) == (None, None, None)


def test_expectations_show_in_the_plan() -> None:
    assert expect({"a": "x > 0", "b": "y"}, on_fail="drop").text() == "expect(a=x > 0, b=y, on_fail=drop)"


@given(st.integers(1, 2**40), st.sampled_from(["B", "KB", "MiB", "g", "tb"]))
def test_sizes_say_what_they_are(number: int, unit: str) -> None:
    power = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit[0].lower()]
    if number < 2**12:
        assert size(f"{number} {unit}", "x") == number << power
    assert size(number, "x") == number


def test_partition_field_names_are_icebergs() -> None:
    names = [f.name for f in (identity("a"), bucket(4, "a"), truncate(2, "a"), day("a"))]
    assert names == ["a", "a_bucket", "a_trunc", "a_day"]


def test_texts_of_steps() -> None:
    assert window("ts", "1 hour", "10m").group_by("k").agg(n="count(*)").text() == (
        "window(ts, 1 h, every 600 s).group_by(k).agg(n=count(*))"
    )
    assert watermark("ts", "90s").text() == "watermark(ts, 90 s)"
    assert (sample(0.25).text(), sample(1, seed=3).text()) == ("sample(0.25)", "sample(1, seed=3)")
    assert sample(0.12345671, seed=1).text() == "sample(0.12345671, seed=1)"
    assert explode("a", as_="b").text() == "explode(a, as_=b)"
    assert dedupe("id", within="1h").text() == "dedupe(id, within=1 h)"


def test_secrets_are_never_shown() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r}" == "*** ***"
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert {secret: 1}[Secret("hunter2")] == 1


def test_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(values.PARAMETERS, "n", "5")
    monkeypatch.setitem(values.PARAMETERS, "flag", "yes")
    monkeypatch.setitem(values.PARAMETERS, "bad", "x")
    assert param("n", 1) == 5
    assert param("flag", False) is True
    assert param("absent", "default") == "default"
    assert param("n", "", parse=lambda text: text * 2) == "55"
    with pytest.raises(DeclarationError, match="--set bad=x: not a int"):
        param("bad", 1)


def test_near_misses() -> None:
    assert near_miss("ORDERS", ["orders"]) == "Did you mean 'orders'?"
    assert near_miss("zzz", [f"t{i:02}" for i in range(20)]).endswith("t11 and 8 more.")


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("outer", "full", "fullouter", "full_outer"), "full"),
        (("left", "leftouter", "left_outer"), "left"),
        (("right", "rightouter", "right_outer"), "right"),
        (("semi", "leftsemi", "left_semi"), "semi"),
        (("anti", "leftanti", "left_anti"), "anti"),
        (("inner",), "inner"),
        (("cross",), "cross"),
    ],
)
def test_a_join_takes_sparks_own_names_and_has_one_in_plans(names: tuple[Any, ...], kind: str) -> None:
    assert {
        join(SOURCE, on=[] if kind == "cross" else "id", how=name).text().rpartition("how=")[2] for name in names
    } == {f"{kind})"}


def test_a_join_by_event_time_shows_in_its_text() -> None:
    as_of = join(SOURCE, on=["id", "day"], how="left", as_of="ts").text()
    assert as_of.endswith(", on=id, day, how=left, as_of=ts)")
    assert join(SOURCE, on="id", within="1 hour").text().endswith(", how=inner, within=1 h)")
    assert join(SOURCE, on="id", within=(0, "90 s")).text().endswith(", how=inner, within=(0, 90 s))")
    assert watermark("ts", "1h").text() == "watermark(ts, 1 h)"
    assert watermark("ts", "1h", on_late="quarantine").text() == "watermark(ts, 1 h, on_late=quarantine)"


def test_a_cross_join_takes_no_columns() -> None:
    with pytest.raises(DeclarationError, match="takes no columns in on="):
        join(SOURCE, on="id", how="cross")


def test_another_separator_of_a_tsv() -> None:
    assert Files.source("x.tsv").option(delimiter=";").reader_options().get("sep") is None


def test_readers_of_a_generator_are_kept() -> None:
    kept = SINK.maintain(expire="7d", readers=(path for path in ["/a", "/b"])).maintenance  # type: ignore[arg-type]
    assert kept is not None
    assert kept.readers == ("/a", "/b")
