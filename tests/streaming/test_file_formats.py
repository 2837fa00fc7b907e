"""What files hold: columns by name, types, rows that do not parse, files that cannot be read."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import re
import struct
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from helios import Files, Memory, select, where
from helios.errors import InputError, RunError
from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.files.spark.rows import read_files

pytestmark = pytest.mark.promise("files", "bad-rows")


def land(folder: Path, name: str, text: str | bytes, order: int = 0) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(folder / name, (1_700_000_000 + order, 1_700_000_000 + order))


def write(folder: Path, name: str, order: int = 0, **columns: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / name)
    os.utime(folder / name, (1_700_000_000 + order, 1_700_000_000 + order))


def context(world: Any, evolve: str = "add_columns") -> SourceContext:
    """What a source needs of a run."""
    plan = world.plan(Memory.source([{"id": 1}]) >> world.sink("any.thing").evolve_schema(evolve))
    return SourceContext(plan=plan, spark=world.spark)


def listed(path: Path) -> list[File]:
    """The files below a folder."""
    found = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.startswith("."))
    return [File(f"file:{file}", file.stat().st_size, int(file.stat().st_mtime * 1000)) for file in found]


def rows(world: Any, source: Any) -> Counter[tuple[Any, ...]]:
    """The rows of a folder, as a multiset."""
    folder = Path(source.path.split("*", maxsplit=1)[0])
    return Counter(map(tuple, read_files(context(world), source, listed(folder)).collect()))


# columns by name


@pytest.mark.landing
def test_columns_of_a_csv_go_by_the_name_in_its_header(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "amount,id\n1.00,7\n", 0)
    land(folder, "b.csv", "id,amount\n8,2.00\n", 1)
    source = Files.source(str(folder), "csv", schema="id bigint, amount double")
    world.run(source.incremental(poll=1) >> world.sink("a.t"))
    assert world.rows("a.t", "id", "amount") == {(7, 1.0): 1, (8, 2.0): 1}


@pytest.mark.parametrize("schema", [None, "id bigint"])
@pytest.mark.cases(landing="None")
def test_a_new_column_of_a_later_file_reaches_the_table(world: Any, schema: str | None) -> None:
    more: dict[str, Any] = {"schema": schema, "extra": "add"} if schema else {}
    for kind in ("csv", "json", "parquet"):
        folder = world.folder / kind
        source = Files.source(str(folder), kind, **more).incremental(poll=1)
        pipeline = source >> world.sink(f"a.{kind}").evolve_schema("add_columns")
        first = {"csv": "id\n1\n", "json": '{"id":1}\n'}
        later = {"csv": "note,id\nx,2\n", "json": '{"note":"x","id":2}\n'}
        if kind == "parquet":
            write(folder, "a.parquet", 0, id=pa.array([1], pa.int64()))
        else:
            land(folder, f"a.{kind}", first[kind], 0)
        world.run(pipeline)
        if kind == "parquet":
            write(folder, "b.parquet", 1, note=["x"], id=pa.array([2], pa.int64()))
        else:
            land(folder, f"b.{kind}", later[kind], 1)
        world.run(pipeline)
        assert world.rows(f"a.{kind}", "id", "note") == {(1, None): 1, (2, "x"): 1}


def test_a_widened_column_of_a_later_file_widens_the_table_under_full(world: Any) -> None:
    folder = world.folder / "in"
    source = Files.source(str(folder), "parquet").incremental(poll=1)
    write(folder, "a.parquet", 0, id=pa.array([1], pa.int32()))
    world.run(source >> world.sink("a.t").evolve_schema("full"))
    write(folder, "b.parquet", 1, id=pa.array([2**40], pa.int64()))
    with pytest.raises(InputError, match=r"int -> bigint"):
        world.run(source >> world.sink("a.t").evolve_schema("strict"))
    world.run(source >> world.sink("a.t").evolve_schema("full"))
    assert world.ids("a.t") == [1, 2**40]


def test_types_that_no_type_holds_both_of_name_both_files(world: Any) -> None:
    write(world.folder / "in", "a.parquet", 0, id=[1])
    write(world.folder / "in", "b.parquet", 1, id=["x"])
    source = Files.source(str(world.folder / "in"))
    with pytest.raises(InputError, match=r"id is string in .*b\.parquet and bigint in .*a\.parquet.*Fix: declare"):
        world.run(source >> world.sink("a.t"))


def test_a_declared_column_that_a_file_lacks_is_null_unless_strict(world: Any) -> None:
    folder = world.folder / "in"
    land(folder, "a.csv", "id\n1\n")
    source = Files.source(str(folder), "csv", schema="id bigint, name string")
    with pytest.raises(InputError, match=r"a\.csv has no column 'name', which the schema declares"):
        world.run(source >> world.sink("a.s").evolve_schema("strict"))
    world.run(source >> world.sink("a.t"))
    assert world.rows("a.t", "id", "name") == {(1, None): 1}


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_columns_beside_the_declared_ones(world: Any, kind: str) -> None:
    folder = world.folder / "in"
    if kind == "parquet":
        write(folder, "a.parquet", 0, note=["x"], id=pa.array([1], pa.int64()))
    else:
        land(folder, f"a.{kind}", {"csv": "note,id\nx,1\n", "json": '{"note":"x","id":1}\n'}[kind])

    def source(**more: Any) -> Any:
        return Files.source(str(folder), kind, schema="id bigint", **more)

    with pytest.raises(InputError, match=rf"a\.{kind} has columns that the declared schema lacks: note\..*extra=\"ign"):
        world.run(source() >> world.sink("a.fail"))
    world.run(source(extra="ignore") >> world.sink("a.ignore"))
    assert world.rows("a.ignore") == {(1,): 1}
    world.run(source(extra="add") >> world.sink("a.add"))
    assert world.rows("a.add", "id", "note") == {(1, "x"): 1}
    world.run(source(rescued="_rescued") >> world.sink("a.rescued"))
    assert world.rows("a.rescued", "id", "_rescued") == {(1, '{"note":"x"}'): 1}


HEADERS = {
    "windows": ("id,name\r\n1,one\r\n", "name"),
    "bom": ("\ufeffid,name\n1,one\n", "name"),
    "quoted": ('"id","name"\n1,"one"\n', "name"),
    "spaced": ("id,the name\n1,one\n", "the name"),
    "case": ("ID,Name\n1,one\n", "name"),
    "no newline": ("id,name\n1,one", "name"),
}


@pytest.mark.parametrize("which", HEADERS)
def test_headers_as_they_come(world: Any, which: str) -> None:
    text, name = HEADERS[which]
    land(world.folder / "in", "a.csv", text)
    source = Files.source(str(world.folder / "in"), "csv", schema={"id": "bigint", name: "string"})
    assert rows(world, source) == {(1, "one"): 1}
    assert rows(world, source.option(multiLine=True)) == {(1, "one"): 1}
    inferred = Files.source(str(world.folder / "in"), "csv")
    assert rows(world, inferred) == {(1, "one"): 1}


def test_a_name_twice_in_a_header_is_an_error(world: Any) -> None:
    land(world.folder / "in", "a.csv", "id,name,ID\n1,one,2\n")
    with pytest.raises(RunError, match=r"a\.csv cannot be read: its column 'ID' occurs twice"):
        rows(world, Files.source(str(world.folder / "in"), "csv"))


def test_files_without_rows(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    declared = Files.source(str(folder), "csv", schema="id bigint")
    assert rows(world, declared) == Counter()
    land(folder, "empty.csv", "")
    land(folder, "header.csv", "id\n")
    assert rows(world, declared) == Counter()
    land(folder, "a.csv", "id\n1\n")
    assert rows(world, declared) == rows(world, Files.source(str(folder), "csv")) == {(1,): 1}


def test_what_inner_fields_have_beside_the_wanted_ones_is_rescued(world: Any) -> None:
    deep = pa.struct([("a", pa.int64()), ("b", pa.string())])
    columns = {
        "s": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None], deep),
        "l": pa.array([[{"a": 1, "b": None}, {"a": 2, "b": "y"}], [], None], pa.list_(deep)),
        "m": pa.array([[("k", {"a": 1, "b": "z"})], [], None], pa.map_(pa.string(), deep)),
        "x": pa.array([None, 5, None]),
    }
    write(world.folder / "in", "a.parquet", 0, id=pa.array([1, 2, 3]), **columns)
    schema = "id bigint, s struct<a: bigint>, l array<struct<a: bigint>>, m map<string, struct<a: bigint>>"
    with pytest.raises(InputError, match=r"lacks: s\.b, l\.b, m\.b, x"):
        rows(world, Files.source(str(world.folder / "in"), schema=schema))
    world.run(Files.source(str(world.folder / "in"), schema=schema, rescued="more") >> world.sink("a.more"))
    assert world.rows("a.more", "id", "more") == {
        (1, '{"s":{"b":"x"},"l":[null,{"b":"y"}],"m":{"k":{"b":"z"}}}'): 1,
        (2, '{"x":5}'): 1,
        (3, None): 1,
    }


# rows that do not parse

FIELDS = "it has another number of fields than the file has columns"
UNPARSED = "the row does not parse"
BAD = {
    "unparsable": ("csv", "id,name\n1,one\nx2,two\n3,three\n", "x2,two", "id does not fit bigint"),
    "short": ("csv", "id,name\n1,one\n2\n3,three\n", "2", FIELDS),
    "long": ("csv", "id,name\n1,one\n2,two,more\n3,three\n", "2,two,more", FIELDS),
    "garbage": ("json", '{"id":1,"name":"one"}\nnot json\n{"id":3,"name":"three"}\n', "not json", UNPARSED),
    "wrong type": ("json", '{"id":1}\n{"id":"x","name":"b"}\n{"id":3}\n', '{"id":"x","name":"b"}', UNPARSED),
}  # fmt: skip


@pytest.mark.parametrize("which", BAD)
@pytest.mark.cases(landing="unparsable")
def test_a_row_that_does_not_parse(world: Any, which: str) -> None:
    kind, text, raw, why = BAD[which]
    land(world.folder / "in", f"a.{kind}", text)
    source = Files.source(str(world.folder / "in"), kind, schema="id bigint, name string")
    # Steps that do not need the broken column, or would leave the row out, change nothing.
    named = source >> select("name") >> where("name IS NOT NULL")
    with pytest.raises(RunError, match=rf"formats\.py:\d+: file:.*, line \d: {why}: ") as failed:
        world.run(named >> world.sink("a.fail"))
    assert f"line {text.splitlines().index(raw) + 1}: {why}: {raw};" in str(failed.value)
    assert not world.catalog.exists("a.fail") or world.rows("a.fail") == Counter()

    aside = world.run(source.on_bad_row("quarantine") >> select("id") >> world.sink("a.t").quarantine("a.q"))
    assert world.ids("a.t") == [1, 3]
    [(payload, reason)] = world.rows("a.q", "payload", "reason")
    assert json.loads(payload)["text"] == raw
    assert json.loads(payload)["file"].endswith(f"a.{kind}")
    assert reason == why
    assert aside.metrics().records_failed == 1

    dropped = world.run(source.on_bad_row("drop") >> select("id") >> world.sink("a.d"))
    assert world.ids("a.d") == [1, 3]
    assert dropped.metrics().records_failed == 1

    world.run(source.on_bad_row("null") >> world.sink("a.n"))
    assert sum(world.rows("a.n").values()) == 3


def test_dropped_rows_are_counted_when_all_rows_of_a_batch_are_dropped(world: Any) -> None:
    folder = world.folder / "in"
    source = Files.source(str(folder), "csv", schema="id bigint").on_bad_row("drop").incremental(poll=1)
    land(folder, "a.csv", "id\nx\ny\n")
    run = world.run(source >> world.sink("a.t"))
    assert run.metrics().records_failed == 2
    assert world.ids("a.t") == []


@pytest.mark.landing
def test_quarantined_rows_of_a_replayed_batch_are_there_once(world: Any, forget_commit: Any) -> None:
    folder = world.folder / "in"
    source = Files.source(str(folder), "csv", schema="id bigint").on_bad_row("quarantine").incremental(poll=1)
    pipeline = source >> world.sink("a.t").quarantine("a.q")
    land(folder, "a.csv", "id\n1\nx\n")
    world.run(pipeline)
    forget_commit(world.checkpoint(pipeline), 0)
    world.run(pipeline)
    assert world.ids("a.t") == [1]
    assert sum(world.rows("a.q", "payload").values()) == 1


def test_the_line_of_a_bad_row_in_a_compressed_file(world: Any) -> None:
    text = "".join(f"{i}\n" for i in range(5000))
    land(world.folder / "in", "a.csv.gz", gzip.compress(f"id\n{text}oops\n".encode()))
    source = Files.source(str(world.folder / "in"), schema="id bigint")
    with pytest.raises(RunError, match=r"a\.csv\.gz, line 5002: id does not fit bigint: oops;"):
        world.run(source >> world.sink("a.t"))


# types


def test_a_parquet_decimal_under_a_declared_double(world: Any) -> None:
    write(world.folder / "in", "a.parquet", 0, x=pa.array([Decimal("1.5")], pa.decimal128(8, 1)))
    assert rows(world, Files.source(str(world.folder / "in"), schema="x double")) == {(1.5,): 1}


DAY = datetime(2026, 1, 2, 3, 4, 5)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "int8": (pa.int8(), [-128, 127]),
    "int32": (pa.int32(), [-(2**31), 7]),
    "int64": (pa.int64(), [-(2**63), 7]),
    "float": (pa.float32(), [0.5, -2.0]),
    "double": (pa.float64(), [0.1, 1e300]),
    "decimal(8,1)": (pa.decimal128(8, 1), [Decimal("1.5"), Decimal("-1234567.8")]),
    "decimal(18,4)": (pa.decimal128(18, 4), [Decimal("1.5000"), Decimal("-1.2345")]),
    "decimal(38,10)": (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("12345678901234567890.5")]),
    "string": (pa.string(), ["1", "2.5", "2026-01-02", "x"]),
    "bool": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [DAY.date()]),
    **{
        f"timestamp({unit}, {zone})": (pa.timestamp(unit, zone), [DAY])
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin")
    },
}
DECLARED = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(4,1)", "decimal(20,0)", "decimal(38,10)",
    "string", "boolean", "date", "timestamp", "timestamp_ntz",
)  # fmt: skip
INSTANT = {"date", "timestamp", "timestamp_ntz"}


def equal(given: Any, read: Any, kind: str) -> bool:
    """Whether a value that was read as a type says what pyarrow says of it."""
    if kind == "string" or isinstance(given, str):
        return True  # texts are compared by themselves, below
    if kind in INSTANT:
        times = [v if isinstance(v, datetime) else datetime(v.year, v.month, v.day) for v in (given, read)]
        return times[0].replace(tzinfo=None) == times[1].replace(tzinfo=None)
    if isinstance(given, datetime):  # a bigint of nanoseconds
        return bool((given.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1) * 1000 == read)
    if kind in ("float", "double"):  # the nearest one
        code = kind[0]
        return read == struct.unpack(code, struct.pack(code, float(given)))[0]
    return Fraction(str(given) if isinstance(given, float) else given) == Fraction(read)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.cases(landing="uint8")
def test_every_declared_type_reads_what_the_file_holds(world: Any, kind: str, monkeypatch: Any) -> None:
    """Under each declared type a value is the file's own, or its row is bad, or the pair is refused: never another."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    arrow, values = VALUES[kind]
    column = pa.array(values, arrow)
    write(world.folder / "in", "a.parquet", 0, x=column)
    held = [v.as_py() for v in column]
    if pa.types.is_timestamp(arrow) and arrow.tz:
        held = [v.astimezone(UTC) for v in held]
    outcomes = Counter[str]()
    for declared in DECLARED:
        source = Files.source(str(world.folder / "in"), schema=f"x {declared}").on_bad_row("quarantine")
        run = context(world)
        try:
            df = read_files(run, source, listed(world.folder / "in"))
        except InputError:
            outcomes["refused"] += 1
            continue
        read = [row.x for row in df.collect()]
        bad = sum(part.count() for part in run.rejected_input.rejected_rows)
        assert len(read) + bad == len(held), declared
        left = list(held)
        for value in read:
            match = next((given for given in left if equal(given, value, declared)), None)
            assert match is not None, (kind, declared, value, held)
            left.remove(match)
        outcomes["read"] += len(read)
    assert outcomes["read"] >= len(held)
    assert outcomes["refused"] >= 1 or kind == "string"
    own = {row[0] for row in rows(world, Files.source(str(world.folder / "in")))}
    plain = {v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in held}
    assert {v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in own} == plain


