"""Prints the output of commands: errors as paragraphs, tables for terminals or pipes, and JSON."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from helios.errors import CheckFailed, HeliosError, Origin

_CLICK_FOLDER = os.path.dirname(os.path.abspath(click.__file__)) + os.sep
LABEL_WIDTH = 12
"""The width of the column with the labels of a plan, in characters."""
_SENTENCE_ENDS = (".", "!", "?", ":", ";")


@dataclass
class Settings:
    """Output settings of a command."""

    json: bool = False
    debug: bool = False


def print_json(value: Any) -> None:
    """Prints a value as JSON; values without a JSON type, such as NaN, are printed as text."""
    click.echo(json.dumps(_with_finite_numbers(value), indent=2, default=str, ensure_ascii=False, allow_nan=False))


def _with_finite_numbers(value: Any) -> Any:
    """Replaces NaN and the infinities, which JSON does not have, by the texts NaN, Infinity and -Infinity.

    Examples:
        >>> _with_finite_numbers({"a": [1.5, float("nan"), float("-inf")]})
        {'a': [1.5, 'NaN', '-Infinity']}
    """
    if isinstance(value, dict):
        return {key: _with_finite_numbers(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_finite_numbers(inner) for inner in value]
    return value if not isinstance(value, float) or math.isfinite(value) else json.dumps(value)


def is_same(one: Any, other: Any) -> bool:
    """True if two values of a column are the same: NaN equals NaN, and -0.0 differs from 0.0.

    Examples:
        >>> is_same(float("nan"), float("nan")), is_same(0.0, -0.0), is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})
        (True, False, True)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return repr(one) == repr(other)
    return bool(one == other)


def paragraph(error: HeliosError) -> str:
    """The text of an error for the user: where it is, what is wrong, and the fix.

    Examples:
        >>> paragraph(HeliosError("it broke", where=Origin("a.py", 3), fix="repair it."))
        'a.py:3: it broke. Fix: repair it.'
    """
    where = _script_line(error.where)
    what = error.what.rstrip()
    if error.fix and not what.endswith(_SENTENCE_ENDS):
        what += "."
    return _printable(f"{f'{where}: ' if where else ''}{what}{f' Fix: {error.fix}' if error.fix else ''}")


def _printable(text: str) -> str:
    # Text from a script or a server may contain terminal control codes.
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def problems_of(error: HeliosError) -> list[HeliosError]:
    """The problems of a failed check; for another error, the error itself."""
    return list(error.problems) if isinstance(error, CheckFailed) else [error]


def report(error: HeliosError, settings: Settings) -> None:
    """Prints an error on standard error, or with `--json` as JSON on standard output."""
    if settings.debug:
        show_traceback(error)
    if settings.json:
        print_json(as_json(error))
        return
    for problem in problems_of(error):
        say_error(paragraph(problem), problem.code)


def as_json(error: HeliosError) -> dict[str, Any]:
    if isinstance(error, CheckFailed):
        return {**error.as_json(), "problems": [as_json(problem) for problem in error.problems]}
    return {**error.as_json(), "where": _script_line(error.where)}


def report_bug(error: Exception, settings: Settings) -> None:
    message = " ".join(str(error).split())
    what = f"{type(error).__name__}: {message}" if message else type(error).__name__
    fix = "this is a bug in Helios; run with --debug for the traceback."
    if settings.debug:
        show_traceback(error)
        fix = "this is a bug in Helios; report it with the traceback."
    if settings.json:
        print_json({"error": type(error).__name__, "what": message, "where": None, "fix": fix})
    else:
        say_error(f"{what}. {fix[0].upper()}{fix[1:]}")


def show_traceback(error: BaseException) -> None:
    """Prints the whole traceback, with its causes, on standard error."""
    click.echo("".join(traceback.format_exception(error)), err=True)


def say_error(text: str, code: str = "") -> None:
    """Prints an error as one paragraph on standard error, with the code for `helios explain`."""
    say(f"error[{code}]" if code else "error", text, "red")


def say(label: str, text: str, colour: str) -> None:
    """Prints a labelled paragraph on standard error, in colour on a terminal only."""
    click.echo(
        f"{click.style(f'{label}:', fg=colour, bold=True)} {text}", err=True, color=None if _coloured() else False
    )


def _coloured() -> bool:
    return not os.environ.get("NO_COLOR")


def _script_line(where: Origin | None) -> str | None:
    # The origin of a command-line argument is click's code, not a line of a script.
    if where is None or os.path.abspath(where.file).startswith(_CLICK_FOLDER):
        return None
    return str(where)


def print_wrapped(text: str) -> None:
    """Prints lines that begin with a label. On a terminal, a long line is wrapped below its text."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(wrapped(line, width) for line in text.splitlines())
    click.echo(text)


def wrapped(line: str, width: int) -> str:
    """Wraps a line to a width, without cutting a word.

    Examples:
        >>> print(wrapped("  schema    id bigint, name string", 24))
          schema    id bigint,
                    name string
    """
    margin = len(line) - len(line.lstrip())
    indent = " " * (LABEL_WIDTH if 0 < margin <= LABEL_WIDTH else margin)
    lines = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[str] = ()) -> None:
    """Prints a table: on a terminal with ruled lines, otherwise as plain aligned columns.

    Args:
        numbers: The names of the columns that are aligned right.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(headers, cells, numbers)
        return
    widths = [max(len(row[i]) for row in [list(headers), *cells]) for i in range(len(headers))]
    right_aligned = [header in numbers for header in headers]
    for row in [[header.upper() for header in headers], *cells]:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, right_aligned, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _rich_table(headers: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        rich_table.add_column(header, justify="right" if header in numbers else "left", overflow="fold")
    for row in cells:
        rich_table.add_row(*(Text(cell) for cell in row))
    Console().print(rich_table)
