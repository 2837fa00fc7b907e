"""Who drives a checkpoint, as its lease says."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from helios.table import lease

pytestmark = pytest.mark.promise("drivers")

MINE = {"owner": "a", "host": socket.gethostname(), "pid": os.getpid(), "started": lease.process_start(os.getpid())}
ELSEWHERE = {"owner": "b", "host": "elsewhere.example", "pid": 7, "started": None}


def sign(folder: Path, holder: dict[str, Any]) -> None:
    """Writes a lease; `renewed` is in seconds from now."""
    (folder / "helios").mkdir(exist_ok=True)
    renewed = {"renewed": time.time() + holder["renewed"]} if "renewed" in holder else {}
    (folder / lease.FILE).write_text(json.dumps({**holder, **renewed}))


@pytest.mark.parametrize("holder", [MINE, {**MINE, "started": None}, {**ELSEWHERE, "renewed": 300}])
@pytest.mark.parametrize("uri", [False, True])
def test_a_live_driver_is_told(tmp_path: Path, holder: dict[str, Any], uri: bool) -> None:
    sign(tmp_path, holder)
    location = tmp_path.as_uri() if uri else str(tmp_path)
    problem = lease.running_driver_error(location, {})
    assert problem is not None
    assert problem.what == f"another driver is running on {location}: process {holder['pid']} on {holder['host']}."


@pytest.mark.parametrize(
    "holder",
    [
        {**MINE, "started": "1"},  # the number of the process is another's by now
        {**MINE, "pid": 2**22 + 1},
        {**ELSEWHERE, "renewed": -300},
        {},
        {"host": socket.gethostname(), "pid": "none"},
    ],
)
def test_a_dead_or_unknown_one_is_not(tmp_path: Path, holder: dict[str, Any]) -> None:
    sign(tmp_path, holder)
    assert lease.running_driver_error(str(tmp_path), {}) is None


def test_what_cannot_be_read_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lease.running_driver_error(str(tmp_path / "none"), {}) is None
    assert lease.running_driver_error("nowhere://bucket/cp", {}) is None
    sign(tmp_path, MINE)
    (tmp_path / lease.FILE).write_text('{"owner": "a", "ho')
    assert lease.running_driver_error(str(tmp_path), {}) is None
    sign(tmp_path, MINE)
    monkeypatch.setattr(lease, "RELEASED", {"a"})
    assert lease.running_driver_error(str(tmp_path), {}) is None


@pytest.mark.parametrize("text", [None, "", "null", "[]", "3", '"x"', "{}", '{"owner": "a"}', '{"host": 1}'])
def test_what_is_no_lease_names_no_holder(text: str | None) -> None:
    assert lease.parse_holder(text) is None


def test_a_lease_names_its_holder() -> None:
    assert lease.parse_holder(json.dumps({**MINE, "renewed": 3})) == {**MINE, "renewed": 3.0}
