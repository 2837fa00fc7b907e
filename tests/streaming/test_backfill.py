"""Backfills: rows of earlier batches are replaced by those that the script gives now, beside the running pipeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from helios import Pipeline, day, expect, where, with_columns
from helios.errors import HeliosError, InputError, LedgerError, NotFound
from helios.plan.backfills import Ask
from helios.spark.backfill.backfill import Backfill
from helios.spark.backfill.result import Backfilled, SliceProgress
from helios.spark.iceberg.transaction import Transaction
from helios.spark.replay.replay import Replay

pytestmark = pytest.mark.promise("backfill")

WRONG, RIGHT = "id * 2", "id * 3"
DAYS = ("2026-01-04", "2026-01-05", "2026-01-06", "2026-01-07")
FIVE_TO_SIX = "day >= '2026-01-05' AND day < '2026-01-07'"


def fill(world: Any, ids: range, table: str = "a.s") -> None:
    """Rows of four days in turn."""
    days = f"array({', '.join(map(repr, DAYS))})[id % 4]"
    world.fill(table, ids, day=days, ts=f"timestamp(concat({days}, ' 10:00:00'))")


def pipeline(world: Any, value: str = WRONG, sink: Any = None) -> Pipeline:
    made: Pipeline = world.source("a.s").incremental() >> with_columns(value=value) >> (sink or world.sink("a.t"))
    return made


def backfill(world: Any, mended: Pipeline, ask: Ask | str, **options: Any) -> Backfilled:
    dry_run = options.pop("dry_run", False)
    asked = Ask(where=ask, by="day") if isinstance(ask, str) else ask
    return Backfill(world.plan(mended), world.spark, asked, **options).run(dry_run=dry_run)


def expected(ids: range, right: Callable[[int], bool]) -> Counter[tuple[int, int]]:
    """Each id once, with its value: of the repaired days by the mended script."""
    return Counter({(i, i * (3 if right(i) else 2)): 1 for i in ids})


def five_to_six(i: int) -> bool:
    return DAYS[i % 4] in DAYS[1:3]


PARTITIONED = {
    "by day": lambda sink: sink.partition_by(day("ts")),
    "by column": lambda sink: sink.partition_by("day"),
    "not": lambda sink: sink,
    "v3": lambda sink: sink.format_version(3),
}


@pytest.mark.cases(short="not")
@pytest.mark.parametrize("partitioned", PARTITIONED)
def test_days_are_repaired(world: Any, partitioned: str) -> None:
    """The repaired days are those of the script now, the others as they were, and the pipeline goes on after both."""
    fill(world, range(20))
    sink = PARTITIONED[partitioned](world.sink("a.t"))
    world.run(pipeline(world, sink=sink))
    fill(world, range(20, 40))
    world.run(pipeline(world, sink=sink))
    steps: list[SliceProgress] = []
    done = backfill(world, pipeline(world, RIGHT, sink), FIVE_TO_SIX, tell=steps.append)
    assert [one.slice for one in done.slices] == ["day 2026-01-05", "day 2026-01-06"]
    assert [(one.before, one.after) for one in done.slices] == [(10, 10), (10, 10)]
    assert [(step.number, step.slices) for step in steps] == [(1, 2), (2, 2)]
    assert world.rows("a.t", "id", "value") == expected(range(40), five_to_six)
    fill(world, range(40, 44))
    world.run(pipeline(world, sink=sink))
    assert world.rows("a.t", "id", "value") == expected(range(44), lambda i: five_to_six(i) and i < 40)


@pytest.mark.landing
def test_commits_that_come_meanwhile(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the pipeline commits between two slices, or while one is written, is neither lost nor doubled."""
    fill(world, range(16))
    live = pipeline(world)
    world.run(live)
    overwrite, came = Transaction.overwrite, [range(16, 20), range(24, 25)]

    def beside(self: Transaction, *arguments: Any) -> None:
        overwrite(self, *arguments)
        if came:  # after the rows of the slice are written, and before they are committed
            fill(world, came.pop(0))
            world.run(live)

    def between(step: SliceProgress) -> None:
        if step.number == 1:
            fill(world, range(20, 24))
            world.run(live)

    monkeypatch.setattr(Transaction, "overwrite", beside)
    world.sql("ALTER TABLE local.a.t ADD PARTITION FIELD day")
    world.compact("a.t")
    done = backfill(world, pipeline(world, RIGHT), FIVE_TO_SIX, tell=between)
    # Each of the ranges has rows of both days but the last, which has one of 2026-01-04.
    assert [(one.slice, one.before, one.after, one.again) for one in done.slices] == [
        ("day 2026-01-05", 5, 5, 1),
        ("day 2026-01-06", 6, 6, 0),
    ]
    assert world.rows("a.t", "id", "value") == expected(range(25), lambda i: five_to_six(i) and (i < 20 or i == 22))


