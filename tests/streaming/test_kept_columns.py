"""The columns of a followed folder stay from run to run, and a run looks only at files that no batch has read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from helios import Files
from helios.catalog.names import TableName
from helios.errors import RunError
from helios.spark.run.rename_table import rename
from tests.suite.deaths import dies_before_commit

pytestmark = pytest.mark.promise("files")


def land(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    os.utime(folder / name, (1_700_000_000, 1_700_000_000))
    return folder / name


def spoil(file: Path) -> None:
    """Puts bytes that nobody can read in the place of a file's own, with its size and time: who opens it fails."""
    at = file.stat()
    file.write_bytes(b"\0" * at.st_size)
    os.utime(file, ns=(at.st_atime_ns, at.st_mtime_ns))


@pytest.mark.short
def test_types_stay_when_the_files_that_showed_them_are_archived(world: Any) -> None:
    folder = world.folder / "in"
    first = land(folder, "a.csv", "id,code,at\n1,a7,2026-01-01\n2,b8,2026-01-02\n")
    source = Files.source(str(folder), "csv").incremental(poll=1).on_bad_row("quarantine")
    pipeline = source >> world.sink("a.t").quarantine("a.bad")
    world.run(pipeline)
    first.unlink()
    world.run(pipeline)  # an empty folder still has its columns
    land(folder, "b.csv", "id,code,at\n3,77,2026-01-03\nx,88,2026-01-04\n")
    world.run(pipeline)
    # By b.csv alone `id` would be a string and `code` a number.
    assert world.rows("a.t", "id", "code") == {(1, "a7"): 1, (2, "b8"): 1, (3, "77"): 1}
    assert world.rows("a.bad", "pipeline").total() == 1


def test_a_run_opens_no_file_that_a_batch_has_read(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1], "name": ["a"]}), folder / "a.parquet")
    pipeline = Files.source(str(folder), "parquet").incremental(poll=1) >> world.sink("a.t").evolve_schema(
        "add_columns"
    )
    world.run(pipeline)
    spoil(folder / "a.parquet")
    world.run(pipeline)
    pq.write_table(pa.table({"id": [2], "more": [True]}), folder / "b.parquet")
    world.run(pipeline)
    assert world.rows("a.t", "id", "name", "more") == {(1, "a", None): 1, (2, None, True): 1}


def test_types_of_folders_stay_when_they_are_archived(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    first = land(folder / "code=a7", "a.csv", "id\n1\n")
    pipeline = Files.source(str(folder), "csv").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    first.unlink()
    land(folder / "code=7", "b.csv", "id\n2\n")
    world.run(pipeline)
    assert world.rows("a.t", "id", "code") == {(1, "a7"): 1, (2, "7"): 1}


def test_a_full_refresh_forgets_the_columns_of_files_that_are_gone(world: Any) -> None:
    folder = world.folder / "in"
    first = land(folder, "a.csv", "id,former\n1,2\n")
    source = Files.source(str(folder), "csv").incremental(poll=1)
    pipeline = source >> world.sink("a.t")
    kept = world.checkpoint(pipeline) / "helios/files/0.columns.json"
    world.run(pipeline)
    first.unlink()
    land(folder, "b.csv", "id\n2\n")
    world.run(pipeline)
    assert StructType.fromJson(json.loads(kept.read_text())["columns"]).names == ["id", "former"]
    with pytest.raises(
        RunError, match=r"a\.csv was read, and is gone: --full-refresh would empty the target"
    ) as refused:
        world.run(pipeline, full_refresh=True)
    assert 'declare .on_missing("skip")' in str(refused.value)
    assert world.ids("a.t") == [1, 2]
    world.run(source.on_missing("skip") >> world.sink("a.t"), full_refresh=True)
    assert StructType.fromJson(json.loads(kept.read_text())["columns"]).names == ["id"]
    assert world.rows("a.t", "id", "former") == {(2, None): 1}


def test_a_full_refresh_of_a_renamed_table_knows_the_files_that_are_gone(world: Any) -> None:
    folder = world.folder / "in"
    first = land(folder, "a.csv", "id\n1\n")
    source = Files.source(str(folder), "csv").incremental(poll=1)
    world.run(source >> world.sink("a.t"))
    rename(world.spark, *(TableName(world.catalog, ("a",), name) for name in ("t", "u")))
    first.unlink()
    with pytest.raises(RunError, match="could not fill it with their rows"):
        world.run(source >> world.sink("a.u"), full_refresh=True)
    assert world.ids("a.u") == [1]


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_batch_that_died_has_columns_that_no_run_has_read(world: Any, kind: str) -> None:
    folder = world.folder / "in"
    pipeline = Files.source(str(folder), kind).incremental(poll=1) >> world.sink("a.t").evolve_schema("add_columns")

    def rows(*rows: dict[str, Any]) -> str:
        if kind == "json":
            return "".join(f"{json.dumps(row)}\n" for row in rows)
        return "\n".join([",".join(rows[0]), *(",".join(str(v) for v in row.values()) for row in rows)]) + "\n"

    land(folder, f"a.{kind}", rows({"id": 1}))
    world.run(pipeline)
    land(folder, f"b.{kind}", rows({"id": 2, "more": "x"}))
    with dies_before_commit():
        world.run(pipeline)
    world.run(pipeline)
    assert world.rows("a.t", "id", "more") == {(1, None): 1, (2, "x"): 1}


def test_columns_are_looked_at_anew_when_files_are_read_another_way(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "id;name\n1;a\n")
    source = Files.source(str(folder), "csv").incremental(poll=1)
    world.run(source.option(sep=";") >> world.sink("a.t"))
    land(folder, "b.csv", "id,name\n2,b\n")
    (folder / "a.csv").unlink()
    world.run(source >> world.sink("a.t"))
    assert world.rows("a.t", "id", "name") == {(1, "a"): 1, (2, "b"): 1}
