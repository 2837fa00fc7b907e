"""Pages that are followed from an empty folder: their files are written, their commands run, their output compared.

    ```python title="orders.py"      writes orders.py
    ```console                       runs each line after `$ ` with bash, and compares what it prints; `cd` is kept

A line `...` of the page stands for any lines. Times, durations, sizes and ids differ from run to run and are not
compared, nor are spaces between columns; dates of the data are in January 2026, and are compared.

    python -m tests.suite.tutorial docs/tutorials/upserts.md     prints the page with the output of this run in it

Behind the page it takes addresses, such as `localhost:9092=127.0.0.1:39217`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.suite.pages import ROOT

FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
VARYING = (
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b(?!2026-01-)\d{4}-\d\d-\d\d(?:[ T](?:\d\d:\d\d(?::\d\d(?:\.\d+)?)?|TIME(?:\.\d+)?))?"), "MOMENT"),
    (re.compile(r"\b\d{16,19}\b"), "ID"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,32}\b"), "ID"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min)\b"), "SECONDS"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:B|kB|KB|MB|GB)\b"), "SIZE"),
    (re.compile(r"Spark [\d.]+"), "Spark"),
    (re.compile(r"[-─━═]{3,}"), "---"),
    (re.compile(r" {2,}"), " "),
)
"""What differs from run to run, and what it is compared as."""

MAY_MISS = ("engine native", "spill data beyond memory")
"""Lines of a plan that depend on the machine and the extras that are installed."""

PATIENCE = 300
"""Seconds for one command."""


@dataclass(frozen=True)
class Command:
    """One command of a page, with the output that the page shows."""

    line: str
    shown: str


def commands(console: str) -> list[Command]:
    """The commands of a console block."""
    parts = re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]
    return [Command(*part.split("\n", maxsplit=1)) for part in parts]


def follow(
    page: Path,
    folder: Path,
    ran: Callable[[Command, str], str],
    elsewhere: Mapping[str, str] | None = None,
    before: Callable[[str], object] | None = None,
) -> str:
    """Writes the files and runs the commands of a page in a folder, in their order.

    Args:
        page: The page.
        folder: An empty folder.
        ran: Gets each command with its output, and gives the text of the page for that output.
        elsewhere: Addresses of the page, each with that of this machine.
        before: Gets the line of each command before it runs: what the page starts in a block that is not followed.

    Returns:
        The page with these texts.
    """
    addresses = elsewhere or {}
    there = {address: shown for shown, address in addresses.items()}
    at = folder

    def here(text: str) -> str:
        return replaced(text, addresses)

    def one(fence: re.Match[str]) -> str:
        nonlocal at
        language, title, body = fence.groups()
        if title is not None:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(here(body))
        if language != "console":
            return fence[0]
        shown = ""
        for given in commands(body):
            shown += f"$ {given.line}\n"
            if before is not None:
                before(given.line)
            if given.line.startswith("cd "):
                at = at / given.line.removeprefix("cd ")
            else:
                shown += ran(given, replaced(output(here(given.line), at).replace(str(folder), "..."), there))
        return f"```console\n{shown}```"

    return FENCE.sub(one, page.read_text())


def differences(
    page: Path,
    folder: Path,
    elsewhere: Mapping[str, str] | None = None,
    before: Callable[[str], object] | None = None,
) -> list[str]:
    """The commands of a page that print other lines than it shows; arguments as of `follow`."""
    differ: list[str] = []

    def compared(given: Command, printed: str) -> str:
        if not is_shown(given.shown, printed):
            differ.append(f"$ {given.line}\nthe page shows:\n{given.shown}\nit prints:\n{printed}")
        return printed

    follow(page, folder, compared, elsewhere, before)
    return differ


def replaced(text: str, words: Mapping[str, str]) -> str:
    """A text with other words."""
    for word, other in words.items():
        text = text.replace(word, other)
    return text


def output(line: str, folder: Path) -> str:
    """What a command prints, errors too."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "110"}
    given["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), given["PATH"]))
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.stdout


def comparable(text: str) -> list[str]:
    """The lines of an output without what differs from run to run; lines with a time come first, sorted.

    Pipelines of one script take turns, so that the order of their lines differs.
    """
    for pattern, kept in VARYING:
        text = pattern.sub(kept, text)
    lines = [line.strip() for line in text.splitlines()]
    lines = [
        line for line in lines if line and not line.startswith(MAY_MISS) and "preparing a faster start" not in line
    ]
    timed = [line for line in lines if line.startswith("TIME ")]
    return sorted(timed) + [line for line in lines if not line.startswith("TIME ")]


def is_shown(shown: str, printed: str) -> bool:
    """True if the output of a command is the one that the page shows."""
    pattern = "\n".join("(?s:.*)" if line == "..." else re.escape(line) for line in comparable(shown))
    return re.fullmatch(pattern.replace("\n(?s:.*)\n", "\n(?s:.*\n)?"), "\n".join(comparable(printed))) is not None


if __name__ == "__main__":
    addresses = dict(argument.split("=") for argument in sys.argv[2:])
    with tempfile.TemporaryDirectory() as temporary:
        print(follow(Path(sys.argv[1]), Path(temporary), lambda _, printed: printed, addresses), end="")
