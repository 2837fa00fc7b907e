"""Tables and expressions that are drawn for the columnar engine, its rows beside Spark's, bit by bit, and its runs."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from helios.errors import HeliosError

KINDS = (
    "boolean", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz",
    "decimal(9,2)", "decimal(18,6)", "decimal(38,10)",
)  # fmt: skip
ARROW = {
    "boolean": pa.bool_(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"), "decimal(9,2)": pa.decimal128(9, 2), "decimal(18,6)": pa.decimal128(18, 6),
    "decimal(38,10)": pa.decimal128(38, 10),
}  # fmt: skip
NUMBERS = ("int", "bigint", "float", "double")
TEXTS = (
    "",
    "a",
    "ab",
    "name 1",
    "Ä",
    "äß",
    "日本語テキスト",
    "\U0001f600" * 20,
    "z" * 40,
    "\uffff",
    "a%b",
    " ",
    "B",
    "\ue000x" * 12,
)
NAN, INF = float("nan"), float("inf")
TENTHS = (0.0, -0.0, 1.5, -1.5, 0.1, 1e30, -1e-30, NAN, INF, -INF)
MOMENTS = (0, -1, 1_700_000_000_000_000, 253402300799999999, -62135596800000000, -2208988800000001)
SPECIAL: dict[str, Sequence[Any]] = {
    "boolean": (True, False),
    "int": (0, 1, -1, 7, 2**31 - 1, -(2**31)),
    "bigint": (0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63), 2**53 + 1),
    "float": (*TENTHS, 3.4028234663852886e38),
    "double": (*TENTHS, 1.7976931348623157e308, 5e-324),
    "string": TEXTS,
    "binary": (b"", b"a", b"\xff" * 20, b"\x00\x80", b"\xfe" + b"\xff" * 30),
    "date": (0, -1, 19723, 2932896, -719162),
    "timestamp": MOMENTS,
    "timestamp_ntz": MOMENTS,
}


def value(random: Random, kind: str) -> Any:
    """A value of a type, or None."""
    if random.random() < 0.15:
        return None
    if kind.startswith("decimal"):
        precision, scale = map(int, kind[8:-1].split(","))
        most = 10**precision - 1
        number = random.choice((0, 1, -1, 100, most, -most, random.randint(-most, most), random.randint(-999, 999)))
        return Decimal(number).scaleb(-scale) if precision < 28 else Decimal(f"{number}E-{scale}")
    if random.random() < 0.6 or kind == "boolean":
        return random.choice(SPECIAL[kind])
    drawn = {
        "int": lambda: random.randint(-20, 20),
        "bigint": lambda: random.randint(-(2**40), 2**40),
        "float": lambda: struct.unpack("<f", struct.pack("<f", random.uniform(-100, 100)))[0],
        "double": lambda: random.uniform(-100, 100),
        "string": lambda: "".join(random.choice("abÄ\U0001f600z ") for _ in range(random.randint(0, 24))),
        "binary": lambda: random.randbytes(random.randint(0, 24)),
        "date": lambda: random.randint(0, 20000),
    }
    return drawn.get(kind, lambda: random.randint(0, 2_000_000_000_000_000))()


def table(random: Random, kinds: Sequence[str], rows: int) -> pa.Table:
    """Drawn rows; column `c0` has the first type, and so on."""
    columns = {
        f"c{i}": pa.array([value(random, kind) for _ in range(rows)], ARROW[kind]) for i, kind in enumerate(kinds)
    }
    return pa.table(columns)


# expressions


class Expressions:
    """Draws Spark SQL over some columns.

    Args:
        random: Draws.
        columns: The names of the columns, and their types.
    """

    def __init__(self, random: Random, columns: Sequence[tuple[str, str]]) -> None:
        self.random = random
        self.columns = columns

    def any(self, depth: int = 3) -> str:
        """An expression of any type."""
        kind = self.random.choice(("boolean", "boolean", *NUMBERS, self.random.choice(self.columns)[1]))
        return self.of(kind, depth)

    def of(self, kind: str, depth: int) -> str:
        """An expression of a type."""
        draw = self.random.random()
        if depth <= 0 or draw < 0.3:
            return self.leaf(kind)
        if draw < 0.4:
            return (
                f"CASE WHEN {self.of('boolean', depth - 1)} THEN {self.leaf(kind)} ELSE {self.of(kind, depth - 1)} END"
            )
        if draw < 0.47:
            return f"coalesce({self.of(kind, depth - 1)}, {self.leaf(kind)})"
        if draw < 0.52:
            return f"if({self.of('boolean', depth - 1)}, {self.of(kind, depth - 1)}, NULL)"
        if kind == "boolean":
            return self.predicate(depth)
        if kind in NUMBERS:
            return self.number(kind, depth)
        return self.string(depth) if kind == "string" else self.leaf(kind)

    def leaf(self, kind: str) -> str:
        named = [name for name, of in self.columns if of == kind]
        return self.random.choice(named) if named and self.random.random() < 0.8 else self.literal(kind)

    def literal(self, kind: str) -> str:
        random = self.random
        found = {
            "boolean": lambda: random.choice(("true", "false")),
            "int": lambda: str(random.choice((0, 1, -3, 7, 2147483647))),
            "bigint": lambda: random.choice(("5000000000", "3L", "-9223372036854775807")),
            "double": lambda: f"CAST({random.choice((0, 3))} AS DOUBLE)",
            "float": lambda: f"CAST({random.choice((0, 3))} AS FLOAT)",
            "string": lambda: "'" + random.choice([t for t in TEXTS if "%" not in t]) + "'",
            "date": lambda: random.choice(("DATE '2024-01-01'", "DATE'1969-12-31'")),
            "timestamp": lambda: random.choice(("TIMESTAMP '2023-11-14 22:13:20'", "TIMESTAMP '1970-01-01'")),
            "timestamp_ntz": lambda: "TIMESTAMP_NTZ '2023-11-14 22:13:20.5'",
        }.get(kind)
        return found() if found is not None else "NULL"

    def number(self, kind: str, depth: int) -> str:
        random = self.random
        if kind == "bigint" and random.random() < 0.3:
            return f"CAST({self.of('int', depth - 1)} AS BIGINT)"
        if kind == "int" and random.random() < 0.2:
            return f"CAST({self.of('bigint', depth - 1)} AS INT)"
        if kind == "double" and random.random() < 0.5:
            left, right = (self.of(random.choice(NUMBERS), depth - 1) for _ in range(2))
            return f"({left}) / ({right})"
        if random.random() < 0.15:
            return f"-({self.of(kind, depth - 1)})"
        return f"({self.of(kind, depth - 1)}) {random.choice('+-*')} ({self.of(kind, depth - 1)})"

    def string(self, depth: int) -> str:
        return f"CAST({self.of(self.random.choice(('int', 'bigint', 'boolean')), depth - 1)} AS STRING)"

    def predicate(self, depth: int) -> str:
        random = self.random
        draw = random.random()
        if draw < 0.25:
            word = random.choice(("AND", "OR"))
            return f"({self.of('boolean', depth - 1)}) {word} ({self.of('boolean', depth - 1)})"
        if draw < 0.33:
            return f"NOT ({self.of('boolean', depth - 1)})"
        name, kind = random.choice(self.columns)
        if draw < 0.4:
            return f"{name} IS {random.choice(('', 'NOT '))}NULL"
        if draw < 0.5:
            values = ", ".join(self.literal(kind) for _ in range(random.randint(1, 4)))
            return f"{name} {random.choice(('', 'NOT '))}IN ({values})"
        if draw < 0.56 and kind == "string":
            return f"{name} LIKE '{random.choice(('a%', '%b', '%Ä%', 'ab'))}'"
        if draw < 0.62:
            return f"{name} BETWEEN {self.leaf(kind)} AND {self.leaf(kind)}"
        op = random.choice(("=", "<>", "!=", "<", "<=", ">", ">=", "<=>"))
        if draw < 0.75:
            return f"{name} {op} {self.against(kind)}"
        if kind in NUMBERS:
            kind = random.choice(NUMBERS)
        return f"({self.of(kind, depth - 1)}) {op} ({name})"

    def against(self, kind: str) -> str:
        """What a column of a type is compared with, of another type perhaps."""
        if kind in NUMBERS or kind.startswith("decimal"):
            return self.random.choice(("0", "1.5", "-7", "0.1", "3000000000", "2147483647", "9007199254740993", "1.00"))
        if kind == "date":
            return "'2024-01-01'"
        if kind.startswith("timestamp"):
            return self.random.choice(("'2023-11-14 22:13:20'", "'1970-01-01'", "'2023-11-14T22:13:20.123456'"))
        return self.leaf(kind)


# rows, bit by bit


def bits(one: object) -> object:
    """A value by which two of them are equal only if they are the same to the bit, but that all NaNs are one."""
    if isinstance(one, float):
        return "NaN" if math.isnan(one) else struct.pack("<d", one)
    return one


def rows_of(columns: pa.Table) -> Counter[tuple[object, ...]]:
    """The rows of an Arrow table as a multiset; dates and times as numbers, which Python's end too early for."""
    return Counter(zip(*(map(bits, _plain(columns.column(i))) for i in range(columns.num_columns)), strict=True))


