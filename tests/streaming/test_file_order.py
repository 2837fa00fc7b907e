"""Of two rows of a key with one order, the one that stands later in the files wins an upsert."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files, Memory, where

pytestmark = [pytest.mark.promise("upsert"), pytest.mark.sampled(2)]

OLD = 1_700_000_000
SCHEMA = "id bigint, v string, o bigint"
Row = dict[str, Any]


def write(path: Path, rows: list[Row], at: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".csv":
        path.write_text("id,v,o\n" + "".join(f"{r['id']},{r['v']},{r['o']}\n" for r in rows))
    elif path.suffix == ".json":
        path.write_text("".join(f'{{"id":{r["id"]},"v":"{r["v"]}","o":{r["o"]}}}\n' for r in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    os.utime(path, (OLD + at, OLD + at))


def newest(world: Any, source: Any, rows: list[Row]) -> None:
    world.run(source >> where("id >= 0") >> world.sink("a.t").upsert("id", order_by="o"))
    assert world.rows("a.t", "id", "v") == dict.fromkeys({r["id"]: r["v"] for r in rows}.items(), 1)


def tied(count: int, keys: int) -> list[Row]:
    """Rows of one order; the values of a key rise and fall, so that no order of them is that of the rows."""
    return [{"id": i % keys, "v": f"{(i * 7919) % 1000:03d}", "o": 5} for i in range(count)]


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
@pytest.mark.parametrize("bad", ["fail", "quarantine"])
@pytest.mark.cases(landing="fail-csv")
def test_the_later_row_of_a_file_wins(world: Any, kind: str, bad: Any) -> None:
    rows = tied(60, 20)
    for number, these in enumerate((rows, rows[::-1])):
        folder = world.folder / f"in{number}"
        write(folder / f"a.{kind}", these)
        source = Files.source(str(folder), kind, schema=SCHEMA).on_bad_row(bad).incremental()
        sink = world.sink(f"a.t{number}").upsert("id", order_by="o").quarantine("a.q")
        world.run(source >> sink)
        wanted = {row["id"]: row["v"] for row in these}
        assert world.rows(f"a.t{number}", "id", "v") == dict.fromkeys(wanted.items(), 1)


def test_files_that_are_read_once_and_a_table(world: Any) -> None:
    rows = tied(60, 20)
    write(world.folder / "in" / "a.csv", rows)
    source = Files.source(str(world.folder / "in"), "csv", schema=SCHEMA)
    newest(world, source, rows)
    world.run(source >> world.sink("a.s"))
    world.run(world.source("a.s") >> world.sink("a.u").upsert("id", order_by="o"))
    assert world.rows("a.u") == world.rows("a.t")


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_file_that_is_cut_into_parts(world: Any, kind: str) -> None:
    for key, value in {"maxPartitionBytes": "200", "openCostInBytes": "0", "minPartitionNum": "1"}.items():
        world.spark.conf.set(f"spark.sql.files.{key}", value)
    rows = tied(300, 40)
    write(world.folder / "in" / f"a.{kind}", rows)
    newest(world, Files.source(str(world.folder / "in"), kind, schema=SCHEMA).incremental(), rows)


def test_the_later_file_wins_whatever_its_name_and_size(world: Any) -> None:
    first, last = tied(40, 20), [{**row, "v": f"last {row['v']}"} for row in tied(15, 15)]
    write(world.folder / "in" / "z.csv", first)
    write(world.folder / "in" / "a.csv", last, at=60)
    newest(world, Files.source(str(world.folder / "in"), "csv", schema=SCHEMA).incremental(), first + last)


def test_the_later_record_of_a_whole_file_wins(world: Any) -> None:
    rows = tied(30, 10)
    write(world.folder / "in" / "a.csv", rows)
    source = Files.source(str(world.folder / "in"), "csv", schema=SCHEMA).option(multiLine=True)
    newest(world, source.incremental(), rows)


def test_the_later_value_of_a_json_array_wins(world: Any) -> None:
    rows = tied(30, 10)
    (world.folder / "in").mkdir()
    values = ",".join(f'{{"id":{r["id"]},"v":"{r["v"]}","o":{r["o"]}}}' for r in rows)
    (world.folder / "in" / "a.json").write_text(f"[{values}]\n")
    os.utime(world.folder / "in" / "a.json", (OLD, OLD))
    newest(world, Files.source(str(world.folder / "in"), "json", schema=SCHEMA).incremental(), rows)


def test_the_later_row_of_a_list_wins(world: Any) -> None:
    rows = tied(60, 20)
    newest(world, Memory.source(rows), rows)
