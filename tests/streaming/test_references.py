"""The short forms of the commands in `perf/` that compare with a reference."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PERF = Path(__file__).parents[2] / "perf"


def command(name: str) -> ModuleType:
    """A command of `perf/` as a module; its pipelines then use the session of the tests."""
    spec = importlib.util.spec_from_file_location(f"perf_{name}", PERF / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("stores_order", "version", "mode"),
    [(False, 2, "merge-on-read"), (True, 3, "merge-on-read"), (True, 2, "copy-on-write")],
)
def test_an_upsert_equals_pandas(world: Any, stores_order: bool, version: int, mode: str) -> None:
    given = Namespace(
        keys=2000, batches=3, share=0.05, stores_order=stores_order, format_version=version, write_mode=mode, seed=3
    )
    assert command("upsert_reference").compare(world.catalog, given, world.spark) == 0


@pytest.mark.parametrize("seed", [1, 6])
def test_evolving_columns_equal_the_reference(world: Any, seed: int) -> None:
    given = Namespace(batches=9, rows=8, seed=seed)
    assert command("evolving").compare(world.catalog, given, world.spark) == 0


def test_readers_of_a_table_under_upkeep(world: Any) -> None:
    given = Namespace(commits=20, rows=20, seed=3)
    assert command("follow").compare(world.catalog, given, world.spark) == 0


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
def test_a_view_equals_the_recompute(world: Any, version: int, mode: str) -> None:
    given = Namespace(changes=6, format_version=version, write_mode=mode, seed=version)
    assert command("views").compare(world.catalog, given, world.spark) == 0
