"""Upserts by the columnar engine beside Spark's MERGE: the same rows to the bit, with the same ids."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.streaming.native_cases import ARROW, KINDS, fill, rows_of, value

pytestmark = pytest.mark.usefixtures("native_workers")

CASES = int(os.environ.get("NATIVE_CASES", "0"))
"""Cases of the long form, whose first seed is NATIVE_SEED."""
KEYS = ("int", "bigint", "string", "date", "timestamp", "timestamp_ntz", "decimal(9,2)", "decimal(38,10)")
ENGINES = {"native": "require", "spark": "off"}


def told(world: Any) -> list[str]:
    return [event.message for event in world.events if event.kind == "noted"]


def use(world: Any, engine: str) -> None:
    (world.folder / "helios.toml").write_text(f'[spark]\nnative = "{ENGINES.get(engine, engine)}"\n')


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

    def spec(self) -> str | None:
        kind = self.kinds["k0"].partition("(")[0]
        allowed = [None, "bucket(3, k0)", "days(d)"]
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
                use(world, engine)
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


@pytest.mark.parametrize("seed", range(2))
def test_an_upsert_is_as_by_spark(world: Any, seed: int) -> None:
    assert Case(world, seed).differs() is None
    assert told(world) == []
