"""Following changes: a replica by upsert, a log of changes, and materialized views, against a full recompute."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from helios import aggregate, drop, step, where, with_columns
from helios.errors import HeliosError, LedgerError

pytestmark = pytest.mark.promise("views")

FIGURES = {
    "n": "count(*)",
    "known": "count(v)",
    "total": "sum(v)",
    "mean": "avg(v)",
    "low": "min(v)",
    "high": "max(v)",
    "real": "sum(f)",
}


def make(world: Any, version: int, mode: str) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    modes = ", ".join(f"'write.{kind}.mode'='{mode}'" for kind in ("delete", "update", "merge"))
    world.sql(
        "CREATE TABLE local.a.s (id bigint, `the group` string, v bigint, f double) USING iceberg "
        f"TBLPROPERTIES ('format-version'='{version}', {modes})"
    )


def change(world: Any, dice: random.Random, number: int) -> None:
    """One random commit of the source."""
    some = f"id % {dice.randint(3, 9)} = {dice.randint(0, 2)}"
    group = f"CASE id % 4 WHEN {dice.randint(0, 3)} THEN NULL ELSE concat('g', (id + {number}) % 5) END"
    what = dice.choice(["insert", "insert", "update", "update", "delete", "move", "compact", "truncate"])
    if what == "insert":
        first = dice.randint(0, 60)
        world.sql(
            f"INSERT INTO local.a.s SELECT id, {group}, nullif(id % 7, {number % 7}), id / 3 "
            f"FROM range({first}, {first + 15})"
        )
    elif what == "update":
        world.sql(f"UPDATE local.a.s SET v = v + {dice.randint(-9, 9)}, f = f * 1.1 WHERE {some}")
    elif what == "delete":
        world.sql(f"DELETE FROM local.a.s WHERE {some}")
    elif what == "move":
        world.sql(f"UPDATE local.a.s SET `the group` = {group} WHERE {some}")
    elif what == "compact":
        world.compact("a.s")
    elif dice.random() < 0.3:
        world.sql("TRUNCATE TABLE local.a.s")


def view(world: Any) -> Any:
    source = world.source("a.s").incremental(poll=1).changes()
    return (
        source
        >> where("id % 10 != 3")
        >> aggregate("`the group`", **FIGURES)
        >> world.sink("a.view").upsert("the group")
    )


def recomputed(world: Any) -> Counter[tuple[Any, ...]]:
    figures = ", ".join(f"{expression} AS {name}" for name, expression in FIGURES.items())
    rows = world.sql(f"SELECT `the group`, {figures} FROM local.a.s WHERE id % 10 != 3 GROUP BY 1")
    return Counter(tuple(round(x, 6) if isinstance(x, float) else x for x in row) for row in rows)


def kept(world: Any) -> Counter[tuple[Any, ...]]:
    rows = world.rows("a.view", "the group", *FIGURES).elements()
    return Counter(tuple(round(x, 6) if isinstance(x, float) else x for x in row) for row in rows)


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
@pytest.mark.cases(slow="3-merge-on-read")
def test_a_view_equals_the_full_recompute(world: Any, version: int, mode: str) -> None:
    dice = random.Random(version)
    make(world, version, mode)
    pipeline = view(world)
    for number in range(8):
        for _ in range(dice.randint(1, 2)):
            change(world, dice, number)
        world.run(pipeline)
        if number == 0:
            world.run(pipeline)  # nothing new: nothing happens
        assert kept(world) == recomputed(world), number


@pytest.mark.short
def test_a_view_after_a_replay(world: Any, forget_commit: Any) -> None:
    make(world, 2, "copy-on-write")
    pipeline = view(world)
    world.sql("INSERT INTO local.a.s SELECT id, concat('g', id % 3), id, id FROM range(20)")
    world.run(pipeline)
    world.sql("UPDATE local.a.s SET v = 0 WHERE id < 5")
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 1)
    before = world.catalog.load("a.view").current_snapshot()
    world.run(pipeline)
    assert world.catalog.load("a.view").current_snapshot() == before
    assert kept(world) == recomputed(world)


def test_a_replica_and_a_log_of_changes(world: Any) -> None:
    make(world, 3, "merge-on-read")
    changes = world.source("a.s").incremental(poll=1).changes(keys=["id"])
    replica = changes >> where("_change_type != 'UPDATE_BEFORE'") >> drop("_commit_snapshot_id")
    replica = replica >> world.sink("a.copy").upsert(
        "id", order_by="_change_ordinal", delete_when="_change_type = 'DELETE'"
    )
    log = changes >> world.sink("a.log")
    world.sql("INSERT INTO local.a.s SELECT id, 'g', id, id FROM range(10)")
    for pipeline in (replica, log):
        world.run(pipeline)
    world.sql("UPDATE local.a.s SET v = 100 WHERE id = 1")
    world.sql("DELETE FROM local.a.s WHERE id IN (2, 3)")
    world.sql("INSERT INTO local.a.s VALUES (3, 'g', 33, 3)")
    world.sql("UPDATE local.a.s SET v = 200 WHERE id = 1")
    world.compact("a.s")
    for pipeline in (replica, log):
        world.run(pipeline)
    columns = ("id", "the group", "v", "f")
    assert world.rows("a.copy", *columns) == world.rows("a.s", *columns)
    kinds = Counter(row[0] for row in world.rows("a.log", "_change_type").elements())
    assert kinds == {"INSERT": 11, "DELETE": 2, "UPDATE_BEFORE": 2, "UPDATE_AFTER": 2}
    assert not any(c.startswith("_") for c in world.catalog.load("a.copy").iceberg.schema().column_names)


def test_changes_between_two_points(world: Any) -> None:
    make(world, 2, "copy-on-write")
    world.sql("INSERT INTO local.a.s SELECT id, 'g', id, id FROM range(4)")
    world.sql("UPDATE local.a.s SET v = 100 WHERE id = 1")
    world.sql("DELETE FROM local.a.s WHERE id = 2")
    first, _, last = world.catalog.load("a.s").snapshots()
    source = world.source("a.s").changes_between(first.id, last.id, keys="id").where("id < 3").select("id", "v")
    world.run(source >> world.sink("a.changes"))
    assert world.rows("a.changes", "id", "v", "_change_type") == Counter(
        [(1, 1, "UPDATE_BEFORE"), (1, 100, "UPDATE_AFTER"), (2, 2, "DELETE")]
    )


def test_a_view_whose_source_lost_history(world: Any) -> None:
    make(world, 2, "copy-on-write")
    pipeline = view(world)
    world.sql("INSERT INTO local.a.s VALUES (1, 'g', 1, 1)")
    world.run(pipeline)
    for i in (2, 4):
        world.sql(f"INSERT INTO local.a.s VALUES ({i}, 'g', 1, 1)")
    world.expire("a.s")
    with pytest.raises(LedgerError, match="has expired"):
        world.run(pipeline)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (with_columns(first="row_number() OVER (PARTITION BY id ORDER BY v)"), "Window"),
        (where("f < unix_seconds(now())"), "another value each time"),
        (where("id IN (SELECT max(id) FROM local.a.s)"), "subquery"),
        (step(lambda df: df.dropDuplicates(["id"])), "Deduplicate"),
        (step(lambda df: df.limit(3)), "Limit"),
    ],
    ids=["window", "clock", "subquery", "deduplicated", "limit"],
)
def test_a_view_of_rows_that_do_not_stand_for_themselves_is_refused(world: Any, before: Any, why: str) -> None:
    make(world, 2, "copy-on-write")
    world.sql("INSERT INTO local.a.s VALUES (1, 'g', 1, 1)")
    source = world.source("a.s").incremental(poll=1).changes()
    pipeline = source >> before >> aggregate("`the group`", n="count(*)") >> world.sink("a.view").upsert("the group")
    with pytest.raises(HeliosError, match=why):
        world.run(pipeline)
    assert not world.catalog.exists("a.view")
