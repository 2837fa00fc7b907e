"""Lines of csv and json files that are read in one pass are the rows that Spark's parser and the casts make of them."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import functions as F

from helios import Files
from helios.model.columns import POSITION
from helios.sources.files.declare import FilesSource
from helios.sources.files.spark import bad_rows
from helios.sources.files.spark import reading as file_reading
from helios.sources.files.spark import rows as file_rows
from helios.sources.files.spark.rows import read_files
from helios.sources.files.spark.text_lines import PLAIN
from tests.streaming.landing import land
from tests.streaming.test_csv_lines import parts_of
from tests.streaming.test_file_formats import context, listed
from tests.streaming.test_plain_json import NUMBERS, OTHERS, TEXTS, TIMES, TYPES, WHOLE

pytestmark = pytest.mark.promise("bad-rows")

ROUNDS = int(os.environ.get("PLAIN_ROUNDS", "1"))
"""How many files are drawn for each way to read them."""

LINES = 400

GOOD = {
    "b": ("1", "-128"), "s": ("32767", "0"), "i": ("7", "-2147483648"), "l": ("999999999999999999", "-5"),
    "f": ("1.5", "-0.0"), "d": ("2.25", "1e3"), "m": ("1.25", "-7", "999999.99"), "w": ("1.5",), "o": ("true", "false"),
    "y": ("2026-01-01", "0001-12-31"), "z": ("2026-01-01T10:11:12.123Z", "2026-01-01 10:11:12"),
    "n": ("2026-01-01T10:11:12",), "t": ("a", "é😀", "b c", "1", "null", "true", "\\"),
}  # fmt: skip
"""Values of the types of `TYPES`; of others there are none in csv."""

QUOTED = ("t", "y", "z", "n")
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "json": (
        {"schema": True, "extra": "ignore"}, {"schema": True, "extra": "add"}, {"schema": True, "rescued": "rest"}, {},
        {"schema": True, "extra": "ignore", "allowNumericLeadingZeros": True, "allowComments": True},
    ),
    "csv": (
        {"schema": True, "extra": "ignore"}, {"schema": True, "extra": "add"}, {"schema": True, "sep": ";"},
        {"schema": True, "header": False, "sep": "\t"}, {"schema": True, "escape": "\\", "quote": "'"}, {},
    ),
}  # fmt: skip
"""Ways to read files; where a schema is asked for, it is that of all types."""


def of_json(draw: random.Random) -> bytes:
    """A line of some fields, most of which are plain."""
    if draw.random() < 0.1:
        return draw.choice(WHOLE)
    fields = []
    for name in draw.sample(list(TYPES), draw.randint(1, 5)):
        odd = draw.choice((*NUMBERS, *(f'"{time}"' for time in TIMES), *TEXTS, *OTHERS))
        good = draw.choice(GOOD.get(name, ("null",)))
        quoted = name in QUOTED and "\\" not in good
        value = odd if draw.random() < 0.15 else f'"{good}"' if quoted else good
        fields.append(f'"{name}"{draw.choice(("", " "))}:{value}')
    fields += ['"more": {"a": [1, "x"]}'] if draw.random() < 0.05 else []
    line = f"{{{draw.choice((',', ', ')).join(fields)}}}"
    if draw.random() < 0.05:
        line = draw.choice(
            (line[:-1], f"[{line}]", f"[{line}, {line}]", line + line, f" {line} ", line + ",", line + "x")
        )
    return line.encode()


def of_csv(draw: random.Random, names: list[str], separator: str, quote: str) -> bytes:
    """A line of all fields, most of which are plain."""
    fields = []
    for name in names:
        odd = draw.choice(
            (*NUMBERS, *TIMES, " ", " a", "a ", "a b", f"{quote}a{quote}", f"a{quote}", "é", "\u2028", "#")
        )
        odd = draw.choice((odd, "TRUE", "t", f"{quote}{quote}", f"{quote}a{separator}b{quote}", "\\", "\t", "007"))
        chance = draw.random()
        fields.append(odd if chance < 0.02 else "" if chance < 0.1 else draw.choice(GOOD.get(name, ("",))))
    if draw.random() < 0.05:
        fields = fields[: draw.randint(0, len(fields))] * draw.randint(1, 2)
    line = separator.join(fields).encode()
    chance = draw.random()
    return line if chance > 0.03 else draw.choice((b"", b"  ", quote.encode() + line, line + b"\xff", line + b"\0"))


def found(world: Any, source: FilesSource) -> tuple[Counter[str], Counter[tuple[str, ...]], int]:
    """The rows of a source with their places, what is set aside, and how many rows can have been plain."""
    with_rows = context(world)
    files = listed(world.folder / "in")
    df = read_files(with_rows, source.on_bad_row("quarantine"), files, positioned=True)
    assert POSITION in df.columns
    rows = df.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}))
    plan = df._jdf.queryExecution().analyzed().toString()
    aside = Counter(tuple(row) for rejected in with_rows.rejected_input.rejected_rows for row in rejected.collect())
    return Counter(text for (text,) in rows.collect()), aside, plan.count(PLAIN)


WAYS = [
    pytest.param(kind, options, marks=[pytest.mark.slow] if number else [], id=f"{kind}-{number}")
    for kind, several in OPTIONS.items()
    for number, options in enumerate(several)
]


@pytest.mark.parametrize(("kind", "options"), WAYS)
def test_plain_lines_are_what_they_are_by_the_long_way(
    world: Any, monkeypatch: pytest.MonkeyPatch, kind: str, options: dict[str, Any]
) -> None:
    given = {name: value for name, value in options.items() if name in ("extra", "rescued")}
    types = TYPES if kind == "json" else {name: TYPES[name] for name in GOOD}
    given |= {"schema": types} if "schema" in options else {}
    reading = {name: value for name, value in options.items() if name not in ("schema", "extra", "rescued")}
    for number in range(ROUNDS):
        draw = random.Random(f"{number} {kind} {options}")
        names = list(types)
        if kind == "csv" and options.get("header", True):
            draw.shuffle(names)
            names += ["more"] if given.get("extra") in ("ignore", "add") else []
        separator, quote = options.get("sep", ","), options.get("quote", '"')
        lines = [of_json(draw) if kind == "json" else of_csv(draw, names, separator, quote) for _ in range(LINES)]
        if kind == "csv" and options.get("header", True):
            lines = [b"", separator.join(names).encode(), *lines]
        land(world.folder / "in", f"a.{kind}", draw.choice((b"\n", b"\r\n")).join(lines))
        source = Files.source(str(world.folder / "in"), kind, **given).option(**reading)
        with parts_of(world, draw.choice((5_000, 1 << 27))):
            fast, aside, plain = found(world, source)
            with monkeypatch.context() as patched:
                patched.setattr(file_reading, "has_plain_lines", lambda _: False)
                slow, told, none = found(world, source)
        assert (plain > 0, none) == (True, 0)
        assert (fast - slow, slow - fast) == (Counter(), Counter())
        assert (aside - told, told - aside) == (Counter(), Counter())
        assert fast.total() > LINES / 10
        assert aside.total() > LINES / 20


def test_which_lines_are_plain(world: Any) -> None:
    types = "id bigint, amount decimal(8,2), at timestamp, name string"
    good = {
        "csv": ["1,1.25,2026-01-01T00:00:00.5Z,a b", "2,,,", "-3,7,2026-01-01 10:11:12,\u00e9"],
        "json": ['{"id": 1, "amount": "1.25", "at": "2026-01-01T00:00:00.5Z"}', "{}", ' {"name": "\u00e9", "id": 2} '],
    }
    others = {
        "csv": ["1,1.25,2026-01-01T00:00:00.5Z, a", '1,,,"a"', "1,,", "01,,,", "1,1.255,,", "1,,2026,"],
        "json": ['{"id": "1"}', '{"id": 1', '{"amount": 1.255}', '{"at": 1}', '{"id": 1},'],
    }
    for kind, lines in good.items():
        header = ["id,amount,at,name"] if kind == "csv" else []
        land(world.folder / kind, f"a.{kind}", "\n".join([*header, *lines, *others[kind]]))
        source = Files.source(str(world.folder / kind), kind, schema=types)
        [group] = file_reading.reading_of(context(world), source, listed(world.folder / kind)).groups
        assert group.fast
        df = file_rows._as_stored(world.spark, source, group)
        texts = [line for (line,) in df.select(bad_rows.LINE).collect()]
        assert texts == [*[None] * len(lines), *others[kind]]
        assert [row for (row,) in df.select(F.col(PLAIN).isNotNull()).collect()] == [text is None for text in texts]
