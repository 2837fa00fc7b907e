"""The plan as text and as JSON shows everything that a sink declares."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Files, Iceberg, aggregate, day, dedupe, expect, join, select, watermark, where, with_columns
from helios.model.columns import CHANGE_COLUMNS
from helios.plan import Context, compile_pipelines
from helios.plan.text import show_bytes
from helios.table.growth import Growth
from tests.unit.plan.conftest import SCHEMA

pytestmark = pytest.mark.promise("commands")

FOLLOWED = Iceberg.source("a.orders").incremental(poll="30s")
SINK = Iceberg.sink("a.t")


def test_what_is_sorted_or_shuffled_is_said_to_spill(planned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free = r"spill     data beyond memory goes to /some/disk \(\d.* free\): "
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=79 << 30))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/some/disk,/other")
    keyed = "the batch and the target's rows by key"
    assert "spill" not in str(planned(FOLLOWED >> where("id > 1") >> SINK))
    assert re.search(free + f"{keyed}\n", str(planned(FOLLOWED >> SINK.upsert("id", order_by="ts"))))
    sums = FOLLOWED >> aggregate("name", n="count(*)") >> SINK.upsert("name")
    assert re.search(free + f"aggregate, {keyed}\n", str(planned(sums)))
    sorted_ = planned(FOLLOWED >> SINK.partition_by("name").sort_by("ts"))
    assert re.search(free + "rows by partition, sorted rows\n", str(sorted_))
    assert "spill" not in str(planned(FOLLOWED >> SINK.partition_by("name").distribution("none")))
    assert sorted_.as_json()["spill"]["folder"] == "/some/disk"


@pytest.mark.parametrize(
    ("sink", "lines"),
    [
        (SINK, ["write     local.a.t, append, exactly once; will be created", "parquet files of about 128 MB"]),
        (SINK.overwrite("id = 1"), ["overwrite where id = 1, exactly once"]),
        (SINK.overwrite_partitions().partition_by("name"), ["overwrite the touched partitions, exactly once"]),
        (
            SINK.upsert("id", order_by="ts", delete_when="name = 'd'"),
            [
                "upsert by id, newest by ts, delete when name = 'd', remembered for 7 d, exactly once",
                "left out  name: only the order and the deletes use them",
            ],
        ),
        (SINK.upsert("id", order_by="ts", history=True), ["newest by ts, all versions kept"]),
        (Iceberg.sink("a.orders").delete("id"), ["delete by id, exactly once; exists", "of the table's target size"]),
        (SINK.branch("audit"), ["pipeline local.a.t@audit", "local.a.t, branch audit, append"]),
        (
            SINK.tune("low_latency"),
            ["files of about 32 MB (tune(low_latency))", "every 10 s (tune(low_latency)), at most"],
        ),
        (SINK.tune("balanced").target_file_size("1.5GB"), ["files of about 1.5 GB (target_file_size())"]),
        (SINK.table_properties({"write.target-file-size-bytes": "1048576"}), ["parquet files of about 1 MB"]),
        (SINK.table_properties({"write.format.default": "orc"}), ["orc files of about 128 MB"]),
        (
            SINK.compression("zstd", 9).distribution("range").sort_by("ts desc").write_mode("copy-on-write"),
            ["128 MB, zstd level 9, distribution range, sorted by ts desc, changes copy-on-write"],
        ),
        (SINK.compression("snappy"), ["128 MB, snappy\n"]),
        (
            SINK.route(by="name"),
            ["exactly once; each table is created with its first row", "route     by name, to local.a.t_<value>"],
        ),
        (SINK.route(by="name").create(False), ["exactly once; only existing tables"]),
        (SINK.quarantine("a.q"), ["failed    rows go to local.a.q"]),
        (SINK.audit({"some": "count(*) > 0"}).publish(), ["audit     some: count(*) > 0, before main shows the batch"]),
        (
            SINK.maintain(compact=True, expire="7d", orphans="3d", readers=["/cp/x"]),
            [
                "maintain  compact small files to the target file size, expire snapshots after 7 d, except those "
                "for the readers at /cp/x, delete orphan files after 3 d"
            ],
        ),
        (
            SINK.maintain(compact="512MB"),
            [
                "maintain  compact small files to 512 MB\n",
                "finds no rows of a compacted v2 table; with .format_version(3) it does",
            ],
        ),
        (
            SINK.retry(5, backoff=0.5, outage="1m"),
            ["retry     conflicts 5 times (after 0.5 s, 1 s, 2 s, ...), outages for 60 s"],
        ),
        (SINK.retry(0, outage=0), ["retry     conflicts never, outages never"]),
    ],
    ids=lambda value: " " if isinstance(value, list) else "",
)
def test_what_a_sink_declares_is_shown(planned: Any, sink: Any, lines: list[str]) -> None:
    plan = planned(FOLLOWED >> sink)
    for line in lines:
        assert line in str(plan), f"{line}\n{plan}"
    json.dumps(plan.as_json())


def test_only_what_differs_from_the_default_is_shown(planned: Any) -> None:
    text = str(planned(FOLLOWED >> SINK))
    text = "\n".join(line for line in text.splitlines() if not line.startswith("  history "))
    for label in ("change", "left out", "route", "failed", "audit", "maintain", "retry", "branch"):
        assert label not in text


CSV = Files.source("x", "csv", schema="id bigint")
FOLDERS = {
    "rows that do not parse, and files that cannot be read, stop the run": CSV,
    "other columns stop the run": CSV,
    "rows that do not parse go to the quarantine; files that cannot be read stop the run": CSV.on_bad_row("quarantine"),
    "rows that do not parse are left out and counted; files that cannot": CSV.on_bad_row("drop"),
    "values that do not parse become null; files that cannot": CSV.on_bad_row("null"),
    "rows that do not parse stop the run; files that cannot be read are noted in the quarantine": CSV.on_bad_file(
        "quarantine"
    ),
    "other columns are left out": Files.source("x", "csv", schema="id bigint", extra="ignore"),
    "other columns are read too": Files.source("x", "csv", schema="id bigint", extra="add"),
    "other columns are kept in _more, as JSON": Files.source("x", "csv", schema="id bigint", rescued="_more"),
    "columns as the files name them": Files.source("x", "csv"),
}


@pytest.mark.parametrize("text", FOLDERS)
def test_what_happens_to_bad_rows_and_other_columns_is_shown(planned: Any, text: str) -> None:
    assert f"\n            {text}" in str(planned(FOLDERS[text] >> SINK.quarantine("a.bad")))


def test_the_json_has_what_a_folder_declares(planned: Any) -> None:
    source = Files.source("x", "csv", schema="id bigint", rescued="_more").option(sep=";").on_bad_row("drop")
    [read] = planned(source.on_missing("skip") >> SINK).as_json()["sources"]
    found = {key: read[key] for key in read if key not in ("kind", "name", "followed", "uuid", "snapshot", "schema")}
    assert found == {
        "path": "x",
        "format": "csv",
        "options": {"header": "true", "escape": '"', "sep": ";"},
        "extra": None,
        "rescued": "_more",
        "metadata": {},
        "on_bad_row": "drop",
        "on_bad_file": "fail",
        "on_missing": "skip",
        "on_change": "fail",
        "timestamps": None,
        "pushed": [],
    }
    [plain] = planned(CSV >> SINK).as_json()["sources"]
    [undeclared] = planned(Files.source("x", "csv") >> SINK).as_json()["sources"]
    assert (plain["extra"], undeclared["extra"]) == ("fail", None)


@pytest.mark.parametrize(("count", "text"), [(1, "1 file"), (3, "3 files")])
def test_bounds_of_files_are_shown(planned: Any, count: int, text: str) -> None:
    files = Files.source("x", "csv", schema="id bigint").incremental(max_files=count)
    assert f"every 60 s (the smallest poll of the sources), at most {text} a batch (incremental(" in str(
        planned(files >> SINK)
    )
    table = Iceberg.source("a.orders").incremental(max_files=count, max_rows=1)
    assert f", at most about 1 row a batch (incremental(max_rows=)), at most {text} a batch (incremental(" in str(
        planned(table >> SINK)
    )


ORDERS = Iceberg.source("a.orders")


@pytest.fixture
def snapshots(catalog: Catalog) -> list[int]:
    """Two of main, the second one tagged `v`, and one of the branch `b`."""
    table = catalog.load("a.orders")
    rows = pa.table({"id": [1], "name": ["x"], "ts": [datetime.now(UTC)]}, schema=SCHEMA)
    table.iceberg.append(rows)
    table.iceberg.append(rows)
    table.tag("v")
    table.branch("b")
    table.iceberg.refresh()
    table.iceberg.append(rows, branch="b")
    table.iceberg.refresh()
    return [snapshot.id for snapshot in table.snapshots()]


def test_what_is_read_of_a_table(planned: Any, snapshots: list[int]) -> None:
    first, second, third = snapshots
    then = f"then every later commit; now at {second}"
    for source, line in (
        (ORDERS, f"local.a.orders, snapshot {second}\n"),
        (ORDERS.at_snapshot(first), f"local.a.orders, state of snapshot {first}\n"),
        (ORDERS.as_of("2200-01-01").incremental(), f"local.a.orders, state of snapshot {second}, {then}\n"),
        (ORDERS.at_ref("b"), f"local.a.orders, branch b, state of snapshot {third}\n"),
        (ORDERS.between(first, "v"), f"local.a.orders, snapshots after {first}, up to {second}\n"),
        (ORDERS.between(first, "b"), f"local.a.orders, branch b, snapshots after {first}, up to {third}\n"),
        (ORDERS.incremental(start="latest"), "read      Iceberg.source(a.orders).incremental(poll=60 s, start='latest"),
        (ORDERS.select("ts", "id"), f"snapshot {second}\n            columns: ts, id\n"),
        (ORDERS.incremental().changes(["id"]), "changes: updates paired by id\n"),
        (ORDERS.incremental().changes(), "changes: an update is a delete and an insert\n"),
        (ORDERS.batch_size(10_000), "10,000 rows a vectorized batch (batch_size())\n"),
    ):
        assert line in str(planned(source >> SINK)), f"{line}\n{planned(source >> SINK)}"


def test_what_is_pushed_into_the_scan(planned: Any, snapshots: list[int]) -> None:
    """The source's own predicates, and those of the steps that stand first behind it."""
    narrow = ORDERS.where("id > 1").where("ts IS NOT NULL")
    stepped = where("name = 'x'") >> where("id < 9") >> with_columns(n="1") >> where("n = 1")
    own, later = ["id > 1", "ts IS NOT NULL"], ["name = 'x'", "id < 9"]
    for pipeline, pushed in (
        (ORDERS >> with_columns(n="1") >> where("n = 1") >> SINK, []),
        (narrow >> SINK, own),
        (narrow >> stepped >> SINK, own + later),
        (narrow.incremental() >> stepped >> SINK, own + later),
        (narrow.incremental().changes() >> stepped >> SINK, []),
        (
            FOLLOWED
            >> where("id < 9")
            >> where("ts < now()")
            >> watermark("ts", "1h")
            >> dedupe("id", within="1d")
            >> SINK,
            ["id < 9"],
        ),
    ):
        plan = planned(pipeline)
        assert plan.as_json()["sources"][0]["pushed"] == pushed
        assert (f"pushed: {', '.join(pushed)}\n" in str(plan)) == bool(pushed)
    sides = planned(ORDERS >> join(narrow >> where("id = 3") >> select("id"), on="id") >> where("id = 4") >> SINK)
    assert [source["pushed"] for source in sides.as_json()["sources"]] == [[], [*own, "id = 3"]]


