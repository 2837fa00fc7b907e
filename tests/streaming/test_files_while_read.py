"""Files that change, or go, between the plan of a batch and its rows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios import Files
from helios.errors import RunError
from helios.sources.files.spark.reader import FilesReader

pytestmark = pytest.mark.promise("bad-files")


def land(path: Path, order: int, *ids: int) -> None:
    path.write_text("".join(f"{line}\n" for line in ("id", *ids)))
    os.utime(path, (1_700_000_000 + order, 1_700_000_000 + order))


@pytest.fixture
def inbox(world: Any) -> Path:
    folder: Path = world.folder / "in"
    folder.mkdir()
    return folder


def csv(inbox: Path) -> Any:
    return Files.source(str(inbox), "csv", schema="id bigint").incremental(poll=1)


def once_read(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Has `change` come once, when a batch is planned and its rows are not read yet."""
    real, changes = FilesReader.read, [change]

    def read(self: Any, spark: Any, span: Any, **options: Any) -> Any:
        found = real(self, spark, span, **options)
        if changes:
            changes.pop()()
        return found

    monkeypatch.setattr(FilesReader, "read", read)


@pytest.mark.landing
def test_a_file_that_grows(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(inbox / "a.csv", 0, 1)
    once_read(monkeypatch, lambda: land(inbox / "a.csv", 60, 1, 2))
    with pytest.raises(RunError, match=r"in/a\.csv was (read|planned) for this batch and has changed"):
        world.run(csv(inbox) >> world.sink("a.t"))
    world.run(csv(inbox).on_change("reread") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2]


def test_one_that_grows_is_planned_anew_under_reread(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(inbox / "a.csv", 0, 1)
    land(inbox / "b.csv", 0, 5)
    once_read(monkeypatch, lambda: land(inbox / "a.csv", 60, 1, 2))
    world.run(csv(inbox).on_change("reread") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2, 5]
    [told] = [event.message for event in world.events if "planned again" in (event.message or "")]
    assert "in/a.csv was read for this batch and has changed meanwhile" in told


@pytest.mark.parametrize("other", [[5], []])
def test_one_that_goes_is_left_out_under_skip(
    world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch, other: list[int]
) -> None:
    land(inbox / "a.csv", 0, 1)
    for id_ in other:
        land(inbox / "b.csv", 1, id_)
    once_read(monkeypatch, lambda: shutil.move(inbox / "a.csv", world.folder / "a.csv"))
    skipping = csv(inbox).on_missing("skip") >> world.sink("a.t")
    run = world.run(skipping)
    assert run.metrics().files_gone == 1
    assert (world.ids("a.t") if other else []) == other
    (world.folder / "a.csv").rename(inbox / "a.csv")
    assert world.run(skipping).metrics().files_gone == 0
    assert world.ids("a.t") == [1, *other]


@pytest.mark.short
def test_one_that_goes_stops_the_run(world: Any, inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(inbox / "a.csv", 0, 1)
    once_read(monkeypatch, (inbox / "a.csv").unlink)
    with pytest.raises(RunError, match=r"in/a\.csv"):
        world.run(csv(inbox) >> world.sink("a.t"))