def test_a_backfill_that_was_stopped_goes_on(world: Any) -> None:
    """It goes on after its last slice, unless it is asked for something else; two at once are refused."""
    fill(world, range(16))
    world.run(pipeline(world))
    mended = pipeline(world, RIGHT)

    def stop(step: SliceProgress) -> None:
        with pytest.raises(HeliosError, match="is running already"):
            backfill(world, mended, "day = '2026-01-06'")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backfill(world, mended, FIVE_TO_SIX, tell=stop)
    fill(world, range(16, 20))
    world.run(pipeline(world))
    world.compact("a.t")
    done = backfill(world, mended, FIVE_TO_SIX)
    assert (done.resumed, [one.slice for one in done.slices]) == (1, ["day 2026-01-06"])
    assert world.rows("a.t", "id", "value") == expected(range(20), lambda i: five_to_six(i) and i != 17)
    done = backfill(world, mended, Ask(where="day = '2026-01-05'"))
    assert (done.resumed, [one.after for one in done.slices]) == (0, [5])
    assert world.rows("a.t", "id", "value") == expected(range(20), five_to_six)


def test_rows_of_others_are_kept_after_an_upgrade_to_v3(world: Any) -> None:
    """The rows of an upgraded table have no lineage before the next commit."""
    fill(world, range(16))
    world.run(pipeline(world))
    world.sql("INSERT INTO local.a.t SELECT 100L, '2026-01-05', timestamp'2026-01-05 10:00:00', 7L")
    world.sql("ALTER TABLE local.a.t SET TBLPROPERTIES ('format-version' = '3')")
    mended = pipeline(world, RIGHT)
    with pytest.raises(InputError, match=r"day 2026-01-05 of local.a.t holds rows of another writer \(snapshot \d+\);"):
        backfill(world, mended, FIVE_TO_SIX, dry_run=True)
    done = backfill(world, mended, "day = '2026-01-06'")
    assert [(one.before, one.after) for one in done.slices] == [(4, 4)]


def test_rows_of_others_are_kept(world: Any) -> None:
    """A slice with rows of another writer, or that has lost rows by one, is refused; a dry run says so too."""
    fill(world, range(16))
    world.run(pipeline(world))
    mended = pipeline(world, RIGHT)
    world.sql("INSERT INTO local.a.t SELECT 100L, '2026-01-05', timestamp'2026-01-05 10:00:00', 7L")
    with pytest.raises(InputError, match=r"day 2026-01-05 of local.a.t holds rows of another writer \(snapshot"):
        backfill(world, mended, FIVE_TO_SIX)
    with pytest.raises(InputError, match="holds rows of another writer"):
        backfill(world, mended, FIVE_TO_SIX, dry_run=True)
    done = backfill(world, mended, "day = '2026-01-06'")
    assert [(one.before, one.after) for one in done.slices] == [(4, 4)]
    world.sql("DELETE FROM local.a.t WHERE id = 7")
    with pytest.raises(InputError, match=r"another writer \(snapshot \d+\) has deleted some of its rows"):
        backfill(world, mended, "day = '2026-01-07'")
    world.compact("a.t")
    with pytest.raises(InputError, match=r"files that snapshot \d+ has compacted, maybe with rows of another writer"):
        backfill(world, mended, "day = '2026-01-04'")
    world.expire("a.t")
    with pytest.raises(InputError, match="have expired, so that nothing tells who wrote their rows"):
        backfill(world, mended, "day = '2026-01-04'")
    trusting = Ask(where="day = '2026-01-04'", trusts_expired=True)
    with pytest.raises(InputError, match="have expired, so that nothing tells which steps wrote their rows"):
        backfill(world, mended, trusting)
    done = backfill(world, mended, replace(trusting, rows_stay=True))
    assert [(one.before, one.after) for one in done.slices] == [(4, 4)]


def test_other_rows_than_before(world: Any) -> None:
    """Rows that the mended script leaves out go, those that it lets in come, and nulls are a slice of their own."""
    fill(world, range(16))
    strict: Pipeline = world.source("a.s").incremental() >> where("id < 8") >> world.sink("a.t")
    world.run(strict)
    fill(world, range(16, 20))
    world.run(strict)  # a batch without rows
    loose: Pipeline = (
        world.source("a.s").incremental()
        >> where("id <> 5")
        >> with_columns(day="if(id = 6, null, day)")
        >> world.sink("a.t")
    )
    dry = backfill(world, loose, Ask(where="id >= 4", by="day"), dry_run=True)
    counts = [("day is null", 0, 1), ("day 2026-01-04", 1, 4), ("day 2026-01-05", 1, 3), ("day 2026-01-06", 1, 3)]
    assert [(one.slice, one.before, one.after) for one in dry.slices] == [*counts, ("day 2026-01-07", 1, 4)]
    assert world.ids("a.t") == list(range(8))
    assert dry.bytes
    backfill(world, loose, Ask(where="id >= 4", by="day"))
    assert world.ids("a.t") == [i for i in range(20) if i != 5]
    null = [i for i, of in world.rows("a.t", "id", "day") if of is None]
    assert null == [6]


