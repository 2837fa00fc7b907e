"""Batches whose columns change from one to the next, beside a reference in plain Python: prints what differs.

    python perf/evolving.py --batches 50

Every batch is appended with `evolve_schema("full")`. Before it, columns are added, widened, renamed or dropped, fields
are added to structs, to the structs in a list and to those in a map, or a column stays away. At the end the table must
have the reference's columns, types and values: those of old rows under their new names and types, null where they had
none.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from helios import Catalog, Iceberg, Memory

LEAVES = ("int", "bigint", "float", "double", "string", "boolean", "date", "decimal(9,2)")
WIDER = {"int": "bigint", "float": "double", "decimal(9,2)": "decimal(14,2)"}


@dataclass
class Kind:
    """A type: a leaf, or a struct, array or map whose parts can change."""

    name: str
    parts: dict[str, Kind] = field(default_factory=dict)

    def ddl(self) -> str:
        inner = [f"{name}: {part.ddl()}" for name, part in self.parts.items()]
        if self.name == "struct":
            return f"struct<{', '.join(inner)}>"
        part = self.parts["part"].ddl() if self.parts else ""
        return {"array": f"array<{part}>", "map": f"map<string, {part}>"}.get(self.name, self.name)

    def value(self, r: random.Random) -> Any:
        if r.random() < 0.1:
            return None
        return VALUES[self.name](self, r)

    def structs(self) -> list[Kind]:
        """The structs in it, itself among them."""
        below = [found for part in self.parts.values() for found in part.structs()]
        return [self, *below] if self.name == "struct" else below

    def leaves(self) -> list[Kind]:
        return [found for part in self.parts.values() for found in part.leaves()] if self.parts else [self]

    def shown(self, value: Any) -> Any:
        """A value as it must be read now, whenever it was written; comparable and hashable."""
        if value is None:
            return None
        if self.name == "struct":
            return tuple((name, part.shown(value.get(name))) for name, part in self.parts.items())
        if self.name == "array":
            return tuple(self.parts["part"].shown(one) for one in value)
        if self.name == "map":
            return tuple(sorted((key, self.parts["part"].shown(one)) for key, one in dict(value).items()))
        return str(value) if isinstance(value, Decimal) else value


def _date(r: random.Random) -> Any:
    import datetime

    return datetime.date(2026, 1, 1) + datetime.timedelta(days=r.randrange(365))


VALUES: dict[str, Callable[[Kind, random.Random], Any]] = {
    "int": lambda _, r: r.randrange(-(2**31), 2**31),
    "bigint": lambda _, r: r.randrange(-(2**63), 2**63),
    "float": lambda _, r: r.randrange(-4000, 4000) / 4,  # exact in both widths
    "double": lambda _, r: r.random(),
    "string": lambda _, r: f"text {r.randrange(1000)} ü",
    "boolean": lambda _, r: r.random() < 0.5,
    "date": lambda _, r: _date(r),
    "decimal(9,2)": lambda _, r: Decimal(r.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
    "decimal(14,2)": lambda _, r: Decimal(r.randrange(-(10**14) + 1, 10**14)).scaleb(-2),
    "struct": lambda kind, r: {name: part.value(r) for name, part in kind.parts.items()},
    "array": lambda kind, r: [kind.parts["part"].value(r) for _ in range(r.randrange(3))],
    "map": lambda kind, r: {f"k{i}": kind.parts["part"].value(r) for i in range(r.randrange(3))},
}


class Reference:
    """The table as it must be, and the next change of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        leaf = Kind("int")
        self.columns = {
            "id": Kind("bigint"),
            "n": Kind("int"),
            "s": Kind("struct", {"a": leaf, "b": Kind("float")}),
            "l": Kind("array", {"part": Kind("struct", {"x": Kind("int")})}),
            "m": Kind("map", {"part": Kind("struct", {"y": Kind("decimal(9,2)")})}),
        }
        self.rows: list[dict[str, Any]] = []
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"c{self.made}"

    def change(self) -> tuple[str, dict[str, str], tuple[str, ...], set[str]]:
        """Changes the columns; returns what was done, renames, drops, and columns that stay away this time."""
        others = [name for name in self.columns if name != "id"]
        done, renames, drops, away = [], dict[str, str](), (), set[str]()
        for kind in self.random.sample(("add", "widen", "rename", "drop", "nested", "missing"), k=2):
            free = [
                name for name in others if name in self.columns and name not in away and name not in renames.values()
            ]
            if kind == "add":
                self.columns[self.name()] = Kind(self.random.choice(LEAVES))
            elif kind == "widen":
                narrow = [leaf for one in self.columns.values() for leaf in one.leaves() if leaf.name in WIDER]
                if not narrow:
                    continue
                chosen = self.random.choice(narrow)
                chosen.name = WIDER[chosen.name]
            elif kind == "nested":
                structs = [found for one in self.columns.values() for found in one.structs()]
                if not structs:
                    continue
                self.random.choice(structs).parts[self.name()] = Kind(self.random.choice(LEAVES))
            elif kind == "rename" and free:
                old, new = self.random.choice(free), self.name()
                self.columns = {new if name == old else name: one for name, one in self.columns.items()}
                self.rows = [{new if n == old else n: v for n, v in row.items()} for row in self.rows]
                renames[old] = new
            elif kind == "drop" and len(free) > 4:
                gone = self.random.choice(free)
                del self.columns[gone]
                self.rows = [{n: v for n, v in row.items() if n != gone} for row in self.rows]
                drops = (gone,)
            elif kind == "missing" and free:
                away = {self.random.choice(free)}
            else:
                continue
            done.append(kind)
        return ", ".join(done) or "nothing", renames, drops, away

    def batch(self, count: int, away: set[str]) -> tuple[list[tuple[Any, ...]], str]:
        """New rows and their DDL; the columns come in any order."""
        names = [name for name in self.columns if name not in away]
        self.random.shuffle(names)
        made = []
        for _ in range(count):
            row = {name: self.columns[name].value(self.random) for name in names}
            row["id"] = len(self.rows)
            self.rows.append(row)
            made.append(tuple(row[name] for name in names))
        return made, ", ".join(f"{name} {self.columns[name].ddl()}" for name in names)

    def shown(self) -> Counter[Any]:
        return Counter(
            tuple((name, kind.shown(row.get(name))) for name, kind in sorted(self.columns.items())) for row in self.rows
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20, help="of a batch")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return compare(Catalog.local(path=Path(made) / ".helios"), given)


