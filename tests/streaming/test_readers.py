"""Tables with deletion vectors, as upserts leave them, read by whoever else reads tables of this catalog."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest
from click.testing import CliRunner

from helios import Catalog, Memory
from helios.cli import main

pytestmark = [pytest.mark.promise("readers"), pytest.mark.sampled(2)]

UPSERT: dict[str, Any] = {"order_by": "n", "delete_when": "gone"}
ROWS = 600


def batches() -> list[list[dict[str, Any]]]:
    """Rows of three parts; every seventh one newer and every fiftieth gone; another change of the same files."""
    first = [{"id": i, "part": i % 3, "n": 0, "gone": False} for i in range(ROWS)]
    second = [{"id": i, "part": i % 3, "n": 1, "gone": i % 50 == 0} for i in range(ROWS) if i % 7 == 0 or i % 50 == 0]
    third = [{"id": i, "part": i % 3, "n": 2, "gone": i % 55 == 0} for i in range(0, ROWS, 11)]
    return [first, second, third]


def expected() -> Counter[tuple[int, int]]:
    kept: dict[int, tuple[int, bool]] = {}
    for batch in batches():
        kept |= {row["id"]: (row["n"], row["gone"]) for row in batch}
    return Counter((key, n) for key, (n, gone) in kept.items() if not gone)


def upserted(world: Any, sink: Any) -> None:
    for number, rows in enumerate(batches()):
        before = ["first", *(f"p{n}" for n in range(number))]  # deletes nothing that one of those writes later
        world.run((Memory.source(rows) >> sink).named(f"p{number}"), beside=before)


def stored(sink: Any, catalog: Catalog, world: Any) -> Any:
    """A sink whose table stores the order, so that readers can tell an older row from a newer one."""
    world.run((Memory.source([{"id": -1, "part": 0, "n": 0}]) >> sink.upsert("id")).named("first"))
    return sink.upsert("id", **UPSERT)


def pyiceberg(table: Any) -> Counter[tuple[int, int]]:
    found = table.scan(selected_fields=("id", "n")).to_arrow()
    return Counter(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def by_duckdb(table: Any) -> Counter[tuple[int, int]]:
    return Counter(table.scan().to_duckdb("t").sql("SELECT id, n FROM t").fetchall())


def by_polars(reader: Any) -> Any:
    return lambda table: Counter(
        polars.scan_iceberg(table, reader_override=reader).select("id", "n").collect().iter_rows()
    )


READERS = {
    "pyiceberg": pyiceberg,
    "duckdb": by_duckdb,
    "polars": by_polars(None),
    "polars-native": by_polars("native"),
    "polars-pyiceberg": by_polars("pyiceberg"),
}


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.cases(short="plain")
def test_what_an_upsert_deleted_is_shown_by_no_reader(
    world: Any, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own planner is another package
    sink = world.sink("a.t").partition_by("part") if partitioned else world.sink("a.t")
    upserted(world, stored(sink, world.catalog, world))
    table = world.load("a.t")
    assert table.iceberg.metadata.format_version == 3
    assert sum(int(s.summary.get("added-dvs", 0)) for s in table.snapshots()) >= 2
    right = expected() + Counter({(-1, 0): 1})
    for name, read in READERS.items():
        assert read(table.iceberg) == right, name
    assert table.iceberg.scan().count() == right.total()
    assert polars.scan_iceberg(table.iceberg).select(polars.len()).collect().item() == right.total()

    # Whoever opens the data files around the metadata sees what was deleted, as on v2.
    files = [f["file_path"].removeprefix("file:") for f in table.iceberg.inspect.data_files().to_pylist()]
    data = [name for name in files if name.endswith(".parquet")]
    assert duckdb.connect().read_parquet(data).count("*").fetchall() != [(right.total(),)]

    world.compact("a.t")
    table = world.load("a.t")
    for name, read in READERS.items():
        assert read(table.iceberg) == right, f"{name} after a compaction"


@pytest.mark.parametrize(
    ("declare", "version"),
    [
        (lambda s: s.upsert("id", **UPSERT), 3),
        (lambda s: s.upsert("id", order_by="n", history=True), 3),
        (lambda s: s.upsert("id", **UPSERT).format_version(2), 2),
        (lambda s: s.upsert("id", **UPSERT).table_properties({"format-version": "2"}), 2),
        (lambda s: s.upsert("id", **UPSERT).audit({"some": "count(*) > 0"}).publish(), 3),
        (lambda s: s.upsert("id", **UPSERT).branch("b"), 3),
        (lambda s: s.append(), 2),
        (lambda s: s.overwrite("n >= 0"), 2),
    ],
    ids=["upsert", "history", "v2", "v2-property", "audit", "branch", "append", "overwrite"],
)
def test_the_format_of_a_new_table(world: Any, declare: Any, version: int) -> None:
    sink = declare(world.sink("a.t"))
    (first, second, _) = batches()
    world.run((Memory.source(first) >> sink).named("p"))
    world.run((Memory.source(second) >> sink).named("p"))
    assert world.load("a.t").iceberg.metadata.format_version == version


def test_routed_tables_and_deletes_that_follow(world: Any) -> None:
    """New tables are v3, a table that is there stays v2, and a delete keeps what it finds."""
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.t_0 (id bigint, part bigint, n bigint) USING iceberg")
    (first, second, _) = batches()
    sink = world.sink("a.t").upsert("id", **UPSERT).route(by="part")
    world.run((Memory.source(first) >> sink).named("p"))
    world.run((Memory.source(second) >> sink).named("q"))
    versions = {part: world.load(f"a.t_{part}").iceberg.metadata.format_version for part in range(3)}
    assert versions == {0: 2, 1: 3, 2: 3}
    assert sum(len(world.ids(f"a.t_{part}")) for part in range(3)) == ROWS - 12
    world.run((Memory.source([{"id": 1}, {"id": 4}]) >> world.sink("a.t_1").delete("id")).named("erase"))
    assert not {1, 4} & set(world.ids("a.t_1"))
    assert world.load("a.t_1").iceberg.metadata.format_version == 3


def test_an_existing_table_is_not_upgraded(world: Any) -> None:
    (first, second, third) = batches()
    world.run((Memory.source(first) >> world.sink("a.t").upsert("id", **UPSERT).format_version(2)).named("p"))
    for rows in (second, third):
        world.run((Memory.source(rows) >> world.sink("a.t").upsert("id", **UPSERT)).named("p"))
    table = world.load("a.t")
    assert table.iceberg.metadata.format_version == 2
    assert "added-dvs" not in {key for s in table.snapshots() for key in s.summary}
    assert set(world.ids("a.t")) == {key for key, _ in expected()}


def test_commands_without_a_jvm_read_such_a_table(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    upserted(world, world.sink("a.t").upsert("id", **UPSERT))
    monkeypatch.chdir(world.folder)
    script = Path("script.py")
    script.write_text(
        "from helios import Catalog, Iceberg\n"
        'catalog = Catalog.local(path=".helios")\n'
        'copied = Iceberg.source("a.t") >> Iceberg.sink("a.copy")\n'
        'newest = Iceberg.source("a.t") >> Iceberg.sink("a.newest").upsert("id", order_by="part")\n'
    )

    def said(*arguments: str) -> Any:
        done = CliRunner().invoke(main, [*arguments, "--json"])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    said("check", "script.py")
    _, newest = said("plan", "script.py")
    assert newest["sources"][0]["format_version"] == newest["target"]["format_version"] == 3
    assert "PyIceberg before 0.10" in newest["target"]["unreadable_by"]
    assert said("schema", "a.t")["format_version"] == 3
    assert len(said("snapshots", "a.t")) == 3
    assert [row["table"] for row in said("tables")] == ["a.t"]
    told = said("status")
    assert {row["pipeline"] for row in told} == {"p0", "p1", "p2"}
    table = world.load("a.t")
    assert table.current_snapshot().id == table.snapshots()[-1].id
