"""What each write mode does to a table; exactly-once in each of them is in tests/conformance."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest

from helios import Files, Memory, aggregate, bucket, expect, select, with_columns
from helios.errors import CheckFailed, RunError
from tests.streaming.landing import land
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.short


def rows(*ids: int, **columns: Any) -> Any:
    return Memory.source([{"id": i, "k": i % 3, **columns} for i in ids])


# overwrite


@pytest.mark.promise("overwrite")
def test_overwrite_replaces_the_whole_table_and_runs_again(world: Any) -> None:
    world.run(rows(1, 2, 3) >> world.sink("a.t").overwrite())
    world.run(rows(4, 5) >> world.sink("a.t").overwrite())
    assert world.ids("a.t") == [4, 5]
    world.fill("a.t", [9], k="0")
    world.run(rows(4, 5) >> world.sink("a.t").overwrite())
    assert world.ids("a.t") == [4, 5]


@pytest.mark.promise("overwrite")
def test_overwrite_by_filter_cuts_through_files(world: Any) -> None:
    world.run(rows(1, 2, 3, 4) >> world.sink("a.t").overwrite())
    world.run((rows(7, 10) >> world.sink("a.t").overwrite("k = 1")).named("ones"))
    assert world.ids("a.t") == [2, 3, 7, 10]


@pytest.mark.promise("overwrite")
def test_overwrite_by_filter_of_whole_partitions_is_one_snapshot(world: Any) -> None:
    world.run(rows(1, 2, 3, 4) >> world.sink("a.t").partition_by("k"))
    world.run((rows(7, 10) >> world.sink("a.t").overwrite("k = 1")).named("ones"))
    assert world.ids("a.t") == [2, 3, 7, 10]
    assert [s.operation for s in world.catalog.load("a.t").snapshots()] == ["append", "overwrite"]


@pytest.mark.promise("overwrite")
def test_rows_outside_of_the_filter_are_refused(world: Any) -> None:
    world.run(rows(1, 2) >> world.sink("a.t").overwrite())
    with pytest.raises(RunError, match="has a row that does not match the filter: id=3, k=0; nothing was written"):
        world.run((rows(3, 4) >> world.sink("a.t").overwrite("k = 1")).named("ones"))
    assert world.ids("a.t") == [1, 2]


@pytest.mark.promise("overwrite")
def test_a_filter_names_a_field_of_a_struct_called_target(world: Any) -> None:
    """The rows of a file of which some go are deleted by a command that called the table `target`."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.t (id int, x int, target struct<x: int>) USING iceberg")
    world.sql(
        "INSERT INTO local.a.t SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 1, named_struct('x', 2)), "
        "(2, 2, named_struct('x', 1)), (3, 3, named_struct('x', 3))"
    )
    source = rows(9) >> select("CAST(id AS int) AS id", "2 AS x", "named_struct('x', 1) AS target")
    world.run(source >> world.sink("a.t").overwrite("target.x = 1"))
    assert world.ids("a.t") == [1, 3, 9]


@pytest.mark.promise("overwrite")
def test_overwrite_partitions_leaves_the_others(world: Any) -> None:
    sink = world.sink("a.t").partition_by("k").overwrite_partitions()
    world.run(rows(1, 2, 3, 4) >> sink)
    world.run(rows(7) >> sink)
    assert world.ids("a.t") == [2, 3, 7]


# upsert


@pytest.mark.promise("upsert")
def test_the_newest_row_wins_within_and_across_batches(world: Any) -> None:
    world.fill("a.s", [1, 2, 3], v="'old'", ts="1")
    world.fill("a.s", [1], v="'newer'", ts="5")
    world.fill("a.s", [1], v="'late'", ts="3")
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").upsert("id", order_by="ts")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(1, "newer", 5): 1, (2, "old", 1): 1, (3, "old", 1): 1})
    world.fill("a.s", [1, 2], v="'later batch'", ts="4")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(1, "newer", 5): 1, (2, "later batch", 4): 1, (3, "old", 1): 1})
    assert not list(world.folder.rglob("*helios/keys"))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.promise("upsert")
