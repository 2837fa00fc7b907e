"""What a run shows: plain lines, JSON, and the table of a terminal."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from helios.cli.progress import JsonLines, Lines
from helios.spark.run.events import Event

pytestmark = pytest.mark.promise("commands")

STATUS: dict[str, Any] = {
    "pipeline": "a.b", "state": "finished", "batches": 2, "rows": 1200, "rejected": 0, "left": []
}  # fmt: skip


BATCH = Event("a.b", "batch", batch=3, rows=1200, seconds=0.81, snapshot=77, files=1)


def lines(shown: str) -> list[str]:
    """The lines without their times, which must be there."""
    return [re.sub(r"^\d\d:\d\d:\d\d ", "", line, count=1) for line in shown.splitlines()]


def test_late_rows_are_told_with_their_batch(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines()
    shown.open(["a.b"])
    idle = Event("a.b", "idle", batch=4)
    late = Event("a.b", "idle", batch=5, late=1)
    noted = Event("a.b", "noted", message="nothing is new")
    for event in (replace(BATCH, late=1200), idle, idle, late, noted):
        shown.emit(event)
    assert lines(capsys.readouterr().out) == [
        "a.b  batch 3: 1,200 rows in 1 file, snapshot 77, 0.8 s; 1,200 late rows dropped by the watermark",
        "a.b  batch 4: no rows",
        "a.b  batch 5: no rows; 1 late row dropped by the watermark",
        "a.b  nothing is new",
    ]


def test_rejected_rows_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines()
    shown.open(["a.b"])
    idle = Event("a.b", "idle", batch=4)
    for event in (replace(BATCH, rejected=1), idle, replace(idle, batch=5, rejected=1200)):
        shown.emit(event)
    shown.close([STATUS | {"rejected": 1201}])
    assert lines(capsys.readouterr().out) == [
        "a.b  batch 3: 1,200 rows in 1 file, snapshot 77, 0.8 s; 1 row rejected",
        "a.b  batch 4: no rows",
        "a.b  batch 5: no rows; 1,200 rows rejected",
        "a.b  finished: 2 batches, 1,200 rows, 1,201 rejected",
    ]


def test_a_run_without_rows_has_written_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines()
    shown.open(["a.b"])
    shown.emit(Event("a.b", "idle", batch=1))
    shown.close([STATUS | {"batches": 0, "rows": 0, "left": ["2 groups wait"]}])
    assert lines(capsys.readouterr().out) == [
        "a.b  batch 1: no rows",
        "a.b  finished: nothing written; 2 groups wait",
    ]


def test_a_line_per_event(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines()
    shown.open(["a.b", "longer.name"])
    for event in (Event("a.b", "started"), BATCH, Event("a.b", "skipped", batch=3, snapshot=77)):
        shown.emit(event)
    shown.emit(Event("longer.name", "failed", message="it broke"))
    shown.close([STATUS])
    out = capsys.readouterr().out
    assert re.match(r"\d\d:\d\d:\d\d a\.b", out)
    assert lines(out) == [
        "a.b          started",
        "a.b          batch 3: 1,200 rows in 1 file, snapshot 77, 0.8 s",
        "a.b          batch 3: in the table already, by snapshot 77",
        "longer.name  failed: it broke",
        "a.b          finished: 2 batches, 1,200 rows",
    ]


def test_a_quiet_source_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Lines(err=True)
    shown.open(["a.b"])
    quiet = Event("a.b", "idle", batch=4)
    for event in (quiet, quiet, quiet, BATCH, quiet):
        shown.emit(event)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.split("  ")[1].split(":")[0] for line in lines(captured.err)] == ["batch 4", "batch 3", "batch 4"]
    assert len(lines(captured.err)) == 3


def test_json_lines_have_iso_times(capsys: pytest.CaptureFixture[str]) -> None:
    shown = JsonLines()
    shown.open(["a.b"])
    shown.note("starting")
    shown.emit(BATCH)
    shown.close([STATUS])
    note, batch, summary = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert note["message"] == "starting"
    assert datetime.fromisoformat(batch["time"]).tzinfo is not None
    assert (batch["kind"], batch["pipeline"], batch["rows"], batch["snapshot"]) == ("batch", "a.b", 1200, 77)
    assert (summary["kind"], summary["batches"]) == ("summary", 2)


def test_what_a_start_waits_for_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (Lines(), JsonLines()):
        shown.show_wait("starting Spark ...", 6.0)
        shown.hide()
    line, note = capsys.readouterr().out.splitlines()
    assert line.endswith(" starting Spark ...")
    assert json.loads(note)["message"] == "starting Spark ..."
