"""The progress of a run on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from helios.cli.board import COLUMNS, Board
from helios.metrics.metrics import Metrics
from helios.spark.run.events import Event

pytestmark = pytest.mark.promise("commands")

BATCH = Event("a.b", "batch", batch=3, rows=1200, seconds=0.81, snapshot=1808074851068478710, files=1)


class Run:
    """A run as far as the table looks at it."""

    def __init__(self, name: str) -> None:
        self.figures = Metrics(name, name)

    def metrics(self) -> Metrics:
        return self.figures

    def status(self) -> dict[str, Any]:
        return {}


def screen(board: Board, width: int = 140, height: int = 40) -> list[str]:
    """The table on a terminal of this size."""
    text = StringIO()
    board._console = Console(file=text, width=width, height=height)
    board._lags_read_at = 0.0
    board._console.print(board._table())
    return text.getvalue().splitlines()


def headers(shown: Sequence[str]) -> list[str]:
    head = next(line for line in shown if "pipeline" in line)
    return [column.name for column in COLUMNS if column.name in head]


def ended(name: str, state: str = "finished", **fields: Any) -> dict[str, Any]:
    return {"pipeline": name, "state": state, "batches": 2, "rows": 1200, "rejected": 0, "left": [], **fields}


@pytest.fixture
def board() -> Board:
    made = Board()
    made._rows.clear()
    return made


def test_rate_lag_snapshot_and_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run("a.b"), Run("waits.on_it")]
    board = Board(runs)
    board.open(["a.b", "waits.on_it"])
    clock = 1000.0
    monkeypatch.setattr("helios.cli.board.time.monotonic", lambda: clock)
    for event in (Event("a.b", "started"), BATCH):
        board.emit(event)
    runs[0].figures.lag(snapshots=0, seconds=9.0, files=1000, bytes=4000)
    screen(board)
    runs[0].figures.lag(snapshots=0, seconds=9.0, files=750, bytes=3000)
    clock += 20
    shown = screen(board)
    board.hide()
    assert headers(shown) == [column.name for column in COLUMNS if column.name not in ("rejected",)]
    row = next(line for line in shown if "a.b" in line)
    assert row.split()[:9] == [
        "a.b", "running", "3", "1,200", "1,481", "750", "files", "~1:00", "1808074851068478710"
    ]  # fmt: skip
    assert next(line for line in shown if "waits.on_it" in line).split() == ["waits.on_it", "waiting", "0"]


def test_a_narrow_terminal_drops_what_matters_least(board: Board) -> None:
    board.open(["local.shop.orders"])
    board.emit(replace(BATCH, pipeline="local.shop.orders", rejected=2))
    wide, narrow, least = (headers(screen(board, width)) for width in (140, 60, 20))
    board.hide()
    assert {"batch", "snapshot", "last commit", "elapsed"} <= set(wide) - set(narrow)
    assert set(narrow) == {"pipeline", "state", "rows", "rejected", "rows/s"}
    assert set(least) == {"pipeline", "state"}
    for width in (140, 60):
        assert max(map(len, screen(board, width))) <= width


def test_a_low_terminal_shows_first_what_needs_a_look(board: Board) -> None:
    names = [f"p{number:02}" for number in range(20)]
    board.open(names)
    for name in names:
        board.emit(Event(name, "idle", batch=0))
    board.emit(Event("p17", "failed", message="it broke"))
    board.emit(replace(BATCH, pipeline="p05"))
    shown = screen(board, height=9)
    assert [name for name in names if any(name in line for line in shown)] == ["p00", "p05", "p17"]
    assert any("and 17 more: 17 idle" in line for line in shown)
    board.close([ended(name) for name in names])
    assert [name for name in names if any(name in line for line in screen(board, height=9))] == names


def test_the_end_of_one_pipeline(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    board.show_wait("starting Spark ...", 6.0)
    board.open(["a.b"])
    board.emit(Event("a.b", "failed", message="it broke"))
    board.close([ended("a.b", "failed", left=["batch 0 failed its audit"])])
    out = capsys.readouterr().out
    assert "a.b  failed: 2 batches, 1,200 rows; batch 0 failed its audit" in out
    assert "it broke" not in out  # the command reports it


def test_the_end_of_several_says_what_still_waits(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    board.open(["a.b", "a.longer", "a.c"])
    board.emit(Event("a.b", "failed", message="it broke"))
    board.note("stopping [after the running batch]")
    board.close(
        [
            ended("a.b", "failed"),
            ended("a.longer", rejected=3, left=["3 groups wait for the watermark"]),
            ended("a.c", left=["1 file of its sources is not read yet"]),
        ]
    )
    out = capsys.readouterr().out
    assert "a.b: it broke" in out
    assert "stopping [after the running batch]" in out
    assert out[out.index("3 pipelines:") :].splitlines() == [
        "3 pipelines: 1 failed, 2 finished; 6 batches, 3,600 rows, 3 rejected",
        "still waiting:",
        "  a.longer  3 groups wait for the watermark",
        "  a.c       1 file of its sources is not read yet",
    ]
