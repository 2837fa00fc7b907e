"""The short form of `perf/webhooks.py`: receiver and run are killed, and every accepted delivery is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.promise("webhook", "kills")

WEBHOOKS = Path(__file__).parents[2] / "perf" / "webhooks.py"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.landing), 3])
def test_every_accepted_delivery_once_after_kills(tmp_path: Path, kills: int) -> None:
    sent = 1000 * kills
    command = [sys.executable, str(WEBHOOKS), "--deliveries", str(sent), "--kills", str(kills)]
    done = subprocess.run([*command, "--folder", str(tmp_path)], check=False, capture_output=True, text=True)
    logs = "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["accepted"], told["lost"], told["doubled"], told["not_accepted"]) == (sent, 0, 0, 0)
    assert told["answers"]["200 accepted"] <= sent <= told["answers"]["200 accepted"] + told["answers"]["200 duplicate"]
    assert told["bad_accepted"] == 0
    assert set(told["bad"]) == {"forged", "of the future", "stale", "under another id", "unsigned"}
    assert all(answers["401"] > 0 for answers in told["bad"].values())
