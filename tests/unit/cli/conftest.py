"""A folder of its own for every test, and the command line called in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helios.cli import main
from helios.model import values

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what loading a script leaves behind in the process is undone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HELIOS_PROFILE", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    values.PARAMETERS.clear()
    values.USED_PARAMETERS.clear()


@pytest.fixture
def cli(folder: Path) -> Run:
    """`cli("check", "a.py")` in the folder."""
    assert Path(os.getcwd()) == folder

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="helios")

    return invoke