def test_sources_as_json(planned: Any, snapshots: list[int]) -> None:
    source = ORDERS.changes_between(snapshots[0], "v", keys="id").where("id > 0").select("id")
    (tree,) = json.loads(planned(source >> SINK).to_json())["sources"]
    assert [column["name"] for column in tree.pop("schema")] == ["id", *CHANGE_COLUMNS]
    assert len(tree.pop("uuid")) == 36
    assert tree == {
        "kind": "iceberg",
        "name": "local.a.orders",
        "followed": False,
        "snapshot": snapshots[1],
        "format_version": 2,
        "branch": None,
        "start": None,
        "at": None,
        "between": f"{snapshots[0]}, 'v'",
        "state": None,
        "span": [snapshots[0], snapshots[1]],
        "where": ["id > 0"],
        "columns": ["id"],
        "changes": {"keys": ["id"]},
        "on_overwrite": "fail",
        "on_expired": "fail",
        "batch_size": None,
        "scan": None,
        "backlog": None,
        "pushed": [],
    }


def test_offline_says_what_was_not_looked_up(context: Context) -> None:
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    plans, _ = compile_pipelines([FOLLOWED >> SINK], offline)
    assert "exactly once; not looked up\n            format v2 if it is created, partitioned as the table is" in str(
        plans[0]
    )


