"""Data files that other writers have registered in a table: each is read right, or refused by its name."""

from __future__ import annotations

import base64
import datetime
import json
import re
import struct
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, UUIDType

from helios import Memory, aggregate, with_columns
from helios.errors import HeliosError
from helios.plan.native import engine
from helios.spark.jvm.compiled import instance
from helios.spark.maintenance.compact import compact

pytestmark = [pytest.mark.promise("bad-sources")]

MAPPING = json.dumps([{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["c"]}])
MICROS = 1_700_000_000_123_456
TIME = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
DAY = datetime.date(2023, 11, 14)
UUID = uuid.UUID(int=2**100 + 1)


class Case(NamedTuple):
    """A column of a file.

    Attributes:
        parquet: The column in parquet's own text.
        kind: The type that the table has.
        values: What is stored.
        read: What is to be read; None where the file is to be refused.
    """

    parquet: str
    kind: str
    values: Sequence[Any]
    read: Sequence[Any] | None


def raw(value: bytes) -> str:
    return base64.b64encode(value).decode()


def number(value: int, width: int) -> str:
    return raw(value.to_bytes(width, "big", signed=True))


def int96(micros: int) -> str:
    days, rest = divmod(micros, 86_400_000_000)
    return raw(struct.pack("<qi", rest * 1000, days + 2440588))


def utc(value: datetime.datetime) -> datetime.datetime:
    return value.replace(tzinfo=datetime.UTC)