def test_a_batch_that_was_rolled_back_does_not_come_back(world: Any) -> None:
    for ids in (range(8), range(8, 16)):
        fill(world, ids)
        world.run(pipeline(world))
    table = world.load("a.t").iceberg
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    for ask in (Ask(where="id >= 0"), Ask(commits="0")):
        with pytest.raises(LedgerError, match=r"was rolled back or replaced: batch 1 of local\.a\.t"):
            backfill(world, pipeline(world, RIGHT), ask)
    assert world.rows("a.t", "id", "value") == expected(range(8), lambda i: False)


def test_a_source_that_lost_rows(world: Any) -> None:
    """What is missing is named; `--from` reads another table, and what the pipeline has read since comes with it."""
    fill(world, range(16))
    fill(world, range(16), "a.archive")
    world.run(pipeline(world))
    fill(world, range(16, 20))
    world.run(pipeline(world))
    world.expire("a.s")
    mended = pipeline(world, RIGHT)
    with pytest.raises(InputError, match=r"local.a.s no longer has the rows that the backfill needs: snapshot"):
        backfill(world, mended, FIVE_TO_SIX)
    with pytest.raises(NotFound, match="no such table"):
        backfill(world, mended, FIVE_TO_SIX, other=replace(world.plan(mended).write.table, table="nothing"))
    own = replace(world.plan(mended).write.table, table="s")
    backfill(world, mended, FIVE_TO_SIX, other=own)  # as it was at the position of the pipeline
    assert world.rows("a.t", "id", "value") == expected(range(20), five_to_six)
    done = backfill(world, pipeline(world, "id * 4"), FIVE_TO_SIX, other=replace(own, table="archive"))
    assert [(one.before, one.after) for one in done.slices] == [(5, 4), (5, 4)]


BAD = {
    "": "--where is empty",
    "dya = '2026-01-05'": "local.a.t has no column 'dya'. Did you mean 'day'?",
    "1 = 1": "names no column of local.a.t",
    "ts > current_timestamp()": "whose value changes with each call",
    "id IN (SELECT id FROM x)": "has a subquery",
    "id + 1 = 'x1'": r"--where \(id \+ 1 = 'x1'\): 'x1' is not of type bigint",  # which Spark alone finds
}


def test_bad_input(world: Any) -> None:
    """Wrong filters and cuts, and pipelines that have no backfill, are refused by name."""
    fill(world, range(4))
    live = pipeline(world)
    with pytest.raises(NotFound, match="does not exist"):
        backfill(world, live, FIVE_TO_SIX)
    world.run(live)
    for condition, message in BAD.items():
        with pytest.raises(InputError, match=message):
            backfill(world, live, condition)
    cuts = {"dya": "has no such column. Did you mean 'day'", "ts": "whose values are too many", "hour": "names none"}
    for by, message in cuts.items():
        with pytest.raises(InputError, match=message):
            backfill(world, live, Ask(where="id > 1", by=by))
    by_day = world.sink("a.by_day").partition_by("day").overwrite_partitions()
    with pytest.raises(InputError, match="its mode is overwrite the touched partitions, and rows that it has replaced"):
        backfill(world, pipeline(world, sink=by_day), FIVE_TO_SIX)
    once: Pipeline = world.source("a.s") >> world.sink("a.t")
    with pytest.raises(InputError, match="it reads its sources once"):
        backfill(world, once, FIVE_TO_SIX)


def commits_of(world: Any, table: str = "a.t") -> list[int]:
    """The snapshots of a table, oldest first."""
    return [int(row[0]) for row in world.sql(f"SELECT snapshot_id FROM local.{table}.snapshots ORDER BY committed_at")]


