"""The command `explain`: looks up the code or the text of an error in the documentation's page of errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

import helios
from helios import errors
from helios.cli import options, output
from helios.errors import HeliosError, NotFound, near_miss

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Family:
    """The errors of one code.

    Attributes:
        error: The class of the errors; its docstring says what they mean.
        retry: A phrase that says whether a retry helps. It completes the sentence "running it again ...".
        sections: The sections of docs/troubleshooting.md that list errors of this code.
    """

    error: type[HeliosError]
    retry: str
    sections: tuple[str, ...]

    @property
    def code(self) -> str:
        return self.error.code

    @property
    def meaning(self) -> str:
        return (self.error.__doc__ or "").partition("\n")[0]


RETRY_IS_USELESS = "does not help: repair what the error names"
FAMILIES = (
    Family(errors.InputError, RETRY_IS_USELESS, ("Columns and expressions", "Targets", "Followed tables", "Topics")),
    Family(errors.DeclarationError, RETRY_IS_USELESS, ("Scripts and composition", "Write modes")),
    Family(errors.ScriptError, RETRY_IS_USELESS, ("Scripts and composition",)),
    Family(errors.ConfigError, RETRY_IS_USELESS, ("Names, catalogs and configuration",)),
    Family(errors.NotFound, RETRY_IS_USELESS, ("Names, catalogs and configuration", "Catalogs and storages")),
    Family(errors.EngineNeeded, "does not help: run the command that the error names", ("Snapshots and maintenance",)),
    Family(errors.CheckpointError, RETRY_IS_USELESS, ("Checkpoints",)),
    Family(errors.RunError, "does no harm: a batch that was written is not written twice", ("Services", "Topics")),
    Family(errors.EnvironmentProblem, "helps once what the error names is repaired", ("Java, Spark and jars",)),
    Family(errors.LedgerError, "does no harm, and helps where the error says so", ("The ledger and commits",)),
    Family(errors.LeaseError, "helps once the other driver has ended", ("Checkpoints",)),
)


@dataclass(frozen=True)
class Entry:
    """A row in the tables of the page of errors.

    Attributes:
        section: The heading of the table's section.
        says: Parts of the error's text. In them, `...` stands for names and numbers.
    """

    section: str
    says: tuple[str, ...]
    cause: str
    remedy: str

    def matches(self, text: str) -> bool:
        """True if the text of an error contains one of the parts."""
        return any(re.search(_pattern(part), text, re.DOTALL) for part in self.says)


def _pattern(part: str) -> str:
    return r".{0,300}?".join(re.escape(words.strip()) for words in part.split("...") if words.strip())


def page_text() -> str:
    """The text of the page of errors: docs/troubleshooting.md of a checkout, or its copy in the installed package."""
    package = Path(helios.__file__).parent
    copies = (package / "cli" / "troubleshooting.md", package.parent / "docs" / "troubleshooting.md")
    return next(copy for copy in copies if copy.exists()).read_text(encoding="utf-8")


@cache
def entries() -> tuple[Entry, ...]:
    return tuple(_entries(page_text()))


def _entries(text: str) -> Iterator[Entry]:
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = re.split(r"(?<!\\) \| ", line.removeprefix("| ").removesuffix(" |"))
        if line.startswith("| `") and len(cells) == 3:
            says, cause, remedy = cells
            yield Entry(section, tuple(re.findall(r"`([^`]+)`", says)), _plain(cause), _plain(remedy))


def _plain(markdown: str) -> str:
    """The text of a Markdown cell for a terminal: links become their text, and escaped characters plain ones."""
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", markdown).replace("\\|", "|")


@click.command()
@click.argument("code_or_text", metavar="[CODE|TEXT]", required=False)
@options.json_option
def explain(code_or_text: str | None, as_json: bool) -> None:
    """Explain an error by its code or its text.

    Without an argument, list the codes. TEXT is an error as it was printed,
    or a part of it in quotes.

    \b
    Example:
      helios explain H106
      helios explain "another driver is running on checkpoint"
    """
    if code_or_text is None or not code_or_text.strip():
        _list(as_json)
        return
    family = next((f for f in FAMILIES if code_or_text.upper() in {f.code, f.error.__name__.upper()}), None)
    matching_entries = entries_of(family, code_or_text)
    if as_json:
        output.print_json(
            {"code": family.code if family else None, "entries": [vars(entry) for entry in matching_entries]}
        )
        return
    if family is not None:
        click.echo(f"{family.code}, {family.error.__name__}: {family.meaning}")
        click.echo(f"exit status {family.error.exit_status}; running it again {family.retry}.")
    for number, entry in enumerate(matching_entries):
        click.echo(f"{chr(10) if family or number else ''}{' / '.join(entry.says)}")
        for title, text in (("cause", entry.cause), ("remedy", entry.remedy)):
            click.echo(click.wrap_text(text, 100, f"  {title:<8}", " " * 10))


def entries_of(family: Family | None, code_or_text: str) -> list[Entry]:
    """The rows for a family of errors. Without a family, these are the rows that match the text of an error.

    Raises:
        NotFound: No row matches the text.
    """
    if family is not None:
        return [entry for entry in entries() if entry.section in family.sections]
    text = " ".join(code_or_text.split())
    matching_entries = [entry for entry in entries() if entry.matches(text)]
    # If no row matches the text, the text may be a few words of an error instead of its full text.
    matching_entries = matching_entries or [
        entry for entry in entries() if any(text.lower() in part.lower() for part in entry.says)
    ]
    if not matching_entries:
        raise NotFound(
            f"no known error matches {text!r}. {near_miss(code_or_text.upper(), [f.code for f in FAMILIES])}",
            fix="give the code alone, such as H106, or the words of the error without names and numbers.",
        )
    return matching_entries


def _list(as_json: bool) -> None:
    rows = [(f.code, f.error.__name__, f.error.exit_status, f.meaning) for f in FAMILIES]
    if as_json:
        output.print_json([dict(zip(("code", "error", "exit_status", "meaning"), row, strict=True)) for row in rows])
        return
    output.print_table(("CODE", "ERROR", "EXIT STATUS", "MEANING"), [[str(cell) for cell in row] for row in rows])
