"""docs/reference.md names what there is: every path can be imported, and every public name is there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import helios
from helios import Catalog, Storage

pytestmark = pytest.mark.promise("documents")

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text()
OPTIONS = r"(?:    options:\n(?:      inherited_members:.*\n)?(      members: \[.*\])?)?"
ENTRIES = {
    path: re.findall(r"\w+", members.split("[")[1]) if members else None
    for path, members in re.findall(rf"^::: ([\w.]+)\n{OPTIONS}", PAGE, re.MULTILINE)
}
"""The paths of the page, with the members that it chooses; None where it shows all."""


def found(path: str) -> Any:
    """What a path names: the module or class before its last part, and then that part."""
    module, _, name = path.rpartition(".")
    if path == "helios.errors":
        return import_module(path)
    return getattr(import_module(module), name)


@pytest.mark.parametrize("path", ENTRIES)
def test_each_heading_can_be_imported(path: str) -> None:
    named = found(path)
    if path.count(".") == 1 and path != "helios.errors":
        assert path.split(".")[1] in helios.__all__
    assert [name for name in ENTRIES[path] or () if not hasattr(named, name)] == []


def test_every_public_name_is_there() -> None:
    named = {path.rsplit(".", maxsplit=1)[1] for path in ENTRIES}
    members = {name for names in ENTRIES.values() for name in names or ()}
    assert set(helios.__all__) - named - members == set()


@pytest.mark.parametrize("factory", [Storage, Catalog])
def test_every_storage_and_catalog_is_there(factory: type) -> None:
    made = {name for name, value in vars(factory).items() if isinstance(value, staticmethod)}
    shown = ENTRIES[f"helios.{factory.__name__}"]
    assert made
    assert shown is None or made <= set(shown)
