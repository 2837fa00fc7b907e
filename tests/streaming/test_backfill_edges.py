"""Backfills over whose edges rows may move, beside a pipeline that commits all the time, and ones that are stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Files, Pipeline, join, with_columns
from helios.errors import InputError
from helios.plan.backfills import Ask
from helios.spark.backfill import repair
from helios.spark.backfill.backfill import Backfill
from helios.spark.backfill.result import Backfilled, SliceProgress
from helios.spark.iceberg.transaction import Transaction

pytestmark = pytest.mark.promise("backfill")

FIRST = "ts < timestamp'2026-01-03 00:00:00'"


def fill(world: Any, ids: range) -> None:
    """A row each six hours."""
    world.fill("a.s", ids, ts="timestamp'2026-01-01 00:00:00' + id * interval 6 hours")


def pipeline(world: Any, **columns: str) -> Pipeline:
    made: Pipeline = world.source("a.s").incremental() >> with_columns(columns) >> world.sink("a.t")
    return made


def backfill(world: Any, mended: Pipeline, where: str, by: str | None = "day", **options: Any) -> Backfilled:
    dry_run, rows_stay = options.pop("dry_run", False), options.pop("rows_stay", False)
    asked = Ask(where=where, by=by, rows_stay=rows_stay)
    return Backfill(world.plan(mended), world.spark, asked, **options).run(dry_run=dry_run)


DAY, SIX_LATER = "cast(ts as date)", "cast(ts + interval 6 hours as date)"


def test_a_row_does_not_move_over_the_edge(world: Any) -> None:
    """A filter by a column that other steps give is refused, unless it covers all rows, or the user knows better."""
    fill(world, range(12))
    live = pipeline(world, day=DAY, v="1")
    world.run(live)
    mended = pipeline(world, day=SIX_LATER, v="1")
    second = "day = '2026-01-02'"
    for dry_run in (True, False):
        with pytest.raises(
            InputError, match=r"moved into or out of .*: day came from day=cast\(ts as date\) before"
        ) as e:
            backfill(world, mended, second, dry_run=dry_run)
        assert "There, the table has 8 rows, and the current script computes 8 rows" in str(e.value)
    nulls = pipeline(world, day=f"if(id = 3, null, {DAY})", v="1")
    with pytest.raises(InputError, match="the table has 0 rows, and the current script computes 1 row"):
        backfill(world, nulls, "day > '2026-01-01' OR day <= '2026-01-01'")
    called: Any = world.source("a.s").incremental() >> with_columns(day=DAY, v="1") >> (lambda df: df)
    with pytest.raises(InputError, match="functions are not compared"):
        backfill(world, called >> world.sink("a.t"), second)
    backfill(world, pipeline(world, v="2", day=DAY), second)  # the day comes of the same as before
    backfill(world, called >> world.sink("a.t"), "id < 100")  # all rows
    backfill(world, called >> world.sink("a.t"), second, rows_stay=True)
    assert world.ids("a.t") == list(range(12))
    world.run(pipeline(world, day=DAY, v="3"))  # the steps of the backfill are among those that have written
    backfill(world, mended, "id < 100")
    with pytest.raises(InputError, match="day came from day=cast"):
        backfill(world, pipeline(world, day=DAY, v="3"), second)
    assert world.ids("a.t") == list(range(12))


def test_rows_that_come_meanwhile_do_not_move(world: Any) -> None:
    """Where a slice may give a row to another one, batches of other steps end the backfill; a new one begins anew."""
    fill(world, range(12))
    live, mended = pipeline(world, day=DAY), pipeline(world, day=SIX_LATER)
    world.run(live)

    def come(step: SliceProgress) -> None:
        if step.number == 1:
            fill(world, range(12, 16))
            world.run(live)

    with pytest.raises(InputError, match="has written batch 1 meanwhile with the steps of its running script"):
        backfill(world, mended, "id < 100", by="DAY", tell=come)
    notes: list[str] = []
    done = backfill(world, mended, "id < 100", by="DAY", note=notes.append)
    assert (done.resumed, len(notes)) == (0, 1)
    told = "the pipeline has run another batch, since this backfill was stopped: the backfill starts over"
    assert told in notes[0]
    found = world.sql(f"SELECT id FROM local.a.t WHERE day = {SIX_LATER}")
    assert sorted(row[0] for row in found) == list(range(16))


def test_times_of_another_zone(world: Any) -> None:
    fill(world, range(8))
    world.run(pipeline(world, day=DAY))
    world.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with pytest.raises(InputError, match="timeZone is Europe/Berlin"):
            backfill(world, pipeline(world, day=DAY), FIRST)
        backfill(world, pipeline(world, day=DAY), "day = '2026-01-02'", by=None, rows_stay=True)
    finally:
        world.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_a_backfill_that_is_stopped(world: Any) -> None:
    """It ends after the running slice; it begins anew where a joined table has moved since, and says so."""
    fill(world, range(8))
    world.fill("a.d", range(8), k="id")
    joined: Any = world.source("a.s").incremental() >> join(world.source("a.d"), on="id")
    mended: Pipeline = joined >> world.sink("a.t")
    world.run(mended)
    world.sql("INSERT OVERWRITE local.a.d SELECT id, id + 10 FROM local.a.s")
    steps: list[SliceProgress] = []
    notes: list[str] = []
    stopped = backfill(world, mended, FIRST, tell=steps.append, stopping=lambda: bool(steps))
    assert ([one.slice for one in stopped.slices], stopped.left) == (["day 2026-01-01"], 1)
    world.sql("INSERT OVERWRITE local.a.d SELECT id, id + 20 FROM local.a.s")
    done = backfill(world, mended, FIRST, note=notes.append)
    assert (done.resumed, done.left, len(done.slices)) == (0, 0, 2)
    assert "a joined table, or what the pipeline has read, has changed" in notes[0]
    assert world.rows("a.t", "id", "k") == Counter({(i, i + 20): 1 for i in range(8)})


def test_a_pipeline_that_commits_all_the_time(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lost try is told, with advice; in the end it is refused, and nothing is lost."""
    fill(world, range(4))
    live = pipeline(world, v="1")
    world.run(live)
    write: Callable[..., None] = Transaction.overwrite
    count = 4

    def beside(self: Transaction, *arguments: Any) -> None:
        nonlocal count
        write(self, *arguments)
        world.fill("a.s", range(count, count + 1), ts="timestamp'2026-01-01 00:00:00'")
        world.run(live)
        count += 1

    monkeypatch.setattr(Transaction, "overwrite", beside)
    world.sql("ALTER TABLE local.a.t ADD PARTITION FIELD day(ts)")
    world.compact("a.t")
    monkeypatch.setattr(repair, "TRIES", 3)
    notes: list[str] = []
    with pytest.raises(Exception, match="was attempted 3 times, and each time another writer committed into it") as e:
        backfill(world, pipeline(world, v="2"), FIRST, note=notes.append)
    assert "larger poll=" in str(e.value)
    assert notes == [
        "day 2026-01-01: new rows arrived while it was being repaired; starting attempt 2",
        "day 2026-01-01: new rows arrived while it was being repaired; starting attempt 3",
        f"day 2026-01-01: new rows arrive faster than it can be repaired: {repair.SLOWER}",
    ]
    assert world.rows("a.t", "id", "v") == Counter({(i, 1): 1 for i in range(count)})


def test_a_source_that_was_read_otherwise(world: Any, tmp_path: Path) -> None:
    """Dates of files that were read in another form may be in other slices, also where the pipeline runs on since."""

    def reading(form: str) -> Pipeline:
        source = Files.source(str(tmp_path), format="json", schema="id bigint, day date")
        return source.option(dateFormat=form).incremental() >> world.sink("a.t")

    for number, form in enumerate(("MM-dd-yyyy", "dd-MM-yyyy")):
        (tmp_path / f"{number}.json").write_text(f'{{"id": {number}, "day": "02-01-2026"}}\n')
        world.run(reading(form))
    with pytest.raises(InputError, match="is read differently than before"):
        backfill(world, reading("dd-MM-yyyy"), "day = '2026-01-02'")
