"""Upserts by the columnar engine beside Spark's MERGE: the same rows to the bit, with the same ids."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
import pytest

from helios.errors import HeliosError
from helios.spark.iceberg.transaction import Transaction
from tests.streaming.native_cases import ARROW, KINDS, fill, rows_of, set_engine, told, value

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]

CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of the long form, whose first seed is NATIVE_SEED."""
KEYS = ("int", "bigint", "string", "date", "timestamp", "timestamp_ntz", "decimal(9,2)", "decimal(38,10)")
ENGINES = {"native": "require", "spark": "off"}


# drawn upserts


class Case:
    """A table, and batches that are upserted into it by both engines.

    Args:
        world: The tests' world.
        seed: What draws.
    """

    def __init__(self, world: Any, seed: int) -> None:
        self.world, self.seed = world, seed
        self.random = random = Random(seed)
        keys = [random.choice(KEYS) for _ in range(random.choice((1, 1, 2)))]
        self.keys = [f"k{i}" for i in range(len(keys))]
        self.order = random.choice((None, "int", "string", "timestamp", "decimal(18,6)", "date", "bigint"))
        kinds = {**dict(zip(self.keys, keys, strict=True)), "d": "timestamp"}
        kinds |= {f"c{i}": random.choice(KINDS) for i in range(random.randint(0, 3))}
        self.kinds = kinds | ({"o": self.order} if self.order else {})
        self.evolves = random.random() < 0.25
        pool = {tuple(self._key(kind) for kind in keys) for _ in range(60)}
        self.pool = sorted(pool, key=repr)

    def _key(self, kind: str) -> Any:
        while (found := value(self.random, kind)) is None:
            pass
        return found

    def batch(self, count: int) -> pa.Table:
        """Rows with drawn keys; without an order each key once."""
        random = self.random
        keys = random.sample(self.pool, min(count, len(self.pool)))
        if self.order is not None:
            keys += random.choices(self.pool, k=count // 2)
        rows = []
        for key in keys:
            row = dict(zip(self.keys, key, strict=True))
            row |= {name: value(random, kind) for name, kind in self.kinds.items() if name not in self.keys}
            row["d"] = random.choice((0, 86_400_000_000, None))
            if self.order is not None and self.order != "string":
                row["o"] = random.choice((None, *(_small(n, self.order) for n in range(4))))
            rows.append(row)
        columns = {name: pa.array([r[name] for r in rows], ARROW[kind]) for name, kind in self.kinds.items()}
        return pa.table(columns)

    def distinct(self, rows: pa.Table) -> int:
        """How many of the first rows have each a key of its own."""
        seen = [tuple(row[key] for key in self.keys) for row in rows.to_pylist()]
        return next((i for i, key in enumerate(seen) if key in seen[:i]), len(seen))

    def create(self, name: str, rows: pa.Table, spec: str | None) -> None:
        frame = self.world.spark.createDataFrame(rows)
        columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema)
        self.world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
        self.world.sql(
            f"CREATE TABLE local.a.{name} ({columns}) USING iceberg {f'PARTITIONED BY ({spec})' if spec else ''} "
            "TBLPROPERTIES ('format-version' = '3', 'write.merge.mode' = 'merge-on-read', "
            "'write.delete.mode' = 'merge-on-read')"
        )
        if len(rows):
            half = len(rows) // 2
            for part in (rows.slice(0, half), rows.slice(half)):
                if len(part):
                    self.world.spark.createDataFrame(part).repartition(2, self.keys[0]).writeTo(
                        f"local.a.{name}"
                    ).append()
            self.world.sql(
                f"DELETE FROM local.a.{name} WHERE {self.keys[0]} IN (SELECT max({self.keys[0]}) FROM local.a.{name})"
            )
        if self.evolves:  # the files that are there keep their partitioning
            self.world.sql(f"ALTER TABLE local.a.{name} ADD PARTITION FIELD bucket(2, {self.keys[-1]})")

    def spec(self) -> str | None:
        kind = self.kinds["k0"].partition("(")[0]
        allowed = [None, "days(d)", *([] if self.evolves else ["bucket(3, k0)"])]
        allowed += ["truncate(2, k0)"] if kind in ("int", "bigint", "string") else []
        allowed += ["o"] if self.order in ("int", "date", "bigint") else []
        return self.random.choice(allowed)

    def differs(self) -> str | None:
        """What is different after the batches; None if nothing is."""
        world, spec, start = self.world, self.spec(), self.batch(self.random.choice((0, 20, 40)))
        start = start.slice(0, self.distinct(start))
        names = {engine: f"{engine}{self.seed}" for engine in ENGINES}
        for name in names.values():
            self.create(name, start, spec)
        said = f"seed {self.seed}: {self.kinds} by {self.keys}, {self.order}, partitioned by {spec}"
        batches = [self.batch(self.random.choice((1, 10, 40))) for _ in range(2)]
        fill(world, f"a.s{self.seed}", batches[0])
        for number, batch in enumerate(batches):
            if number:
                world.spark.createDataFrame(batch).repartition(2).writeTo(f"local.a.s{self.seed}").append()
            for engine, name in names.items():
                set_engine(world, ENGINES[engine])
                before = self.ids(name)
                sink = world.sink(f"a.{name}").upsert(*self.keys, order_by="o" if self.order else None)
                pipeline = world.source(f"a.s{self.seed}").incremental(poll=1) >> sink
                if engine == "native":
                    assert world.plan(pipeline).engine.native, said
                world.run(pipeline)
                after = self.ids(name)
                if len(set(after.values())) < len(after) or any(after[key] != id for key, id in before.items()):
                    return f"{said}, batch {number}: {engine} has given rows other ids"
            found = {engine: self.found(name) for engine, name in names.items()}
            if found["native"] != found["spark"]:
                return f"{said}, batch {number}: {found['native'] - found['spark']} {found['spark'] - found['native']}"
        return None

    def found(self, name: str) -> Counter[tuple[object, ...]]:
        """The rows, and by which commit each was last changed."""
        read = self.world.spark.read.table(f"local.a.{name}")
        return rows_of(read.selectExpr("*", "_last_updated_sequence_number AS changed").toArrow())

    def ids(self, name: str) -> dict[tuple[object, ...], object]:
        """By key: the id of the row."""
        found = rows_of(self.world.spark.read.table(f"local.a.{name}").selectExpr(*self.keys, "_row_id").toArrow())
        assert len({row[:-1] for row in found}) == sum(found.values())
        return {row[:-1]: row[-1] for row in found}


