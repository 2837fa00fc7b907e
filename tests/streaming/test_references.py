"""The short forms of the commands in `perf/` that compare with a reference."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

pytestmark = pytest.mark.promise("views")


@pytest.mark.parametrize(
    ("stores_order", "version", "mode"),
    [(False, 2, "merge-on-read"), (True, 3, "merge-on-read"), (True, 2, "copy-on-write")],
)
def test_an_upsert_equals_pandas(world: Any, command: Any, stores_order: bool, version: int, mode: str) -> None:
    given = Namespace(
        keys=2000, batches=3, share=0.05, stores_order=stores_order, format_version=version, write_mode=mode, seed=3
    )
    assert command("upsert_reference").compare(world.catalog, given, world.spark) == 0


@pytest.mark.parametrize("seed", [1, 6])
def test_evolving_columns_equal_the_reference(world: Any, command: Any, seed: int) -> None:
    given = Namespace(batches=9, rows=8, seed=seed)
    assert command("evolving").compare(world.catalog, given, world.spark) == 0


@pytest.mark.slow
def test_readers_of_a_table_under_upkeep(world: Any, command: Any) -> None:
    given = Namespace(commits=20, rows=20, seed=3)
    assert command("follow").compare(world.catalog, given, world.spark) == 0


@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
@pytest.mark.cases(slow="2-copy-on-write")
def test_a_view_equals_the_recompute(world: Any, command: Any, version: int, mode: str) -> None:
    given = Namespace(changes=6, format_version=version, write_mode=mode, seed=version)
    assert command("views").compare(world.catalog, given, world.spark) == 0
