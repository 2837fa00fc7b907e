"""Followed folders prove what they have read: each file once, as it was planned, or an error that names it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from helios import Files, aggregate, union
from helios.errors import CheckpointError, HeliosError, InputError, NotFound, RunError
from helios.sources.files.settling import Settling
from helios.sources.files.spark.reader import FilesReader
from helios.table.status import statuses
from helios.table.view import View
from tests.suite.deaths import dies_before_commit

pytestmark = pytest.mark.promise("files", "bad-files")

OLD = 1_700_000_000


def land(folder: Path, name: str, text: str, order: int = 0) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (OLD + order, OLD + order))


def rows(*ids: int) -> str:
    return "".join(f"{line}\n" for line in ("id", *ids))


@pytest.fixture
def inbox(world: Any) -> Path:
    folder: Path = world.folder / "in"
    folder.mkdir()
    return folder


def csv(inbox: Path, **options: Any) -> Any:
    return Files.source(str(inbox), "csv", schema="id bigint").incremental(poll=1, **options)


def positions(world: Any, table: str) -> list[Any]:
    return [json.loads(s.summary["helios.position"])["sources"][0] for s in world.load(table).snapshots()]


def planned(world: Any, inbox: Path, pipeline: Any, ids: range = range(3)) -> None:
    """Leaves a planned batch of one file per id, of which nothing is committed."""
    for number in ids:
        land(inbox, f"{number}.csv", rows(number), number)
    with dies_before_commit():
        world.run(pipeline)


@pytest.mark.landing
def test_a_position_names_its_files(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    land(inbox, "deep/er/b.csv", rows(2), 1)
    world.run(pipeline)
    [entry] = positions(world, "a.t")
    place = entry["place"]
    checkpoint = world.checkpoint(pipeline)
    assert place["names"] == [
        [f"file:{inbox}/a.csv", 5, OLD * 1000],
        [f"file:{inbox}/deep/er/b.csv", 5, (OLD + 1) * 1000],
    ]
    assert (place["files"], place["bytes"], place["read"], place["entry"]) == (2, 10, 2, 1)
    assert place["log"] == f"file:{checkpoint}/helios/files/0"
    assert world.ids("a.t") == [1, 2]


def test_a_failed_batch_whose_file_is_made_again_is_refused_and_then_read(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    planned(world, inbox, pipeline)
    (inbox / "1.csv").unlink()
    for _ in range(2):
        with pytest.raises(RunError, match=r"file:.*/in/1\.csv was planned for this batch, and is gone.*on_missing"):
            world.run(pipeline)
    land(inbox, "1.csv", rows(100, 101), 50)
    with pytest.raises(RunError, match=r"in/1\.csv was planned for this batch and has changed since.*on_change"):
        world.run(pipeline)
    reread = csv(inbox).on_change("reread") >> world.sink("a.t")
    world.run(reread)
    assert world.ids("a.t") == [0, 2, 100, 101]
    world.run(reread)
    assert world.ids("a.t") == [0, 2, 100, 101]


@pytest.mark.landing
def test_a_missing_file_is_skipped_told_and_read_when_it_comes_again(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox).on_missing("skip") >> world.sink("a.t")
    planned(world, inbox, pipeline)
    shutil.move(inbox / "1.csv", world.folder / "away.csv")
    run = world.run(pipeline)
    assert world.ids("a.t") == [0, 2]
    assert run.metrics().files_gone == 1
    assert next(e.message for e in world.events if e.kind == "noted").endswith(f"file:{inbox}/1.csv")
    shutil.move(world.folder / "away.csv", inbox / "1.csv")
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2]


def test_a_file_that_goes_between_plan_and_read(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    for number in range(3):
        land(inbox, f"{number}.csv", rows(number), number)
    real = FilesReader.verified
    with monkeypatch.context() as patched:

        def verified(self: Any, span: Any) -> Any:
            shutil.move(inbox / "1.csv", world.folder / "away.csv")
            return real(self, span)

        patched.setattr(FilesReader, "verified", verified)
        with pytest.raises(RunError, match=r"in/1\.csv was planned for this batch, and is gone"):
            world.run(pipeline)
        (world.folder / "away.csv").rename(inbox / "1.csv")
        world.run(csv(inbox).on_missing("skip") >> world.sink("a.t"))
    assert world.ids("a.t") == [0, 2]
    (world.folder / "away.csv").rename(inbox / "1.csv")
    world.run(csv(inbox).on_missing("skip") >> world.sink("a.t"))
    assert world.ids("a.t") == [0, 1, 2]


@pytest.mark.parametrize("change", ["grown", "replaced", "touched"])
def test_a_file_that_changes_after_it_was_read(world: Any, inbox: Path, change: str) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    text = {"grown": rows(1, 2), "replaced": rows(7), "touched": rows(1)}[change]
    land(inbox, "a.csv", text, 9)
    land(inbox, "b.csv", rows(5), 10)
    for _ in range(2):
        with pytest.raises(RunError, match=r"in/a\.csv was read already and has changed since.*5 bytes.*on_change"):
            world.run(pipeline)
    assert world.ids("a.t") == [1]
    world.run(csv(inbox).on_change("reread") >> world.sink("a.t"))
    assert world.ids("a.t") == sorted([1, 5] + [int(line) for line in text.split()[1:]])


def test_an_empty_file_is_read_when_it_is_filled(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", "")
    land(inbox, "b.csv", rows(1))
    world.run(pipeline)
    assert world.ids("a.t") == [1]
    assert world.events[-1].message == f"not read yet, as they may still be written: file:{inbox / 'a.csv'}"
    land(inbox, "a.csv", rows(2), 5)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


MENDED: dict[str, tuple[str, bytes, bytes]] = {
    "damaged": ("b.csv.gz", gzip.compress(b"id\n2\n" * 9)[:-6], gzip.compress(b"id\n2\n")),
    "bad row": ("b.csv", b"id\ntwo\n", b"id\n2\n"),
    "other column": ("b.csv", b"id,more\n2,x\n", b"id\n2\n"),
}


@pytest.mark.parametrize("fault", MENDED)
@pytest.mark.cases(landing="damaged")
def test_a_file_is_mended_under_its_name_as_the_error_says(world: Any, inbox: Path, fault: str) -> None:
    name, bad, good = MENDED[fault]
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    (inbox / name).write_bytes(bad)
    os.utime(inbox / name, (1_700_000_100, 1_700_000_100))
    with pytest.raises(HeliosError):
        world.run(pipeline)
    (inbox / name).write_bytes(good)
    os.utime(inbox / name, (1_700_000_200, 1_700_000_200))
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


def test_a_file_of_a_stateful_pipeline_is_mended_under_its_name(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> aggregate("id", n="count(*)") >> world.sink("a.t").upsert("id")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    land(inbox, "b.csv", "id,more\n2,x\n", 5)
    with pytest.raises(HeliosError, match="columns that the declared schema lacks"):
        world.run(pipeline)
    land(inbox, "b.csv", rows(2), 9)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


def test_hidden_and_temporary_files_wait(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    for name in (".a.csv", "_a.csv", "a.csv.tmp", "a.csv._COPYING_", "_temporary/0/a.csv", ".b.csv.crc"):
        land(inbox, name, rows(99))
    land(inbox, "b [1]{2}* %20 ü.csv", rows(1))
    world.run(pipeline)
    assert world.ids("a.t") == [1]
    (inbox / "a.csv.tmp").rename(inbox / "a.csv")
    world.run(pipeline)
    assert world.ids("a.t") == [1, 99]


def test_a_file_that_is_still_written_waits(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "old.csv", rows(1))
    (inbox / "done.csv").write_text(rows(2))
    (inbox / "growing.csv").write_text("id\n3")
    real = Settling.undecided
    with monkeypatch.context() as patched:

        def undecided(self: Any, files: Any) -> bool:
            (inbox / "growing.csv").write_text(rows(3, 4))
            return real(self, files)

        patched.setattr(Settling, "undecided", undecided)
        world.run(pipeline)
    assert world.ids("a.t") == [1, 2]
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4]


@pytest.mark.landing
def test_a_cut_log_is_refused(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    for number in range(3):
        land(inbox, f"{number}.csv", rows(number), number)
    world.run(pipeline)
    [entry] = (world.checkpoint(pipeline) / "helios" / "files" / "0").iterdir()
    lines = entry.read_text().splitlines(keepends=True)
    entry.write_text("".join(lines[:-1]))
    land(inbox, "9.csv", rows(9), 9)
    with pytest.raises(CheckpointError, match=r"no longer has entry 1, which has 3 files: the log was cut"):
        world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2]
    world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [0, 1, 2, 9]


@pytest.mark.parametrize("when", ["committed", "planned"])
@pytest.mark.cases(landing="committed")
def test_a_new_checkpoint_resumes_by_the_log(world: Any, inbox: Path, when: str) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    land(inbox, "b.csv", rows(2), 1)
    if when == "planned":
        with dies_before_commit():
            world.run(pipeline)
    else:
        world.run(pipeline)
    land(inbox, "c.csv", rows(3), 2)
    for name in ("offsets", "commits", "metadata"):
        path = world.checkpoint(pipeline) / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for _ in range(2):
        world.run(pipeline, new_checkpoint=True)
        assert world.ids("a.t") == [1, 2, 3]
    land(inbox, "d.csv", rows(4), 3)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4]


def test_a_new_checkpoint_without_the_log_is_refused_with_a_remedy_that_works(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    shutil.rmtree(world.checkpoint(pipeline))
    land(inbox, "b.csv", rows(2), 1)
    for options in ({"new_checkpoint": True}, {}):
        with pytest.raises(CheckpointError, match=r"the file of the entry is gone.*full-refresh"):
            world.run(pipeline, **options)
    assert world.ids("a.t") == [1]
    world.run(pipeline, full_refresh=True)
    assert world.ids("a.t") == [1, 2]


@pytest.mark.landing
def test_max_files_in_the_order_of_their_times(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox, max_files=2) >> world.sink("a.t")
    for number in range(5):
        land(inbox, f"{9 - number}.csv", rows(number), number)
    run = world.run(pipeline)
    assert run.batches == 3
    names = [[Path(name).name for name, *_ in one["place"]["names"]] for one in positions(world, "a.t")]
    assert names == [["9.csv", "8.csv"], ["7.csv", "6.csv"], ["5.csv"]]
    assert world.ids("a.t") == [0, 1, 2, 3, 4]


def test_the_lag_is_in_files_and_bytes(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox, max_files=2) >> world.sink("a.t")
    for number in range(3):
        land(inbox, f"{number}.csv", rows(number), number)
    seen: list[tuple[int | None, int | None]] = []
    plan_of = world._emit

    def emit(event: Any) -> None:
        plan_of(event)
        if event.kind == "batch":
            seen.append((run.metrics().source_lag_files, run.metrics().source_lag_bytes))

    from helios.spark.run.run import PipelineRun

    run = PipelineRun(world.plan(pipeline), world.spark, emit=emit, once=True).start()
    run.await_termination(120)
    assert seen == [(1, 5), (0, 0)]
    assert (run.metrics().source_lag_files, run.metrics().source_lag_bytes) == (0, 0)
    land(inbox, "late.csv", rows(100, 200), 9)
    [status] = statuses(world.load("a.t"), View(load=lambda name: None))
    assert (status.behind, status.behind_files, status.behind_bytes) == (None, 1, 11)


def test_two_folders_in_one_pipeline(world: Any, inbox: Path, forget_commit: Any) -> None:
    other = world.folder / "other"
    other.mkdir()
    pipeline = (csv(inbox) >> union(csv(other)) >> world.sink("a.t")).named("two")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    land(other, "a.csv", rows(2))
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 1)
    land(inbox, "b.csv", rows(3))
    land(other, "b.csv", rows(4))
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2, 3, 4]
    world.run(pipeline, new_checkpoint=True)
    assert world.ids("a.t") == [1, 2, 3, 4]


def test_a_planned_batch_is_read_as_planned(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> world.sink("a.t")
    planned(world, inbox, pipeline)
    land(inbox, "late.csv", rows(50), -100)
    world.run(pipeline)
    assert world.ids("a.t") == [0, 1, 2, 50]
    assert [one["place"]["files"] for one in positions(world, "a.t")] == [3, 1]


def test_an_entry_whose_batch_was_never_planned_is_planned_anew(
    world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helios.sources.files.log import FileLog

    pipeline = csv(inbox) >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    land(inbox, "b.csv", rows(2), 1)
    real = FileLog.append
    with monkeypatch.context() as patched:

        def append(self: Any, after: Any, files: Any) -> Any:
            real(self, after, files)
            raise RuntimeError("the driver died")

        patched.setattr(FileLog, "append", append)
        with pytest.raises(HeliosError):
            world.run(pipeline)
    (inbox / "b.csv").unlink()
    land(inbox, "c.csv", rows(3), 2)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 3]


def test_a_stateful_pipeline_follows_a_folder(world: Any, inbox: Path, forget_commit: Any) -> None:
    pipeline = csv(inbox) >> aggregate("id", n="count(*)") >> world.sink("a.t").upsert("id")
    land(inbox, "a.csv", rows(1, 1, 2))
    world.run(pipeline)
    world.run(pipeline)
    land(inbox, "b.csv", rows(1, 3), 1)
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 1)
    (inbox / "a.csv").unlink()  # committed: nobody needs it
    land(inbox, "c.csv", rows(3), 2)
    world.run(pipeline)
    assert world.rows("a.t", "id", "n") == {(1, 3): 1, (2, 1): 1, (3, 2): 1}
    land(inbox, "d.csv", rows(9), 3)
    with dies_before_commit():
        world.run(pipeline)
    (inbox / "d.csv").unlink()
    with pytest.raises(RunError, match=r"in/d\.csv was planned for this batch, and is gone"):
        world.run(pipeline)
    land(inbox, "d.csv", rows(9, 9), 4)
    world.run(csv(inbox).on_change("reread") >> aggregate("id", n="count(*)") >> world.sink("a.t").upsert("id"))
    assert world.rows("a.t", "id", "n") == {(1, 3): 1, (2, 1): 1, (3, 2): 1, (9, 2): 1}


def test_a_stateful_folder_has_no_new_checkpoint(world: Any, inbox: Path) -> None:
    pipeline = csv(inbox) >> aggregate("id", n="count(*)") >> world.sink("a.t").upsert("id")
    land(inbox, "a.csv", rows(1))
    world.run(pipeline)
    with pytest.raises(InputError, match=r"--new-checkpoint cannot resume .*: only a stateless pipeline"):
        world.run(pipeline, new_checkpoint=True)


def test_a_followed_folder_that_is_not_there(world: Any) -> None:
    pipeline = csv(world.folder / "nope") >> world.sink("a.t")
    with pytest.raises(NotFound, match=r"there is nothing at .*nope.*make the folder"):
        world.run(pipeline)


def test_a_batch_reads_what_was_listed(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Files.source(str(inbox), "csv", schema="id bigint") >> world.sink("a.t")
    land(inbox, "a.csv", rows(1))
    real = FilesReader.current
    with monkeypatch.context() as patched:

        def current(self: Any) -> Any:
            found = real(self)
            land(inbox, "b.csv", rows(2))
            return found

        patched.setattr(FilesReader, "current", current)
        world.run(pipeline)
    assert world.ids("a.t") == [1]
