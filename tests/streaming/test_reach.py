"""What an upsert and a delete read of their target: files that hold no key of the batch are not opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helios.errors import RunError

pytestmark = pytest.mark.promise("reach")

KEYS = {
    "bigint": "id",
    "string": "lpad(CAST(id AS string), 4, '0')",
    "date": "date_add(DATE '2026-01-01', CAST(id AS int))",
    "timestamp": "timestamp_micros(id * 1000001)",
    "decimal": "CAST(id / 10 AS decimal(9,2))",
}
"""By type: a key of which a larger id has a larger one."""


def files(world: Any) -> set[str]:
    return {row["file_path"] for row in world.catalog.load("a.t").iceberg.inspect.data_files().to_pylist()}


def two_files(world: Any, **columns: str) -> str:
    """Fills the target with ids 0 to 9 and 100 to 109, each in a file, takes the second away, and returns its name."""
    world.fill("a.t", range(10), v="'old'", **columns)
    first = files(world)
    world.fill("a.t", range(100, 110), v="'old'", **columns)
    (second,) = files(world) - first
    Path(second.removeprefix("file:")).unlink()
    return second


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.cases(landing="bigint-merge-on-read")
def test_a_file_without_the_keys_of_a_batch_is_not_opened(world: Any, kind: str, mode: str) -> None:
    second = two_files(world, k=KEYS[kind])
    world.fill("a.s", [3, 20], k=KEYS[kind], v="'new'")
    world.run(world.source("a.s") >> world.sink("a.t").upsert("k").write_mode(mode))
    assert second in files(world)
    scan = world.catalog.load("a.t").iceberg.scan(row_filter="id < 100").to_arrow()
    found = dict(zip(scan["id"].to_pylist(), scan["v"].to_pylist(), strict=True))
    assert found == {**dict.fromkeys(range(10), "old"), 3: "new", 20: "new"}


@pytest.mark.short
def test_a_delete_opens_only_the_files_of_its_keys(world: Any) -> None:
    second = two_files(world)
    world.fill("a.s", [3, 5])
    world.run(world.source("a.s") >> world.sink("a.t").delete("id"))
    assert second in files(world)
    ids = world.catalog.load("a.t").iceberg.scan(row_filter="id < 100").to_arrow()["id"].to_pylist()
    assert sorted(ids) == [0, 1, 2, 4, 6, 7, 8, 9]


def test_versions_open_only_the_files_of_their_keys(world: Any) -> None:
    second = two_files(world, valid_from="CAST(1 AS int)", valid_to="CAST(NULL AS int)")
    world.fill("a.s", [3], v="'new'", at="CAST(2 AS int)")
    sink = world.sink("a.t").upsert("id", order_by="at", history=True)
    world.run(world.source("a.s") >> sink)
    assert second in files(world)
    scan = world.catalog.load("a.t").iceberg.scan(row_filter="id = 3").to_arrow().to_pylist()
    assert sorted((row["valid_from"], row["valid_to"], row["v"]) for row in scan) == [(1, 2, "old"), (2, None, "new")]


def test_several_keys_whatever_their_case_and_a_narrower_type(world: Any) -> None:
    world.fill("a.t", range(4), day="date_add(DATE '2026-01-01', CAST(id % 2 AS int))", v="'old'")
    world.sql("CREATE TABLE local.a.s (ID int, Day date, v string) USING iceberg")
    world.sql("INSERT INTO local.a.s VALUES (1, DATE '2026-01-02', 'new'), (2, DATE '2026-01-02', 'new')")
    world.run(world.source("a.s") >> world.sink("a.t").upsert("iD", "dAY"))
    found = world.rows("a.t", "id", "v")
    assert found == {(0, "old"): 1, (1, "new"): 1, (2, "old"): 1, (2, "new"): 1, (3, "old"): 1}


def test_a_null_key_is_named_whatever_its_case(world: Any) -> None:
    world.fill("a.s", [1, 2], K="nullif(id, 2)")
    with pytest.raises(RunError, match=r"null key: k is null in .*id=2"):
        world.run(world.source("a.s") >> world.sink("a.t").upsert("k"))


def test_twice_the_same_key_is_refused_before_the_table_changes(world: Any) -> None:
    world.fill("a.t", [1])
    world.fill("a.s", [1, 7, 7], extra="1")
    with pytest.raises(RunError, match=r"2 rows of the batch for .* have the key id=7"):
        world.run(world.source("a.s") >> world.sink("a.t").upsert("id"))
    assert [field.name for field in world.catalog.load("a.t").iceberg.schema().fields] == ["id"]
