"""Batches whose columns change from one to the next, beside a reference in plain Python: prints what differs.

    python perf/evolving.py --batches 50

Before each batch up to three random changes are made: a column or a nested field is added (plain, or a struct, an array
or a map, or under the name of one that was dropped or renamed), widened, renamed or dropped, at any depth. A batch
pipeline appends the batch to one table with `.evolve_schema("full")`; its rows also leave columns out, and carry them
in another order or in narrower types than the table has by then. A stream follows that table into a second one, which
must evolve the same way. At the end both must have the columns, types and values of the reference, which knows a column
by its identity: names and types change, values stay. `--seeds 20` goes on with the next seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyiceberg import types as iceberg
from pyspark.sql import SparkSession

from helios import Catalog, Iceberg, Memory

WIDER = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(18,2)", "decimal(18,2)": "decimal(38,2)"}
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda rng: rng.randint(-(2**31), 2**31 - 1),
    "bigint": lambda rng: rng.randint(-(2**63), 2**63 - 1),
    "float": lambda rng: rng.randint(-(2**20), 2**20) / 8,
    "double": lambda rng: rng.uniform(-1e300, 1e300),
    "decimal(9,2)": lambda rng: Decimal(rng.randint(-(10**9) + 1, 10**9 - 1)) / 100,
    "decimal(18,2)": lambda rng: Decimal(rng.randint(-(10**18) + 1, 10**18 - 1)) / 100,
    "decimal(38,2)": lambda rng: Decimal(rng.randint(-(10**26), 10**26)) / 100,
    "string": lambda rng: rng.choice(["", "a", "ä", "it's", "long " * 9]),
    "boolean": lambda rng: rng.random() < 0.5,
    "date": lambda rng: date(1970, 1, 1) + timedelta(days=rng.randint(-40_000, 40_000)),
    "timestamp": lambda rng: datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randint(-(10**15), 10**15)),
    "binary": lambda rng: rng.randbytes(3),
}
NESTED = ("struct", "array", "map")


@dataclass(eq=False)
class Column:
    """A column or a part of one: the fields of a struct, the `element` of an array, the `value` of a map.

    Attributes:
        name: Its name now.
        type: A plain type, or struct, array or map.
        parts: Its parts.
        gone: The names that its fields had and have no more.
    """

    name: str
    type: str
    parts: list[Column] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def walk(self, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Column, Column]]:
        """Every part with its path, as Helios writes it, and what it is a part of."""
        for part in self.parts:
            here = (*path, part.name)
            yield ".".join(here), part, self
            yield from part.walk(here)

    def shown(self, value: Any) -> Any:
        """A value of it as a reader sees it now."""
        if value is None or self.type not in NESTED:
            return value
        if self.type == "struct":
            return {part.name: part.shown(value.get(part)) for part in self.parts}
        (part,) = self.parts
        if self.type == "array":
            return [part.shown(item) for item in value]
        return {key: part.shown(item) for key, item in value.items()}

    def schema(self) -> Any:
        """Its type with its parts, whose order does not count."""
        if self.type == "struct":
            return {part.name: part.schema() for part in self.parts}
        return (self.type, self.parts[0].schema()) if self.parts else self.type


@dataclass
class Sent:
    """How a batch carries a column: its type there, and the parts that it carries."""

    column: Column
    type: str
    parts: list[Sent]

    def ddl(self) -> str:
        inner = [part.ddl() for part in self.parts]
        if self.type == "struct":
            named = zip(self.parts, inner, strict=True)
            return "struct<" + ", ".join(f"{part.column.name}: {kind}" for part, kind in named) + ">"
        return {"array": "array<{}>", "map": "map<string, {}>"}.get(self.type, self.type).format(*inner)

    def value(self, rng: random.Random) -> tuple[Any, Any]:
        """A random value, as Spark takes it and as the reference keeps it."""
        if rng.random() < 0.15 and self.column.name != "id":
            return None, None
        if self.type == "struct":
            fields = {part.column: part.value(rng) for part in self.parts}
            return tuple(value for value, _ in fields.values()), {part: kept for part, (_, kept) in fields.items()}
        if self.type in NESTED:
            made = [self.parts[0].value(rng) for _ in range(rng.randint(0, 3))]
            spark, kept = [value for value, _ in made], [value for _, value in made]
            return (spark, kept) if self.type == "array" else (_as_map(spark), _as_map(kept))
        value = VALUES[self.type](rng)
        return value, value


def _as_map(values: list[Any]) -> dict[str, Any]:
    return {f"k{number}": value for number, value in enumerate(values)}


@dataclass
class Changed:
    """What was changed before a batch."""

    renames: dict[str, str] = field(default_factory=dict)
    drops: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    needed: set[Column] = field(default_factory=set)  # what the batch has to carry as it is now

    @property
    def named(self) -> list[str]:
        return [*self.renames, *self.renames.values(), *self.drops]


class Reference:
    """The columns, and every row that was written."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[dict[Column, Any]] = []
        self._names = 0
        columns = [self._column(self._name(), 2) for _ in range(5)]
        self.root = Column("", "struct", [Column("id", "bigint"), *columns])

    def change(self) -> Changed:
        """Makes up to three changes; drops and renames come first, and none of them is inside another."""
        made = Changed()
        steps = {"drop": self._drop, "rename": self._rename, "add": self._add, "widen": self._widen}
        kinds = self.rng.choices(list(steps), [1, 1, 2, 1], k=self.rng.randint(0, 3))
        for kind in sorted(kinds, key=list(steps).index):
            steps[kind](made)
        return made

    def _named(self, made: Changed) -> list[tuple[str, Column, Column]]:
        """The fields that can still be dropped or renamed."""
        fields = (found for found in self.root.walk() if found[2].type == "struct" and found[0] != "id")
        return [found for found in fields if not any(_overlap(found[0], path) for path in made.named)]

    def _drop(self, made: Changed) -> None:
        found = [field for field in self._named(made) if len(field[2].parts) > 1]
        if found:
            path, column, parent = self.rng.choice(found)
            parent.parts.remove(column)
            parent.gone.append(column.name)
            made.drops.append(path)
            made.kinds.append("drop")

    def _rename(self, made: Changed) -> None:
        if found := self._named(made):
            path, column, parent = self.rng.choice(found)
            parent.gone.append(column.name)
            column.name = self._name()
            made.renames[path] = ".".join([*path.split(".")[:-1], column.name])
            made.kinds.append("rename")

    def _add(self, made: Changed) -> None:
        parent = self.rng.choice([self.root, *(part for _, part, _ in self.root.walk() if part.type == "struct")])
        again = [name for name in parent.gone if name not in {old.split(".")[-1] for old in made.named}]
        column = self._column(self.rng.choice(again) if again and self.rng.random() < 0.3 else self._name(), 2)
        parent.gone = [name for name in parent.gone if name != column.name]
        parent.parts.append(column)
        made.needed |= {column, *(part for _, part, _ in column.walk())}
        made.kinds.append("add")

    def _widen(self, made: Changed) -> None:
        if found := [column for _, column, _ in self.root.walk() if column.type in WIDER]:
            column = self.rng.choice(found)
            column.type = WIDER[column.type]
            made.needed.add(column)
            made.kinds.append("widen")

    def _column(self, name: str, depth: int) -> Column:
        kind = self.rng.choice([*VALUES, *(NESTED * 2 if depth else ())])
        if kind == "struct":
            return Column(name, kind, [self._column(self._name(), depth - 1) for _ in range(self.rng.randint(1, 3))])
        if kind in NESTED:
            return Column(name, kind, [self._column("element" if kind == "array" else "value", depth - 1)])
        return Column(name, kind)

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def carried(self, column: Column, needed: set[Column]) -> Sent:
        """A column as a batch may carry it: without some of its fields, in another order, in narrower types."""
        parts = list(column.parts)
        if column.type == "struct":
            needs = [p for p in parts if p.name == "id" or p in needed or any(c in needed for _, c, _ in p.walk())]
            others = [p for p in parts if p not in needs and self.rng.random() < 0.8]
            parts = needs + others or parts
            self.rng.shuffle(parts)
        narrower = [old for old, new in WIDER.items() if new == column.type]
        exact = column in needed or not narrower or self.rng.random() < 0.7
        return Sent(column, column.type if exact else narrower[0], [self.carried(p, needed) for p in parts])

    def fill(self, batch: Sent, count: int) -> list[tuple[Any, ...]]:
        """New rows, as Spark takes them."""
        made = []
        for _ in range(count):
            values = [part.value(self.rng) for part in batch.parts]
            place = [part.column.name for part in batch.parts].index("id")
            values[place] = (len(self.rows), len(self.rows))
            self.rows.append({part.column: kept for part, (_, kept) in zip(batch.parts, values, strict=True)})
            made.append(tuple(value for value, _ in values))
        return made

    def table(self) -> list[dict[str, Any]]:
        return [self.root.shown(row) for row in self.rows]


