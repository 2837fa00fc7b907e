"""Folders of csv and JSON through the columnar engine: what it takes is what Spark reads, and the rest is Spark's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helios import Files, where
from helios.native import json_lines, lines
from helios.native.program import NotNative
from helios.native.work import InputFile, LinesFormat
from helios.spark.native import inputs
from tests.streaming.native_cases import failures, rows_of, scanned, set_engine, told

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]

KINDS = ("boolean", "int", "bigint", "double", "decimal(9,2)", "decimal(18,18)", "date", "timestamp", "timestamp_ntz",
         "string")  # fmt: skip
COLUMNS = (("id", "bigint"), *((f"c{i}", kind) for i, kind in enumerate(KINDS)))
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
SEEDS = {
    "boolean": ("true", "false"),
    "int": ("0", "-1", "2147483647", "-2147483648", "12"),
    "bigint": ("0", "123456789012345678", "-99", "9223372036854775807"),
    "double": ("1.5", "-0.0", "1e308", "1E-320", "0.1", "123456789012345678901234567890", "2.2250738585072011e-308"),
    "decimal(9,2)": ("1.25", "-0.01", "9999999.99", "7", "1e2", "100.5"),
    "decimal(18,18)": ("0.5", "-0.123456789012345678", "0"),
    "date": ("2024-02-29", "0001-01-01", "9999-12-31", "1582-10-10"),
    "timestamp": ("2024-02-29T23:59:59Z", "1900-01-01 00:00:00.5", "2024-01-01T00:00:00.123456+05:30",
                  "0001-01-02T00:00:00Z", "9999-12-30T23:59:59.999999-17:59"),
    "timestamp_ntz": ("2024-02-29T23:59:59", "1500-01-01 00:00:00.000001", "2024-03-31T02:30:00.1"),
    "string": ("a", "Ä b", "\U0001f600", "null", "NaN", "'", "a\u2028b", "\x7f", "x" * 300, "\ufffd"),
}  # fmt: skip
LETTERS = "0123456789-+.:eETZz _aé'\u0663\u00a0"


def drawn(random: Random) -> tuple[int, str]:
    """A column, and a text of its type, most of them changed somewhere."""
    place = random.randrange(len(KINDS))
    letters = list(random.choice(SEEDS[KINDS[place]]))
    for _ in range(random.choice((0, 0, 1, 2))):
        at = random.randrange(len(letters) + 1)
        letters[at : at + random.randint(0, 1)] = random.choice(("", random.choice(LETTERS)))
    return place, "".join(letters)


def line_of(form: str, id: int, place: int, text: str) -> str:
    if form == "csv":
        fields = [""] * len(KINDS)
        fields[place] = text
        return ",".join([str(id), *fields])
    kind = KINDS[place].partition("(")[0]
    quoted = kind in json_lines.TEXTS or (kind == "decimal" and id % 3 == 0)
    value = json.dumps(text, ensure_ascii=id % 2 == 0) if quoted else text
    return f'{{"id": {id}, "c{place}":{value}}}' if id % 5 else f'{{"c{place}" : {value},"id":{id}}}'


def taken(form: str, path: Path, found: Iterator[str]) -> Iterator[str]:
    """Those of some lines that the engine takes, each alone."""
    for line in found:
        path.write_bytes(f"{line}\n".encode())
        try:
            list(lines.rows(InputFile(str(path), path.stat().st_size), LinesFormat(form, COLUMNS)))
        except NotNative:
            continue
        yield line


@pytest.mark.parametrize("form", ["csv", "json"])
def test_what_the_engine_takes_is_what_spark_reads(world: Any, form: str) -> None:
    random, inbox = Random(form), world.folder / "in"
    inbox.mkdir()
    every = (line_of(form, id, *drawn(random)) for id in range(3_000))
    found = list(taken(form, world.folder / "one", every))
    (inbox / "in").write_text("\n".join(found) + "\n", encoding="utf-8", newline="")
    assert len(found) > 1_200
    source = Files.source(str(inbox), form, SCHEMA)
    source = source.option(header=False) if form == "csv" else source
    for setting in ("require", "off"):
        set_engine(world, setting)
        world.run(source >> world.sink(f"a.{setting}"))
    native, spark = (rows_of(scanned(world, f"a.{setting}")) for setting in ("require", "off"))
    assert sum(native.values()) == len(found)
    assert native - spark == spark - native


def test_a_followed_folder_of_files_with_headers(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_PART_BYTES", 5_000)
    set_engine(world, "require")
    inbox = world.folder / "in"
    inbox.mkdir()
    source = Files.source(str(inbox), "csv", "id bigint, name string, at timestamp").option(sep=";").incremental(poll=1)
    pipeline = source >> where("id > 0") >> world.sink("a.t")
    assert "\n  engine    native\n" in str(world.plan(pipeline))
    rows = [f"{n};2024-01-01T00:00:{n % 60:02};ä{n}" for n in range(1, 2_000)]
    (inbox / "a.csv").write_text("\r\n".join(["ID;at;name", "-1;;", *rows]), newline="")
    world.run(pipeline)
    (inbox / "b.csv").write_text("name;id\nb;2000\n")
    (inbox / "c.csv").write_text("id;name;at\n")
    (inbox / "d.csv").write_text("")
    world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 2_001))
    assert world.rows("a.t", "name", "at")[("b", None)] == 1
    assert sum(world.rows("a.t", "name").values()) == len({f"ä{n}" for n in range(1, 2_000)}) + 1
    assert told(world) == []


def test_lines_of_json_lack_fields_and_have_them_in_any_order(world: Any) -> None:
    set_engine(world, "require")
    inbox = world.folder / "in"
    inbox.mkdir()
    (inbox / "a.json").write_text('{"id":1,"name":"a"}\n{"name":"b","id":2}\n{"id":3}\n{"id":4,"name":null}\n{}\n')
    world.run(Files.source(str(inbox), "json", "id bigint, name string") >> where("true") >> world.sink("a.t"))
    assert world.rows("a.t") == {(1, "a"): 1, (2, "b"): 1, (3, None): 1, (4, None): 1, (None, None): 1}


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("quotes.csv", 'id,name\n1,"a,b"\n2,c\n', [1, 2]),
        ("spaces.csv", "id,name\n1, a\n", [1]),
        ("empty lines.csv", "id,name\n\n1,a\n\n", [1]),
        ("escapes.csv", "id,name\n1,a\\b\n", [1]),
        ("mark.csv", "\ufeffid,name\n1,a\n", [1]),
        ("lists.json", '[{"id":1,"name":"a"},{"id":2,"name":"b"}]\n', [1, 2]),
        ("other case.json", '{"ID":1,"name":"a"}\n', [1]),
        ("texts.json", '{"id":1,"name":5}\n', [1]),
    ],
)
def test_lines_that_are_not_plain_are_read_by_spark(world: Any, name: str, content: str, ids: list[int]) -> None:
    set_engine(world, "auto")
    inbox = world.folder / "in"
    inbox.mkdir()
    (inbox / name).write_text(content, encoding="utf-8")
    world.run(Files.source(str(inbox), name.rpartition(".")[2], "id bigint, name string") >> world.sink("a.t"))
    assert world.ids("a.t") == ids
    (message,) = told(world)
    assert message.startswith("engine spark, because ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("short.csv", "id,name\n1\n"),
        ("long.csv", "id,name\n1,a\n2,b,c\n"),
        ("words.csv", "id,name\n1,a\nx,b\n"),
        ("other.csv", "id,name,more\n1,a,b\n"),
        ("bytes.csv", b"id,name\n1,\xff\n"),
        ("open.csv", 'id,name\n1,"a\n2,b\n'),
        ("more.json", '{"id":1,"name":"a"}\n{"id":2,"other":1}\n'),
        ("twice.json", '{"id":1,"id":2}\n'),
        ("two.json", '{"id":1}{"id":2}\n'),
        ("half.json", '{"id":1}\n{"id":2\n'),
        ("fraction.json", '{"id":1.5}\n'),
    ],
)
def test_rows_that_stop_the_run_are_told_as_by_spark(world: Any, name: str, content: str | bytes) -> None:
    inbox = world.folder / "in"
    inbox.mkdir()
    (inbox / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    off, auto = failures(world, Files.source(str(inbox), name.rpartition(".")[2], "id bigint, name string"))
    assert off == auto


def test_what_the_plan_leaves_to_spark(world: Any) -> None:
    set_engine(world, "auto")
    inbox = world.folder / "in"
    inbox.mkdir()
    csv, sink = Files.source(str(inbox), "csv", "id bigint, at timestamp"), world.sink("a.t")
    other = Files.source(str(inbox), "json", "id bigint", extra="ignore")
    for pipeline, why in (
        (csv.option(timestampFormat="yyyy") >> sink, "its reader has the option timestampFormat"),
        (csv.option(quote="'") >> sink, "its reader has the option quote"),
        (csv >> sink.upsert("id"), "the native engine upserts only rows that it reads from an Iceberg table"),
        (other >> sink, "it leaves out other fields of json"),
    ):
        assert str(world.plan(pipeline).engine) == f"spark, because {why}"