def test_int96_and_narrowing(world: Any) -> None:
    folder = world.folder / "in"
    folder.mkdir()
    table = pa.table({"t": pa.array([DAY], pa.timestamp("us"))})
    pq.write_table(table, folder / "a.parquet", use_deprecated_int96_timestamps=True)
    [(read,)] = rows(world, Files.source(str(folder), schema="t timestamp_ntz"))
    assert read == DAY
    write(world.folder / "wide", "b.parquet", 0, id=[1, 2**40])
    source = Files.source(str(world.folder / "wide"), schema="id int")
    with pytest.raises(RunError, match=r'id does not fit int: \{"id":1099511627776\}'):
        world.run(source >> world.sink("a.t"))
    run = world.run(source.on_bad_row("drop") >> world.sink("a.t"))
    assert world.ids("a.t") == [1]
    assert run.metrics().records_failed == 1


# files that cannot be read

GOOD = pa.BufferOutputStream()
pq.write_table(pa.table({"id": [1, 2, 3]}), GOOD)
PARQUET = GOOD.getvalue().to_pybytes()
LONG = gzip.compress(("id\n" + "".join(f"{i * 7919}\n" for i in range(9999))).encode())
DAMAGED: dict[str, tuple[str, bytes, str]] = {
    "no parquet": ("x.parquet", b"id,name\n1,one\n", "it is no parquet file"),
    "empty": ("x.parquet", b"", r"the file is empty \(0 bytes\)"),
    "truncated": ("x.parquet", PARQUET[:-20], r"not a Parquet file|is not a Parquet|corrupt|truncated"),
    "no gzip": ("x.csv.gz", b"id\n1\n", r"its name ends in \.gz, but its content is not compressed that way"),
    "gzip": ("x.csv", gzip.compress(b"id\n1\n"), "it is no csv file but gzip: the name of a compressed file"),
    "truncated gzip": ("x.csv.gz", LONG[:-99], "[Uu]nexpected end"),
    "no orc": ("x.orc", b"1234567", "it is no orc file"),
}  # fmt: skip


