"""`.with_metadata(...)`: where and when a row came from, stored beside it."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files
from helios.errors import CheckFailed, HeliosError

pytestmark = pytest.mark.promise("where-from")

FIRST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def land(folder: Path, name: str, text: str, at: datetime = FIRST) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (at.timestamp(), at.timestamp()))
    return folder / name


def rows(world: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.load("a.t").iceberg.scan().to_arrow().to_pylist()
    return found


def came_from(world: Any, *names: str) -> list[tuple[Any, ...]]:
    """The rows of the table, by their ids."""
    return sorted(tuple(row[name] for name in ("id", *names)) for row in rows(world))


@pytest.mark.short
def test_a_row_tells_its_file_and_when_it_came(world: Any, forget_commit: Any) -> None:
    folder = world.folder / "in"
    first = land(folder, "a b.csv", "id\n1\n2\n")
    pipeline = Files.source(str(folder), "csv", schema="id bigint").with_metadata(
        "_file", "_modified", "_arrived"
    ).incremental(poll=1) >> world.sink("a.t")
    began = datetime.now(UTC)
    world.run(pipeline)
    second = land(folder, "c.csv", "id\n3\n", FIRST.replace(year=2027))
    between = datetime.now(UTC)
    world.run(pipeline)
    found = came_from(world, "_source_file", "_modified", "_arrived")
    assert [row[1] for row in found] == [first.as_uri(), first.as_uri(), second.as_uri()]
    assert [row[2] for row in found] == [FIRST, FIRST, FIRST.replace(year=2027)]
    assert began <= found[0][3] == found[1][3] <= between <= found[2][3]
    # A batch that is written again says the same of its rows.
    forget_commit(world.checkpoint(pipeline), 1)
    world.run(pipeline)
    assert came_from(world, "_source_file", "_modified", "_arrived") == found


def test_files_of_several_batches_that_are_read_again_keep_their_times(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    source = Files.source(str(folder), "parquet", schema="id bigint").with_metadata("_arrived").incremental(poll=1)
    pipeline = source >> world.sink("a.t")
    for number in range(3):
        pq.write_table(pa.table({"id": [number]}), folder / f"{number}.parquet")
        world.run(pipeline)
    found = came_from(world, "_arrived")
    assert len({at for _, at in found}) == 3
    world.run(pipeline, full_refresh=True)
    assert [row[0] for row in came_from(world, "_arrived")] == [0, 1, 2]


def test_a_new_checkpoint_keeps_when_a_file_came(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "id\n1\n")
    source = Files.source(str(folder), "csv", schema="id bigint").with_metadata("_arrived").incremental(poll=1)
    pipeline = source >> world.sink("a.t")
    world.run(pipeline)
    land(folder, "b.csv", "id\n2\n", FIRST.replace(year=2027))
    world.run(pipeline, new_checkpoint=True)
    found = came_from(world, "_arrived")
    assert [row[0] for row in found] == [1, 2]
    assert found[0][1] < found[1][1]


@pytest.mark.parametrize("format", ["parquet", "json", "text", "orc"])
def test_each_format_tells_it(world: Any, format: str) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    if format == "text":
        land(folder, "a.txt", "7\n")
    elif format == "json":
        land(folder, "a.json", '{"value": "7"}\n')
    elif format == "parquet":
        pq.write_table(pa.table({"value": ["7"]}), folder / "a.parquet")
    else:
        world.spark.sql("SELECT '7' AS value").coalesce(1).write.format(format).save(str(folder / "inner"))
    source = Files.source(str(folder), format, schema="value string").with_metadata("_modified", "_file")
    world.run(source >> world.sink("a.t"))
    [row] = rows(world)
    assert list(row) == ["value", "_modified", "_source_file"]
    assert row["value"] == "7"
    path = Path(row["_source_file"].removeprefix("file://"))
    assert path.is_relative_to(folder)
    assert abs(path.stat().st_mtime - row["_modified"].timestamp()) < 1


def test_rejected_columns_and_rescued_ones_go_beside_it(world: Any) -> None:
    folder = world.folder / "in"
    file = land(folder, "a.csv", "id,more\n1,x\nbad,y\n")
    source = Files.source(str(folder), "csv", schema="id bigint", rescued="_rest").with_metadata("_file")
    world.run(source.on_bad_row("quarantine") >> world.sink("a.t").quarantine("a.q"))
    assert came_from(world, "_rest", "_source_file") == [(1, '{"more":"x"}', file.as_uri())]


def test_a_file_with_a_column_of_that_name_stops_the_run(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "id,_arrived\n1,x\n")
    source = Files.source(str(folder), "csv").with_metadata("_arrived")
    with pytest.raises(HeliosError, match="already has a column '_arrived'") as caught:
        world.run(source >> world.sink("a.t"))
    assert caught.value.fix == 'store the metadata under another name: .with_metadata(arrived_of_file="_arrived").'
    source = Files.source(str(folder), "csv").with_metadata(arrived_of_file="_arrived")
    world.run(source >> world.sink("a.t"))
    assert [list(row) for row in rows(world)] == [["id", "_arrived", "arrived_of_file"]]


def test_check_knows_the_columns(world: Any) -> None:
    source = Files.source(str(world.folder), "csv", schema="id bigint, _arrived date").with_metadata("_arrived")
    with pytest.raises(CheckFailed, match="schema= already has a column '_arrived'"):
        world.plan(source >> world.sink("a.t"))
    source = Files.source(str(world.folder), "csv", schema="id bigint").with_metadata("_file", at="_modified")
    plan = world.plan(source >> world.sink("a.t"))
    assert plan.reads[0].schema.text().split() == ["id", "bigint", "_source_file", "string", "at", "timestamp"]