def test_the_format_of_a_new_table_and_who_cannot_read_it(planned: Any) -> None:
    vectors, keeps = "format v3 (deletion vectors and row lineage)", "; .format_version(2) keeps to v2\n"
    for sink, said in (
        (
            SINK.upsert("id"),
            f"will be created\n            {vectors}, unpartitioned\n            not read by PyIceberg",
        ),
        (
            SINK.upsert("id").route(by="name"),
            f"            new tables of {vectors}, unpartitioned\n            not read by ",
        ),
        (SINK.upsert("id"), keeps),
        (SINK.upsert("id").format_version(2), "            format v2, unpartitioned\n            parquet files"),
        (SINK, "            format v2, unpartitioned\n            parquet files"),
        (Iceberg.sink("a.orders").upsert("id"), "exists\n            format v2, "),
    ):
        assert said in str(planned(FOLLOWED >> sink)), f"{said}\n{planned(FOLLOWED >> sink)}"
    there = planned(FOLLOWED >> Iceberg.sink("a.orders").upsert("id")).as_json()["target"]
    assert (there["format_version"], there["unreadable_by"]) == (2, [])
    made = planned(FOLLOWED >> SINK.upsert("id")).as_json()["target"]
    assert made["format_version"] == 3
    assert {"PyIceberg before 0.10", "Amazon Athena"} <= set(made["unreadable_by"])