def test_without_its_column_the_order_is_remembered_also_when_the_default_is_taken_later(
    world: Any, kept: bool
) -> None:
    def run(store: bool) -> Counter[tuple[Any, ...]]:
        sink = world.sink("a.t").upsert("id", order_by="ts", store_order=store)
        world.run(world.source("a.s").incremental() >> sink)
        found: Counter[tuple[Any, ...]] = world.rows("a.t")
        return found

    world.fill("a.s", [1, 2], v="'first'", ts="5")
    assert run(store=False) == Counter({(1, "first"): 1, (2, "first"): 1})
    world.fill("a.s", [1], v="'late'", ts="4")
    world.fill("a.s", [2], v="'newer'", ts="6")
    assert run(store=kept) == Counter({(1, "first"): 1, (2, "newer"): 1})
    [terms] = world.folder.rglob("_helios/keys/*/terms.json")
    assert json.loads(terms.read_text())["order"] == "ts"


@pytest.mark.promise("upsert")
def test_a_new_pipeline_adds_the_column_of_its_order_to_a_table(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.t (id bigint, v string) USING iceberg")
    world.sql("INSERT INTO local.a.t VALUES (1, 'by hand')")
    world.fill("a.s", [1, 2], v="'a'", ts="5")
    pipeline = world.source("a.s").incremental() >> world.sink("a.t").upsert("id", order_by="ts")
    world.run(pipeline)
    world.fill("a.s", [1], v="'late'", ts="4")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(1, "a", 5): 1, (2, "a", 5): 1})


@pytest.mark.promise("upsert")
def test_an_order_that_the_table_stores_is_compared_there(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.t (id bigint, v string, ts bigint) USING iceberg")
    world.sql("INSERT INTO local.a.t VALUES (1, 'by hand', 9), (2, 'by hand', null)")
    world.run(
        Memory.source([{"id": 1, "v": "older", "ts": 5}, {"id": 2, "v": "first", "ts": 5}])
        >> world.sink("a.t").upsert("id", order_by="ts")
    )
    assert world.rows("a.t") == Counter({(1, "by hand", 9): 1, (2, "first", 5): 1})


@pytest.mark.promise("upsert")
def test_ties_go_to_the_later_source_position(world: Any) -> None:
    for value in ("'b'", "'a'"):  # the later commit has the smaller value: content does not decide
        world.fill("a.s", [1, 2], v=value, ts="1")
    pipeline = (
        world.source("a.s").incremental() >> with_columns(v="upper(v)") >> world.sink("a.t").upsert("id", order_by="ts")
    )
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter({(1, "A"): 1, (2, "A"): 1})
    world.fill("a.s", [2], v="'z'", ts="1")
    world.fill("a.s", [2], v="'c'", ts="1")
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter({(1, "A"): 1, (2, "C"): 1})


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.promise("upsert")
def test_deletes_are_remembered(world: Any, stores: bool) -> None:
    order = {"order_by": "ts", "store_order": stores}

    def run(*given: tuple[int, str, int, str]) -> Counter[tuple[Any, ...]]:
        source = Memory.source(given, "id bigint, v string, ts bigint, op string")
        world.run(source >> world.sink("a.t").upsert("id", delete_when="op = 'd'", **order))
        found: Counter[tuple[Any, ...]] = world.rows("a.t", "id", "v")
        return found

    assert run((1, "a", 1, "u"), (2, "b", 1, "u")) == Counter({(1, "a"): 1, (2, "b"): 1})
    assert run((1, "", 5, "d"), (3, "", 5, "d")) == Counter({(2, "b"): 1})
    assert run((1, "late", 4, "u"), (3, "late", 4, "u")) == Counter({(2, "b"): 1})
    assert run((1, "newer", 6, "u"), (2, "", 0, "d")) == Counter({(1, "newer"): 1, (2, "b"): 1})


@pytest.mark.promise("history")
def test_history_keeps_every_version(world: Any) -> None:
    sink = world.sink("a.t").upsert("id", order_by="ts", delete_when="op = 'd'", history=True)

    def run(*given: tuple[int, str, int, str]) -> set[tuple[Any, ...]]:
        world.run(Memory.source(given, "id bigint, v string, ts bigint, op string") >> sink)
        found = world.rows("a.t", "id", "v", "valid_from", "valid_to")
        assert set(found.values()) == {1}
        return set(found)

    assert run((1, "a", 1, "u"), (1, "b", 3, "u"), (2, "z", 1, "u")) == {
        (1, "a", 1, 3), (1, "b", 3, None), (2, "z", 1, None),
    }  # fmt: skip
    assert run((1, "late", 2, "u")) == {
        (1, "a", 1, 2), (1, "late", 2, 3), (1, "b", 3, None), (2, "z", 1, None),
    }  # fmt: skip
    assert run((1, "", 5, "d"), (3, "", 5, "d")) == {
        (1, "a", 1, 2), (1, "late", 2, 3), (1, "b", 3, 5), (2, "z", 1, None),
    }  # fmt: skip
    assert run((1, "later", 4, "u"), (3, "old", 3, "u")) == {
        (1, "a", 1, 2), (1, "late", 2, 3), (1, "b", 3, 4), (1, "later", 4, 5), (2, "z", 1, None), (3, "old", 3, 5),
    }  # fmt: skip


@pytest.mark.promise("upsert")
def test_an_aggregate_is_upserted_by_its_groups(world: Any) -> None:
    pipeline = (
        world.source("a.s").incremental()
        >> aggregate("k", n="count(*)", total="sum(id)")
        >> world.sink("a.t").upsert("k")
    )
    world.fill("a.s", range(6), k="id % 2")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(0, 3, 6): 1, (1, 3, 9): 1})
    world.fill("a.s", [7, 9], k="id % 2")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(0, 3, 6): 1, (1, 5, 25): 1})


