"""`helios ui` and `helios run --ui`: where the page is served, and what is refused before anything starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from helios.ui.address import TOKEN
from tests.page.lakes import lake
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.promise("page")


@pytest.fixture
def script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv(TOKEN, raising=False)
    (folder / "p.py").write_text(
        "from helios import *\np = Memory.source([{'id': 1}]) >> where('id > 0') >> Iceberg.sink('a.t')\n"
    )
    return "p.py"


@pytest.mark.parametrize("command", [("ui", "--at"), ("run", "p.py", "--ui")])
def test_a_host_that_others_reach_needs_a_token(cli: Run, script: str, command: tuple[str, ...]) -> None:
    result = cli(*command, "0.0.0.0:0")
    assert result.exit_code == 2
    assert "0.0.0.0:0 would serve the page to other machines, and no token is set. Fix: set HELIOS_UI_TOKEN" in (
        " ".join(result.output.split())
    )


def test_the_option_in_front_of_the_script_is_explained(cli: Run, script: str) -> None:
    result = cli("run", "--ui", script, script)
    assert result.exit_code == 2
    assert "'p.py' is not an address for the page." in result.output
    assert "put --ui after p.py" in " ".join(result.output.split())


def test_a_page_without_its_extra_says_what_to_install(cli: Run, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for module in ("helios.ui.server", "helios.serving"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    result = cli("ui", "--at", ":0")
    assert result.exit_code == 1
    assert "pip install 'helios-iceberg[ui]'" in result.output


def test_the_page_of_a_lake_as_a_process(folder: Path) -> None:
    lake(folder, 1, 3)
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "helios", "ui", "--at", ":0", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            text = "".join(process.stdout.readline() for _ in range(3))
            url, _, token = json.loads(text)["url"].partition("#token=")
            assert len(token) >= 16
            with urlopen(f"{url}events", timeout=60) as stream:
                told = json.loads(next(line for line in stream if line.startswith(b"data: ")).removeprefix(b"data: "))
            assert told["set"]["run"]["mode"] == "lake"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
