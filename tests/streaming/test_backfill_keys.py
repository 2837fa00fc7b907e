"""Backfills of upserts by a filter: the keys of its rows get what the script makes of all batches."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from helios import Files, Pipeline, expect, where, with_columns
from helios.errors import InputError, LeaseError
from helios.plan.backfills import Ask
from helios.spark.backfill import keyed_slices
from helios.spark.backfill.backfill import Backfill
from helios.spark.backfill.result import Backfilled
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg.transaction import Transaction
from helios.spark.replay.replay import Replay
from tests.streaming.test_backfill import commits_of
from tests.streaming.test_backfill_upserts import DRAWS, SCHEMA, Case, Kept, Reference, Row, drawn

pytestmark = pytest.mark.promise("backfill")

FILTERS: dict[str, Callable[[Kept], bool]] = {
    "value >= 600": lambda row: row.value >= 600,
    "bad IN (0, 2)": lambda row: row.bad in (0, 2),
    "ord >= 3": lambda row: row.ord is not None and row.ord >= 3,
    "key < 20": lambda row: row.key < 20,
}


def backfill(case: Case, where: str, by: str | None = None, *, dry_run: bool = False) -> Backfilled:
    plan = case.world.plan(case.pipeline(right=True))
    return Backfill(plan, case.world.spark, Ask(where=where, by=by)).run(dry_run=dry_run)


def wanted(mode: str, batches: Sequence[tuple[Sequence[Row], bool]], named: Callable[[Kept], bool]) -> Counter[Any]:
    """The table after a backfill: the keys of its rows, now or by the mended script, are made anew from the start."""
    now, anew = Reference(mode), Reference(mode)
    for rows, right in batches:
        now.batch(rows, right=right)
        anew.batch(rows, right=True)
    keys = {row.key for row in (*now.table.values(), *anew.table.values()) if named(row)}
    kept = [row for key, row in now.table.items() if key not in keys]
    return Counter(tuple(row) for row in (*kept, *(row for key, row in anew.table.items() if key in keys)))


@pytest.mark.cases(short="ordered 0")
@pytest.mark.parametrize(("mode", "seed"), DRAWS)
def test_drawn_histories(world: Any, mode: str, seed: int) -> None:
    """The table after a backfill is that of a reference in plain Python; a second one changes nothing."""
    chance = random.Random(f"keys {mode} {seed}")
    case, batches = Case(world, mode), list[tuple[list[Row], bool]]()
    for number in range(6 if seed else 4):
        appends = drawn(chance, mode, number)
        if not number:
            appends = [[Row(key, 0, key) for key in range(0, 40, 3)]]
        right = number >= 3
        case.land(*appends, right=right)
        batches.append(([row for rows in appends for row in rows], right))
        if chance.random() < 0.25:
            world.compact("a.t")
    condition = chance.choice(list(FILTERS))
    by = chance.choice([None, "bad"]) if "bad" in condition else None
    dry = backfill(case, condition, by, dry_run=True)
    done = backfill(case, condition, by)
    assert case.held() == wanted(mode, batches, FILTERS[condition])
    if by is None:
        assert [(one.before, one.after) for one in done.slices] == [(one.before, one.after) for one in dry.slices]
    again = backfill(case, condition, by)
    assert {(one.before, one.after) for one in again.slices} <= {(0, 0)}
    held = {row[0]: row for row in case.held()}
    rows = [Row(key, 90 + key % 2, 5000 + key) for key in range(0, 60, 5)]
    case.land(rows, right=True)  # the pipeline goes on
    assert case.held() == Counter(
        {**held, **{row.key: (row.key, row.ord, row.value, row.bad) for row in rows}}.values()
    )


@pytest.mark.landing
def test_late_rows_beside_a_repair(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch beside the repair drops a row that is late by the wrong order alone: it is there in the end."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3), Row(2, 1, 20), Row(3, 9, 30, bad=3)])
    sql, came = Transaction.sql, [[Row(1, 7, 11), Row(2, 0, 21), Row(4, 1, 40)], [Row(3, 8, 31)]]

    def beside(self: Transaction, *arguments: Any) -> None:
        sql(self, *arguments)
        if came:  # after the rows are written, and before they are committed
            rows = came.pop(0)
            monkeypatch.setattr(Transaction, "sql", sql)  # the pipeline writes by this, too
            case.land(rows)
            monkeypatch.setattr(Transaction, "sql", beside)

    monkeypatch.setattr(Transaction, "sql", beside)
    done = backfill(case, "key < 4")
    monkeypatch.undo()
    assert came == []
    assert case.held() == Counter({(1, 7, 11, 0): 1, (2, 1, 20, 0): 1, (3, 8, 31, 0): 1, (4, 1, 40, 0): 1})
    assert done.slices[-1].slice == "rows that came meanwhile"


def test_a_batch_under_way(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair waits for the batch that a live pipeline has begun, and for none that a dead one has."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3)])
    checkpoint = Checkpoint(world.spark, world.plan(case.pipeline(right=True)).checkpoint)
    checkpoint.files.write("offsets/1", checkpoint.files.read("offsets/0") or "")
    lease, began, waited = Lease(checkpoint), time.monotonic(), list[float]()
    lease.acquire()
    monkeypatch.setattr(keyed_slices, "CHECK_SECONDS", 0.05)

    def ends() -> None:
        waited.append(time.monotonic() - began)
        checkpoint.files.write("commits/1", checkpoint.files.read("commits/0") or "")

    ending = threading.Timer(6, ends)
    ending.start()
    backfill(case, "key = 1")
    assert waited
    assert case.held() == Counter({(1, 6, 10, 3): 1})
    checkpoint.files.delete("commits/1")
    lease.release()
    backfill(case, "key = 1")
    checkpoint.files.delete("offsets/1")
    case.land([Row(1, 7, 11)])
    assert case.held() == Counter({(1, 7, 11, 0): 1})


@pytest.mark.parametrize("at", ["before", "after"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_repair_that_was_killed(world: Any, monkeypatch: pytest.MonkeyPatch, at: str, number: int) -> None:
    """Started again it goes on, and the row that was dropped beside the first slice comes."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3), Row(2, 5, 20, bad=2)])
    commit, count = Transaction.commit, [0]

    def killed(self: Transaction) -> None:
        if count[0] == 0:  # late by the wrong order
            monkeypatch.setattr(Transaction, "commit", commit)
            case.land([Row(1, 7, 12)])
            monkeypatch.setattr(Transaction, "commit", killed)
        count[0] += 1
        if count[0] - 1 == number and at == "before":
            raise KeyboardInterrupt
        commit(self)
        if count[0] - 1 == number:
            raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        backfill(case, "key < 3", "bad")
    monkeypatch.undo()
    backfill(case, "key < 3", "bad")
    assert case.held() == Counter({(1, 7, 12, 0): 1, (2, 5, 1020, 2): 1})


