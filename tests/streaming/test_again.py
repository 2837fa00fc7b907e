"""Batch pipelines that are run again: no input is appended twice, and none is skipped that the target lacks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helios import Memory, Pipeline, aggregate, dedupe, expect, join, select, sql, step, union, where, with_columns
from helios.errors import HeliosError, InputError, LedgerError
from helios.spark.iceberg.freshness import StaleReplica
from helios.spark.maintenance.upkeep import Maintainer
from helios.spark.sinks.options import Commit
from helios.spark.sinks.protocol import Staged
from helios.spark.sinks.quarantine import QuarantineSink
from helios.spark.sinks.table import TableSink
from helios.table.refs import LEDGER

pytestmark = [pytest.mark.promise("again"), pytest.mark.sampled(2)]

KEY = LEDGER + "local.a.t"


def memory(world: Any, *ids: int, steps: str | None = None) -> Pipeline:
    rows = Memory.source([{"id": i} for i in ids])
    flow = rows >> where(steps) if steps else rows
    made: Pipeline = flow >> world.sink("a.t")
    return made


def commits(world: Any, table: str, count: int) -> list[int]:
    """Fills a table in several commits, of the ids 0, 1, ...; returns the snapshots."""
    for i in range(count):
        world.fill(table, [i])
    return [snapshot.id for snapshot in world.load(table).snapshots()]


def window(world: Any, after: int, to: int, steps: str | None = None) -> Pipeline:
    source = world.source("a.s").between(after, to)
    made: Pipeline = (source >> where(steps) if steps else source) >> world.sink("a.t")
    return made


def last(world: Any) -> Any:
    """The last event but the end of the run."""
    return world.events[-2]


def as_before(world: Any) -> None:
    """Leaves the ledger as that of a pipeline that has followed its sources: it knows the last batch only."""
    text = world.sql(f"SHOW TBLPROPERTIES local.a.t ('{KEY}')")[0][1]
    fields = json.loads(text)
    assert fields.pop("appended")
    world.catalog.load("a.t").iceberg.transaction().set_properties({KEY: json.dumps(fields)}).commit_transaction()


@pytest.mark.landing
def test_inputs_of_an_older_batch_are_skipped_and_with_other_steps_refused(world: Any) -> None:
    for ids in ((1, 2), (3,), (1, 2), (3,)):
        world.run(memory(world, *ids))
    assert world.ids("a.t") == [1, 2, 3]
    assert world.kinds().count("skipped") == 2
    assert last(world).message == "these inputs and steps are appended already"
    for ids in ((1, 2), (3,)):
        with pytest.raises(InputError, match=r"made from these inputs with other steps: .*helios run --again"):
            world.run(memory(world, *ids, steps="id > 1"))
    assert world.ids("a.t") == [1, 2, 3]


@pytest.mark.short
def test_windows_are_appended_once(world: Any) -> None:
    s = commits(world, "a.s", 5)
    world.run(window(world, s[0], s[1]))
    world.run(window(world, s[1], s[2]))
    world.run(window(world, s[0], s[1]))
    assert last(world).kind == "skipped"
    world.run(window(world, s[0], s[2]))
    assert last(world).kind == "skipped"
    overlapping = rf"holds the rows after snapshot {s[1]} up to snapshot {s[2]} of local\.a\.s already: the rows after "
    with pytest.raises(InputError, match=overlapping + rf"snapshot {s[1]} up to snapshot {s[3]}"):
        world.run(window(world, s[1], s[3]))
    with pytest.raises(InputError, match=r"made from these inputs with other steps"):
        world.run(window(world, s[0], s[1], steps="id > 0"))
    world.run(window(world, s[2], s[4]))
    assert world.ids("a.t") == [1, 2, 3, 4]


COMBINING = {
    "aggregate": aggregate("id % 2 AS id", n="count(*)"),
    "over": with_columns(n="sum(id) OVER (ORDER BY id)"),
    "dedupe": dedupe("id"),
    "query": sql("SELECT DISTINCT id FROM input"),
    "subquery": where("id <= (SELECT max(id) FROM local.a.d)"),
}


@pytest.mark.parametrize("steps", COMBINING)
def test_windows_of_steps_that_combine_rows_are_the_same_only_where_they_are_equal(world: Any, steps: str) -> None:
    world.fill("a.d", [9])
    s = commits(world, "a.s", 4)

    def over(after: int, to: int) -> Pipeline:
        made: Pipeline = world.source("a.s").between(s[after], s[to]) >> COMBINING[steps] >> world.sink("a.t")
        return made

    for after, to in ((0, 1), (1, 2)):
        world.run(over(after, to))
    before = world.rows("a.t")
    world.run(over(0, 1))
    assert last(world).kind == "skipped"
    named = (
        rf"made from the rows after snapshot {s[0]} up to snapshot {s[1]}, "
        rf"and from the rows after snapshot {s[1]} up to "
    )
    with pytest.raises(InputError, match=rf"{named}snapshot {s[2]} of local\.a\.s.*helios run --again"):
        world.run(over(0, 2))
    with pytest.raises(InputError, match="would double some of these rows"):
        world.run(over(1, 3))
    assert world.rows("a.t") == before
    world.run(over(0, 2), again=True)
    world.run(over(2, 3))
    assert sum(world.rows("a.t").values()) > sum(before.values())


def test_steps_that_go_row_by_row_are_told_from_spark(world: Any) -> None:
    s = commits(world, "a.s", 3)
    world.fill("a.d", range(9), name="'n'")
    names, counts = world.source("a.d"), world.source("a.d") >> aggregate("id", n="count(*)")
    row_by_row = {
        "steps": where("id < 9") >> expect({"small": "id < 9"}, on_fail="drop") >> select("id", "explode(array(1, 2))"),
        "callable": step(lambda df: df.where("id < 9").sort("id")),
        "query": sql("WITH x AS (SELECT id FROM input) SELECT id FROM x UNION ALL SELECT id FROM x"),
        "inner": join(names, on="id") >> join(counts, on="id", how="left"),
        "anti": join(names >> where("id > 5"), on="id", how="anti"),
    }
    combining = {"limit": step(lambda df: df.limit(9)), "right": join(names, on="id", how="right")}
    for name, steps in {**row_by_row, **combining}.items():
        sink = world.sink("a." + name)
        for after, to in ((0, 1), (1, 2)):
            world.run(world.source("a.s").between(s[after], s[to]) >> steps >> sink)
        whole = world.source("a.s").between(s[0], s[2]) >> steps >> sink
        if name in row_by_row:
            world.run(whole)
            assert last(world).kind == "skipped", name
        else:
            with pytest.raises(InputError, match="do not work row by row"):
                world.run(whole)


@pytest.mark.parametrize("state_first", [True, False])
def test_a_state_and_a_range_that_it_holds_overlap(world: Any, state_first: bool) -> None:
    s = commits(world, "a.s", 3)
    state, range_ = world.source("a.s").at_snapshot(s[1]) >> world.sink("a.t"), window(world, s[0], s[1])
    first, second = (state, range_) if state_first else (range_, state)
    world.run(first)
    before = world.ids("a.t")
    with pytest.raises(InputError, match="would double some of these rows"):
        world.run(second)
    world.run(window(world, s[1], s[2]))
    assert world.ids("a.t") == sorted([*before, 2])


def test_again_appends_the_same_inputs(world: Any) -> None:
    for ids in ((1,), (2,)):
        world.run(memory(world, *ids))
    world.run(memory(world, 1), again=True)
    world.run(memory(world, 1))
    assert world.ids("a.t") == [1, 1, 2]
    world.run(memory(world, 1, steps="id = 1"), again=True)
    assert world.ids("a.t") == [1, 1, 1, 2]
    world.fill("a.s", [1])
    with pytest.raises(InputError, match="--again is for pipelines that read their sources once"):
        world.run(world.source("a.s").incremental() >> world.sink("a.u"), again=True)


def test_again_that_landed_before_an_outage_is_not_repeated(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(memory(world, 1))
    real, cut = TableSink.commit, []

    def commit(self: TableSink, staged: Staged) -> Commit | None:
        made = real(self, staged)
        if not cut:
            cut.append(made)
            raise StaleReplica("the answer was lost")
        return made

    monkeypatch.setattr(TableSink, "commit", commit)
    world.run(memory(world, 1), again=True)
    assert world.kinds()[-2:] == ["skipped", "finished"]
    assert world.ids("a.t") == [1, 1]


def die(*_: object) -> Any:
    raise RuntimeError("the driver died")


def guarded(world: Any, *ids: int, routed: bool = False) -> Pipeline:
    sink = world.sink("a.t").quarantine("a.bad")
    small = expect({"small": "id < 100"}, on_fail="quarantine")
    sink = sink.route(by="if(id % 2 = 0, 'x', 'y')") if routed else sink
    made: Pipeline = (Memory.source([{"id": i} for i in ids]) >> small >> sink).named("p")
    return made


def held(world: Any, *tables: str) -> list[list[int]]:
    """The ids of tables, and those of the quarantine."""
    bad = world.sql("SELECT CAST(get_json_object(payload, '$.id') AS int) FROM local.a.bad")
    return [*map(world.ids, tables), sorted(row[0] for row in bad)]


@pytest.mark.parametrize("moment", ["before", "between", "behind"])
@pytest.mark.cases(landing="before")
def test_again_that_dies_is_finished_by_the_next_one(world: Any, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    where, name = {
        "before": (QuarantineSink, "write"),
        "between": (TableSink, "commit"),
        "behind": (Maintainer, "after_batch"),
    }[moment]
    pipeline = guarded(world, 1, 100)
    pipeline = replace(pipeline, sink=pipeline.sink.maintain(expire="1 day"))
    world.run(pipeline)
    for copies in (2, 3):  # a third one that is asked for dies too
        with monkeypatch.context() as patched:
            patched.setattr(where, name, die)
            with pytest.raises(HeliosError, match="the driver died"):
                world.run(pipeline, again=True)
        if moment == "between":
            world.run(pipeline)
            notes = [event.message for event in world.events if event.kind == "noted"]
            assert "did not finish" in notes[-1], "a run without --again tells"
            assert held(world, "a.t") == [[1] * (copies - 1), [100] * copies]
        world.run(pipeline, again=True)
        assert held(world, "a.t") == [[1] * copies, [100] * copies]
    world.run(pipeline, again=True)
    assert held(world, "a.t") == [[1] * 4, [100] * 4]


def test_again_of_routed_tables_that_dies_between_two_of_them(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = guarded(world, 0, 1, 100, routed=True)
    world.run(pipeline)
    real = TableSink.commit
    with monkeypatch.context() as patched:
        patched.setattr(
            TableSink, "commit", lambda self, staged: (die if self.name.text[-1] == "y" else real)(self, staged)
        )
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(pipeline, again=True)
    assert held(world, "a.t_x", "a.t_y") == [[0, 0], [1], [100, 100]]
    world.run(pipeline, again=True)
    assert held(world, "a.t_x", "a.t_y") == [[0, 0], [1, 1], [100, 100]]


def test_other_inputs_end_an_unfinished_again_and_say_so(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(guarded(world, 1, 100))
    with monkeypatch.context() as patched:
        patched.setattr(TableSink, "commit", die)
        with pytest.raises(HeliosError, match="the driver died"):
            world.run(guarded(world, 1, 100), again=True)
    world.run(guarded(world, 2, 200))
    [note] = [event.message for event in world.events if event.kind == "noted"]
    assert "of other inputs or steps did not finish" in note
    assert held(world, "a.t") == [[1, 2], [100, 100, 200]]
    world.run(guarded(world, 2, 200), again=True)
    assert held(world, "a.t") == [[1, 2, 2], [100, 100, 200, 200]]


@pytest.mark.parametrize("expired", [False, True])
def test_what_was_rolled_back_is_appended_again_and_nothing_else(world: Any, expired: bool) -> None:
    s = commits(world, "a.s", 4)
    for i in range(3):
        world.run(window(world, s[i], s[i + 1]))
        if i == 0:
            world.fill("a.t", [100])  # somebody else's row
            if expired:
                world.expire("a.t")
    kept = [snapshot.id for snapshot in world.load("a.t").snapshots()]
    world.catalog.load("a.t").rollback_to(kept[-2])
    with pytest.raises(LedgerError, match="was rolled back"):
        world.run(window(world, s[2], s[3]))
    world.run(window(world, s[1], s[2]), new_checkpoint=True)
    assert last(world).kind == "skipped"
    world.run(window(world, s[2], s[3]))
    if expired:  # it is older than what is retained: the rollback leaves open whether it is there
        with pytest.raises(InputError, match="helios run --again"):
            world.run(window(world, s[0], s[1]))
    else:
        for after, to in ((0, 1), (0, 3)):
            world.run(window(world, s[after], s[to]))
            assert last(world).kind == "skipped"
    assert world.ids("a.t") == [1, 2, 3, 100]


def test_a_full_refresh_forgets_what_was_appended(world: Any) -> None:
    for ids in ((1,), (2,)):
        world.run(memory(world, *ids))
    world.run(memory(world, 2), full_refresh=True)
    world.run(memory(world, 1))
    assert world.ids("a.t") == [1, 2]


def test_a_ledger_of_before_is_completed_from_the_stamps_or_says_that_it_is_not(world: Any) -> None:
    for ids in ((1,), (2,)):
        world.run(memory(world, *ids))
    as_before(world)
    world.run(memory(world, 1))
    assert last(world).kind == "skipped"
    world.run(memory(world, 3))
    assert last(world).message == ""
    as_before(world)
    world.expire("a.t")
    world.run(memory(world, 4))
    assert "older inputs are no longer recorded" in last(world).message
    assert world.ids("a.t") == [1, 2, 3, 4]


def test_a_joined_table_may_move_while_windows_go_on(world: Any) -> None:
    s = commits(world, "a.s", 4)
    world.fill("a.d", range(9), name="concat('n', id)")

    def joined(after: int, to: int) -> Pipeline:
        made: Pipeline = (
            world.source("a.s").between(after, to) >> join(world.source("a.d"), on="id") >> world.sink("a.t")
        )
        return made

    world.run(joined(s[0], s[1]))
    world.run(joined(s[1], s[2]))
    world.run(joined(s[0], s[1]))
    assert last(world).kind == "skipped"
    world.fill("a.d", [9], name="'late'")
    world.run(joined(s[2], s[3]))
    with pytest.raises(InputError, match=r"holds the rows after .* would double some of these rows"):
        world.run(joined(s[0], s[1]))
    assert world.ids("a.t") == [1, 2, 3]


def test_ranges_of_one_table_in_a_union_count_each(world: Any) -> None:
    s = commits(world, "a.s", 4)
    both = world.source("a.s").between(s[0], s[1]) >> union(world.source("a.s").between(s[2], s[3]))
    for _ in range(2):
        world.run(both >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 3]
    moved = world.source("a.s").between(s[1], s[2]) >> union(world.source("a.s").between(s[2], s[3]))
    with pytest.raises(InputError, match="would double some of these rows"):
        world.run(moved >> world.sink("a.t"))


def test_routed_batches_are_compared_with_all_of_each_table(world: Any) -> None:
    def routed(*rows: tuple[int, str], steps: str = "true") -> Pipeline:
        made: Pipeline = Memory.source(rows, "id bigint, k string") >> where(steps) >> world.sink("a.t").route(by="k")
        return made

    a, b = ((1, "x"), (2, "y")), ((3, "x"),)
    for rows in (a, b, a):
        world.run(routed(*rows))
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1, 3], [2])
    with pytest.raises(InputError, match="made from these inputs with other steps"):
        world.run(routed(*a, steps="id < 2"))
    world.run(routed(*a), again=True)
    assert (world.ids("a.t_x"), world.ids("a.t_y")) == ([1, 1, 3], [2, 2])


def test_other_modes_run_again(world: Any) -> None:
    for ids in ((1,), (2,), (1,)):
        world.run(Memory.source([{"id": i} for i in ids]) >> world.sink("a.t").overwrite())
    assert world.ids("a.t") == [1]
    assert "skipped" not in world.kinds()
    assert "appended" not in world.load("a.t").iceberg.properties[KEY]


def test_a_source_that_has_grown_is_told_before_its_rows_are_appended_once_more(world: Any) -> None:
    world.fill("a.s", [1])
    pipeline = world.source("a.s") >> world.sink("a.t")
    world.run(pipeline)
    assert "noted" not in world.kinds()
    world.run(pipeline)  # the same state
    assert "noted" not in world.kinds()
    world.fill("a.s", [2])
    world.run(pipeline)
    kinds = world.kinds()[-4:]
    assert kinds == ["started", "noted", "batch", "finished"]
    [told] = [event.message for event in world.events if event.kind == "noted"]
    assert told.startswith("local.a.t holds the rows of local.a.s from an earlier state: the rows that are still")
    assert ".incremental()" in told
    assert world.ids("a.t") == [1, 1, 2]
