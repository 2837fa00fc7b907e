"""Each tutorial, followed as it is written: its files, its commands, its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.pages import ROOT
from tests.suite.tutorial import differences, is_shown

pytestmark = [pytest.mark.promise("documents"), pytest.mark.sampled(1), pytest.mark.timeout(900)]

SERVED = {"kafka.md", "postgresql.md"}
"""Tutorials that need a server: tests/kafka/test_tutorials.py follows them."""

TUTORIALS = sorted({path.name for path in (ROOT / "docs" / "tutorials").glob("*.md")} - SERVED)
FOLLOWED = ["quickstart.md", *(f"tutorials/{name}" for name in TUTORIALS)]


@pytest.mark.cases(landing="quickstart.md")
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_tutorial_prints_what_it_shows(tmp_path: Path, name: str) -> None:
    assert differences(ROOT / "docs" / name, tmp_path) == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("14:00:01 batch 0: 2 rows, 1.5 s\n", "09:12:59 batch 0: 2 rows, 20 s\n", True),
        ("14:00:01 batch 0: 2 rows, 1.5 s\n", "09:12:59 batch 0: 3 rows, 20 s\n", False),
        ("1  ann\n2  ben\n", "1  ann\n", False),
        ("1  ann\n...\n", "1  ann\n2  ben\n3  eve\n", True),
        ("1  ann\n...\n9  zoe\n", "1  ann\n9  zoe\n", True),
        ("1  ann\n...\n9  zoe\n", "1  ann\n2  ben\n", False),
        ("sent 2026-01-05 09:00\n", "sent 2026-01-06 09:00\n", False),
        ("at 2026-11-27 09:00:01 UTC\n", "at 2027-03-01 10:20:21 UTC\n", True),
        ("10:00:00 a\n10:00:01 b\n", "11:00:00 b\n11:00:01 a\n", True),
    ],
)
def test_what_differs_from_run_to_run_is_not_compared(shown: str, printed: str, same: bool) -> None:
    assert is_shown(shown, printed) is same