def test_commits_are_repaired(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the rows of the named commits are replaced, once more too, while the pipeline goes on."""
    live = pipeline(world)
    for ids in (range(8), range(8, 16), range(16, 24)):
        fill(world, ids)
        world.run(live)
    made = commits_of(world)
    delete, came = Transaction.delete_files, [range(24, 28)]

    def beside(self: Transaction, files: Any) -> None:
        delete(self, files)
        if came:
            fill(world, came.pop())
            world.run(live)

    monkeypatch.setattr(Transaction, "delete_files", beside)
    dry = backfill(world, pipeline(world, RIGHT), Ask(commits="1..2"), dry_run=True)
    assert [(one.before, one.after) for one in dry.slices] == [(8, 8), (8, 8)]
    done = backfill(world, pipeline(world, RIGHT), Ask(commits=f"{made[1]}..2"))
    assert [(one.before, one.after, one.again) for one in done.slices] == [(8, 8, 0), (8, 8, 0)]
    assert done.slices[0].slice == f"batch 1 (snapshot {made[1]})"
    assert world.rows("a.t", "id", "value") == expected(range(28), lambda i: 8 <= i < 24)
    fewer: Any = world.source("a.s").incremental() >> where("id <> 9") >> with_columns(value="id * 3")
    done = backfill(world, fewer >> world.sink("a.t"), Ask(commits="1"))
    assert [(one.before, one.after) for one in done.slices] == [(8, 7)]
    backfill(world, pipeline(world, RIGHT), Ask(commits="0"))  # from the first start of the pipeline
    assert world.rows("a.t", "id", "value") == expected(range(28), lambda i: i < 24) - Counter({(9, 27): 1})
    with pytest.raises(NotFound, match="has no commit '7' of the pipeline"):
        backfill(world, live, Ask(commits="7"))
    with pytest.raises(InputError, match="comes before"):
        backfill(world, live, Ask(commits="2..1"))
    world.sql("DELETE FROM local.a.t WHERE id = 17")
    with pytest.raises(InputError, match=r"(compacted or replaced|were deleted or changed) since"):
        backfill(world, live, Ask(commits="2"))
    world.compact("a.t")
    with pytest.raises(InputError, match="1 of its 1 files were compacted or replaced since"):
        backfill(world, live, Ask(commits="3"))


def test_commits_that_a_compaction_has_moved(world: Any) -> None:
    """On format v3 the rows of a commit are found by their ids, wherever they lie, once more too."""
    sink = world.sink("a.t").format_version(3)
    live = pipeline(world, sink=sink)
    for ids in (range(8), range(8, 16)):
        fill(world, ids)
        world.run(live)
    world.compact("a.t")
    fill(world, range(16, 24))
    world.run(live)
    for right in (range(8, 16), range(16)):
        dry = backfill(world, pipeline(world, RIGHT, sink), Ask(commits=str(right.stop // 8 - 1)), dry_run=True)
        assert [(one.before, one.after) for one in dry.slices] == [(8, 8)]
        done = backfill(world, pipeline(world, RIGHT, sink), Ask(commits="1" if right.start else "0"))
        assert [(one.before, one.after) for one in done.slices] == [(8, 8)]
        assert world.rows("a.t", "id", "value") == expected(range(24), right.__contains__)
        world.compact("a.t")
    done = backfill(world, pipeline(world, "id * 4", sink), Ask(commits="1"))
    assert [(one.before, one.after) for one in done.slices] == [(8, 8)]
    assert sum(i * 4 == value for i, value in world.rows("a.t", "id", "value") if i) == 8
    world.sql("DELETE FROM local.a.t WHERE id = 9")
    world.compact("a.t")
    with pytest.raises(InputError, match="some of its rows were deleted or changed since"):
        backfill(world, live, Ask(commits="1"))


def test_rejected_rows(world: Any) -> None:
    """Rows of the quarantine are in one place: there, or in the target after their replay."""
    fill(world, range(16))

    def expecting(condition: str, value: str) -> Pipeline:
        made: Pipeline = (
            world.source("a.s").incremental()
            >> expect({"fit": condition}, on_fail="quarantine")
            >> with_columns(value=value)
            >> world.sink("a.t").quarantine("a.bad")
        )
        return made

    world.run(expecting("id < 12", WRONG))
    done = backfill(world, expecting("id < 12", RIGHT), "day = '2026-01-05'")
    assert [(one.before, one.after) for one in done.slices] == [(3, 3)]
    looser = expecting("id < 14", RIGHT)
    for ask in (Ask(where="day = '2026-01-05'"), Ask(commits="0")):
        with pytest.raises(InputError, match=r"does not reject 2 rows of local\.a\.bad"):
            backfill(world, looser, ask)
    Replay(world.plan(expecting("id < 14", WRONG)), world.spark).run()
    # The commit would give the replayed rows once more: they are in another one now.
    with pytest.raises(InputError, match="replayed 2 rejected rows of batch 0"):
        backfill(world, looser, Ask(commits="0"))
    done = backfill(world, looser, "day = '2026-01-05'")
    assert [(one.before, one.after) for one in done.slices] == [(4, 4)]
    assert world.rows("a.t", "id", "value") == expected(range(14), lambda i: DAYS[i % 4] == DAYS[1])
    assert world.rows("a.bad").total() == 2
    with pytest.raises(InputError, match=r"rejects 4 rows that are not in local\.a\.bad"):
        backfill(world, expecting("id < 10", RIGHT), "day = '2026-01-05'")