@pytest.mark.promise("upsert")
def test_a_column_that_the_stream_lacks_keeps_its_value(world: Any) -> None:
    world.run(Memory.source([{"id": 1, "v": "a", "note": "kept"}]) >> world.sink("a.t").upsert("id"))
    world.run((Memory.source([{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]) >> world.sink("a.t").upsert("id")).named("x"))
    assert world.rows("a.t", "id", "v", "note") == Counter({(1, "b", "kept"): 1, (2, "c", None): 1})


@pytest.mark.parametrize(("version", "deletes"), [(2, "PARQUET"), (3, "PUFFIN")])
@pytest.mark.promise("upsert")
def test_merge_on_read_writes_delete_files(world: Any, version: int, deletes: str) -> None:
    sink = world.sink("a.t").format_version(version).upsert("id")
    world.run(rows(*range(100)) >> sink)
    world.run(rows(5, v="new") >> sink)
    found = world.sql("SELECT content, file_format FROM local.a.t.files WHERE content = 1")
    assert [(r.content, r.file_format) for r in found] == [(1, deletes)]
    world.run(rows(6, v="new") >> sink.write_mode("copy-on-write"))
    assert world.catalog.load("a.t").snapshots()[-1].summary.get("added-delete-files") is None
    assert world.catalog.load("a.t").iceberg.properties["write.merge.mode"] == "merge-on-read"
    assert len(world.ids("a.t")) == 100


# delete, MERGE


@pytest.mark.promise("delete")
def test_delete_by_key(world: Any) -> None:
    world.run(rows(1, 2, 3) >> world.sink("a.t"))
    requests = Memory.source([{"id": 2, "asked": "today"}, {"id": 2, "asked": "again"}, {"id": 8, "asked": "now"}])
    world.run((requests >> world.sink("a.t").delete("id")).named("erase"))
    assert world.ids("a.t") == [1, 3]


INTO_COPY_ON_WRITE: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "upsert": (lambda sink: sink.upsert("id"), [(1, "new"), (2, "b"), (3, "c")]),
    "order": (lambda sink: sink.upsert("id", order_by="v", delete_when="v = 'new'"), [(2, "b"), (3, "c")]),
    "delete": (lambda sink: sink.delete("id"), [(2, "b")]),
    "merge_sql": (
        lambda sink: sink.merge_sql(
            "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET v = batch.v"
        ),
        [(1, "new"), (2, "b")],
    ),
}


@pytest.mark.parametrize("which", INTO_COPY_ON_WRITE)
@pytest.mark.promise("delete")
def test_rows_that_are_judged_as_they_are_read_reach_a_copy_on_write_table(world: Any, which: str) -> None:
    """Spark reads the source of such a command twice, and refuses one that might not give the same rows."""
    write, expected = INTO_COPY_ON_WRITE[which]
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.t (id bigint, v string) USING iceberg")
    world.sql("INSERT INTO local.a.t VALUES (1, 'a'), (2, 'b')")
    folder = land(world.folder / "in", "a.csv", "id,v\n1,new\n3,c\n")
    source = Files.source(str(folder), "csv", schema="id bigint, v string").on_bad_row("quarantine")
    world.run(source >> write(world.sink("a.t")).quarantine("a.q"))
    assert world.rows("a.t", "id", "v") == Counter(expected)