@pytest.mark.parametrize("which", DAMAGED)
@pytest.mark.cases(landing="no parquet")
def test_a_file_that_cannot_be_read(world: Any, which: str) -> None:
    name, content, cause = DAMAGED[which]
    folder = world.folder / "in"
    kind = name.split(".")[1]
    good = {"parquet": PARQUET, "csv": b"id\n7\n"}.get(kind)
    if good:
        land(folder, f"good.{kind}", good, 0)
    land(folder, name, content, 1)
    source = Files.source(str(folder), kind, schema="id bigint").incremental(poll=1).on_change("reread")
    with pytest.raises(RunError, match=rf"{name} cannot be read: .*({cause}).*[Ff]ix: repair") as failed:
        world.run(source >> world.sink("a.fail"))
    assert "\n" not in str(failed.value)
    if kind == "orc":
        return
    # A repaired file is no changed one.
    pipeline = source.on_change("fail").on_bad_file("quarantine") >> world.sink("a.t").quarantine("a.q")
    run = world.run(pipeline)
    assert world.ids("a.t") == ([1, 2, 3] if kind == "parquet" else [7])
    [(payload, reason)] = world.rows("a.q", "payload", "reason")
    assert json.loads(payload)["file"].endswith(name)
    assert re.search(cause, reason)
    assert run.metrics().records_failed == 1
    repaired = gzip.compress(b"id\n8\n") if name.endswith(".gz") else {"parquet": PARQUET, "csv": b"id\n8\n"}[kind]
    land(folder, name, repaired, 2)
    world.run(pipeline)
    assert world.ids("a.t") == ([1, 1, 2, 2, 3, 3] if kind == "parquet" else [7, 8])