def test_deletes_without_an_order_stop_the_pipeline(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(world, "deletes")
    case.land([Row(1, 1, 10, bad=2), Row(2, 1, 20)])
    sql = Transaction.sql

    def during(self: Transaction, *arguments: Any) -> None:
        with pytest.raises(LeaseError, match="is running, and its deletes of missing keys leave no trace"):
            backfill(case, "key = 1")
        sql(self, *arguments)

    monkeypatch.setattr(Transaction, "sql", during)
    case.land([Row(2, 2, 0, gone=True)])
    monkeypatch.undo()
    backfill(case, "key = 1")
    assert case.held() == Counter({(1, 1, 1010, 2): 1})


def test_keys_of_other_writers(world: Any) -> None:
    """They are refused by name, whether their row is in the filter now or was deleted; others are repaired."""
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10, bad=2), Row(2, 1, 20, bad=2), Row(3, 1, 30, bad=2)])
    world.sql("UPDATE local.a.t SET value = 99 WHERE key = 2")
    world.sql("DELETE FROM local.a.t WHERE key = 3")
    held = case.held()
    for condition in ("key = 2", "bad = 2", "value = 1030"):
        with pytest.raises(InputError, match="of another writer, has changed some of these keys; nothing was written"):
            backfill(case, condition)
    assert case.held() == held
    backfill(case, "key = 1")
    assert case.held() == Counter({(1, 1, 1010, 2): 1, (2, 1, 99, 2): 1})
    case.land([Row(5, 1, 50, bad=2)])
    world.expire("a.t")
    with pytest.raises(InputError, match=r"(?s)have expired, so that nothing tells who wrote.*--trust-expired"):
        backfill(case, "key = 5")
    plan = world.plan(case.pipeline(right=True))
    Backfill(plan, world.spark, Ask(where="key = 5", trusts_expired=True)).run()
    assert case.held()[(5, 1, 1050, 2)] == 1