@pytest.mark.promise("merge-sql")
def test_merge_sql(world: Any) -> None:
    world.run(rows(1, 2) >> world.sink("a.t"))
    merge = (
        "MERGE INTO target USING (SELECT id, k FROM batch WHERE id > 1) b ON target.id = b.id "
        "WHEN MATCHED THEN UPDATE SET k = 99 WHEN NOT MATCHED THEN INSERT (id, k) VALUES (b.id, b.k)"
    )
    world.run((rows(1, 2, 3) >> world.sink("a.t").merge_sql(merge)).named("m"))
    assert world.rows("a.t") == Counter({(1, 1): 1, (2, 99): 1, (3, 0): 1})


# branches and audits


@pytest.mark.promise("branch")
def test_a_branch_leaves_main_untouched(world: Any) -> None:
    world.run(rows(1, 2) >> world.sink("a.t"))
    branch = rows(2, 3) >> world.sink("a.t").branch("x").upsert("id")
    world.run(branch)
    world.run(branch)
    assert world.ids("a.t") == [1, 2]
    assert sorted(r.id for r in world.sql("SELECT id FROM local.a.t VERSION AS OF 'x'")) == [1, 2, 3]


@pytest.mark.promise("audit")
def test_main_shows_only_audited_batches(world: Any) -> None:
    def sink(table: str) -> Any:
        return world.sink(table).audit({"many": "count(*) >= 2", "positive": "min(id) > 0"}).publish()

    world.run(rows(1, 2) >> sink("a.t"))
    assert world.ids("a.t") == [1, 2]
    with pytest.raises(RunError, match=r"batch 1 of local\.a\.t did not pass its audit: many \(count"):
        world.run(rows(3) >> sink("a.t"))
    assert world.ids("a.t") == [1, 2]
    again = world.start(rows(3) >> sink("a.t"), once=True)
    with pytest.raises(RunError, match="did not pass its audit"):  # a restart audits again
        again.await_termination(120)
    assert again.status()["left"] == ["batch 1 failed its audit, and waits on the branch helios_audit_local.a.t"]
    world.run(rows(3, 4) >> sink("a.t"))
    assert world.ids("a.t") == [1, 2, 3, 4]


@pytest.mark.promise("audit")
def test_an_audit_names_a_field_of_a_struct_that_has_the_name_of_the_table(world: Any) -> None:
    sink = world.sink("a.t").audit({"positive": "min(t.x) > 0"}).publish()
    source = rows(1) >> select("id", "-1L AS x", "named_struct('x', id) AS t")
    world.run(source >> sink)
    assert world.ids("a.t") == [1]


# expectations


@pytest.mark.promise("expect")
def test_expectations(world: Any) -> None:
    checks = {"odd": "id % 2 = 1", "small": "id < 9"}
    with pytest.raises(RunError, match=r'expectation odd \(id % 2 = 1\) in \{"id":2,"k":2\}; nothing of its batch'):
        world.run(rows(1, 2, 3) >> expect(checks) >> world.sink("a.fail"))
    dropped = world.run(rows(1, 2, 3) >> expect(checks, on_fail="drop") >> world.sink("a.drop"))
    assert world.ids("a.drop") == [1, 3]
    assert dropped.metrics().records_failed == 1
    aside = world.run(
        rows(1, 2, 3, 10) >> expect(checks, on_fail="quarantine") >> world.sink("a.aside").quarantine("a.bad")
    )
    assert world.ids("a.aside") == [1, 3]
    assert aside.metrics().records_failed == 2
    assert world.rows("a.bad", "payload", "reason", "batch") == Counter(
        {
            ('{"id":2,"k":2}', "odd (id % 2 = 1)", 0): 1,
            ('{"id":10,"k":1}', "odd (id % 2 = 1), small (id < 9)", 0): 1,
        }
    )


# columns, partitions, files


@pytest.mark.promise("evolve")
def test_a_new_column_of_a_running_source_arrives(world: Any) -> None:
    world.fill("a.s", [1, 2])
    followed = world.source("a.s").incremental(poll="200ms")
    runs = [world.start(followed >> world.sink("a.t")), world.start(followed >> world.sink("a.u").flush(rows=1000))]
    wait(lambda: all(world.catalog.exists(t) and len(world.ids(t)) == 2 for t in ("a.t", "a.u")), runs)
    world.sql("ALTER TABLE local.a.s ADD COLUMN c struct<x: int>")
    world.sql("INSERT INTO local.a.s VALUES (7, named_struct('x', 1))")
    wait(lambda: all(len(world.ids(t)) == 3 for t in ("a.t", "a.u")), runs)
    for run in runs:
        run.stop()
        assert run.await_termination(60)
    for table in ("a.t", "a.u"):
        assert sorted((r.id, r.c and r.c.x) for r in world.sql(f"SELECT * FROM local.{table}")) == [
            (1, None), (2, None), (7, 1),
        ]  # fmt: skip