def _overlap(a: str, b: str) -> bool:
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20, help="of a batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from that one on")
    given = parser.parse_args()
    wrong = 0
    for _ in range(given.seeds):
        with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
            wrong |= compare(Catalog.local(path=Path(made) / ".helios"), given)
        given.seed += 1
    return wrong


def compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession | None = None) -> int:
    """Runs the batches, and returns 1 when one of the tables differs from the reference."""
    reference, counted, began = Reference(random.Random(given.seed)), Counter[str](), time.monotonic()
    every = Changed(needed={column for _, column, _ in reference.root.walk()})
    for number in range(given.batches):
        changed = reference.change() if number else every
        counted.update(changed.kinds)
        batch = reference.carried(reference.root, changed.needed)
        ddl = ", ".join(f"{part.column.name} {part.ddl()}" for part in batch.parts)
        sources = {
            "perf.evolving": Memory.source(reference.fill(batch, given.rows), ddl),
            "perf.followed": Iceberg.source("perf.evolving", catalog=catalog).incremental(),
        }
        for target, source in sources.items():
            sink = Iceberg.sink(target, catalog=catalog).evolve_schema("full")
            sink = sink.renames(changed.renames) if changed.renames else sink
            sink = sink.drops(*changed.drops) if changed.drops else sink
            (source >> sink).run(once=True, spark=spark).await_termination()
        print(
            f"batch {number}: {', '.join(changed.kinds) or 'no change'}, {time.monotonic() - began:.0f} s", flush=True
        )
    differs = False
    for target in sources:
        unlike, wrong = differences(catalog, target, reference, spark)
        differs = differs or unlike or wrong > 0
        schema = "another schema" if unlike else "the same schema"
        print(f"{target}: {schema}, {wrong} of {len(reference.rows)} rows differ")
    parts = sum(1 for _ in reference.root.walk())
    print(f"seed {given.seed}: {given.batches} batches, changes {dict(counted)}, {parts} columns and parts at the end")
    return 1 if differs else 0


