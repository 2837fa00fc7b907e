"""Rehearsals where something is in the way: failures, lost files, rejected rows, other columns, other writers."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from helios import Files, expect, rename, select, union, where, with_columns
from helios.errors import HeliosError, InputError
from helios.spark.rehearse.report import Counts
from helios.spark.replay.replay import Replay
from tests.streaming.test_rehearsals import fill, orders, rehearse

pytestmark = pytest.mark.promise("rehearsals")


def committed(world: Any, pipeline: Any, *batches: Any) -> None:
    for ids in batches:
        world.fill("a.s", ids)
        world.run(pipeline)


# steps that raise


def test_an_error_of_the_rows_is_that_of_their_commit(world: Any) -> None:
    rows = world.source("a.s").incremental()
    committed(world, (rows >> world.sink("a.t")).named("copy"), [1], [3], [5])
    found = rehearse(world, (rows >> where("1 / (id - 3) < 10") >> world.sink("a.t")).named("copy"))
    assert [bool(one.failed) for one in found.commits] == [False, True, False]
    assert "DIVIDE_BY_ZERO" in found.commits[1].failed or "zero" in found.commits[1].failed.lower()
    assert found.differs == Counts()


def test_an_upsert_stops_at_the_commit_on_which_a_step_fails(world: Any) -> None:
    rows = world.source("a.s").incremental()
    committed(world, (rows >> world.sink("a.t").upsert("id")).named("copy"), [1], [3], [5])
    found = rehearse(world, (rows >> where("1 / (id - 3) < 10") >> world.sink("a.t").upsert("id")).named("copy"))
    assert [bool(one.failed) for one in found.commits] == [False, True, False]
    assert found.commits[2].unread == "it comes after a commit on which the script fails"


def test_a_callable_that_raises_is_an_error_and_leaves_no_folder(
    world: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    rows = world.source("a.s").incremental()

    def broken(df: Any) -> Any:
        raise ValueError("no such luck")

    committed(world, (rows >> world.sink("a.t")).named("copy"), [1])
    with pytest.raises(HeliosError, match="no such luck"):
        rehearse(world, (rows >> broken >> world.sink("a.t")).named("copy"))
    assert not list(temporary.glob("helios-rehearsal-*"))


# sources


def test_a_batch_of_which_one_file_is_gone_is_left_out_whole(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    rows = Files.source(str(folder), "csv", schema="id bigint").incremental()
    pipeline = (rows >> world.sink("a.t")).named("copy")
    for number in range(3):
        for name in "ab":
            (folder / f"{number}{name}.csv").write_text(f"id\n{number}\n")
        world.run(pipeline)
    (folder / "0a.csv").unlink()
    (folder / "1b.csv").write_text("id\n1\n1\n1\n")
    found = rehearse(world, (rows >> where("id < 0") >> world.sink("a.t")).named("copy"))
    assert [bool(one.unread) for one in found.commits] == [True, True, False]
    assert ("0a.csv" in found.commits[0].unread, "1b.csv" in found.commits[1].unread) == (True, True), found.commits
    assert found.differs == Counts(missing=2)


def test_two_sources_are_read_to_where_each_of_them_was(world: Any) -> None:
    def both(least: int) -> Any:
        rows = world.source("a.s").incremental() >> union(world.source("a.r").incremental() >> where(f"id >= {least}"))
        return (rows >> world.sink("a.t")).named("both")

    for one, other in ([1], [10, 11]), ([2], [12]), ([3], [13]):
        world.fill("a.s", one)
        world.fill("a.r", other)
        world.run(both(0))
    world.fill("a.r", [99])
    assert not rehearse(world, both(0)).has_differences
    found = rehearse(world, both(12))
    assert [one.differs for one in found.commits] == [Counts(missing=2), Counts(), Counts()]


def test_another_source_than_before_is_refused_by_name(world: Any) -> None:
    committed(world, (world.source("a.s").incremental() >> world.sink("a.t")).named("copy"), [1])
    world.fill("a.r", [1])
    with pytest.raises(InputError, match=r"these commits have not read local\.a\.r"):
        rehearse(world, (world.source("a.r").incremental() >> world.sink("a.t")).named("copy"))


# rejected rows


def checked(world: Any, most: int, on_fail: Any = "quarantine") -> Any:
    rows = world.source("a.s").incremental() >> expect({"small": f"id < {most}"}, on_fail=on_fail)
    return (rows >> world.sink("a.t").quarantine("a.rejected")).named("checked")


def test_batches_of_which_all_rows_were_rejected_count(world: Any) -> None:
    committed(world, checked(world, 10), [20], [1], [30, 31], [2, 40], [50])
    found = rehearse(world, checked(world, 10))
    assert [(one.before, one.now) for one in found.rejects] == [(5, 5)]
    assert not found.has_differences, found
    found = rehearse(world, checked(world, 10), last=2)
    assert [(one.before, one.now) for one in found.rejects] in ([(2, 2)], [(5, 5)]), (
        "a batch of rejects may be a commit"
    )
    assert not found.has_differences, found


def test_rows_of_a_former_checkpoint_are_not_counted(world: Any) -> None:
    committed(world, checked(world, 10), [1, 20], [2, 30, 31])
    world.run(checked(world, 10), new_checkpoint=True)
    committed(world, checked(world, 10), [3, 40], [4])
    found = rehearse(world, checked(world, 10), last=2)
    assert [(one.before, one.now) for one in found.rejects] == [(1, 1)]
    found = rehearse(world, checked(world, 10))
    assert not found.has_differences, found


def test_rows_that_were_replayed_are_no_difference(world: Any) -> None:
    committed(world, checked(world, 10), [1, 20], [2, 30])
    Replay(world.plan(checked(world, 100)), world.spark).run()
    found = rehearse(world, checked(world, 10))
    assert [(one.before, one.now) for one in found.rejects] == [(None, 2)]
    assert not found.has_differences, found
    assert any("replayed since" in note for note in found.notes)


def test_dropped_rows_are_counted(world: Any) -> None:
    committed(world, checked(world, 10, "drop"), [1, 20], [2, 30])
    found = rehearse(world, checked(world, 2, "drop"))
    assert [(one.step, one.before, one.now) for one in found.rejects] == [("dropped", None, 3)]
    assert found.differs == Counts(missing=1)


# columns that have changed since


COLUMNS: dict[str, Callable[[Any], Any]] = {
    "added to the source": lambda world: world.sql("ALTER TABLE local.a.s ADD COLUMN more string"),
    "widened": lambda world: [world.sql(f"ALTER TABLE local.a.{t} ALTER COLUMN n TYPE bigint") for t in "st"],
    "renamed in both": lambda world: [world.sql(f"ALTER TABLE local.a.{t} RENAME COLUMN n TO m") for t in "st"],
    "dropped in both": lambda world: [world.sql(f"ALTER TABLE local.a.{t} DROP COLUMN n") for t in "st"],
    "added to the target": lambda world: world.sql("ALTER TABLE local.a.t ADD COLUMN more string"),
    "reordered": lambda world: world.sql("ALTER TABLE local.a.t ALTER COLUMN n FIRST"),
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("change", COLUMNS)
def test_columns_that_changed_since_are_no_difference(world: Any, change: str, mode: str) -> None:
    rows = world.source("a.s").incremental()
    sink = world.sink("a.t") if mode == "append" else world.sink("a.t").upsert("id")
    pipeline = (rows >> sink).named("copy")
    for ids in ([1, 2], [2, 3], [3]):
        world.fill("a.s", ids, n="cast(id as int)")
        world.run(pipeline)
    COLUMNS[change](world)
    found = rehearse(world, pipeline)
    assert [one.unread or one.failed for one in found.commits] == [""] * 3
    assert not found.differs, found
    name = "m" if change == "renamed in both" else "n"
    if change != "dropped in both":
        doubled = (rows >> with_columns(**{name: f"{name} * 2"}) >> sink).named("copy")
        # In appends two rows of a key are no pair.
        wanted = Counts(changed=3) if mode == "upsert" else Counts(changed=1, added=4, missing=4)
        assert rehearse(world, doubled, keys=["id"]).differs == wanted


def test_a_column_that_the_script_renames_is_told(world: Any) -> None:
    rows = world.source("a.s").incremental()
    committed(world, (rows >> world.sink("a.t")).named("copy"), [1], [2])
    found = rehearse(world, (rows >> with_columns(key="id") >> world.sink("a.t")).named("copy"))
    assert found.columns == ("+ key bigint",)
    found = rehearse(world, (rows >> rename({"id": "key"}) >> world.sink("a.t")).named("copy"))
    assert found.columns == ("- id bigint (null in later rows)", "+ key bigint")
    assert found.has_differences


# the target


@pytest.mark.parametrize("upserts", [False, True])
def test_a_branch_is_rehearsed_as_it_is(world: Any, upserts: bool) -> None:
    world.fill("a.t", [100])
    rows, sink = world.source("a.s").incremental(), world.sink("a.t").branch("b")
    sink = sink.upsert("id") if upserts else sink
    committed(world, (rows >> sink).named("copy"), [1], [2])
    assert not rehearse(world, (rows >> sink).named("copy")).has_differences
    found = rehearse(world, (rows >> where("id > 1") >> sink).named("copy"))
    assert found.differs == Counts(missing=1), found


@pytest.mark.parametrize("version", [2, 3])
def test_compactions_and_other_writers_between_commits_make_no_difference(world: Any, version: int) -> None:
    batches = orders(random.Random(version), 6)
    rows = world.source("a.s").incremental(max_files=1)
    pipeline = (rows >> world.sink("a.t").format_version(version).upsert("id", order_by="at")).named("newest")
    for number in range(0, 6, 2):
        fill(world, batches[number : number + 2])
        world.run(pipeline)
        world.compact("a.t")
    found = rehearse(world, pipeline, last=4)
    assert not found.has_differences, found
    world.sql("INSERT INTO local.a.t SELECT 1000 + id, at, amount, kind, gone FROM local.a.t LIMIT 1")
    found = rehearse(world, pipeline, last=4)
    assert not found.has_differences, found
    assert any("1 later commit is of others" in note for note in found.notes)


def test_the_result_is_json_and_tells_what_changed(world: Any) -> None:
    rows = world.source("a.s").incremental()
    committed(world, (rows >> world.sink("a.t")).named("copy"), [1], [2])
    found = rehearse(world, (rows >> select("id") >> where("id < 2") >> world.sink("a.t")).named("copy"), last=50)
    read = json.loads(json.dumps(found.as_json(), default=str))
    assert (read["differ"], read["differs"]["missing"], len(read["commits"])) == (True, 1, 2)