def wait(done: Any, runs: list[Any]) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < until, "nothing arrived"
        for run in runs:
            assert run.active, run.error
        time.sleep(0.2)


@pytest.mark.promise("evolve")
def test_evolution_strict_and_full(world: Any) -> None:
    world.run(Memory.source([(1, 1)], "id int, n int") >> world.sink("a.t"))
    wider = Memory.source([(2**40, 2, "x")], "id bigint, n int, note string")
    with pytest.raises(CheckFailed, match=r'(?s)wider than the table.*evolve_schema\("full"\)'):
        world.run((wider >> world.sink("a.t")).named("p"))
    with pytest.raises(CheckFailed, match="note"):
        world.run((wider >> world.sink("a.t").evolve_schema("strict")).named("p"))
    assert len(world.catalog.load("a.t").snapshots()) == 1
    renamed = Memory.source([(2**40, 2, "x")], "id bigint, number int, note string")
    world.run((renamed >> world.sink("a.t").evolve_schema("full").renames({"n": "number"})).named("p"))
    assert world.rows("a.t", "id", "number", "note") == Counter({(1, 1, None): 1, (2**40, 2, "x"): 1})


@pytest.mark.promise("upsert", "evolve", "layout")
def test_partitioning_and_order_evolve(world: Any) -> None:
    world.run(rows(1, 2) >> world.sink("a.t").partition_by("k"))
    changed = world.sink("a.t").partition_by(bucket(4, "id"), evolve=True).sort_by("id desc")
    world.run((rows(3, 4) >> changed).named("p"))
    world.run((rows(5, 6) >> changed).named("p"))
    iceberg = world.catalog.load("a.t").iceberg
    assert [str(f.transform) for f in iceberg.spec().fields] == ["bucket[4]"]
    assert [str(f.direction) for f in iceberg.sort_order().fields] == ["DESC"]
    assert world.ids("a.t") == [1, 2, 3, 4, 5, 6]


CODECS = {"none": "UNCOMPRESSED", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "UNKNOWN", "zstd": "ZSTD"}
"""As Arrow names them; Hadoop's framing of lz4 has no name there, and is read all the same."""


@pytest.mark.parametrize(("codec", "stored"), CODECS.items())
@pytest.mark.promise("layout")
def test_codecs_of_an_existing_table(world: Any, codec: str, stored: str) -> None:
    import pyarrow.parquet as pq

    world.run(rows(1) >> world.sink("a.t"))
    level = 3 if codec in ("gzip", "zstd") else None
    world.run((rows(*range(1000)) >> world.sink("a.t").compression(codec, level)).named(codec))
    newest = world.sql("SELECT file_path FROM local.a.t.files ORDER BY record_count DESC LIMIT 1")[0].file_path
    assert pq.ParquetFile(newest.removeprefix("file:")).metadata.row_group(0).column(0).compression == stored
    assert world.catalog.load("a.t").iceberg.properties["write.parquet.compression-codec"] == "zstd"
    assert world.ids("a.t") == sorted([1, *range(1000)])


@pytest.mark.promise("layout")
def test_a_target_file_size_is_kept_to(world: Any) -> None:
    many = Memory.source([{"id": i, "text": f"{i * 7919 % 100003} some text {i}"} for i in range(20000)])
    world.run(many >> world.sink("a.t").target_file_size("40KB").compression("none"))
    sizes = [r.file_size_in_bytes for r in world.sql("SELECT file_size_in_bytes FROM local.a.t.files")]
    assert len(sizes) > 1


# routes


@pytest.mark.promise("route")
def test_routes(world: Any) -> None:
    sink = world.sink("a.t").route(by="concat('v', k)")
    world.run(rows(1, 2, 4) >> sink)
    world.run(rows(1, 2, 4) >> sink)  # identical inputs are skipped, table by table
    world.run(rows(7) >> sink)
    assert (world.ids("a.t_v1"), world.ids("a.t_v2")) == ([1, 4, 7], [2])
    with pytest.raises(RunError, match=r"route\(by='k - 1'\) gave '-1', which cannot name a table"):
        world.run((rows(3) >> world.sink("a.t").route(by="k - 1")).named("bad"))
    assert not world.catalog.exists("a.t_-1")
