"""Folders of parquet files through the columnar engine: Spark's rows, and every check of the files source."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helios import Files, where, with_columns
from tests.streaming.native_cases import ARROW, KINDS, failures, rows_of, scanned, set_engine, told, value

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]

EARLIER = {"bigint": "int", "double": "float", "decimal(38,10)": "decimal(28,10)"}
"""Types that files had before they were widened."""


def drawn(random: Random, kinds: list[str], folder: Path) -> None:
    """Files with the columns in an order of their own, some in a narrower type, some not there."""
    folder.mkdir()
    for number in range(random.randint(1, 4)):
        columns = {}
        for i, kind in random.sample(list(enumerate(kinds)), len(kinds)):
            if i and number and random.random() < 0.2:
                continue
            made = EARLIER.get(kind, kind) if number and random.random() < 0.5 else kind
            drawn_of = "int" if made.startswith("decimal(28") else made
            values = [value(random, drawn_of) for _ in range(20)]
            name = f"C{i}" if random.random() < 0.2 else f"c{i}"
            columns[name] = pa.array(values, ARROW.get(made, pa.decimal128(28, 10)))
        pq.write_table(pa.table(columns), folder / f"{number} ä%.parquet", row_group_size=random.choice((7, 100)))


@pytest.mark.parametrize("seed", range(4))
def test_files_are_read_as_by_spark(world: Any, seed: int) -> None:
    random = Random(seed)
    kinds = [random.choice(KINDS) for _ in range(random.randint(2, 6))]
    drawn(random, kinds, world.folder / "in")
    source = Files.source(str(world.folder / "in"), "parquet", ", ".join(f"c{i} {k}" for i, k in enumerate(kinds)))
    for setting in ("require", "off"):
        set_engine(world, setting)
        pipeline = source >> where("c0 IS NOT NULL OR true") >> with_columns(one="1") >> world.sink(f"a.{setting}")
        world.run(pipeline)
    assert rows_of(scanned(world, "a.require")) == rows_of(scanned(world, "a.off")), kinds


def test_columns_that_are_not_declared_are_those_of_the_files(world: Any) -> None:
    inbox = world.folder / "in"
    inbox.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", None]}), inbox / "a.parquet")
    pipeline = Files.source(str(inbox), "parquet") >> where("name IS NULL") >> world.sink("a.t")
    set_engine(world, "require")
    world.run(pipeline)
    assert world.rows("a.t") == {(2, None): 1}
    pq.write_table(pa.table({"id": pa.array([3], pa.int32())}), inbox / "b.parquet")
    set_engine(world, "auto")
    plan = world.plan(pipeline)
    assert str(plan.engine) == "spark, because the types of the source's columns are known only at run"


@pytest.mark.landing
def test_a_followed_folder_is_read_once(world: Any) -> None:
    set_engine(world, "require")
    inbox = world.folder / "in"
    inbox.mkdir()
    source = Files.source(str(inbox), schema="id bigint, name string", format="parquet").incremental(poll=1)
    pipeline = source >> where("id > 0") >> world.sink("a.t")
    assert "\n  engine    native\n" in str(world.plan(pipeline))
    for number in (1, 2):
        pq.write_table(pa.table({"id": pa.array([number, -number])}), inbox / f"{number}.parquet")
        world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [1, 2]
    assert told(world) == []


def damaged(path: Path) -> None:
    """Takes the values of the first column away, and leaves the footer as it is."""
    at = pq.read_metadata(path).row_group(0).column(0).data_page_offset
    raw = bytearray(path.read_bytes())
    raw[at : at + 60] = b"\xff" * 60
    path.write_bytes(raw)


@pytest.mark.parametrize("case", ["type", "extra", "damaged", "truncated"])
def test_what_stops_the_run_is_told_as_by_spark(world: Any, case: str) -> None:
    inbox = world.folder / "in"
    inbox.mkdir()
    pq.write_table(pa.table({"id": pa.array(range(1000))}), inbox / "a.parquet", use_dictionary=False)
    bad = inbox / "b.parquet"
    rows: dict[str, Any] = {"id": ["a", "b"] if case == "type" else [1, 2]}
    pq.write_table(pa.table(rows | ({"x": [1, 2]} if case == "extra" else {})), bad)
    if case == "damaged":
        damaged(inbox / "a.parquet")
    if case == "truncated":
        bad.write_bytes(bad.read_bytes()[:-20])
    off, auto = failures(world, Files.source(str(inbox), "parquet", "id bigint"))
    assert off == auto


@pytest.mark.parametrize(
    ("kind", "declared", "reason"),
    [
        (pa.int64(), "int", "a file has the column id as bigint, and not as int"),
        (pa.timestamp("ns"), "timestamp_ntz", "a file has the column id as timestamp_ntz"),
    ],
)
def test_values_that_may_not_fit_are_left_to_spark(world: Any, kind: Any, declared: str, reason: str) -> None:
    set_engine(world, "auto")
    inbox = world.folder / "in"
    inbox.mkdir()
    pq.write_table(pa.table({"id": pa.array([1000, 2000], kind)}), inbox / "a.parquet")
    world.run(Files.source(str(inbox), "parquet", f"id {declared}") >> world.sink("a.t"))
    (message,) = told(world)
    assert message.startswith(f"engine spark, because {reason}")
    assert sum(world.rows("a.t").values()) == 2


def test_columns_of_folders_and_other_formats_are_left_to_spark(world: Any) -> None:
    set_engine(world, "auto")
    inbox = world.folder / "in" / "day=1"
    inbox.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), inbox / "a.parquet")
    world.run(Files.source(str(inbox.parent), "parquet", "id bigint, day int") >> world.sink("a.t"))
    assert told(world) == ["engine spark, because the folders have the column day"]
    assert world.rows("a.t") == {(1, 1): 1, (2, 1): 1}
    plan = world.plan(Files.source(str(inbox), "orc", "id bigint") >> world.sink("a.u"))
    assert str(plan.engine) == "spark, because it reads orc"