def compare(catalog: Catalog, given: Any, spark: Any = None) -> int:
    """Runs the batches and returns 1 when the table differs from the reference."""
    reference, began = Reference(given.seed), time.monotonic()
    for number in range(given.batches):
        done, renames, drops, away = reference.change() if number else ("first", {}, (), set())
        rows, ddl = reference.batch(given.rows, away)
        sink = Iceberg.sink("perf.evolving", catalog=catalog).evolve_schema("full")
        sink = sink.renames(renames) if renames else sink
        sink = sink.drops(*drops) if drops else sink
        (Memory.source(rows, ddl) >> sink).run(once=True, spark=spark).await_termination()
        print(f"batch {number}: {done}, {time.monotonic() - began:.0f} s", flush=True)
    # Through Spark: PyIceberg reads a null list or map of structs as an empty one.
    table = Iceberg.source("perf.evolving", catalog=catalog).preview(10**9, spark)
    types = {c.name: c.type for c in Iceberg.source("perf.evolving", catalog=catalog).schema().columns}
    wanted = {name: kind.ddl().replace(": ", ":").replace(", ", ",") for name, kind in reference.columns.items()}
    unlike = {name: (types.get(name), kind) for name, kind in wanted.items() if _plain(types.get(name)) != _plain(kind)}
    unlike |= {name: (kind, None) for name, kind in types.items() if name not in wanted}
    found = (
        Counter(
            tuple((name, kind.shown(row[name])) for name, kind in sorted(reference.columns.items()))
            for row in table.to_pylist()
        )
        if not unlike
        else Counter()
    )
    expected = reference.shown()
    wrong = sum(((found - expected) + (expected - found)).values())
    print(f"{len(wanted)} columns, {len(unlike)} unlike the reference {unlike or ''}")
    print(f"{table.num_rows:,} rows after {given.batches} batches, {wrong} differ from the reference")
    return 1 if wrong or unlike else 0


def _plain(kind: str | None) -> str:
    return (kind or "").replace(" ", "")


if __name__ == "__main__":
    sys.exit(main())
