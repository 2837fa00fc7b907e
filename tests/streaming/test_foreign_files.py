"""Data files that other writers have registered in a table: each is read right, or refused by its name."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import IntegerType, UUIDType

from helios import Memory, select, where, with_columns
from helios.errors import HeliosError, RunError
from helios.plan.native import engine
from helios.spark.iceberg import foreign_files
from helios.spark.iceberg.transaction import Transaction
from helios.spark.maintenance.compact import compact
from helios.spark.native import batch as native
from tests.streaming.native_cases import set_engine, told

pytestmark = [pytest.mark.promise("bad-sources")]

TIME = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456)
MILLIS = TIME.replace(microsecond=123000)
OLD = datetime.datetime(1960, 1, 2, 3, 4, 5)
DAY = datetime.date(2023, 11, 14)
UUIDS = [uuid.UUID(int=2**100 + 1), uuid.UUID(int=7)]
MONEY = [Decimal("123.45"), Decimal("-6.70")]
NAME_MAPPING = "schema.name-mapping.default"


class Column(NamedTuple):
    """A column of files.

    Attributes:
        values: Two values of a type of Arrow.
        kind: The type that the table has.
        read: What is to be read, if that is something else.
    """

    values: pa.Array
    kind: str
    read: Any = None


def column(values: Any, arrow: pa.DataType, kind: str, read: Any = None) -> Column:
    return Column(pa.array(values, arrow), kind, read)


RIGHT = {
    "int8": column([5, -1], pa.int8(), "int"),
    "int16": column([5, -1], pa.int16(), "int"),
    "int32_as_long": column([5, -1], pa.int32(), "bigint"),
    "float_as_double": column([0.5, -1.5], pa.float32(), "double"),
    "boolean": column([True, False], pa.bool_(), "boolean"),
    "fixed_decimal": column(MONEY, pa.decimal128(9, 2), "decimal(9,2)"),
    "fixed_decimal_of_less_digits": column(MONEY, pa.decimal128(9, 2), "decimal(30,2)"),
    "string": column(["a", "b"], pa.string(), "string"),
    "large_string": column(["a", "b"], pa.large_string(), "string"),
    "large_binary": column([b"a", b"b"], pa.large_binary(), "binary"),
    "date32": column([DAY, OLD.date()], pa.date32(), "date"),
    "date64": column([DAY, OLD.date()], pa.date64(), "date"),
    "micros": column([TIME, OLD], pa.timestamp("us"), "timestamp_ntz"),
    "micros_utc": column([TIME, OLD], pa.timestamp("us", "UTC"), "timestamp"),
    "uuid": column([one.bytes for one in UUIDS], pa.uuid(), "uuid", [str(one) for one in UUIDS]),
}
"""Those that PyIceberg's `add_files` takes."""
BY_SPARK = {
    "micros_utc_without": column([TIME, OLD], pa.timestamp("us", "UTC"), "timestamp_ntz"),
    "micros_without_utc": column([TIME, OLD], pa.timestamp("us"), "timestamp"),
    "int32_as_date": column([1, 2], pa.int32(), "date", [datetime.date(1970, 1, 2), datetime.date(1970, 1, 3)]),
}
"""Those that Spark's takes alone."""
SHORT_DECIMALS = {
    "int32_decimal": column(MONEY, pa.decimal128(9, 2), "decimal(9,2)"),
    "int64_decimal": column(MONEY, pa.decimal128(18, 2), "decimal(18,2)"),
    "int32_decimal_of_less_digits": column(MONEY, pa.decimal128(9, 2), "decimal(18,2)"),
}
INT96 = {
    "int96": column([TIME, OLD], pa.timestamp("us"), "timestamp_ntz"),
    "int96_utc": column([TIME, OLD], pa.timestamp("us", "UTC"), "timestamp"),
}
PLAIN = {
    "millis": column([MILLIS, OLD], pa.timestamp("ms"), "timestamp_ntz"),
    "millis_utc": column([MILLIS, OLD], pa.timestamp("ms", "UTC"), "timestamp"),
}
"""Those that are read right where a file has no dictionary of them."""
UNSIGNED = {
    "uint8": column([5, 200], pa.uint8(), "int"),
    "uint16": column([5, 60000], pa.uint16(), "int"),
    "uint16_as_long": column([5, 60000], pa.uint16(), "bigint"),
}
BYTES = {
    "bytes_as_string": column([b"a", b"b"], pa.binary(), "string", ["a", "b"]),
    "string_as_bytes": column(["a", "b"], pa.string(), "binary", [b"a", b"b"]),
}
"""Those that are so in tables of flat columns alone."""
WRONG = {
    "uint32": column([5, 6], pa.uint32(), "int"),
    "uint32_as_long": column([5, 6], pa.uint32(), "bigint"),
    "uint64": column([5, 6], pa.uint64(), "bigint"),
    "long_as_int": column([5, 2**33], pa.int64(), "int"),
    "double_as_float": column([0.5, 1.5], pa.float64(), "float"),
    "nanos": column([TIME, OLD], pa.timestamp("ns"), "timestamp_ntz"),
    "nanos_utc": column([TIME, OLD], pa.timestamp("ns", "UTC"), "timestamp"),
    "time64": column([datetime.time(1), datetime.time(2)], pa.time64("us"), "bigint"),
    "decimal_of_another_scale": column(MONEY, pa.decimal128(9, 3), "decimal(9,2)"),
    "decimal_of_more_digits": column(MONEY, pa.decimal128(18, 2), "decimal(9,2)"),
    "int_as_decimal": column([5, 6], pa.int32(), "decimal(9,2)"),
    "nothing": column([None, None], pa.null(), "int"),
    "date_as_int": column([DAY, OLD.date()], pa.date32(), "int"),
}