def test_ties_of_files(world: Any, tmp_path: Path) -> None:
    """Files do not tell which of two rows of one order came last: such keys are refused, others repaired."""
    folder, factor = tmp_path / "in", [1]
    folder.mkdir()

    def pipeline() -> Pipeline:
        schema = "key int, ord int, value int, at timestamp"
        rows = Files.source(str(folder), format="json", schema=schema).incremental()
        sink = world.sink("a.t").upsert("key", order_by="ord")
        made: Pipeline = rows >> with_columns(value=f"value * {factor[0]}") >> sink
        return made

    def line(key: int, order: int, value: int, micros: int = 0) -> str:
        return f'{{"key": {key}, "ord": {order}, "value": {value}, "at": "2026-01-01T00:00:00.00000{micros}Z"}}'

    first, second = [line(1, 1, 10), line(4, 1, 40, 1)], [line(1, 1, 11), line(4, 1, 40, 2)]
    for name, lines in (("b", [*first, line(2, 1, 20), line(3, 2, 30)]), ("a", [*second, line(2, 1, 20)])):
        (folder / f"{name}.json").write_text("\n".join(lines))
        world.run(pipeline())
    factor[0] = 2
    for condition in ("key < 4", "value = 20 AND key = 1", "value = 22", "key = 4"):
        repair = Backfill(world.plan(pipeline()), world.spark, Ask(where=condition))
        with pytest.raises(InputError, match=r"several rows of key=[14] with the same ord, and does not tell"):
            repair.run()
    Backfill(world.plan(pipeline()), world.spark, Ask(where="key IN (2, 3)")).run()
    assert world.rows("a.t", "key", "value") == Counter({(1, 11): 1, (2, 40): 1, (3, 60): 1, (4, 40): 1})