# other formats, folders and codecs


def test_folders_that_name_a_value_become_columns(world: Any) -> None:
    lake = world.folder / "lake"
    for site, day, number in (("a", "2026-01-01", 1), ("b", "2026-01-02", 2)):
        land(lake / site / f"day={day}" / "where=x%2Fy+z", "a.csv", f"id\n{number}\n")
    land(lake / "a" / "day=__HIVE_DEFAULT_PARTITION__" / "where=50 %", "a.csv", "id\n3\n")
    expected = {
        (1, date(2026, 1, 1), "x/y+z"): 1,
        (2, date(2026, 1, 2), "x/y+z"): 1,
        (3, None, "50 %"): 1,
    }
    for path in (lake, lake / "*" / "day=*"):
        assert rows(world, Files.source(str(path), "csv")) == expected
        declared = Files.source(str(path), "csv", schema="id int, day date, where string")
        assert rows(world, declared) == expected
    with pytest.raises(InputError, match=r"the declared schema lacks: day, where"):
        rows(world, Files.source(str(lake), "csv", schema="id int"))
    world.run(Files.source(str(lake), "csv", schema="id bigint, day date", extra="ignore") >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 2, 3]


@pytest.mark.parametrize("codec", ["gz", "bz2", "zst"])
def test_compressed_text(world: Any, codec: str) -> None:
    text = b"id\n1\n2\n"
    content = {"gz": gzip.compress(text), "bz2": bz2.compress(text), "zst": pa.compress(text, "zstd", asbytes=True)}
    land(world.folder / "in", f"a.csv.{codec}", content[codec])
    assert rows(world, Files.source(str(world.folder / "in"), schema="id bigint")) == {(1,): 1, (2,): 1}


