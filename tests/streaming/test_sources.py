"""Following a table: where it begins, what bounds a batch, branches, expiry and rollbacks."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from helios import Memory, aggregate, step, where
from helios.errors import CheckpointError, HeliosError, LedgerError, RunError
from helios.plan.backlog import with_backlogs
from helios.table.readers import warehouses
from helios.table.status import statuses
from helios.table.view import View


def stateful(keys: list[str]) -> Any:
    """A step of Spark's own that keeps state."""
    return step(lambda df: df.dropDuplicates(keys))


def heads(world: Any, table: str) -> list[int]:
    return [s.id for s in world.catalog.load(table).snapshots()]


@pytest.mark.promise("start")
@pytest.mark.short
def test_each_start_delivers_what_it_says(world: Any) -> None:
    for batch in ([1, 2], [3], [4]):
        world.fill("a.s", batch)
    second = heads(world, "a.s")[1]
    starts = {"current": [1, 2, 3, 4], "earliest": [1, 2, 3, 4], "latest": [], second: [4]}
    for number, (start, expected) in enumerate(starts.items()):
        pipeline = world.source("a.s").incremental(poll=1, start=start) >> world.sink(f"a.t{number}")
        world.run(pipeline)
        assert world.ids(f"a.t{number}") == expected, start
    world.fill("a.s", [5])
    for number, (start, expected) in enumerate(starts.items()):
        world.run(world.source("a.s").incremental(poll=1, start=start) >> world.sink(f"a.t{number}"))
        assert world.ids(f"a.t{number}") == [*expected, 5], start


@pytest.mark.promise("time-travel")
@pytest.mark.short
def test_a_state_of_the_past_and_then_every_later_commit(world: Any) -> None:
    for batch in ([1], [2], [3], [4]):
        world.fill("a.s", batch)
    table = world.catalog.load("a.s")
    first, second = table.snapshots()[:2]
    table.tag("v1", first.id)
    sources = {
        "a.as_of": world.source("a.s").as_of(second.timestamp),
        "a.at_snapshot": world.source("a.s").at_snapshot(second.id),
        "a.at_ref": world.source("a.s").at_ref("v1"),
    }
    for target, source in sources.items():
        batch = world.run(source >> world.sink(f"{target}_once"))
        assert batch.rows == (1 if "at_ref" in target else 2)
        pipeline = source.incremental(poll=1) >> world.sink(target)
        world.run(pipeline)
        assert world.ids(target) == [1, 2, 3, 4]


@pytest.mark.promise("time-travel")
def test_the_state_of_a_table_whose_history_has_expired(world: Any) -> None:
    for batch in ([1], [2], [3]):
        world.fill("a.s", batch)
    world.sql("DELETE FROM local.a.s WHERE id = 2")
    world.expire("a.s")
    counts = world.source("a.s").incremental(poll=1) >> aggregate("id % 2 AS odd", n="count(*)")
    plain = world.source("a.s").incremental(poll=1) >> world.sink("a.plain")
    kept = counts >> world.sink("a.counts").upsert("odd")
    for pipeline in (plain, kept):
        world.run(pipeline)
    assert world.ids("a.plain") == [1, 3]
    assert world.rows("a.counts", "odd", "n") == Counter([(1, 2)])
    world.fill("a.s", [4])
    for pipeline in (plain, kept):
        world.run(pipeline)
    assert world.ids("a.plain") == [1, 3, 4]
    assert world.rows("a.counts", "odd", "n") == Counter([(1, 2), (0, 1)])


@pytest.mark.parametrize("bound", [{"max_files": 2}, {"max_rows": 5}])
@pytest.mark.promise("bounds")
@pytest.mark.short
def test_batches_are_bounded_by_whole_files_the_state_too(world: Any, bound: dict[str, int]) -> None:
    for batch in range(4):
        world.fill("a.s", [batch * 2, batch * 2 + 1])
    pipeline = world.source("a.s").incremental(poll=1, **bound) >> where("id != 3") >> world.sink("a.t")
    run = world.run(pipeline)
    assert run.batches == 2
    assert world.ids("a.t") == [0, 1, 2, 4, 5, 6, 7]
    for batch in range(4, 7):
        world.fill("a.s", [batch * 2, batch * 2 + 1])
    assert world.run(pipeline).batches == 2
    assert world.ids("a.t") == [i for i in range(14) if i != 3]
    assert "skipped" not in world.kinds()