def stopped_after_its_slice(case: Case, monkeypatch: pytest.MonkeyPatch, condition: str, late: Row) -> None:
    """A backfill that dies after its slice, beside which a batch has dropped a late row."""
    commit = Transaction.commit

    def killed(self: Transaction) -> None:
        monkeypatch.setattr(Transaction, "commit", commit)
        case.land([late])
        commit(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        backfill(case, condition)


def test_a_stopped_backfill_and_another_filter(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one brings what was dropped beside the first one, too."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3), Row(2, 1, 20, bad=2)])
    stopped_after_its_slice(case, monkeypatch, "key = 1", Row(1, 7, 11))
    backfill(case, "key = 2")
    assert case.held() == Counter({(1, 7, 11, 0): 1, (2, 1, 1020, 2): 1})


def test_a_stopped_backfill_and_commits(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that were dropped beside the first one are not forgotten."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3)])
    case.land([Row(2, 1, 20, bad=2)])
    stopped_after_its_slice(case, monkeypatch, "key = 1", Row(1, 7, 11))
    plan = world.plan(case.pipeline(right=True))
    case.land([Row(3, 1, 30)])
    commit = Ask(commits=str(commits_of(world)[-1]))
    with pytest.raises(InputError, match=r'finish it first: helios backfill SCRIPT --where "key = 1"'):
        Backfill(plan, world.spark, commit).run()
    backfill(case, "key = 1")
    assert case.held() == Counter({(1, 7, 11, 0): 1, (2, 1, 20, 2): 1, (3, 1, 30, 0): 1})


def test_a_second_stopped_backfill_and_commits(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one dies before its first commit: the rows that were dropped beside the first one are its to bring."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3), Row(2, 1, 20, bad=2)])
    stopped_after_its_slice(case, monkeypatch, "key = 1", Row(1, 7, 11))

    def killed(self: Transaction) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            backfill(case, "key = 2")
    case.land([Row(3, 1, 30)])
    commit = Ask(commits=str(commits_of(world)[-1]))
    with pytest.raises(InputError, match=r'finish it first: helios backfill SCRIPT --where "key = 2"'):
        Backfill(world.plan(case.pipeline(right=True)), world.spark, commit).run()
    backfill(case, "key = 2")
    assert case.held() == Counter({(1, 7, 11, 0): 1, (2, 1, 1020, 2): 1, (3, 1, 30, 0): 1})


def test_commits_of_a_stopped_backfill_that_expired(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and begins anew when it is started again."""
    case = Case(world, "ordered")
    case.land([Row(1, 9, 10, bad=3)])
    stopped_after_its_slice(case, monkeypatch, "key = 1", Row(1, 7, 11))
    case.land([Row(5, 1, 50)])
    world.expire("a.t")
    plan = world.plan(case.pipeline(right=True))
    ask = Ask(where="key = 1", trusts_expired=True)
    with pytest.raises(InputError, match=r"may have expired.*start the backfill again: it starts over"):
        Backfill(plan, world.spark, ask).run()
    Backfill(plan, world.spark, ask).run()
    assert case.held() == Counter({(1, 7, 11, 0): 1, (5, 1, 50, 0): 1})


def test_rows_of_others_without_a_key(world: Any) -> None:
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10, bad=2)])
    world.sql("INSERT INTO local.a.t SELECT NULL, ord, value, gone, bad FROM local.a.t")
    with pytest.raises(
        InputError, match=r"holds rows without a key.*--where \"\(bad = 2\) AND NOT \(`key` IS NULL\)\""
    ):
        backfill(case, "bad = 2")
    backfill(case, "(bad = 2) AND NOT (`key` IS NULL)")
    assert case.held() == Counter({(1, 1, 1010, 2): 1, (None, 1, 10, 2): 1})


def test_a_column_that_the_script_adds(world: Any) -> None:
    """A new column gets its values in the rows of the filter, and a dry run adds none."""
    case = Case(world, "ordered")
    case.land([Row(1, 1, 10), Row(2, 1, 20)])
    wide: Pipeline = case.pipeline(right=True).stream >> with_columns(half="value / 2") >> case_sink(case)
    plan = world.plan(wide)
    dry = Backfill(plan, world.spark, Ask(where="key = 1")).run(dry_run=True)
    assert [one.after for one in dry.slices] == [0]
    assert "half" not in world.spark.table("local.a.t").columns
    Backfill(plan, world.spark, Ask(where="key = 1")).run()
    assert world.rows("a.t", "key", "half") == Counter({(1, 5.0): 1, (2, None): 1})


def case_sink(case: Case) -> Any:
    return case.world.sink("a.t").upsert("key", order_by="ord")


def test_rejected_rows(world: Any) -> None:
    """Rows without a key stay in the quarantine."""
    case = Case(world, "ordered", world.sink("a.t").quarantine("a.bad"))
    case.land([Row(1, 1, 10, bad=2), Row(None, 1, 20), Row(2, 1, 30, bad=1)])
    backfill(case, "key < 9")
    assert case.held() == Counter({(1, 1, 1010, 2): 1})
    assert world.rows("a.bad").total() == 1


@pytest.mark.parametrize("order", [None, "ord"])
def test_replayed_rows(world: Any, order: str | None) -> None:
    """The script gives them, and their order tells whether they are the newest; without one, their keys are refused."""
    limit, factor = [15], [1]

    def pipeline() -> Pipeline:
        rows = world.source("a.s").incremental() >> expect({"small": f"value < {limit[0]}"}, on_fail="quarantine")
        sink = world.sink("a.t").quarantine("a.bad").upsert("key", order_by=order)
        made: Pipeline = rows >> with_columns(value=f"value * {factor[0]}") >> sink
        return made

    case = Case(world, "ordered")
    for rows in ([Row(1, 1, 10), Row(2, 1, 20), Row(3, 1, 30)], [Row(2, 3, 11), Row(1, 2, 12)]):
        case.append(rows)
        world.run(pipeline())
    limit[0] = 100
    Replay(world.plan(pipeline()), world.spark, None).run()
    factor[0] = 2
    Backfill(world.plan(pipeline()), world.spark, Ask(where="key = 1")).run()
    repair = Backfill(world.plan(pipeline()), world.spark, Ask(where="key < 9"))
    if order is None:
        with pytest.raises(InputError, match="has replayed rejected rows of these keys after later batches"):
            repair.run()
        assert world.rows("a.t", "key", "value") == Counter({(1, 24): 1, (2, 20): 1, (3, 30): 1})
    else:
        repair.run()
        assert world.rows("a.t", "key", "value") == Counter({(1, 24): 1, (2, 22): 1, (3, 60): 1})


def test_a_row_that_moves_over_the_edge_of_the_filter(world: Any) -> None:
    """A row that the mended script gives other values moves over the edge of the filter, and is there once."""
    case = Case(world, "by batch")
    made: Pipeline = world.source("a.s").incremental() >> where("bad < 9") >> world.sink("a.t").upsert("key")
    case.append([Row(1, 1, 10), Row(2, 1, 20, bad=2)])
    world.run(made)
    backfill(case, "value >= 1000")
    assert case.held() == Counter({(1, 1, 10, 0): 1, (2, 1, 1020, 2): 1})
    with pytest.raises(InputError, match=r"has repaired rows by a filter since.*repair by a filter, too, with --where"):
        case.backfill("0")


@pytest.mark.parametrize("order", [None, "ord"])
def test_rows_of_one_commit(world: Any, order: str | None) -> None:
    """Files of a commit that batches cut may have come in any order; two rows of a key in one batch have no order."""
    factor, files = [1], [1]

    def pipeline() -> Pipeline:
        rows = world.source("a.s").incremental(max_files=files[0])
        made: Pipeline = (
            rows >> with_columns(value=f"value * {factor[0]}") >> world.sink("a.t").upsert("key", order_by=order)
        )
        return made

    world.sql("CREATE NAMESPACE local.a")
    world.sql(f"CREATE TABLE local.a.s ({SCHEMA}) USING iceberg PARTITIONED BY (bad)")
    world.sql("INSERT INTO local.a.s VALUES (1, 1, 10, false, 1), (1, 1, 11, false, 2), (2, 1, 20, false, 1)")
    world.run(pipeline())
    held = world.rows("a.t", "key", "value")
    factor[0] = 2
    with pytest.raises(InputError, match="several rows of key=1 with"):
        Backfill(world.plan(pipeline()), world.spark, Ask(where="key < 9")).run()
    assert world.rows("a.t", "key", "value") == held
    Backfill(world.plan(pipeline()), world.spark, Ask(where="key = 2")).run()
    assert world.rows("a.t", "key", "value")[(2, 40)] == 1
    files[0] = None
    if order is None:  # a batch of the whole commit fails, too
        with pytest.raises(InputError, match="several rows of key=1 with no order"):
            Backfill(world.plan(pipeline()), world.spark, Ask(where="key = 1")).run()
    else:
        Backfill(world.plan(pipeline()), world.spark, Ask(where="key = 1")).run()
        repaired = world.rows("a.t", "key", "value")
        world.run(pipeline(), full_refresh=True)
        assert world.rows("a.t", "key", "value") == repaired


def test_a_source_that_was_of_format_v1(world: Any) -> None:
    """Its first commits have no numbers."""
    world.sql("CREATE NAMESPACE local.a")
    world.sql(f"CREATE TABLE local.a.s ({SCHEMA}) USING iceberg TBLPROPERTIES ('format-version' = '1')")
    case = Case(world, "by batch")
    case.land([Row(1, 1, 10, bad=2), Row(2, 1, 20, bad=2)])
    case.land([Row(1, 2, 11, bad=2)])
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('format-version' = '2')")
    with pytest.raises(InputError, match="several rows of key=1 with no order"):
        backfill(case, "key < 9")
    case.land([Row(1, 3, 12, bad=2)])
    backfill(case, "key < 9")
    assert case.held() == Counter({(1, 3, 1012, 2): 1, (2, 1, 1020, 2): 1})


@pytest.mark.parametrize("order", [None, "ord"])
def test_a_pipeline_that_has_written_nothing(world: Any, order: str | None) -> None:
    """By the mended script its batches have rows."""

    def pipeline(least: int) -> Pipeline:
        rows = world.source("a.s").incremental() >> where(f"value > {least}")
        made: Pipeline = rows >> world.sink("a.t").upsert("key", order_by=order)
        return made

    case = Case(world, "by batch")
    for rows in ([Row(1, 1, 1), Row(2, 1, 2)], [Row(3, 1, 3)]):
        case.append(rows)
        world.run(pipeline(1000))
    Backfill(world.plan(pipeline(0)), world.spark, Ask(where="key < 10")).run()
    assert world.rows("a.t", "key", "value") == Counter({(1, 1): 1, (2, 2): 1, (3, 3): 1})


def test_a_key_that_is_called_count(world: Any) -> None:
    def pipeline(factor: int) -> Pipeline:
        rows = world.source("a.s").incremental() >> with_columns(value=f"value * {factor}")
        made: Pipeline = rows >> world.sink("a.t").upsert("count", order_by="ord")
        return made

    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (count int, ord int, value int) USING iceberg")
    world.sql("INSERT INTO local.a.s VALUES (1, 1, 10), (1, 2, 11), (2, 1, 20)")
    world.run(pipeline(1))
    Backfill(world.plan(pipeline(2)), world.spark, Ask(where="count = 1")).run()
    assert world.rows("a.t", "count", "value") == Counter({(1, 22): 1, (2, 20): 1})