def test_the_json_has_it_all(planned: Any) -> None:
    sink = (
        SINK.upsert("id", order_by="ts")
        .partition_by(day("ts"))
        .branch("b")
        .quarantine("a.q")
        .tune("balanced")
        .compression("gzip")
        .maintain(expire="1d")
        .retry(1)
    )
    rows = FOLLOWED >> with_columns(op="'u'") >> expect({"p": "id > 0"}, on_fail="quarantine")
    tree = planned(rows >> sink).as_json()
    target = tree["target"]
    assert (target["branch"], target["quarantine"], target["routed_by"]) == ("b", "local.a.q", None)
    assert target["writer"] == {
        "write.target-file-size-bytes": str(128 << 20),
        "write.parquet.compression-codec": "gzip",
    }
    assert target["maintenance"] == {"compact": None, "expire": 86400.0, "orphans": None, "readers": ()}
    assert target["retry"] == {"retries": 1, "backoff": 0.1, "outage": 300.0}
    assert target["left_out"] == []
    assert tree["steps"][-1] == "expect(p=id > 0, on_fail=quarantine)"
    assert tree["emits"] is None


@pytest.mark.parametrize(("count", "text"), [(5, "5 B"), (1024, "1 KB"), (128 << 20, "128 MB"), (1 << 40, "1 TB")])
def test_sizes(count: int, text: str) -> None:
    assert show_bytes(count) == text


def test_a_followed_pipeline_tells_how_its_history_grows_unless_it_expires(planned: Any) -> None:
    def history(sink: Any, source: Any = FOLLOWED) -> list[str]:
        return [line for line in str(planned(source >> sink)).splitlines() if line.startswith("  history ")]

    [line] = history(SINK)
    assert re.search(r"up to [\d,]+ commits a day, and no snapshot expires: \.maintain\(expire=\"5d\"\)", line)
    assert history(SINK.maintain(compact=True)) == [line]
    assert history(SINK.maintain(expire="5d")) == []
    long = Growth(snapshots=20_000, seconds=20_000 * 60, bytes=30 << 20)
    plan = planned(FOLLOWED >> SINK)
    told = str(replace(plan, write=replace(plan.write, growth=long)))
    assert "20,000 snapshots, about 1,440 commits a day; each commit writes 30.0 MB of metadata" in told