@pytest.mark.landing
def test_orc_and_text(world: Any) -> None:
    (world.folder / "orc").mkdir()
    orc.write_table(pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]}), world.folder / "orc" / "a.orc")
    assert rows(world, Files.source(str(world.folder / "orc"))) == {(1, "a"): 1, (2, "b"): 1}
    named = Files.source(str(world.folder / "orc"), schema="name string, id bigint")
    assert rows(world, named) == {("a", 1): 1, ("b", 2): 1}
    land(world.folder / "text", "a.txt", "one\n\ntwo\n")
    assert rows(world, Files.source(str(world.folder / "text"))) == {("one",): 1, ("",): 1, ("two",): 1}


@pytest.mark.jars("avro")
@pytest.mark.landing
def test_avro(world: Any) -> None:
    made = world.spark.createDataFrame([(1, "a"), (2, None)], "id int, name string").coalesce(1)
    made.write.format("avro").save(str(world.folder / "avro"))
    (world.folder / "avro" / "_SUCCESS").unlink()
    assert rows(world, Files.source(str(world.folder / "avro"))) == {(1, "a"): 1, (2, None): 1}
    named = Files.source(str(world.folder / "avro"), schema="name string, id bigint")
    assert rows(world, named) == {("a", 1): 1, (None, 2): 1}