@pytest.mark.promise("bounds")
@pytest.mark.landing
def test_a_bounded_read_is_resumed_in_the_middle_of_a_state(world: Any, forget_commit: Any) -> None:
    for batch in range(5):
        world.fill("a.s", [batch])
    pipeline = world.source("a.s").incremental(poll=1, max_files=2) >> world.sink("a.t")
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 2)
    world.fill("a.s", [5])
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2, 3, 4, 5]
    # A new checkpoint continues from the place inside the history that the target remembers.
    world.fill("a.s", [6])
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.promise("bounds")
def test_a_stateful_pipeline_reads_bounded_batches_of_a_state_with_deletes(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql(
        "CREATE TABLE local.a.s (id bigint, v bigint) TBLPROPERTIES ('format-version'='2', "
        "'write.delete.mode'='merge-on-read')"
    )
    for batch in range(4):
        world.sql(f"INSERT INTO local.a.s SELECT id, {batch} FROM range(10)")
    world.sql("DELETE FROM local.a.s WHERE id = 7")
    counts = aggregate("id", n="count(*)", total="sum(v)")
    pipeline = world.source("a.s").incremental(poll=1, max_files=1).where("id > 4") >> counts
    pipeline = pipeline >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    assert world.rows("a.t") == Counter({(i, 4, 6): 1 for i in (5, 6, 8, 9)})


@pytest.mark.promise("start")
@pytest.mark.landing
def test_a_branch_is_followed_and_main_is_not(world: Any) -> None:
    world.fill("a.s", [1])
    world.catalog.load("a.s").branch("b")
    world.sql("INSERT INTO local.a.s.branch_b VALUES 2")
    world.fill("a.s", [3])
    pipeline = world.source("a.s").at_ref("b").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]
    world.sql("INSERT INTO local.a.s.branch_b VALUES 4")
    world.fill("a.s", [5])
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 4]
    world.catalog.load("a.s").drop_branch("b")
    with pytest.raises(HeliosError, match="no branch"):
        world.run(pipeline)


@pytest.mark.promise("time-travel")
def test_a_tag_of_a_branch_is_read_once(world: Any) -> None:
    world.fill("a.s", [1])
    table = world.catalog.load("a.s")
    table.branch("b")
    world.sql("INSERT INTO local.a.s.branch_b VALUES 2")
    world.catalog.load("a.s").tag("vb", world.catalog.load("a.s").branches()["b"])
    world.sql("INSERT INTO local.a.s.branch_b VALUES 3")
    world.fill("a.s", [4])
    for name, ids in (("vb", [1, 2]), ("b", [1, 2, 3]), ("main", [1, 4])):
        world.run(world.source("a.s").at_ref(name) >> world.sink(f"a.{name}"))
        assert world.ids(f"a.{name}") == ids, name


@pytest.mark.promise("overwrites")
@pytest.mark.short
def test_overwrites_and_deletes_stop_a_reader_or_are_skipped(world: Any) -> None:
    world.fill("a.s", [1, 2, 3])
    strict = world.source("a.s").incremental(poll=1) >> world.sink("a.strict")
    lenient = world.source("a.s").incremental(poll=1).on_overwrite("skip") >> world.sink("a.lenient")
    for pipeline in (strict, lenient):
        world.run(pipeline)
    world.sql("DELETE FROM local.a.s WHERE id = 2")
    world.fill("a.s", [4])
    with pytest.raises(RunError, match=r"is a delete|is an overwrite") as refused:
        world.run(strict)
    assert "skip" in str(refused.value.fix)
    assert ".changes(" in str(refused.value.fix)
    world.run(lenient)
    assert world.ids("a.strict") == [1, 2, 3]
    assert world.ids("a.lenient") == [1, 2, 3, 4]


