"""Folders that other systems write: tables with a log of their own, values that are not clear, nulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files, expect
from helios.errors import HeliosError, InputError

pytestmark = pytest.mark.promise("bad-sources")


def written(folder: Path, ids: list[int | None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), folder / "x.parquet")


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize(("log", "name"), [("_delta_log", "Delta Lake"), (".hoodie", "Hudi")])
def test_the_folder_of_a_table_is_refused(world: Any, tmp_path: Path, log: str, name: str, follows: bool) -> None:
    written(tmp_path / "in", [1])
    (tmp_path / "in" / log).mkdir()
    source = Files.source(tmp_path / "in", "parquet")
    with pytest.raises(InputError, match=f"is a table of {name}: its folder also has files"):
        world.run((source.incremental(poll=1) if follows else source) >> world.sink("a.t"))


def test_a_folder_without_a_value_is_refused(world: Any, tmp_path: Path) -> None:
    written(tmp_path / "in" / "k=", [1])
    written(tmp_path / "in" / "k=x", [2])
    with pytest.raises(InputError, match="k=/ gives no value"):
        world.run(Files.source(tmp_path / "in", "parquet") >> world.sink("a.t"))
    (tmp_path / "in" / "k=").rename(tmp_path / "in" / "k=__HIVE_DEFAULT_PARTITION__")
    world.run(Files.source(tmp_path / "in", "parquet") >> world.sink("a.t"))
    assert dict(world.rows("a.t", "id", "k").keys()) == {1: None, 2: "x"}


def test_a_schema_without_nulls_is_refused_and_its_fix_looks_at_them(world: Any, tmp_path: Path) -> None:
    written(tmp_path / "in", [1, None])
    with pytest.raises(HeliosError, match="must not be null") as refused:
        world.plan(Files.source(tmp_path / "in", "parquet", schema="id bigint NOT NULL") >> world.sink("a.t"))
    assert 'expect({"id is there": "id IS NOT NULL"}, on_fail="quarantine")' in str(refused.value)
    looked = expect({"id is there": "id IS NOT NULL"}, on_fail="quarantine")
    source = Files.source(tmp_path / "in", "parquet", schema="id bigint")
    world.run(source >> looked >> world.sink("a.t").quarantine("local.a.bad"))
    assert world.ids("a.t") == [1]
    assert sum(world.rows("a.bad", "payload").values()) == 1
