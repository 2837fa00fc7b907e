"""No code outside their own modules asks which kind of source, target or write mode it has: values say what differs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

import helios
from helios.model.mirror import MirrorSink
from helios.model.modes import MODES
from helios.model.output import Output
from helios.model.sink import IcebergSink
from helios.model.write_modes import WriteModes
from helios.sources.kinds import KINDS

pytestmark = pytest.mark.promise("own-source")

PACKAGE = Path(helios.__file__).parent
OWNERS = ("model/", "sources/", "testing/feeds.py", "testing/topics.py", "testing/lake.py", "testing/outputs.py")
"""Where a source or a target may be asked for its kind: those of `testing` have what stands in for each in a test."""
MODE_OWNERS = ("model/",)
"""Where a write mode may be asked for."""

PROBE = """
isinstance(a, FilesSource)
isinstance(a, (int, model.IcebergSource))
issubclass(kind, MemorySource | IcebergSource)
type(a) is FilesSource
type(a) in (FilesSource,)
FilesSource(path="x")
row = {FilesSource: 1}
match a:
    case IcebergSource(table=t):
        pass
"""


def names(node: ast.AST) -> set[str]:
    """The last part of every name in an expression."""
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return found | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def asks(tree: ast.AST, kinds: set[str]) -> Iterator[int]:
    """The lines that ask whether a value is of one of some kinds."""
    for node in ast.walk(tree):
        asked: set[str] = set()
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = names(node.args[1])
        elif isinstance(node, ast.Compare) and "type" in names(node.left):
            asked = set().union(*map(names, node.comparators))
        elif isinstance(node, ast.MatchClass):
            asked = names(node.cls)
        if asked & kinds:
            yield node.lineno if hasattr(node, "lineno") else 0


def asking(kinds: set[str], owners: tuple[str, ...]) -> set[str]:
    files = ((file.relative_to(PACKAGE).as_posix(), file) for file in PACKAGE.rglob("*.py"))
    return {
        name for name, file in files if not name.startswith(owners) and any(asks(ast.parse(file.read_text()), kinds))
    }


def test_the_search_finds_every_way_to_ask() -> None:
    kinds = {resolve_name(kind).declared.__name__ for kind in KINDS.values()}
    assert sorted(asks(ast.parse(PROBE), kinds)) == [2, 3, 4, 5, 6, 10]


def test_nobody_asks_which_kind_of_source_it_is() -> None:
    assert asking({resolve_name(kind).declared.__name__ for kind in KINDS.values()}, OWNERS) == set()


def test_nobody_asks_which_target_it_is() -> None:
    assert (
        asking({kind.__name__ for kind in (IcebergSink, MirrorSink, Output, *Output.__subclasses__())}, OWNERS) == set()
    )


def test_nobody_asks_which_write_mode_it_is() -> None:
    assert asking({kind.__name__ for kind in MODES}, MODE_OWNERS) == set()


def test_a_mirror_refuses_each_write_mode() -> None:
    modes = {name for name, value in vars(WriteModes).items() if callable(value) and name[0] != "_"} - {"write_mode"}
    assert {"append", "upsert", "merge_sql"} <= modes
    assert modes <= vars(MirrorSink).keys()