def _small(number: int, kind: str) -> Any:
    from decimal import Decimal

    return Decimal(number).scaleb(-6) if kind.startswith("decimal") else number


@pytest.mark.parametrize("seed", [1])
@pytest.mark.cases(landing="1")
def test_an_upsert_is_as_by_spark(world: Any, seed: int) -> None:
    assert Case(world, seed).differs() is None
    assert told(world) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_hundreds_of_upserts_are_as_by_spark(world: Any) -> None:
    first = int(os.environ.get("NATIVE_SEED", "1000"))
    for seed in range(first, first + (CASES or 100)):
        assert Case(world, seed).differs() is None
        world.sql(f"DROP TABLE local.a.native{seed} PURGE")
        world.sql(f"DROP TABLE local.a.spark{seed} PURGE")
    assert told(world) == []


# around the commit


@pytest.fixture
def kept(world: Any) -> Any:
    """A pipeline by the columnar engine, whose first batch has made a table of ids 0 to 9."""
    set_engine(world, "require")
    world.fill("a.s", range(10), v="'old'", n="1")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by="n")
    world.run(pipeline)
    return pipeline


def held(world: Any) -> dict[int, str]:
    """The table's rows; each id once, and no file on disk that the table does not have."""
    rows = world.spark.read.table("local.a.t").select("id", "v").collect()
    found = {row.id: row.v for row in rows}
    assert len(found) == len(rows)
    table = world.load("a.t").iceberg
    live = {urlparse(task.file.file_path).path for task in table.scan().plan_files()}
    on_disk = {str(path) for path in Path(urlparse(table.location()).path, "data").rglob("*") if path.is_file()}
    assert {path for path in on_disk if not path.endswith((".puffin", ".crc"))} == live
    return found


def test_late_rows_lose_and_ids_stay(world: Any, kept: Any) -> None:
    before = {row.id: row._row_id for row in world.sql("SELECT id, _row_id FROM local.a.t")}
    world.fill("a.s", [3, 5, 12], v="'new'", n="CASE id WHEN 5 THEN 0 ELSE 2 END")
    run = world.run(kept)
    assert held(world) == {**dict.fromkeys(range(10), "old"), 3: "new", 12: "new"}
    after = {row.id: row._row_id for row in world.sql("SELECT id, _row_id FROM local.a.t")}
    assert after == before | {12: after[12]}
    summary: Mapping[str, str] = world.load("a.t").current_snapshot().summary
    assert (summary["helios.batch"], summary["added-records"], summary["added-dvs"]) == ("1", "2", "1")
    assert run.metrics().records_written == 2
    assert told(world) == []


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_position_deletes_of_a_table_that_had_v2(world: Any, granularity: str) -> None:
    """Spark makes vectors of them."""
    set_engine(world, "auto")
    world.fill("a.t", range(10), v="'old'", n="1")
    world.fill("a.t", range(10, 20), v="'old'", n="1")
    world.sql(
        "ALTER TABLE local.a.t SET TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = 'merge-on-read', "
        f"'write.merge.mode' = 'merge-on-read', 'write.delete.granularity' = '{granularity}')"
    )
    world.sql("DELETE FROM local.a.t WHERE id IN (2, 4, 12)")
    world.sql("ALTER TABLE local.a.t SET TBLPROPERTIES ('format-version' = '3')")
    world.fill("a.s", [2, 3, 15], v="'new'", n="2")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by="n")
    world.run(pipeline)
    world.fill("a.s", [3, 16], v="'newer'", n="3")
    world.run(pipeline)
    kept = [id for id in range(20) if id not in (4, 12)]
    wanted = {**dict.fromkeys(kept, "old"), 2: "new", 3: "newer", 15: "new", 16: "newer"}
    assert {row.id: row.v for row in world.sql("SELECT id, v FROM local.a.t")} == wanted
    assert {row[:2] for row in world.rows("a.t")} == set(wanted.items())
    reason = "files of the table have position deletes from before the upgrade to format v3"
    assert told(world)[0] == f"engine spark, because {reason}"