@pytest.mark.promise("overwrites")
def test_a_repair_that_is_skipped_adds_none_of_its_rows(world: Any) -> None:
    """Where its filter cuts through a file it is two snapshots, of which the second appends."""
    world.fill("a.s", [1, 2, 3], v="'old'")
    reader = world.source("a.s").incremental(poll=1).on_overwrite("skip") >> world.sink("a.t")
    world.run(reader)
    world.fill("a.s", [4], v="'old'")
    repair = Memory.source([{"id": 2, "v": "new"}], "id bigint, v string") >> world.sink("a.s").overwrite("id = 2")
    world.run(repair)
    assert [s.operation for s in world.load("a.s").snapshots()][-2:] != ["append", "append"]
    world.fill("a.s", [5], v="'old'")
    world.compact("a.s")
    world.run(reader)
    assert world.rows("a.t", "id", "v") == {(id, "old"): 1 for id in (1, 2, 3, 4, 5)}


@pytest.mark.promise("overwrites")
@pytest.mark.parametrize("skips", [True, False])
def test_a_source_that_is_filled_anew_stops_its_reader(world: Any, *, skips: bool) -> None:
    world.fill("a.raw", [1, 2])
    filled = world.source("a.raw").incremental(poll=1) >> world.sink("a.s")
    rows = world.source("a.s").incremental(poll=1)
    reader = (rows.on_overwrite("skip") if skips else rows) >> world.sink("a.t")
    for pipeline in (filled, reader):
        world.run(pipeline)
    world.run(filled, full_refresh=True)
    with pytest.raises(RunError, match=r"has emptied the table, for a full refresh of local\.a\.s") as refused:
        world.run(reader)
    assert str(refused.value.fix) == "refill this target, too: `helios run --full-refresh`."
    world.run(reader, full_refresh=True)
    world.fill("a.raw", [3])
    for pipeline in (filled, reader):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


@pytest.mark.promise("expired")
@pytest.mark.short
def test_a_next_snapshot_that_has_expired(world: Any) -> None:
    world.fill("a.s", [1])
    fail = world.source("a.s").incremental(poll=1) >> world.sink("a.fail")
    upserted = world.source("a.s").incremental(poll=1).on_expired("rebootstrap") >> world.sink("a.up").upsert("id")
    for pipeline in (fail, upserted):
        world.run(pipeline)
    for i in (2, 3):
        world.fill("a.s", [i])
    world.expire("a.s")
    with pytest.raises(LedgerError, match="has expired before it was read"):
        world.run(fail)
    assert world.ids("a.fail") == [1]
    world.run(upserted)
    world.fill("a.s", [4])
    world.run(upserted)
    assert world.ids("a.up") == [1, 2, 3, 4]


@pytest.mark.promise("expired")
@pytest.mark.landing
def test_row_lineage_proves_what_was_delivered(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) TBLPROPERTIES ('format-version'='3')")
    world.fill("a.s", [1, 2])
    sources = {"a.t": {}, "a.bounded": {"max_files": 1}}
    pipelines = {
        name: world.source("a.s").incremental(poll=1, **bound).on_expired("rebootstrap") >> world.sink(name)
        for name, bound in sources.items()
    }
    for pipeline in pipelines.values():
        world.run(pipeline)
    for i in (3, 4, 5):
        world.fill("a.s", [i])
    world.compact("a.s")
    world.fill("a.s", [6])
    world.expire("a.s")
    for name, pipeline in pipelines.items():
        world.run(pipeline)
        assert world.ids(name) == [1, 2, 3, 4, 5, 6], name
    world.fill("a.s", [7])
    for name, pipeline in pipelines.items():
        world.run(pipeline)
        assert world.ids(name) == [1, 2, 3, 4, 5, 6, 7], name