def numbered_as(table: pa.Table, ids: Sequence[int]) -> pa.Table:
    """A table whose columns have field ids."""
    fields = zip(table.schema, ids, strict=True)
    return table.cast(pa.schema([one.with_metadata({"PARQUET:field_id": str(i)}) for one, i in fields]))


class Tables:
    """Tables whose files are written by hand."""

    def __init__(self, world: Any) -> None:
        self.world = world
        world.fill("a.any", [1])  # the namespace

    def create(self, name: str, columns: Mapping[str, Column], *, nested: bool = False) -> None:
        """Creates a table of an id and columns."""
        if "uuid" in columns:  # Spark has no such type
            self.create(name, {key: one for key, one in columns.items() if key != "uuid"}, nested=nested)
            with self.world.load(name).iceberg.update_schema() as update:
                update.add_column("uuid", UUIDType())
            return
        told = ["id bigint", *(f"{key} {one.kind}" for key, one in columns.items()), *["l array<bigint>"] * nested]
        self.world.sql(f"CREATE TABLE local.{name} ({', '.join(told)}) USING iceberg")

    def write(
        self,
        name: str,
        columns: Mapping[str, Column],
        *,
        dictionary: bool,
        nested: bool = False,
        numbered: bool = False,
        **settings: Any,
    ) -> Path:
        """Writes a file of two rows, each ten times; with field ids where they are numbered."""
        table = {"id": pa.array(range(20), pa.int64())}
        table |= {key: pa.chunked_array([one.values] * 10) for key, one in columns.items()}
        if nested:
            table["l"] = pa.array([[1]] * 20)
        path = Path(self.world.folder / "files" / name / f"{dictionary}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        arrow = pa.table(table)
        if numbered:
            arrow = numbered_as(arrow, range(1, arrow.num_columns + 1))
        pq.write_table(arrow, path, use_dictionary=dictionary, **settings)
        return path

    def add(self, name: str, path: Path, writer: str) -> None:
        """Registers a file."""
        if writer == "pyiceberg":
            self.world.load(name).iceberg.add_files([f"file://{path}"])
        else:
            self.world.sql(
                f"CALL local.system.add_files(table => 'local.{name}', source_table => '`parquet`.`{path.parent}`')"
            )

    def forget_mapping(self, name: str) -> None:
        self.world.sql(f"ALTER TABLE local.{name} UNSET TBLPROPERTIES ('{NAME_MAPPING}')")


@pytest.fixture
def tables(world: Any) -> Tables:
    return Tables(world)


def copied(world: Any, table: str, how: str, *columns: str) -> dict[str, list[Any]]:
    """The columns of a table, by id, as a pipeline copies them."""
    source = world.source(table)
    if how != "batch":
        source = source.incremental(poll=1, start="earliest")
    if how == "changes":
        source = source.changes(keys=["id"])
    name = f"{table}_{how}"
    world.run((source.select("id", *columns) >> world.sink(name)).named(name.replace(".", "_")))
    rows = world.load(name).iceberg.scan().to_arrow().sort_by("id")
    return {key: list(map(plain, rows[key].to_pylist())) for key in columns}


def plain(value: Any) -> Any:
    aware = isinstance(value, datetime.datetime) and value.tzinfo is not None
    return value.astimezone(datetime.UTC).replace(tzinfo=None) if aware else value


def expected(columns: Mapping[str, Column]) -> dict[str, list[Any]]:
    return {key: (one.read or list(map(plain, one.values.to_pylist()))) * 10 for key, one in columns.items()}


def refused(act: Callable[[], Any], path: Path, column: str) -> str:
    """The error of an act, which names the file and the column."""
    with pytest.raises(HeliosError) as raised:
        act()
    found = str(raised.value)
    assert str(path) in found, found
    assert re.search(rf"the column {column}\b", found), found
    return found


WAYS = ("batch", "stream", "changes")


@pytest.mark.parametrize(
    ("writer", "dictionary", "nested"),
    [
        ("pyiceberg", True, False),
        ("pyiceberg", False, False),
        ("spark", False, False),
        ("spark", True, True),
        ("spark", False, True),
    ],
)
@pytest.mark.cases(landing=("pyiceberg-True-False", "spark-False-True"))
def test_types_that_are_read_right(world: Any, tables: Tables, writer: str, dictionary: bool, nested: bool) -> None:
    more = {} if dictionary else PLAIN if nested else PLAIN | UNSIGNED
    groups: dict[str, tuple[Mapping[str, Column], dict[str, Any]]] = {
        "a.s": (RIGHT | more | (BY_SPARK if writer == "spark" else {}), {}),
        "a.decimals": (SHORT_DECIMALS, {"store_decimal_as_integer": True}),
    }
    if writer == "spark" and not dictionary and not nested:
        groups["a.bytes"] = BYTES, {}
    if writer == "spark":
        groups["a.int96"] = INT96, {"use_deprecated_int96_timestamps": True}
    for name, (columns, settings) in groups.items():
        tables.create(name, columns, nested=nested)
        tables.add(name, tables.write(name, columns, dictionary=dictionary, nested=nested, **settings), writer)
        for how in WAYS:
            also = ("l",) * nested
            found = copied(world, name, how, *columns, *also)
            assert found == expected(columns) | ({"l": [[1]] * 20} if nested else {}), how


@pytest.mark.parametrize("dictionary", [True, False])
def test_types_that_are_not_read_right(world: Any, tables: Tables, dictionary: bool) -> None:
    wrong = WRONG | (PLAIN | UNSIGNED | BYTES if dictionary else {})
    for name, one in wrong.items():
        tables.create(f"a.{name}", {name: one})
        path = tables.write(f"a.{name}", {name: one}, dictionary=dictionary)
        tables.add(f"a.{name}", path, "pyiceberg" if "uint" in name or "millis" in name else "spark")
        for how in WAYS:
            refused(lambda how=how, name=name: copied(world, f"a.{name}", how, name), path, name)
            assert not world.catalog.exists(f"a.{name}_{how}") or not world.rows(f"a.{name}_{how}")
    assert copied(world, "a.nanos", "batch") == {}
    assert world.ids("a.nanos_batch") == list(range(20))


@pytest.mark.parametrize("dictionary", [True, False])
def test_decimals_in_bytes_of_any_length(world: Any, tables: Tables, dictionary: bool) -> None:
    parsed = "message m { required int32 id; optional binary c (DECIMAL(9,2)); }"
    binary = world.spark._jvm.org.apache.parquet.io.api.Binary.fromConstantByteArray
    values = [b"\x30\x39", b"\x01"]
    path = written_by_java(world, parsed, lambda row, i: row.add("c", binary(values[i % 2])), dictionary=dictionary)
    tables.create("a.s", {"c": column(MONEY, pa.decimal128(9, 2), "decimal(9,2)")})
    tables.add("a.s", path, "spark")
    for how in WAYS:
        refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")


def test_small_unsigned_ints_beside_a_nested_column(world: Any, tables: Tables) -> None:
    columns = {"uint8": UNSIGNED["uint8"]}
    tables.create("a.s", columns, nested=True)
    path = tables.write("a.s", columns, dictionary=False, nested=True)
    tables.add("a.s", path, "pyiceberg")
    refused(lambda: copied(world, "a.s", "batch", "uint8", "l"), path, "uint8")


def written_by_java(world: Any, schema: str, fill: Callable[[Any, int], Any], *, dictionary: bool = False) -> Path:
    """A file of twenty rows with what pyarrow does not write."""
    jvm, path = world.spark._jvm, world.folder / "files" / "java" / "x.parquet"
    parsed = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(schema)
    builder = jvm.org.apache.parquet.hadoop.example.ExampleParquetWriter.builder(
        jvm.org.apache.hadoop.fs.Path(str(path))
    )
    writer = builder.withType(parsed).withDictionaryEncoding(dictionary).build()
    for i in range(20):
        row = jvm.org.apache.parquet.example.data.simple.SimpleGroup(parsed)
        row.add("id", i)
        fill(row, i)
        writer.write(row)
    writer.close()
    return Path(path)


TWO_LEVELS = {
    "numbers": ("array<int>", "repeated int32 array;", lambda row: row.addGroup("c").add("array", 1)),
    "structs": (
        "array<struct<x: int>>",
        "repeated group array { optional int32 x; }",
        lambda row: row.addGroup("c").addGroup("array").add("x", 1),
    ),
}


@pytest.mark.parametrize("named", TWO_LEVELS)
def test_lists_of_two_levels(world: Any, tables: Tables, named: str) -> None:
    kind, elements, fill = TWO_LEVELS[named]
    tables.create("a.s", {"c": Column(pa.nulls(0), kind)})
    schema = f"message m {{ required int32 id; optional group c (LIST) {{ {elements} }} }}"
    path = written_by_java(world, schema, lambda row, _: fill(row))
    tables.add("a.s", path, "spark")
    for how in WAYS:
        message = refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")
        assert "as a list of two levels" in message
    delete = (Memory.source([{"id": 1}], schema="id bigint") >> world.sink("a.s").delete("id")).named("delete")
    for act in (lambda: world.run(delete), lambda: compact(world.spark, world.plan(delete).write.table)):
        refused(act, path, "c")
    assert copied(world, "a.s", "batch") == {}
    assert world.ids("a.s_batch") == list(range(20))


@pytest.mark.parametrize("case", ["numbers", "empty", "structs"])
def test_lists_of_two_levels_without_a_mapping(world: Any, tables: Tables, case: str) -> None:
    kind, elements, fill = TWO_LEVELS["numbers" if case == "empty" else case]
    tables.create("a.s", {"c": Column(pa.nulls(0), kind)})
    numbered = elements.replace(" array;", " array = 3;").replace(" array {", " array = 3 {").replace("x;", "x = 4;")
    schema = f"message m {{ required int32 id = 1; optional group c (LIST) = 2 {{ {numbered} }} }}"
    empty = lambda row, _: row.addGroup("c")  # noqa: E731
    tables.add("a.s", written_by_java(world, schema, empty if case == "empty" else lambda row, _: fill(row)), "spark")
    tables.forget_mapping("a.s")
    for how in WAYS:
        with pytest.raises(HeliosError, match=r"local\.a\.s .*damaged, or has a list of two levels"):
            copied(world, "a.s", how, "c")


@pytest.mark.parametrize("writer", ["spark", "pyiceberg"])
@pytest.mark.cases(landing="spark")
def test_a_codec_that_spark_lacks(world: Any, tables: Tables, writer: str) -> None:
    columns = {"c": RIGHT["int32_as_long"]}
    tables.create("a.s", columns)
    path = tables.write("a.s", columns, dictionary=False, compression={"id": "zstd", "c": "brotli"})
    tables.add("a.s", path, writer)
    for how in WAYS:
        message = refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")
        assert "compressed with brotli, for which Spark has no codec" in message
    for name, act in changes(world, "a.s").items():
        if name in ("upsert", "compact"):
            refused(act, path, "c")
    assert copied(world, "a.s", "batch") == {}


@pytest.mark.usefixtures("native_workers")
def test_a_codec_that_spark_lacks_without_a_mapping(world: Any, tables: Tables) -> None:
    columns = {"c": RIGHT["int32_as_long"]}
    tables.create("a.s", columns)
    numbered = {"dictionary": False, "numbered": True, "compression": "brotli"}
    tables.add("a.s", tables.write("a.s", {"c": column([5, -1], pa.int64(), "bigint")}, **numbered), "spark")
    tables.forget_mapping("a.s")
    set_engine(world, "off")
    for how in WAYS:
        with pytest.raises(HeliosError, match=r"a\.s .*compressed with brotli, for which Spark has no codec"):
            copied(world, "a.s", how, "c")
    set_engine(world, "auto")
    assert copied(world, "a.s", "batch", "c") == expected(columns)  # the engine has one


NULLS = {"c": column([5, None], pa.int32(), "int NOT NULL")}


def with_nulls(tables: Tables, *, mapped: bool = True) -> Path:
    """A table `a.s` with nulls in a required column; without a mapping the file has field ids."""
    tables.create("a.s", NULLS)
    tables.world.sql("INSERT INTO local.a.s VALUES (20, 7)")
    path = tables.write("a.s", NULLS, dictionary=True, numbered=not mapped)
    tables.add("a.s", path, "spark")
    if not mapped:
        tables.forget_mapping("a.s")
    return path


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.cases(short="True", landing="False")
@pytest.mark.usefixtures("native_workers")
def test_nulls_in_a_required_column(world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, mapped: bool) -> None:
    path = with_nulls(tables, mapped=mapped)
    for how in WAYS:
        message = refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")
        assert "has 10 nulls in the column c" in message
    monkeypatch.setattr(engine, "MIN_NATIVE_BYTES", 1 << 40)
    for how in WAYS:
        refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")
    if not mapped:
        return
    fix = re.search(r"ALTER TABLE \S+ ALTER COLUMN c DROP NOT NULL", message)
    assert fix is not None
    world.sql(fix[0])
    for how in WAYS:
        assert copied(world, "a.s", how, "c") == {"c": [5, None] * 10 + [7]}


@pytest.mark.parametrize(("lacks", "has"), [("counts", "10 nulls"), ("column", "no values")])
def test_a_footer_tells_what_the_manifests_do_not(world: Any, tables: Tables, lacks: str, has: str) -> None:
    tables.create("a.s", NULLS)
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('write.metadata.metrics.default' = 'none')")
    path = tables.write("a.s", NULLS if lacks == "counts" else {}, dictionary=True)
    tables.add("a.s", path, "spark")
    for how in WAYS:
        message = refused(lambda how=how: copied(world, "a.s", how, "c"), path, "c")
        assert f"has {has} in the column c" in message


@pytest.mark.parametrize("name", ["nanos", "nulls"])
@pytest.mark.cases(landing="nanos")
def test_a_target_is_not_stored_again_by_what_was_misread(world: Any, tables: Tables, name: str) -> None:
    if name == "nulls":
        path, changed = with_nulls(tables), "c"
    else:
        changed = "nanos"
        tables.create("a.s", {name: WRONG[name]})
        path = tables.write("a.s", {name: WRONG[name]}, dictionary=True)
        tables.add("a.s", path, "spark")
    rows = Memory.source([{"id": 1}], schema="id bigint")
    kind = "INT" if name == "nulls" else "TIMESTAMP_NTZ"
    value = {changed: "1" if name == "nulls" else f"CAST(NULL AS {kind})"}
    upsert = (rows >> with_columns(**value) >> world.sink("a.s").upsert("id")).named("upsert")
    query = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN DELETE"
    merge = (rows >> world.sink("a.s").merge_sql(query)).named("merge")
    delete = (rows >> world.sink("a.s").delete("id")).named("delete")
    for act in (upsert, merge, delete):
        refused(lambda act=act: world.run(act), path, changed)
    refused(lambda: compact(world.spark, world.plan(upsert).write.table), path, changed)


def changes(world: Any, table: str) -> dict[str, Callable[[], Any]]:
    """The ways to change rows of a table of `id` and `c`, each for the row 1."""
    rows = Memory.source([{"id": 1, "c": 1}], schema="id bigint, c int")
    query = "MERGE INTO target USING batch ON target.id = batch.id WHEN MATCHED THEN UPDATE SET c = batch.c"
    pipelines = {
        "upsert": rows >> world.sink(table).upsert("id"),
        "delete_when": rows >> world.sink(table).upsert("id", delete_when="c = 1"),
        "merge": rows >> world.sink(table).merge_sql(query),
        "delete": rows >> select("id") >> world.sink(table).delete("id"),
    }
    acts: dict[str, Callable[[], Any]] = {
        name: lambda name=name, one=one: world.run(one.named(name)) for name, one in pipelines.items()
    }
    name = world.plan(pipelines["upsert"].named("upsert")).write.table
    return acts | {"compact": lambda: compact(world.spark, name)}


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.cases(landing="copy-on-write")
def test_nulls_of_a_target_without_a_mapping(world: Any, tables: Tables, mode: str) -> None:
    path = with_nulls(tables, mapped=False)
    modes = ", ".join(f"'write.{do}.mode' = '{mode}'" for do in ("merge", "delete", "update"))
    world.sql(f"ALTER TABLE local.a.s SET TBLPROPERTIES ({modes})")
    before = world.load("a.s").iceberg.current_snapshot()
    for act in changes(world, "a.s").values():
        assert "has 10 nulls in the column c" in refused(act, path, "c")
    assert world.load("a.s").iceberg.current_snapshot() == before
    world.sql("ALTER TABLE local.a.s ALTER COLUMN c DROP NOT NULL")
    for act in changes(world, "a.s").values():
        act()
    rows = {(i, None if i % 2 else 5): 1 for i in range(20) if i != 1}
    assert world.rows("a.s", "id", "c") == rows | {(20, 7): 1}


@pytest.mark.usefixtures("native_workers")
def test_nulls_of_a_target_of_the_engine(world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    path = with_nulls(tables, mapped=False)
    modes = ", ".join(f"'write.{do}.mode' = 'merge-on-read'" for do in ("merge", "delete", "update"))
    world.sql(f"ALTER TABLE local.a.s SET TBLPROPERTIES ('format-version' = '3', {modes})")
    set_engine(world, "require")
    did: list[str] = []
    monkeypatch.setattr(
        Transaction, "replace_rows", lambda *args, real=Transaction.replace_rows: did.append("rows") or real(*args)
    )
    world.sql("CREATE TABLE local.a.keys USING iceberg AS SELECT 1L AS id, 1 AS c")
    upsert = (world.source("a.keys") >> world.sink("a.s").upsert("id")).named("upsert")
    refused(lambda: world.run(upsert), path, "c")
    assert (did, told(world)) == (["rows"], [])


def test_a_condition_asks_a_required_column_for_nulls(world: Any, tables: Tables) -> None:
    """Iceberg takes it for known that there are none: it would plan no file, or replace each one."""
    path = with_nulls(tables, mapped=False)
    rows = Memory.source([{"id": 100, "c": 1}], schema="id bigint, c int")
    for source in (world.source("a.s").where("c IS NULL"), world.source("a.s").where("c IS NULL").incremental()):
        refused(lambda source=source: world.run((source >> world.sink("a.t")).named("nulls")), path, "c")
    before = world.load("a.s").iceberg.current_snapshot()
    refused(lambda: world.run(rows >> world.sink("a.s").overwrite("c IS NOT NULL")), path, "c")
    assert world.load("a.s").iceberg.current_snapshot() == before


def test_a_table_of_the_same_uuid_and_schema_id_is_checked_by_its_own_columns(world: Any, tables: Tables) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, c int) USING iceberg")
    world.sql("INSERT INTO local.a.s VALUES (1, NULL)")
    file = world.load("a.s").iceberg.metadata_location
    world.sql(f"CALL local.system.register_table(table => 'a.twin', metadata_file => '{file}')")
    world.sql("ALTER TABLE local.a.s ADD COLUMN d int")
    rows = Memory.source([{"id": 2, "c": 7}], schema="id bigint, c int")
    world.run((rows >> world.sink("a.s").upsert("id")).named("one"))
    with world.load("a.twin").iceberg.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("c", IntegerType(), required=True)
    assert world.load("a.twin").iceberg.schema().schema_id == world.load("a.s").iceberg.schema().schema_id
    with pytest.raises(RunError, match="has 1 null in the column c"):
        world.run((rows >> world.sink("a.twin").upsert("id")).named("two"))


def test_the_fix_names_a_column_as_sql_needs_it(world: Any) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.`my-t` (id bigint, `my c` int) USING iceberg")
    world.sql("INSERT INTO local.a.`my-t` VALUES (1, NULL)")
    with world.load("a.my-t").iceberg.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("my c", IntegerType(), required=True)
    pipeline = Memory.source([{"id": 1, "my c": 7}], schema="id bigint, `my c` int") >> world.sink("a.my-t").upsert(
        "id"
    )
    with pytest.raises(RunError) as raised:
        world.run(pipeline)
    statement = str(raised.value.fix).partition("(")[2].partition(")")[0]
    assert statement == "ALTER TABLE local.a.`my-t` ALTER COLUMN `my c` DROP NOT NULL"
    world.sql(statement)
    world.run(pipeline)


def test_nulls_on_a_branch_are_those_of_the_branch(world: Any, tables: Tables) -> None:
    tables.create("a.s", NULLS)
    world.sql("INSERT INTO local.a.s VALUES (1, 7)")
    world.sql("ALTER TABLE local.a.s CREATE BRANCH b")
    rows = Memory.source([{"id": 1, "c": 8}], schema="id bigint, c int")
    world.run((rows >> world.sink("a.s").branch("b").upsert("id")).named("one"))
    path = tables.write("a.s", NULLS, dictionary=True, numbered=True)
    tables.add("a.s", path, "spark")
    tables.forget_mapping("a.s")
    world.run((rows >> world.sink("a.s").branch("b").upsert("id")).named("two"))
    refused(lambda: world.run((rows >> world.sink("a.s").upsert("id")).named("three")), path, "c")


def test_manifests_of_a_former_partitioning_are_looked_at(world: Any, tables: Tables) -> None:
    columns = {"day": column([1, 2], pa.int32(), "int"), **NULLS}
    tables.create("a.s", columns)
    world.sql("ALTER TABLE local.a.s ADD PARTITION FIELD day")
    world.sql("INSERT INTO local.a.s VALUES (30, 1, 1)")
    world.sql("ALTER TABLE local.a.s DROP PARTITION FIELD day")
    world.sql("ALTER TABLE local.a.s DROP COLUMN day")
    gone = tables.write("a.s", NULLS, dictionary=True)
    pq.write_table(numbered_as(pq.read_table(gone), [1, 3]), gone)
    tables.add("a.s", gone, "spark")
    tables.forget_mapping("a.s")
    for act in changes(world, "a.s").values():
        refused(act, gone, "c")


def test_nulls_of_a_removed_file_do_not_count(world: Any, tables: Tables) -> None:
    path = with_nulls(tables, mapped=False)
    world.sql("DELETE FROM local.a.s WHERE id < 20")  # whole files
    assert any(path.name in row[0] for row in world.sql("SELECT data_file.file_path FROM local.a.s.all_entries"))
    for act in changes(world, "a.s").values():
        act()
    assert world.rows("a.s", "id", "c") == {(20, 7): 1}


def test_a_required_partition_column_that_a_file_lacks(world: Any, tables: Tables) -> None:
    world.sql("CREATE TABLE local.a.s (id bigint, c int NOT NULL) USING iceberg PARTITIONED BY (c)")
    folder = world.folder / "parts"
    pq.write_to_dataset(pa.table({"id": [1, 2], "c": pa.array([7, 8], pa.int32())}), folder, partition_cols=["c"])
    tables.add("a.s", folder / "any", "spark")
    world.run(Memory.source([{"id": 3, "c": 8}], schema="id bigint, c int") >> world.sink("a.s").upsert("id"))
    assert sorted(map(tuple, world.sql("SELECT id, c FROM local.a.s"))) == [(1, 7), (2, 8), (3, 8)]


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
@pytest.mark.cases(landing="copy-on-write")
def test_a_target_keeps_what_is_read_right(world: Any, tables: Tables, mode: str) -> None:
    columns = {key: one for key, one in RIGHT.items() if key != "uuid"}  # whose text Spark does not write back
    tables.create("a.s", columns)
    modes = ", ".join(f"'write.{do}.mode' = '{mode}'" for do in ("merge", "delete"))
    world.sql(f"ALTER TABLE local.a.s SET TBLPROPERTIES ({modes})")
    tables.add("a.s", tables.write("a.s", columns, dictionary=True), "pyiceberg")
    rows = Memory.source([{"id": 1, "int8": 77}], schema="id bigint, int8 int")
    upsert = rows >> world.sink("a.s").upsert("id")
    world.run(upsert.named("upsert"))
    gone = Memory.source([{"id": 19}], schema="id bigint") >> world.sink("a.s").delete("id")
    world.run(gone.named("delete"))
    compact(world.spark, world.plan(upsert.named("upsert")).write.table)
    found = world.load("a.s").iceberg.scan().to_arrow().sort_by("id")
    assert found["id"].to_pylist() == list(range(19))
    wanted = expected(columns)
    assert found["int8"][1].as_py() == 77
    for key in columns:
        kept = [plain(value) for i, value in enumerate(found[key].to_pylist()) if i != 1]
        assert kept == [value for i, value in enumerate(wanted[key][:19]) if i != 1], key


@pytest.mark.parametrize("name", ["large_string", "micros", "nanos", "decimal_of_another_scale", "uint8", "millis"])
@pytest.mark.cases(landing="nanos")
@pytest.mark.usefixtures("native_workers")
def test_the_engine_reads_right_or_names_file_and_column(
    world: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    one = (RIGHT | WRONG | UNSIGNED | PLAIN)[name]
    tables.create("a.s", {name: one})
    path = tables.write("a.s", {name: one}, dictionary=name in UNSIGNED | PLAIN, numbered=True)
    tables.add("a.s", path, "spark")
    tables.forget_mapping("a.s")
    did: list[str] = []
    monkeypatch.setattr(native, "run_tasks", lambda *args, real=native.run_tasks: did.append(args[1]) or real(*args))
    if name in RIGHT:
        assert copied(world, "a.s", "batch", name) == expected({name: one})
        assert (did, told(world)) == (["write"], [])
    else:
        refused(lambda: copied(world, "a.s", "batch", name), path, name)
        assert not list((world.folder / ".helios").rglob("a/s_batch/**/*.parquet"))


def test_a_column_that_pyiceberg_has_made_required(world: Any, tables: Tables) -> None:
    tables.create("a.s", {"c": column([5, None], pa.int32(), "int")})
    path = tables.write("a.s", NULLS, dictionary=False)
    tables.add("a.s", path, "pyiceberg")
    with world.load("a.s").iceberg.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("c", IntegerType(), required=True)
    refused(lambda: copied(world, "a.s", "batch", "c"), path, "c")


def test_a_folder_of_partitions_gives_a_required_column(world: Any, tables: Tables) -> None:
    world.sql("CREATE TABLE local.a.s (id bigint, c int NOT NULL) USING iceberg PARTITIONED BY (c)")
    folder = world.folder / "parts"
    pq.write_to_dataset(pa.table({"id": [1, 2], "c": pa.array([7, 8], pa.int32())}), folder, partition_cols=["c"])
    tables.add("a.s", folder / "any", "spark")
    assert copied(world, "a.s", "batch", "c") == {"c": [7, 8]}


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The manifests of targets that are read for their counts; no footer is opened, and no file is planned."""
    read: list[str] = []
    for name in ("footers", "plan_tasks"):
        monkeypatch.setattr(foreign_files, name, lambda *_: pytest.fail("a look"))

    def seen(*args: Any, real: Any = foreign_files.manifests) -> Any:
        found = real(*args)
        read.extend(found.read)
        return found

    monkeypatch.setattr(foreign_files, "manifests", seen)
    return read


def test_each_manifest_of_a_target_is_read_once(world: Any, manifests: list[str]) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (id bigint NOT NULL, v int) USING iceberg")
    world.sql("INSERT INTO local.a.s VALUES (1, 1), (2, NULL)")
    for how in WAYS:
        assert copied(world, "a.s", how, "v") == {"v": [1, None]}
    assert manifests == []
    for i in range(3):  # batches of one run, and of others
        world.fill("a.keys", [3 * i, 3 * i + 1, 3 * i + 2])
    upsert = (world.source("a.keys").incremental(max_files=1) >> world.sink("a.s").upsert("id")).named("upsert")
    world.run(upsert)
    assert len(manifests) == 1  # the one that was there
    world.fill("a.keys", [1])
    world.run(upsert)
    assert len(manifests) == 1
    world.sql("INSERT INTO local.a.s VALUES (30, 1)")
    world.fill("a.keys", [2])
    world.run(upsert)
    assert len(manifests) == len(set(manifests))
    known = len(manifests)
    compact(world.spark, world.plan(upsert).write.table)
    world.fill("a.keys", [3])
    world.run(upsert)
    assert len(manifests) == len(set(manifests)) > known
    assert world.ids("a.s") == [*range(9), 30]


def test_a_table_that_helios_alone_has_written_is_not_looked_at(world: Any, manifests: list[str]) -> None:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (id bigint NOT NULL) USING iceberg")
    for ids in ([1, 2], [2, 3]):
        world.fill("a.keys", ids)
        world.run((world.source("a.keys").incremental() >> world.sink("a.s").upsert("id")).named("upsert"))
    assert (world.ids("a.s"), manifests) == ([1, 2, 3], [])


def test_a_table_without_required_columns_is_not_looked_at(
    world: Any, manifests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_files, "manifests", lambda *_: pytest.fail("a look"))
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, c int) USING iceberg")
    world.sql("INSERT INTO local.a.s VALUES (1, 1), (2, NULL)")
    for act in changes(world, "a.s").values():
        act()
    assert (world.rows("a.s", "id", "c"), manifests) == ({(2, None): 1}, [])


WHERES = {
    "millis": ("TIMESTAMP_NTZ '2000-01-01 00:00:00'", PLAIN["millis"]),
    "millis_utc": ("TIMESTAMP '2000-01-01 00:00:00'", PLAIN["millis_utc"]),
    "bytes_as_string": ("'a'", column([b"b", b""], pa.binary(), "string", ["b", ""])),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("named", WHERES)
@pytest.mark.cases(landing="millis-stream")
def test_a_predicate_finds_rows_whatever_the_bounds_of_a_file_count(
    world: Any, tables: Tables, named: str, how: str
) -> None:
    value, one = WHERES[named]
    tables.create("a.s", {named: one})
    tables.add("a.s", tables.write("a.s", {named: one}, dictionary=False), "spark")
    source = world.source("a.s") if how == "batch" else world.source("a.s").incremental(poll=1, start="earliest")
    source = source.changes(keys=["id"]) if how == "changes" else source
    world.run((source.where(f"{named} > {value}").select("id") >> world.sink("a.asked")).named("asked"))
    world.run((source >> where(f"{named} > {value}") >> select("id") >> world.sink("a.kept")).named("kept"))
    even = list(range(0, 20, 2))
    assert (world.ids("a.asked"), world.ids("a.kept")) == (even, even)


@pytest.mark.parametrize("how", ["batch", "stream"])
@pytest.mark.parametrize(
    ("name", "condition"), [("decimal_of_another_scale", "{} < 200"), ("long_as_int", "{} > 1000000")]
)
def test_a_predicate_hides_no_file_that_is_refused(
    world: Any, tables: Tables, name: str, condition: str, how: str
) -> None:
    tables.create("a.s", {name: WRONG[name]})
    path = tables.write("a.s", {name: WRONG[name]}, dictionary=False)
    tables.add("a.s", path, "spark")
    source = world.source("a.s") if how == "batch" else world.source("a.s").incremental(poll=1, start="earliest")
    refused(lambda: world.run(source.where(condition.format(name)) >> world.sink("a.t")), path, name)


def test_an_upsert_by_a_key_that_is_misread_is_refused(world: Any, tables: Tables) -> None:
    one = WRONG["decimal_of_another_scale"]
    tables.create("a.t", {"price": one})
    path = tables.write("a.t", {"price": one}, dictionary=False)
    tables.add("a.t", path, "spark")
    rows = Memory.source([(100, Decimal("123.45"))], schema="id bigint, price decimal(9,2)")
    refused(lambda: world.run(rows >> world.sink("a.t").upsert("price")), path, "price")
    refused(lambda: world.run((rows >> select("price") >> world.sink("a.t").delete("price")).named("x")), path, "price")


def test_what_is_replaced_by_the_bounds_of_milliseconds_is_refused(world: Any, tables: Tables) -> None:
    one = PLAIN["millis"]
    tables.create("a.t", {"at": one})
    path = tables.write("a.t", {"at": one}, dictionary=False)
    tables.add("a.t", path, "spark")
    rows = Memory.source([(7, TIME)], schema="id bigint, at timestamp_ntz")
    later = "TIMESTAMP_NTZ '2000-01-01 00:00:00'"
    merge = f"MERGE INTO target USING batch ON target.id = batch.id AND target.at > {later} WHEN MATCHED THEN DELETE"
    refused(lambda: world.run(rows >> world.sink("a.t").overwrite(f"at > {later}")), path, "at")
    refused(lambda: world.run((rows >> world.sink("a.t").merge_sql(merge)).named("merged")), path, "at")


@pytest.mark.parametrize("bounds", [{}, {"max_files": 1}, {"max_rows": 1}], ids=["whole", "files", "rows"])
def test_a_file_that_is_registered_twice_counts_twice(world: Any, tables: Tables, bounds: dict[str, int]) -> None:
    world.fill("a.one", [1, 2])
    tables.create("a.s", {})
    catalog = world.load("a.s").iceberg
    path = world.load("a.one").iceberg.inspect.files()["file_path"][0].as_py()
    catalog.add_files([path])
    catalog.add_files([path], check_duplicate_files=False)
    world.run(world.source("a.s").incremental(poll=1, **bounds) >> world.sink("a.t"))
    assert world.ids("a.t") == [1, 1, 2, 2]