@pytest.mark.parametrize("landed", [False, True])
def test_a_driver_that_dies_around_the_commit(
    world: Any, kept: Any, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.fill("a.s", [3, 12], v="'new'", n="2")
    real = Transaction.commit

    def dies(self: Transaction) -> None:
        if landed:
            real(self)
        raise RuntimeError("the driver dies")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", dies)
        with pytest.raises(Exception, match="the driver dies"):
            world.run(kept)
    world.run(kept)
    rows = world.spark.read.table("local.a.t").select("id", "v").collect()
    assert Counter(tuple(row) for row in rows) == Counter(
        {**dict.fromkeys(range(10), "old"), 3: "new", 12: "new"}.items()
    )


@pytest.mark.parametrize(("id", "tries"), [(50, 0), (12, 1)])
def test_rows_that_another_writer_appends_meanwhile(
    world: Any, kept: Any, id: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other keys they are no conflict; of a key of the batch they are, and it is done again."""
    world.fill("a.s", [3, 12], v="'new'", n="2")
    real, calls = Transaction.commit, []

    def commit(self: Transaction) -> None:
        calls.append(self)
        if len(calls) == 1:
            world.fill("a.t", [id], v="'theirs'", n="1")
        real(self)

    monkeypatch.setattr(Transaction, "commit", commit)
    world.run(kept)
    assert len(calls) == 1 + tries
    theirs = {50: "theirs"} if id == 50 else {}
    assert held(world) == {**dict.fromkeys(range(10), "old"), 3: "new", 12: "new", **theirs}


# what stays with Spark


@pytest.mark.parametrize(
    ("rows", "order", "reason", "error"),
    [
        ("(NULL, 'x', 2)", "n", "a row has a null in its key", "null key: id is null"),
        ("(7, 'x', 2), (7, 'y', 2)", None, "two rows of the batch have one key", "2 rows of the batch"),
        ("(7, 'x', 2)", "n", "the table has two rows of one key", None),
    ],
)
def test_spark_says_what_is_wrong(world: Any, rows: str, order: str | None, reason: str, error: str | None) -> None:
    set_engine(world, "auto")
    world.fill("a.s", range(3), v="'old'", n="1")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id", order_by=order)
    world.run(pipeline)
    assert told(world) == []
    if error is None:
        world.fill("a.t", [7, 7], v="'twice'", n="1")
    world.sql(f"INSERT INTO local.a.s VALUES {rows}")
    if error is not None:
        with pytest.raises(HeliosError, match=error):
            world.run(pipeline)
    else:
        world.run(pipeline)
    (message,) = told(world)
    assert message == f"engine spark, because {reason}"
    found = Counter(row.v for row in world.sql("SELECT v FROM local.a.t"))
    assert found == Counter({"old": 3} if error is not None else {"old": 3, "x": 2})


def test_a_batch_that_brings_a_column_is_sparks(world: Any) -> None:
    set_engine(world, "auto")
    world.fill("a.s", range(3), v="'old'")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").upsert("id")
    world.run(pipeline)
    world.sql("ALTER TABLE local.a.s ADD COLUMN w int")
    world.sql("INSERT INTO local.a.s VALUES (1, 'new', 1)")
    world.run(pipeline)
    assert told(world) == ["engine spark, because the columns of the batch are not those of the table"]
    world.events.clear()
    world.sql("INSERT INTO local.a.s VALUES (2, 'new', 2)")
    world.run(pipeline)
    assert told(world) == []
    found = {(row.id, row.v, row.w) for row in world.sql("SELECT * FROM local.a.t")}
    assert found == {(0, "old", None), (1, "new", 1), (2, "new", 2)}