TWO = [Decimal("123.45")]
CASES = {
    "int": Case("int32 c", "int", [5, -1], [5, -1]),
    "int8": Case("int32 c (INTEGER(8,true))", "int", [5, -1], [5, -1]),
    "int16 as long": Case("int32 c (INTEGER(16,true))", "bigint", [5, -1], [5, -1]),
    "uint8": Case("int32 c (INTEGER(8,false))", "int", [5, 200], None),
    "uint16": Case("int32 c (INTEGER(16,false))", "int", [5, 60000], None),
    "uint16 as long": Case("int32 c (INTEGER(16,false))", "bigint", [5, 60000], None),
    "uint32 as int": Case("int32 c (INTEGER(32,false))", "int", [5, -1], None),
    "uint32 as long": Case("int32 c (INTEGER(32,false))", "bigint", [5, -1], None),
    "uint64": Case("int64 c (INTEGER(64,false))", "bigint", [5, -1], None),
    "long": Case("int64 c (INTEGER(64,true))", "bigint", [5, -1], [5, -1]),
    "long as int": Case("int64 c", "int", [5, 2**33], None),
    "int as long": Case("int32 c", "bigint", [5, -1], [5, -1]),
    "int as double": Case("int32 c", "double", [5], None),
    "int as string": Case("int32 c", "string", [5], None),
    "float as double": Case("float c", "double", [0.5], [0.5]),
    "double as float": Case("double c", "float", [0.5], None),
    "boolean": Case("boolean c", "boolean", [True, False], [True, False]),
    "micros": Case("int64 c (TIMESTAMP(MICROS,true))", "timestamp", [MICROS], [utc(TIME)]),
    "micros without zone": Case("int64 c (TIMESTAMP(MICROS,false))", "timestamp_ntz", [MICROS], [TIME]),
    "millis": Case("int64 c (TIMESTAMP(MILLIS,true))", "timestamp", [MICROS // 1000], None),
    "millis without zone": Case("int64 c (TIMESTAMP(MILLIS,false))", "timestamp_ntz", [MICROS // 1000], None),
    "nanos": Case("int64 c (TIMESTAMP(NANOS,true))", "timestamp", [MICROS * 1000], None),
    "nanos without zone": Case("int64 c (TIMESTAMP(NANOS,false))", "timestamp_ntz", [MICROS * 1000], None),
    "time stamp as long": Case("int64 c (TIMESTAMP(MICROS,true))", "bigint", [MICROS], None),
    "int96": Case("int96 c", "timestamp", [int96(MICROS)], [utc(TIME)]),
    "int96 without zone": Case("int96 c", "timestamp_ntz", [int96(MICROS)], [TIME]),
    "date": Case("int32 c (DATE)", "date", [19675], [DAY]),
    "date as int": Case("int32 c (DATE)", "int", [19675], None),
    "time in millis": Case("int32 c (TIME(MILLIS,true))", "int", [1000], None),
    "time in micros": Case("int64 c (TIME(MICROS,true))", "bigint", [1000], None),
    "time in nanos": Case("int64 c (TIME(NANOS,false))", "bigint", [1000], None),
    "uuid": Case("fixed_len_byte_array(16) c (UUID)", "uuid", [raw(UUID.bytes)], [str(UUID)]),
    "uuid as string": Case("fixed_len_byte_array(16) c (UUID)", "string", [raw(UUID.bytes)], None),
    "float16": Case("fixed_len_byte_array(2) c (FLOAT16)", "float", [raw(struct.pack("<e", 1.5))], None),
    "decimal in int32": Case("int32 c (DECIMAL(9,2))", "decimal(9,2)", [12345], TWO),
    "decimal in int64": Case("int64 c (DECIMAL(18,2))", "decimal(18,2)", [12345], TWO),
    "decimal in binary": Case("binary c (DECIMAL(9,2))", "decimal(9,2)", [number(12345, 4)], None),
    "decimal in fixed": Case("fixed_len_byte_array(13) c (DECIMAL(30,2))", "decimal(30,2)", [number(12345, 13)], TWO),
    "decimal of less digits": Case("int32 c (DECIMAL(9,2))", "decimal(18,2)", [12345], TWO),
    "decimal of more digits": Case("int64 c (DECIMAL(18,2))", "decimal(9,2)", [10**14], None),
    "decimal of another scale": Case("int32 c (DECIMAL(9,3))", "decimal(9,2)", [12345], None),
    "decimal of a smaller scale": Case("int32 c (DECIMAL(9,1))", "decimal(9,2)", [12345], None),
    "json": Case("binary c (JSON)", "string", [raw(b'{"a":1}')], ['{"a":1}']),
    "bson": Case("binary c (BSON)", "binary", [raw(b"\5\0\0\0\0")], [b"\5\0\0\0\0"]),
    "bson as string": Case("binary c (BSON)", "string", [raw(b"\5\0\0\0\0")], None),
    "enum": Case("binary c (ENUM)", "string", [raw(b"RED")], ["RED"]),
    "binary as string": Case("binary c", "string", [raw(b"RED")], ["RED"]),
    "string as binary": Case("binary c (STRING)", "binary", [raw(b"RED")], [b"RED"]),
    "fixed as binary": Case("fixed_len_byte_array(3) c", "binary", [raw(b"RED")], None),
    "interval": Case("fixed_len_byte_array(12) c (INTERVAL)", "binary", [raw(b"REDREDREDRED")], None),
    "nulls where none may be": Case("int32 c", "int NOT NULL", [5, None], None),
    "texts without nulls": Case("binary c (STRING)", "string NOT NULL", [raw(b"a")], ["a"]),
    "no values where they must be": Case("int32 other", "int NOT NULL", [5], None),
    "no values": Case("int32 other", "int", [5], [None]),
}


class Tables:
    """Tables of a world whose files are written by hand."""

    def __init__(self, world: Any) -> None:
        self.world = world
        world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")

    def create(self, name: str, kind: str, *, mapped: bool = True, version: int = 2) -> Any:
        """Creates a table of an id and a column `c`."""
        if kind == "uuid":
            self.world.fill("a.any", [1])
            catalog = self.world.load("a.any").iceberg.catalog
            catalog.create_table(name, Schema(NestedField(1, "id", LongType()), NestedField(2, "c", UUIDType())))
        else:
            self.world.sql(
                f"CREATE TABLE local.{name} (id bigint, c {kind}) USING iceberg "
                f"TBLPROPERTIES ('format-version' = '{version}')"
            )
        if mapped:
            self.world.sql(f"ALTER TABLE local.{name} SET TBLPROPERTIES ('schema.name-mapping.default' = '{MAPPING}')")

    def write(self, name: str, case: Case, *, ids: bool = False) -> Path:
        """Writes a file."""
        column = case.parquet.split()[1]
        fields = [f"required int64 id{' = 1' * ids}", f"optional {case.parquet}{' = 2' * ids}"]
        rows = [{"id": i, column: value} for i, value in enumerate(case.values)]
        path = self.world.folder / "files" / name / "x.parquet"
        path.parent.mkdir(parents=True)
        schema = f"message m {{ {'; '.join(fields)}; }}"
        writer = instance(self.world.spark, Path(__file__).with_name("WriteParquet.java"))
        writer.call(json.dumps({"path": f"file://{path}", "schema": schema, "rows": rows}))
        return path

    def register(self, name: str, path: Path, rows: int) -> None:
        """Appends a file by Iceberg's Java API, with nothing said of its columns."""
        jvm, table = self.world.spark._jvm, self.table(name)
        file = jvm.org.apache.iceberg.DataFiles.builder(table.spec()).withPath(f"file://{path}").withFormat("parquet")
        file = file.withFileSizeInBytes(path.stat().st_size).withRecordCount(rows).build()
        table.newAppend().appendFile(file).commit()

    def table(self, name: str) -> Any:
        session = self.world.spark._jsparkSession
        return self.world.spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session, f"local.{name}")

    def hand_made(self, name: str, case: Case, **options: Any) -> Path:
        """A table with a file that is written and registered by hand."""
        self.create(name, case.kind, **options)
        path = self.write(name, case, ids=not options.get("mapped", True))
        self.register(name, path, len(case.values))
        return path


@pytest.fixture
def tables(world: Any) -> Tables:
    return Tables(world)


def plain(value: Any) -> Any:
    return value.astimezone(datetime.UTC) if isinstance(value, datetime.datetime) and value.tzinfo else value


def refused(act: Any, path: Path) -> None:
    """Asserts that something names the file and the column."""
    with pytest.raises(HeliosError) as raised:
        act()
    assert str(path) in str(raised.value), str(raised.value)
    assert "column c" in str(raised.value)


def test_each_type_is_read_right_or_its_file_and_column_are_named(world: Any, tables: Tables) -> None:
    wrong = []
    for i, (name, case) in enumerate(CASES.items()):
        path = tables.hand_made(f"a.s{i}", case)
        try:
            found = list(map(plain, world.source(f"a.s{i}").preview(9, world.spark)["c"].to_pylist()))
        except HeliosError as error:
            if case.read is not None or str(path) not in str(error) or "column c" not in str(error):
                wrong.append((name, str(error)))
            continue
        except Exception as error:
            wrong.append((name, f"{type(error).__name__}: {str(error)[:300]}"))
            continue
        if case.read is None or sorted(found, key=repr) != sorted(case.read, key=repr):
            wrong.append((name, repr(found)))
    assert not wrong


def read(world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, table: str, how: str) -> list[Any]:
    """The column of a table, as a pipeline copies it."""
    monkeypatch.setattr(engine, "SMALL", 0 if how == "engine" else 1 << 40)
    source = world.source(table)
    if how not in ("batch", "engine"):
        source = source.incremental(poll=1, start="earliest")
    if how == "changes":
        source = source.changes(keys=["id"])
    name = f"{table}_{how}"
    sink = world.sink(name)
    if how == "stream":
        source, sink = source >> aggregate("id", c="max(c)"), sink.upsert("id")
    world.run((source >> sink).named(name.replace(".", "_")))
    return sorted((plain(value) for (value,) in world.rows(name, "c").elements()), key=repr)


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("nulls where none may be", ("batch",)),
    ],
)
@pytest.mark.cases(short="nulls where none may be-ways0")
@pytest.mark.usefixtures("native_workers")
def test_each_way_to_read_is_right_or_names_file_and_column(
    world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, name: str, ways: Sequence[str]
) -> None:
    case = CASES[name]
    path = tables.hand_made("a.s", case)
    for how in ways:
        if case.read is None:
            refused(lambda how=how: read(world, tables, monkeypatch, "a.s", how), path)
            assert not world.catalog.exists(f"a.s_{how}") or not world.rows(f"a.s_{how}")
        else:
            assert read(world, tables, monkeypatch, "a.s", how) == case.read


@pytest.mark.parametrize("name", ["nanos", "decimal of another scale", "millis", "nulls where none may be"])
def test_a_target_is_changed_by_what_its_files_hold(world: Any, tables: Tables, name: str) -> None:
    case = CASES[name]
    path = tables.hand_made("a.t", case)
    kind = case.kind.removesuffix(" NOT NULL")
    rows = Memory.source([{"id": 0}], schema="id bigint")
    same = rows >> with_columns(c=f"CAST({'1' if kind == 'int' else 'NULL'} AS {kind})")
    upsert = (same >> world.sink("a.t").upsert("id")).named("upsert")
    merge = (
        rows
        >> world.sink("a.t").merge_sql(
            "MERGE INTO target USING batch ON target.id = batch.id + 9 WHEN MATCHED THEN DELETE"
        )
    ).named("merge")
    delete = (rows >> world.sink("a.t").delete("id")).named("delete")
    if case.read is None:
        for act in (upsert, merge, delete):
            refused(lambda act=act: world.run(act), path)
        refused(lambda: compact(world.spark, world.plan(upsert).write.table), path)
        return
    world.run(merge)
    world.run(upsert)
    assert world.rows("a.t", "c") == {(None,): 1}


def test_nulls_arrive_once_the_column_may_have_them(world: Any, tables: Tables) -> None:
    path = tables.hand_made("a.s", CASES["nulls where none may be"], mapped=False)
    copy = world.source("a.s") >> world.sink("a.t")
    with pytest.raises(HeliosError) as raised:
        world.run(copy)
    assert f"the file file://{path} has 1 null in the column c" in str(raised.value)
    fix = re.search(r"ALTER TABLE \S+ ALTER COLUMN c DROP NOT NULL", str(raised.value))
    assert fix is not None
    world.sql(fix[0])
    world.run(copy)
    assert world.rows("a.t", "c") == {(5,): 1, (None,): 1}


@pytest.mark.usefixtures("native_workers")
def test_the_engine_names_what_spark_would_misread(world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tables.hand_made("a.s", CASES["decimal of another scale"], mapped=False)
    refused(lambda: read(world, tables, monkeypatch, "a.s", "engine"), path)
    assert not list((world.folder / ".helios").rglob("a/s_engine/**/*.parquet"))


PYICEBERG = {
    "dictionary": (pa.array(["a", "b"]).dictionary_encode(), "string", ["a", "b"]),
    "large_string": (pa.array(["a", "b"], pa.large_string()), "string", ["a", "b"]),
    "list": (pa.array([[1, 2], None]), "array<bigint>", [[1, 2], None]),
    "struct": (pa.array([{"x": 1}, None]), "struct<x: bigint>", [{"x": 1}, None]),
    "uint8 in a struct": (pa.array([{"x": 5}], pa.struct([("x", pa.uint8())])), "struct<x: int>", None),
}


@pytest.mark.parametrize("name", PYICEBERG)
def test_files_that_pyiceberg_adds(world: Any, tables: Tables, name: str) -> None:
    values, kind, expected = PYICEBERG[name]
    tables.create("a.s", kind, mapped=False)
    path = world.folder / "x.parquet"
    pq.write_table(pa.table({"id": pa.array(range(len(values)), pa.int64()), "c": values}), path)
    world.load("a.s").iceberg.add_files([f"file://{path}"])
    if expected is None:
        refused(lambda: world.run(world.source("a.s") >> world.sink("a.t")), path)
        return
    world.run(world.source("a.s") >> world.sink("a.t"))
    assert world.load("a.t").iceberg.scan().to_arrow().sort_by("id")["c"].to_pylist() == expected


def test_a_column_that_pyiceberg_has_made_required(world: Any, tables: Tables) -> None:
    tables.create("a.s", "int", mapped=False)
    path = world.folder / "x.parquet"
    pq.write_table(pa.table({"id": [1, 2], "c": pa.array([5, None], pa.int32())}), path)
    table = world.load("a.s").iceberg
    table.add_files([f"file://{path}"])
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("c", IntegerType(), required=True)
    refused(lambda: world.run(world.source("a.s") >> world.sink("a.t")), path)


def test_a_folder_of_partitions_gives_a_required_column(world: Any, tables: Tables) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, c int NOT NULL) USING iceberg PARTITIONED BY (c)")
    folder = world.folder / "parts"
    pq.write_to_dataset(pa.table({"id": [1, 2], "c": pa.array([7, 8], pa.int32())}), folder, partition_cols=["c"])
    world.sql(f"CALL local.system.add_files(table => 'local.a.s', source_table => '`parquet`.`{folder}`')")
    world.run(world.source("a.s") >> world.sink("a.t"))
    assert world.rows("a.t", "id", "c") == {(1, 7): 1, (2, 8): 1}
