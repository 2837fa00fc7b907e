"""Each message that docs/troubleshooting.md quotes is one of the code, so that `helios explain` finds it."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from helios.cli.explain import entries
from tests.suite.pages import ROOT

pytestmark = pytest.mark.promise("words")

GAP = "\0"
"""Stands for a value in the texts of the code."""
ENOUGH = 0.9
"""The share of a quoted text that must stand in the code, beside values."""

# Messages of Spark, Iceberg, Python and servers.
FOREIGN = {
    "'PUFFIN' is not a valid FileFormat",
    "Corrupt footer",
    "Could not resolve host",
    "ModuleNotFoundError: No module named ...",
    "Operation too slow",
    "PIPELINE: NAME: ...",
    "Position deletes are supported only for parquet format",
    "unsupported table format version: 3",
}
# Messages that the code puts together from texts and values.
COMPOSED = {
    "another process has held ... .lock for ...",
    "has a null key",
    "has a null order",
    "has no .filter()",
    "has no .withColumn()",
    "helios/start.json is lost",
    "is a delete commit",
    "is an overwrite commit",
    "delete() changes rows, and creates no table",
    "merge_sql() changes rows, and creates no table",
    "planned for this batch, and ... gone",
    "select(pl.len())",
    "also upserts into ..., but with other keys, order_by or options",
}

QUOTED = sorted({says for entry in entries() for says in entry.says} - FOREIGN - COMPOSED)


@cache
def texts() -> frozenset[str]:
    """All texts of the code, with a gap for each value."""
    found = set()
    for path in (ROOT / "helios").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                found.add("".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values))
    return frozenset(re.sub(r"\s+", " ", text) for text in found)


def common(parts: list[str], rest: str) -> int:
    """How many characters of a text behind a value stand in the parts that follow it."""
    if not parts or not rest:
        return 0
    part, most = parts[0], 0
    at = rest.find(part) if part else -1
    if at >= 0:
        most = len(part) + common(parts[1:], rest[at + len(part) :])
    ends = (length for length in range(min(len(part), len(rest)), 0, -1) if rest.endswith(part[:length]))
    return max(most, next(ends, 0))


def share(quoted: str) -> float:
    """The largest share of a quoted text that one text of the code has, beside values."""
    if any(quoted in text for text in texts()):
        return 1.0
    most = 0
    for text in texts():
        parts = text.split(GAP)
        for index, part in enumerate(parts[:-1]):
            lengths = range(min(len(part), len(quoted)), -1, -1)
            head = next(length for length in lengths if quoted.startswith(part[len(part) - length :]))
            most = max(most, head + common(parts[index + 1 :], quoted[head:]))
    return most / len(quoted)


@pytest.mark.parametrize("says", QUOTED)
def test_a_quoted_message_is_one_of_the_code(says: str) -> None:
    pieces = [piece.strip(" ,;:.'\"()") for piece in re.split(r"\.\.\.|\bN\b|\bX\b", says)]
    assert {piece: share(piece) for piece in pieces if len(piece) > 3 and share(piece) < ENOUGH} == {}


def test_texts_that_are_no_messages_are_found_out() -> None:
    assert share("is given to no variable") < ENOUGH
    assert share("was deleted and made again") < ENOUGH


def test_the_exceptions_are_quoted() -> None:
    assert {says for entry in entries() for says in entry.says} >= FOREIGN | COMPOSED