@pytest.mark.promise("expired")
@pytest.mark.landing
def test_a_source_that_is_rolled_back_or_replaced(world: Any) -> None:
    for i in (1, 2):
        world.fill("a.s", [i])
    first = heads(world, "a.s")[0]
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.catalog.load("a.s").rollback_to(first)
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        world.run(pipeline)
    world.fill("a.s", [3])
    with pytest.raises(LedgerError, match="rolled back or replaced"):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


@pytest.mark.promise("start")
def test_the_start_counts_once(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t"))
    with pytest.raises(CheckpointError, match="has been followed from start='current'"):
        world.run(world.source("a.s").incremental(poll=1, start="earliest") >> world.sink("a.t"))


@pytest.mark.promise("start")
def test_new_columns_flow_through_a_bounded_read(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1, max_files=1) >> world.sink("a.t")
    world.run(pipeline)
    world.sql("ALTER TABLE local.a.s ADD COLUMN v bigint")
    world.sql("INSERT INTO local.a.s VALUES (2, 20)")
    world.run(pipeline)
    assert world.rows("a.t", "id", "v") == Counter([(1, None), (2, 20)])


@pytest.mark.promise("time-travel")
@pytest.mark.short
def test_rows_between_two_points(world: Any) -> None:
    for batch in ([1], [2], [3], [4]):
        world.fill("a.s", batch)
    first, _, third, _ = world.catalog.load("a.s").snapshots()
    world.run(world.source("a.s").between(first.id, third.id) >> world.sink("a.t"))
    assert world.ids("a.t") == [2, 3]
    world.run(world.source("a.s").between(third.id, third.id) >> world.sink("a.none"))
    assert world.ids("a.none") == []


@pytest.mark.promise("pushdown")
def test_columns_and_predicates_of_a_source(world: Any) -> None:
    world.fill("a.s", list(range(10)), v="id * 2", **{"a b": "id"})
    source = world.source("a.s").where("v > 10").select("id", "`a b`")
    world.run(source >> world.sink("a.once"))
    world.run(source.incremental(poll=1) >> world.sink("a.followed"))
    world.run(source.incremental(poll=1, max_files=1) >> world.sink("a.bounded"))
    for target in ("a.once", "a.followed", "a.bounded"):
        assert world.rows(target, "id", "a b") == Counter({(i, i): 1 for i in range(6, 10)})


@pytest.mark.promise("start")
def test_a_table_that_is_empty_at_first(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint)")
    pipelines = [
        world.source("a.s").incremental(poll=1) >> world.sink("a.plain"),
        world.source("a.s").incremental(poll=1, max_rows=2) >> world.sink("a.bounded"),
    ]
    for _ in range(2):
        for pipeline in pipelines:
            world.run(pipeline)
    for batch in ([1, 2], [3]):
        world.fill("a.s", batch)
        for pipeline in pipelines:
            world.run(pipeline)
    assert world.ids("a.plain") == [1, 2, 3]
    assert world.ids("a.bounded") == [1, 2, 3]


@pytest.mark.promise("pushdown")
@pytest.mark.short
def test_files_that_cannot_match_are_not_opened(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, day date) PARTITIONED BY (day)")
    world.sql("INSERT INTO local.a.s SELECT id, date_add(DATE '2026-01-01', CAST(id AS int)) FROM range(20)")
    world.sql("INSERT INTO local.a.s SELECT id, date_add(DATE '2026-01-01', CAST(id AS int)) FROM range(20)")
    total = len(world.sql("SELECT * FROM local.a.s.files"))
    asked = "day = DATE '2026-01-03'"
    sources = {
        "batch": world.source("a.s").where(asked),
        "state": world.source("a.s").incremental(poll=1).where(asked),
        "steps": world.source("a.s").incremental(poll=1) >> where(asked),
        "range": world.source("a.s").incremental(poll=1, start=heads(world, "a.s")[0]).where(asked),
        "bounded": world.source("a.s").incremental(poll=1, max_files=7).where(asked),
        "stateful": world.source("a.s").incremental(poll=1).where(asked) >> stateful(["id", "day"]),
    }
    for name, source in sources.items():
        [read] = with_backlogs(world.plan(source >> world.sink(f"a.{name}"))).reads
        run = world.run(source >> world.sink(f"a.{name}"))
        figures = run.metrics().snapshot()
        assert (read.scan.files, read.scan.bytes) == (figures.files_matched, figures.bytes_read), name
        assert (read.scan.partitions, read.scan.of_partitions) == (1, 20), name
        rows, files = {"range": (1, total // 2), "stateful": (1, total)}.get(name, (2, total))
        assert len(world.ids(f"a.{name}")) == rows, name
        assert figures.files_matched == (1 if name == "range" else 2), (name, figures)
        assert figures.files_skipped == files - figures.files_matched, (name, figures)
        assert figures.bytes_read > 0, name
        # Of three partitions one file each is the last one of a batch of seven.
        skipped = 22 if name == "bounded" else 19
        assert (figures.partitions_matched, figures.partitions_skipped) == (1, skipped), (name, figures)


def counted(world: Any, source: Any, target: str) -> tuple[int, ...]:
    """What a drained run tells of files and partitions, each read and left out."""
    figures = world.run(source >> world.sink(target)).metrics().snapshot()
    names = ("files_matched", "files_skipped", "partitions_matched", "partitions_skipped")
    return tuple(getattr(figures, name) for name in names)


@pytest.mark.promise("pushdown")
def test_partitions_are_counted_where_the_table_has_some(world: Any) -> None:
    world.fill("a.plain", [1, 2])
    world.fill("a.plain", [3])
    world.sql("CREATE TABLE local.a.empty (id bigint, day date) PARTITIONED BY (day)")
    world.sql("CREATE TABLE local.a.s (id bigint, day date) PARTITIONED BY (day)")
    world.sql("INSERT INTO local.a.s VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-02')")
    first = world.catalog.load("a.s").current_snapshot().id
    world.sql("ALTER TABLE local.a.s ADD PARTITION FIELD bucket(4, id)")
    world.sql("INSERT INTO local.a.s VALUES (1, DATE '2026-01-01'), (3, DATE '2026-01-03')")
    # Another column: what was of one partition spec is of another one now, and the old files stay as they are.
    world.sql("ALTER TABLE local.a.s RENAME COLUMN id TO number")
    world.sql("INSERT INTO local.a.s VALUES (1, DATE '2026-01-01')")
    source, asked = world.source("a.s"), "day = DATE '2026-01-01'"
    assert counted(world, world.source("a.plain").where("id = 3"), "a.t0") == (1, 1, 0, 0)
    assert counted(world, world.source("a.empty").where(asked), "a.t1") == (0, 0, 0, 0)
    # 5 files in 2 partitions of the first spec, and 2 of the second one, of which one has two files
    assert counted(world, source, "a.t2") == (5, 0, 4, 0)
    assert counted(world, source.where(asked), "a.t3") == (3, 2, 2, 2)
    assert counted(world, source.where(asked).incremental(poll=1), "a.t4") == (3, 2, 2, 2)
    assert counted(world, source.where(asked).incremental(poll=1, max_files=2), "a.t5") == (3, 2, 3, 2)
    assert counted(world, source.where(asked).incremental(poll=1) >> stateful(["number"]), "a.t6") == (3, 2, 2, 2)
    # A state of the past is read with the columns of today: with its own ones Spark cannot be told what to leave out.
    assert counted(world, source.at_snapshot(first).where(asked), "a.t7") == (2, 0, 2, 0)
    # What Iceberg cannot be told leaves nothing out, and beside it the rest still does.
    asked = "day = DATE '2026-01-03' AND sqrt(number) > 1"
    assert counted(world, source.incremental(poll=1, start=first).where("sqrt(number) > 1"), "a.t8") == (3, 0, 2, 0)
    assert counted(world, source.incremental(poll=1, start=first).where(asked), "a.t9") == (1, 2, 1, 1)
    assert [sorted(world.rows(f"a.t{n}", "number").elements()) for n in (3, 4, 5, 8, 9)] == [
        [(1,)] * 3, [(1,)] * 3, [(1,)] * 3, [(3,)], [(3,)],
    ]  # fmt: skip


@pytest.mark.promise("pushdown")
def test_partitions_of_many_files_are_not_counted(world: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("helios.spark.iceberg.scan_metrics.MAX_FILES", 3)
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) PARTITIONED BY (id)")
    world.sql("INSERT INTO local.a.s SELECT id FROM range(3)")
    source = world.source("a.s").incremental(poll=1).where("id > 1")
    assert counted(world, source, "a.t") == (1, 2, 1, 2)
    world.sql("INSERT INTO local.a.s SELECT id FROM range(4)")
    assert counted(world, source, "a.t") == (2, 2, 0, 0)
    assert counted(world, world.source("a.s").where("id > 1"), "a.u") == (3, 4, 0, 0)


@pytest.mark.promise("time-travel")
def test_state_with_columns_that_have_changed_since(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, old bigint, p struct<a: bigint, b: bigint>)")
    world.sql("INSERT INTO local.a.s VALUES (1, 10, named_struct('a', 1, 'b', 2))")
    first = world.catalog.load("a.s").current_snapshot()
    for change in (
        "RENAME COLUMN old TO new",
        "ADD COLUMN p.c bigint AFTER a",
        "ALTER COLUMN p.b FIRST",
        "DROP COLUMN p.a",
    ):
        world.sql(f"ALTER TABLE local.a.s {change}")
    world.sql("INSERT INTO local.a.s VALUES (2, 20, named_struct('b', 4, 'c', 5))")
    source = world.source("a.s").at_snapshot(first.id)
    pipelines = {
        "once": source.where("new = 10"),
        "followed": source.incremental(poll=1).where("new >= 10"),
        "bounded": source.incremental(poll=1, max_files=1).where("new >= 10"),
        "stateful": source.incremental(poll=1).where("new >= 10") >> stateful(["id"]),
    }
    for name, pipeline in pipelines.items():
        world.run(pipeline >> world.sink(f"a.{name}"))
        rows = sorted((r.id, r.new, r.p.b, r.p.c) for r in world.sql(f"SELECT * FROM local.a.{name}"))
        assert rows == [(1, 10, 2, None), (2, 20, 4, 5)][: 1 if name == "once" else 2], name


@pytest.mark.promise("expired")
def test_lineage_does_not_tell_where_delivered_rows_were_deleted(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint) TBLPROPERTIES ('format-version'='3')")
    world.fill("a.s", [1, 2])
    pipeline = world.source("a.s").incremental(poll=1).on_expired("rebootstrap") >> world.sink("a.t")
    world.run(pipeline)
    world.sql("DELETE FROM local.a.s WHERE id = 1")
    world.fill("a.s", [3])
    world.expire("a.s")
    with pytest.raises(LedgerError, match="have been deleted or changed since"):
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.promise("expired")
def test_an_update_of_a_delivered_row_is_not_lost_with_the_history(world: Any, mode: str) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql(
        "CREATE TABLE local.a.s (id bigint, v string) "
        f"TBLPROPERTIES ('format-version'='3', 'write.update.mode'='{mode}')"
    )
    world.fill("a.s", [1, 2], v="'a'")
    pipeline = world.source("a.s").incremental(poll=1).on_expired("rebootstrap") >> world.sink("a.t")
    world.run(pipeline)
    world.sql("UPDATE local.a.s SET v = 'b' WHERE id = 1")
    world.fill("a.s", [3], v="'a'")
    world.expire("a.s")
    with pytest.raises(LedgerError, match="have been deleted or changed since"):
        world.run(pipeline)
    assert world.rows("a.t", "id", "v") == {(1, "a"): 1, (2, "a"): 1}
    world.run(pipeline, full_refresh=True)
    assert world.rows("a.t", "id", "v") == {(1, "b"): 1, (2, "a"): 1, (3, "a"): 1}


@pytest.mark.promise("expired")
def test_a_planned_batch_whose_snapshots_have_expired_begins_again(world: Any) -> None:
    world.fill("a.s", [1])
    source = world.source("a.s").incremental(poll=1).on_expired("rebootstrap")
    pipeline = source >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    world.fill("a.s", [2])
    broken = source >> step(refuse) >> world.sink("a.t").upsert("id")
    with pytest.raises(HeliosError, match="not now"):
        world.run(broken)
    world.fill("a.s", [3])
    world.expire("a.s")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3]


def refuse(df: Any) -> Any:
    if not df.isStreaming:
        raise ValueError("not now")
    return df


@pytest.mark.promise("expired")
def test_a_replaced_table_is_told_by_its_uuid(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    world.sql("DROP TABLE local.a.s")
    for i in (5, 6):
        world.fill("a.s", [i])
    world.expire("a.s")
    with pytest.raises(LedgerError, match="was replaced by another table"):
        world.run(pipeline)
    assert world.ids("a.t") == [1]


@pytest.mark.promise("upsert")
def test_ties_of_an_order_go_to_the_later_commit_though_it_was_compacted(world: Any) -> None:
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (k bigint, ts bigint, v string)")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("k", order_by="ts")
    world.sql("INSERT INTO local.a.s VALUES (0, 0, 'x')")
    world.run(pipeline)
    world.sql("INSERT INTO local.a.s VALUES (1, 5, 'a')")
    world.sql("INSERT INTO local.a.s VALUES (1, 5, 'b')")
    world.compact("a.s")
    world.run(pipeline)
    assert world.rows("a.t", "k", "v") == Counter([(0, "x"), (1, "b")])


@pytest.mark.promise("start")
def test_following_changes_instead_of_rows_is_another_pipeline(world: Any) -> None:
    world.fill("a.s", [1])
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t"))
    with pytest.raises(CheckpointError, match="by its changes"):
        world.run(world.source("a.s").incremental(poll=1).changes() >> world.sink("a.t"))


@pytest.mark.promise("metrics")
def test_the_lag_of_the_metrics_is_that_of_status(world: Any) -> None:
    def behind(pipeline: Any, number: int) -> None:
        run = world.run(pipeline)
        table = world.catalog.load("a.t")
        view = View(
            load=lambda name: world.catalog.load(name.partition(".")[2]), warehouses=warehouses([world.catalog])
        )
        (told,) = statuses(table, view)
        assert (run.metrics().source_lag_snapshots, told.behind) == (number, number)
        assert abs((run.metrics().source_lag_seconds or 0) - (told.seconds or 0)) < 5

    world.fill("a.s", range(4))
    bounded = world.source("a.s").incremental(poll=1, max_files=1) >> world.sink("a.t")
    late = bounded.stream >> step(lambda df: _and_meanwhile(df, world)) >> world.sink("a.t")
    behind(bounded, 0)
    world.sql("INSERT INTO local.a.s SELECT id FROM local.a.s WHERE false")
    behind(bounded, 0)
    world.fill("a.s", [5])
    behind(late, 2)
    behind(bounded, 0)


def _and_meanwhile(df: Any, world: Any) -> Any:
    """Two appends, and one of nothing, while a batch is made."""
    if not df.isStreaming and df.count():
        for rows in ([6], [7]):
            world.fill("a.s", rows)
        world.sql("INSERT INTO local.a.s SELECT id FROM local.a.s WHERE false")
    return df


@pytest.mark.promise("bad-sources")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_times_in_memory_without_a_zone_are_of_utc(world: Any, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2026, 7, 1, 12, 30)
    rows = [{"id": 1, "at": at, "inner": {"all": [at]}, "plain": at}]
    schema = "id bigint, at timestamp, inner struct<all: array<timestamp>>, plain timestamp_ntz"
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        world.run(Memory.source(rows, schema) >> world.sink("a.t"))
        world.run(Memory.source([{"id": 1, "at": at}]) >> world.sink("a.inferred"))
    time.tzset()
    [row] = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    utc = at.replace(tzinfo=UTC)
    assert (row["at"], row["inner"], row["plain"]) == (utc, {"all": [utc]}, at)
    assert world.rows("a.inferred", "at") == {(utc,): 1}
