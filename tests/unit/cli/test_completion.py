"""`helios --install-completion`, and what the shells ask for then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from helios.cli import main
from tests.unit.cli.conftest import Run

pytestmark = pytest.mark.promise("commands")


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder / "a home"))
    (folder / "a home").mkdir()
    monkeypatch.setenv("SHELL", "/bin/bash")
    return folder / "a home"


def test_a_second_call_writes_no_second_line(cli: Run, home: Path) -> None:
    (home / ".bashrc").write_text("alias ll=ls")
    first = cli("--install-completion")
    assert first.exit_code == 0
    assert first.stdout.splitlines()[1:] == [
        f"wrote {home}/.bashrc", "Start a new shell, type `helios `, and press Tab."
    ]  # fmt: skip
    settings = (home / ".bashrc").read_text()
    assert settings.startswith("alias ll=ls\n\n# completion of helios\nsource '")
    assert cli("--install-completion", "bash").stdout.count("wrote") == 1
    assert (home / ".bashrc").read_text() == settings


def test_zsh_gets_its_completion_system_and_fish_needs_no_settings(cli: Run, home: Path) -> None:
    assert cli("--install-completion", "zsh").exit_code == cli("--install-completion", "fish").exit_code == 0
    assert "autoload -Uz compinit && compinit; }; source '" in (home / ".zshrc").read_text()
    assert "complete --no-files --command helios" in (home / ".config/fish/completions/helios.fish").read_text()


def test_another_shell_is_refused(cli: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/dash")
    refused = cli("--install-completion")
    assert refused.exit_code == 2
    assert "$SHELL is '/bin/dash', for which there is no completion." in refused.stderr
    assert "Fix: name one of bash, zsh, fish, such as: helios --install-completion bash." in refused.stderr
    assert list(home.iterdir()) == []


def test_bash_completes_commands_options_and_files(cli: Run, home: Path) -> None:
    """The settings are read by a bash, which asks `helios` as it does at Tab."""
    cli("--install-completion")
    (home / "bin").mkdir()
    command = home / "bin" / "helios"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m helios "$@"\n')
    command.chmod(0o755)
    asked = "\n".join(
        [
            "source ~/.bashrc",
            'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()',
            '_helios_completion helios; echo "${COMPREPLY[*]}"; }',
            "ask helios pla",
            "ask helios plan --off",
        ]
    )
    env = {**os.environ, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    env["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], cwd=home, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == ["plan", "--offline"], done.stderr
    asks = get_completion_class("bash")
    assert asks is not None
    [script] = asks(main, {}, "helios", "_HELIOS_COMPLETE").get_completions(["run"], "pipe")
    assert (script.type, script.value) == ("file", "pipe")  # bash lists the files
