"""Installs shell completion of commands, options and files, with the scripts that click generates."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
import platformdirs
from click.shell_completion import get_completion_class

from helios.errors import InputError

SHELLS = ("bash", "zsh", "fish")
DETECTED = "detected"
"""The value of `--install-completion` without an argument. It stands for the shell in $SHELL."""
COMMENT = "# completion of helios"
SOURCE_LINES = {
    "bash": "source {file}",
    # zsh completes only once compinit has run.
    "zsh": "(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}; source {file}",
}


def install(command: click.Command, shell: str) -> list[Path]:
    """Writes the completion script of a shell, and adds a line to the shell's settings that sources the script.

    Args:
        shell: One of `SHELLS`, or `DETECTED`.

    Returns:
        The files that were written. A second call writes the script again, and leaves the settings unchanged.

    Raises:
        InputError: The shell is not known, or a file cannot be written.
    """
    name = Path(os.environ.get("SHELL", "")).name if shell == DETECTED else shell
    completion_class = get_completion_class(name) if name in SHELLS else None
    if completion_class is None:
        raise InputError(
            f"$SHELL is {os.environ.get('SHELL')!r}, for which there is no completion.",
            fix=f"name one of {', '.join(SHELLS)}, such as: helios --install-completion bash.",
        )
    script, settings = _script_and_settings(name)
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"{completion_class(command, {}, 'helios', '_HELIOS_COMPLETE').source()}\n", "utf-8")
        if settings is None:
            return [script]
        line = SOURCE_LINES[name].format(file=shlex.quote(str(script)))
        text = settings.read_text("utf-8", errors="surrogateescape") if settings.exists() else ""
        if line in text.splitlines():
            return [script]
        separator = "" if not text or text.endswith("\n") else "\n"
        with settings.open("a", encoding="utf-8") as stream:
            stream.write(f"{separator}\n{COMMENT}\n{line}\n")
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}.", fix="make it writable, and try again.") from error
    return [script, settings]


def _script_and_settings(shell: str) -> tuple[Path, Path | None]:
    """The completion script, and the shell's settings file: None for fish, which reads all scripts in its folder."""
    if shell == "fish":
        root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(root, "fish", "completions", "helios.fish"), None
    script = Path(platformdirs.user_data_dir("helios"), f"completion.{shell}")
    folder = os.environ.get("ZDOTDIR") if shell == "zsh" else None
    return script, Path(folder or Path.home(), f".{shell}rc")