def _plain(column: pa.ChunkedArray) -> Iterable[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    found: Iterable[Any] = column.to_pylist()
    return found


# tables


def fill(world: Any, name: str, rows: pa.Table, *, files: int = 1) -> None:
    """A new table with these rows."""
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    frame = world.spark.createDataFrame(rows).repartition(files)
    frame.writeTo(f"local.{name}").using("iceberg").createOrReplace()


def scanned(world: Any, name: str) -> pa.Table:
    """A table's rows as Spark reads them."""
    return world.spark.read.table(f"local.{name}").toArrow()


# runs


def set_engine(world: Any, setting: str) -> None:
    """Chooses the engine of the next runs: "auto", "off" or "require"."""
    (world.folder / "helios.toml").write_text(f'[spark]\nnative = "{setting}"\n')


def told(world: Any) -> list[str]:
    """Why Spark did batches of pipelines whose engine is native."""
    return [event.message for event in world.events if event.kind == "noted"]


def failures(world: Any, source: Any) -> list[str]:
    """What a run says by each engine; it writes nothing."""
    found = []
    for setting in ("off", "auto"):
        set_engine(world, setting)
        with pytest.raises(HeliosError) as raised:
            world.run(source >> world.sink("a.t"))
        found.append(str(raised.value))
    assert not world.catalog.exists("a.t") or world.rows("a.t") == {}
    return found
