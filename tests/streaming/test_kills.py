"""The short form of `perf/kills.py`: a running pipeline is killed a few times, and every row is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.promise("kills")

KILLS = Path(__file__).parents[2] / "perf" / "kills.py"


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_every_row_once_after_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(KILLS), "--kills", "3", "--rows", "40000", "--folder", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["kills"], told["lost"], told["duplicated"]) == (3, 0, 0)
    assert told["target_commits"] > 0
