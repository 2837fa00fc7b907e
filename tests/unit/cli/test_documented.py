"""docs/cli.md names every command and every option of each, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from helios.cli import main

pytestmark = pytest.mark.promise("documents")

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
SHARED = "Options of several commands"
DEFAULT = "show"
"""`helios quarantine TABLE` is the command `helios quarantine show TABLE`."""


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        here = path if name == DEFAULT else (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, here)
        else:
            yield " ".join(here), command


COMMANDS = dict(commands(main))


def options(command: click.Command) -> set[str]:
    found = (p for p in command.params if isinstance(p, click.Option) and not p.hidden)
    return {name for option in found for name in (*option.opts, *option.secondary_opts) if name.startswith("--")}


def sections() -> dict[str, str]:
    """The text below each heading."""
    _, *parts = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def rows(text: str) -> Iterator[list[str]]:
    """The cells of the tables of a section."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def flags(cell: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", cell))


def documented(command: str) -> set[str]:
    """The options that the tables of a command's own section name."""
    (section,) = (text for title, text in sections().items() if command.split(maxsplit=1)[0] in title.split(", "))
    found: set[str] = set()
    for first, *rest in rows(section):
        if flags(first):
            found |= flags(first)
        elif command in re.findall(r"`([^`]*)`", first):
            found |= flags(rest[0])
    return found


def bare(word: str) -> str:
    """A word without what is optional or an argument: `SCRIPT[:name]`."""
    return re.sub(r"\[.*\]", "", word)


def test_every_command_has_a_section_and_a_row() -> None:
    titles = {name for title in sections() for name in title.split(", ")}
    assert {name.split()[0] for name in COMMANDS} <= titles
    listed = [cells[0].strip("`").split()[1:] for cells in rows(PAGE.split("\n## ", maxsplit=1)[0])]
    assert sorted(" ".join(filter(str.islower, map(bare, words))) for words in listed) == sorted(COMMANDS)


def test_every_option_of_every_command_is_there_and_no_other() -> None:
    takes_script = {name for name, c in COMMANDS.items() if any(p.name == "script" for p in c.params)}
    shared = {
        "--profile": set(COMMANDS) - {"explain", "init"},
        "--debug": set(COMMANDS) - {"explain", "init"},
        "--json": set(COMMANDS) - {"init", "graph"},
        "--set": takes_script,
        "--help": set(COMMANDS),
    }
    assert {flag for cells in rows(sections()[SHARED]) for flag in flags(cells[0])} == set(shared)
    for name, command in COMMANDS.items():
        expected = documented(name) | {option for option, of in shared.items() if name in of}
        assert options(command) | {"--help"} == expected, name
