"""The plan as text and as JSON shows everything that a sink declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helios import Files, Iceberg, day, expect, with_columns
from helios.plan import Context, compile_pipelines
from helios.plan.text import show_bytes

FOLLOWED = Iceberg.source("a.orders").incremental(poll="30s")
SINK = Iceberg.sink("a.t")


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
                "left out  name, ts: the order and the deletes alone use them",
            ],
        ),
        (SINK.upsert("id", order_by="ts", history=True), ["newest by ts, all versions kept"]),
        (Iceberg.sink("a.orders").delete("id"), ["delete by id, exactly once; exists", "as large as the table says"]),
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
            ["exactly once; tables are created as their values come", "route     by name, to local.a.t_<value>"],
        ),
        (SINK.route(by="name").create(False), ["exactly once; tables that are there"]),
        (SINK.quarantine("a.q"), ["failed    rows go to local.a.q"]),
        (SINK.audit({"some": "count(*) > 0"}).publish(), ["audit     some: count(*) > 0, before main shows the batch"]),
        (
            SINK.maintain(compact=True, expire="7d", orphans="3d", readers=["/cp/x"]),
            [
                "maintain  compact small files to the target file size, expire snapshots after 7 d, but for the "
                "readers at /cp/x, delete orphan files after 3 d"
            ],
        ),
        (SINK.maintain(compact="512MB"), ["maintain  compact small files to 512 MB\n"]),
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
    for label in ("change", "left out", "route", "failed", "audit", "maintain", "retry", "branch"):
        assert label not in text


def test_bounds_of_files_are_shown(planned: Any) -> None:
    files = Files.source("x", "csv", schema="id bigint").incremental(max_files=3)
    assert "every 60 s (the smallest poll of the sources), at most 3 files a batch (max_files=)" in str(
        planned(files >> SINK)
    )


def test_offline_says_what_was_not_looked_up(context: Context) -> None:
    offline = Context(config=context.config, catalogs=context.catalogs, offline=True)
    plans, _ = compile_pipelines([FOLLOWED >> SINK], offline)
    assert "exactly once; not looked up\n            format v2, partitioned as the table is" in str(plans[0])


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