def differences(catalog: Catalog, target: str, reference: Reference, spark: SparkSession | None) -> tuple[bool, int]:
    """Whether a table's schema is not that of the reference, and how many rows differ."""
    # Through Spark: PyIceberg 0.12 reads a null list or map of structs, which got fields since, as an empty one.
    table = Iceberg.source(target, catalog=catalog).preview(10**9, spark).arrow
    found: dict[int, list[dict[str, Any]]] = {}
    for row in table.to_pylist(maps_as_pydicts="strict"):
        found.setdefault(row["id"], []).append(row)
    wrong = sum(found.pop(number, []) != [row] for number, row in enumerate(reference.table())) + len(found)
    schema = catalog.load(target).iceberg.schema().as_struct()
    return as_reference(schema) != reference.root.schema(), wrong


def as_reference(kind: iceberg.IcebergType) -> Any:
    """A type of Iceberg's, as `Column.schema` has it."""
    if isinstance(kind, iceberg.StructType):
        return {part.name: as_reference(part.field_type) for part in kind.fields}
    if isinstance(kind, iceberg.ListType):
        return "array", as_reference(kind.element_type)
    if isinstance(kind, iceberg.MapType):
        return "map", as_reference(kind.value_type)
    return {"long": "bigint", "timestamptz": "timestamp"}.get(str(kind), str(kind).replace(" ", ""))


if __name__ == "__main__":
    sys.exit(main())
