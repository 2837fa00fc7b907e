"""The plugin of `helios.testing`, as a user has it: `helios init`, then `pytest`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.promise("testing"), pytest.mark.process]


def test_the_test_of_init_passes(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, "-m", "helios", "init", "demo"], cwd=tmp_path, check=False)
    assert made.returncode == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path / "demo", check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not (tmp_path / "demo" / ".helios").exists()
