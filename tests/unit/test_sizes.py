"""Code is read in one sitting: no function longer than 50 lines, no file longer than 400."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import helios

PACKAGE = Path(helios.__file__).parent
LONGEST_FUNCTION = 50
LONGEST_FILE = 400
MOST_UNTYPED = 40


def long_functions(text: str) -> list[str]:
    """The functions of a module that are too long, with their docstrings and without their decorators."""
    nodes = ast.walk(ast.parse(text))
    functions = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [f.name for f in functions if (f.end_lineno or f.lineno) - f.lineno + 1 > LONGEST_FUNCTION]


def test_a_long_function_is_found() -> None:
    body = "    x = 1\n"
    assert long_functions("def short():\n" + body * 49) == []
    assert long_functions("class A:\n    async def long(self):\n" + f"    {body}" * 50) == ["long"]


def test_no_function_is_longer_than_50_lines() -> None:
    files = {str(file.relative_to(PACKAGE)): file.read_text() for file in PACKAGE.rglob("*.py")}
    assert {f"{name}: {long}" for name, text in files.items() for long in long_functions(text)} == set()


def test_no_file_is_longer_than_400_lines() -> None:
    files = {str(file.relative_to(PACKAGE)): file.read_text() for file in PACKAGE.rglob("*.py")}
    assert {name for name, text in files.items() if len(text.splitlines()) > LONGEST_FILE} == set()


def untyped(text: str) -> list[str]:
    """The lines of a module whose annotations say `Any`."""
    names = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == "Any"]
    return sorted({text.splitlines()[name.lineno - 1].strip() for name in names})


def test_the_way_of_a_batch_is_twelve_files() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    way = re.findall(r"^\| `(helios/[\w/]+\.py)` \|", page, re.MULTILINE)
    assert 0 < len(way) <= 12
    assert [name for name in way if not (PACKAGE.parent / name).is_file()] == []


def test_objects_of_the_jvm_are_typed_where_they_cross_modules() -> None:
    """`Any` is left for the root of Java's packages, for JSON, and where a library has no types."""
    lines = {str(file.relative_to(PACKAGE)): untyped(file.read_text()) for file in PACKAGE.rglob("spark/**/*.py")}
    assert sum(map(len, lines.values())) <= MOST_UNTYPED, {name: found for name, found in lines.items() if found}
