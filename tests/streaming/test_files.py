"""Folders of files, once and followed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files, where, with_columns
from helios.errors import CheckFailed, NotFound

pytestmark = pytest.mark.promise("files")


def land(folder: Path, name: str, text: str, order: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode())
    os.utime(folder / name, (1_700_000_000 + order, 1_700_000_000 + order))


@pytest.mark.short
def test_a_followed_folder_of_csv_with_windows_line_endings(world: Any) -> None:
    folder = world.folder / "in box"
    land(folder, "a.csv", "id,name\r\n1,one\r\n2,\r\n", 0)
    pipeline = (
        Files.source(str(folder), "csv", schema="id bigint, name string").incremental(poll=1, max_files=1)
        >> with_columns(twice="id * 2")
        >> world.sink("a.t")
    )
    world.run(pipeline)
    land(folder, "b.csv", "id,name\r\n3,three\r\n", 1)
    land(folder, "c.csv", "id,name\r\n4,four\r\n", 2)
    world.run(pipeline)
    world.run(pipeline)
    expected = {(1, "one", 2): 1, (2, None, 4): 1, (3, "three", 6): 1, (4, "four", 8): 1}
    assert world.rows("a.t", "id", "name", "twice") == expected
    assert world.kinds().count("batch") == 3


@pytest.mark.parametrize("commit", [0, 1])
@pytest.mark.cases(short="1")
def test_a_replayed_batch_of_files_adds_nothing(world: Any, commit: int, forget_commit: Any) -> None:
    folder = world.folder / "in"
    pipeline = Files.source(str(folder), "csv", schema="id bigint").incremental(poll=1) >> world.sink("a.t")
    land(folder, "a.csv", "id\n1\n", 0)
    world.run(pipeline)
    land(folder, "b.csv", "id\n2\n", 1)
    world.run(pipeline)
    for batch in range(commit, 2):
        forget_commit(world.checkpoint(pipeline), batch)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]


@pytest.mark.short
def test_parquet_tells_its_own_schema_and_json_is_inferred(world: Any) -> None:
    (world.folder / "pq").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), world.folder / "pq" / "x.parquet")
    source = Files.source(str(world.folder / "pq"), "parquet")
    assert source.schema().names == ("id", "name")
    world.run(source >> where("id > 1") >> world.sink("a.p"))
    assert world.rows("a.p", "id", "name") == {(2, "b"): 1}
    land(world.folder / "js", "x.json", "\n".join(json.dumps({"id": i, "deep": {"x": i}}) for i in range(3)), 0)
    js = Files.source(str(world.folder / "js"), "json")
    assert js.schema() is None
    world.run(js >> with_columns(x="deep.x") >> world.sink("a.j"))
    assert world.rows("a.j", "id", "x") == {(i, i): 1 for i in range(3)}


def test_a_batch_of_files_runs_again_only_when_they_changed(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "id\n1\n", 0)
    pipeline = Files.source(str(folder), "csv", schema="id bigint") >> world.sink("a.t")
    world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [1]
    land(folder, "a.csv", "id\n7\n", 5)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 7]


def test_a_missing_path_says_so(world: Any) -> None:
    pipeline = Files.source(str(world.folder / "nope"), "csv") >> world.sink("a.t")
    with pytest.raises(NotFound, match=r"test_files\.py:\d+: Files\.source\(.*nope.*Fix: check the path"):
        world.run(pipeline)


def test_rows_cannot_bound_files(world: Any) -> None:
    source = Files.source(str(world.folder), "csv", schema="id bigint").incremental()
    with pytest.raises(CheckFailed, match=r"flush\(rows=\) cannot bound Files\.source"):
        world.run(source >> world.sink("a.t").flush(rows=10))


def test_rows_bound_the_batches_of_a_table(world: Any) -> None:
    for begin in range(0, 40, 10):
        world.fill("a.s", range(begin, begin + 10))
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").flush(rows=10)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(40))
    assert world.kinds().count("batch") == 4
    world.fill("a.s", range(40, 45))
    world.run(pipeline)
    assert world.ids("a.t") == list(range(45))


def test_rows_bound_the_state_of_a_table_whose_history_is_partial(world: Any) -> None:
    world.fill("a.s", range(10))
    world.fill("a.s", range(10, 20))
    world.expire("a.s")
    world.run(world.source("a.s").incremental(poll=1) >> world.sink("a.t").flush(rows=10))
    assert world.ids("a.t") == list(range(20))
    assert world.kinds().count("batch") == 2
