"""Each tutorial, followed as it is written: its files, its commands, its output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suite.pages import ROOT
from tests.suite.tutorial import Command, follow, is_shown

pytestmark = [pytest.mark.promise("documents"), pytest.mark.sampled(1), pytest.mark.timeout(900)]

TUTORIALS = sorted(path.name for path in (ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_prints_what_it_shows(tmp_path: Path, name: str) -> None:
    differ: list[str] = []

    def compared(given: Command, printed: str) -> str:
        if not is_shown(given.shown, printed):
            differ.append(f"$ {given.line}\nthe page shows:\n{given.shown}\nit prints:\n{printed}")
        return printed

    follow(ROOT / "docs" / "tutorials" / name, tmp_path, compared)
    assert not differ, "\n\n".join(differ)
