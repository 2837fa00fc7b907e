"""Operations on real SQLite catalogs, without a JVM."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from helios.catalog import connections, contents
from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import pyiceberg_properties
from helios.catalog.keys import Key
from helios.catalog.rows import CatalogRow
from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, EnvironmentProblem, HeliosError, InputError, NotFound, RunError
from helios.model.partition import bucket, day

pytestmark = pytest.mark.promise("operations", "local")

ORDERS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("price", pa.float64())])
IDS = pa.schema([("id", pa.int64())])
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog.local("dev", path=tmp_path / "my lake")


@pytest.fixture
def sales(catalog: Catalog) -> Catalog:
    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", IDS)
    return catalog


def told(error: pytest.ExceptionInfo[HeliosError]) -> str:
    return f"{error.value.what} | {error.value.fix}"


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def test_reading_makes_no_file(catalog: Catalog, tmp_path: Path) -> None:
    assert catalog.namespaces() == []
    assert not catalog.exists("sales.orders")
    with pytest.raises(NotFound):
        catalog.load("sales.orders")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_tables_is_an_empty_catalog(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "my lake").mkdir()
    (tmp_path / "my lake" / "catalog.db").touch()
    assert catalog.namespaces() == []
    assert not catalog.exists("sales.orders")


def test_a_table_is_made_listed_loaded_and_dropped(catalog: Catalog) -> None:
    catalog.create_namespace("sales.eu")
    table = catalog.create_table("sales.eu.orders", ORDERS, partition_by=[day("ts"), bucket(16, "id"), "price"])
    assert table.name == "dev.sales.eu.orders"
    assert repr(table) == "Table(dev.sales.eu.orders)"
    assert [str(f) for f in table.iceberg.spec().fields] == [
        "1000: ts_day: day(2)",
        "1001: id_bucket: bucket[16](1)",
        "1002: price: identity(3)",
    ]
    assert table.iceberg.metadata.format_version == 2
    assert catalog.namespaces() == ["sales", "sales.eu"]
    assert catalog.tables("sales.eu") == ["sales.eu.orders"]
    assert catalog.tables("sales") == []
    assert catalog.exists("sales.eu.orders")
    catalog.drop_table("sales.eu.orders")
    assert not catalog.exists("sales.eu.orders")


def test_a_pyiceberg_schema_will_do(catalog: Catalog) -> None:
    catalog.create_namespace("a")
    schema = Schema(NestedField(7, "id", LongType(), required=True), NestedField(9, "name", StringType()))
    table = catalog.create_table("a.t", schema, partition_by=["name"])
    assert [f.name for f in table.iceberg.schema().fields] == ["id", "name"]
    assert str(table.iceberg.spec().fields[0]) == "1000: name: identity(2)"


def test_a_loaded_table_reads_writes_and_is_fresh_each_time(sales: Catalog) -> None:
    table = sales.load("sales.orders")
    table.iceberg.append(ids(1, 2))
    assert table.iceberg.scan().to_arrow().num_rows == 2
    assert sales.load("sales.orders").iceberg.scan().to_arrow()["id"].to_pylist() == [1, 2]
    older = sales.load("sales.orders")
    table.iceberg.append(ids(3))
    assert len(older.snapshots()) == 1
    assert len(sales.load("sales.orders").snapshots()) == 2
    assert older.iceberg.refresh().metadata == table.iceberg.metadata


def test_pyiceberg_alone_sees_the_same_tables(sales: Catalog) -> None:
    from pyiceberg.catalog import load_catalog

    plain = load_catalog("dev", **pyiceberg_properties(sales))
    plain.create_namespace("other")
    plain.create_table("other.t", IDS).append(ids(1))
    assert plain.list_tables("sales") == [("sales", "orders")]
    assert sales.load("other.t").iceberg.scan().to_arrow().num_rows == 1


def test_names_with_dots_stay_one_part(sales: Catalog) -> None:
    sales.create_table("sales.`a.b`", IDS)
    assert sales.tables("sales") == ["sales.`a.b`", "sales.orders"]
    assert sales.load("sales.`a.b`").name == "dev.sales.`a.b`"


def test_other_catalogs_in_one_file_are_not_seen(sales: Catalog, tmp_path: Path) -> None:
    other = Catalog.local("other", path=tmp_path / "my lake")
    assert other.namespaces() == []
    assert not other.exists("sales.orders")


def test_views_and_rows_of_the_old_schema(sales: Catalog, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "my lake" / "catalog.db")) as db, db:
        db.execute("INSERT INTO iceberg_tables VALUES ('dev', 'sales', 'v', 'x', NULL, 'VIEW')")
        db.execute("UPDATE iceberg_tables SET iceberg_type = NULL WHERE table_name = 'orders'")
    assert sales.tables("sales") == ["sales.orders"]
    with closing(sqlite3.connect(tmp_path / "my lake" / "catalog.db")) as db, db:
        db.execute("DELETE FROM iceberg_tables WHERE table_name = 'v'")
        db.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    assert sales.tables("sales") == ["sales.orders"]


def test_an_unknown_table_names_the_nearest(sales: Catalog) -> None:
    with pytest.raises(NotFound) as error:
        sales.load("sales.oders")
    assert told(error) == (
        "table sales.oders does not exist in catalog 'dev'. Did you mean 'sales.orders'? | "
        "list the tables with `helios tables dev`."
    )
    assert str(error.value.where).endswith(f"test_operations.py:{error.traceback[0].lineno + 1}")
    with pytest.raises(NotFound) as error:
        sales.drop_table("sales.oders")
    assert error.value.what == "table sales.oders does not exist in catalog 'dev'. Did you mean 'sales.orders'?"


def test_an_unknown_namespace_names_the_nearest(sales: Catalog) -> None:
    with pytest.raises(NotFound) as error:
        sales.tables("sale")
    assert told(error) == (
        "namespace 'sale' does not exist in catalog 'dev'. Did you mean 'sales'? | "
        'create it with .create_namespace("sale").'
    )
    with pytest.raises(NotFound) as error:
        sales.load("sale.orders")
    assert error.value.what == (
        "table sale.orders: namespace 'sale' does not exist in catalog 'dev'. Did you mean 'sales'?"
    )
    with pytest.raises(NotFound) as error:
        sales.create_table("sale.t", IDS)
    assert error.value.what == "namespace 'sale' does not exist in catalog 'dev'. Did you mean 'sales'?"
    with pytest.raises(NotFound) as error:
        sales.load("dev.sales.orders")
    assert error.value.fix == "leave 'dev' out: names given to a catalog start with the namespace."


@pytest.mark.parametrize("name", ["", "a..b", "../x", "a/b"])
def test_a_bad_namespace_is_refused(catalog: Catalog, name: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as error:
        catalog.create_namespace(name)
    assert told(error) == (
        f"{name!r} is not a namespace: parts must not be empty or contain '/', '\\', '..' or control characters. | "
        'write "sales" or "sales.eu".'
    )
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_made_again(sales: Catalog) -> None:
    with pytest.raises(InputError) as error:
        sales.create_namespace("sales")
    assert told(error) == "namespace 'sales' already exists in catalog 'dev'. | use the existing namespace."
    with pytest.raises(InputError) as error:
        sales.create_table("sales.orders", IDS)
    assert told(error) == "table sales.orders already exists in catalog 'dev'. | use .load(\"sales.orders\")."


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (["prise"], "table a.t: partition_by(prise): no column 'prise'. Did you mean 'price'?"),
        ([bucket(4, "price")], "table a.t: partition_by(bucket(4, price)): bucket does not take double."),
        ([day("id")], "table a.t: partition_by(day(id)): day does not take long."),
        (["id", "id"], "table a.t: partition_by has a field twice."),
        ([3], "table a.t: partition_by takes transforms or column names, not 3."),
    ],
)
def test_a_wrong_partition_makes_no_table(catalog: Catalog, fields: list[str], what: str) -> None:
    catalog.create_namespace("a")
    with pytest.raises(InputError) as error:
        catalog.create_table("a.t", ORDERS, partition_by=fields)
    assert error.value.what == what
    assert catalog.tables("a") == []


def test_a_schema_that_is_none_is_refused(catalog: Catalog) -> None:
    catalog.create_namespace("a")
    with pytest.raises(DeclarationError) as error:
        catalog.create_table("a.t", {"id": "long"})  # type: ignore[arg-type]
    assert error.value.what.startswith("table a.t: the schema does not fit Iceberg: ")
    assert error.value.fix == "give a pyarrow.Schema or a pyiceberg.schema.Schema with types that Iceberg has."


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    catalog = Catalog.local("dev", path=tmp_path / "file" / "lake")
    with pytest.raises(EnvironmentProblem) as error:
        catalog.create_namespace("a")
    assert error.value.what.startswith(f"catalog 'dev' cannot be created in {tmp_path / 'file' / 'lake'}: ")
    assert error.value.fix == "set path= to a folder that you can write to."


def test_a_file_that_is_no_database(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "my lake" / "catalog.db"
    file.parent.mkdir()
    file.write_text("not SQLite, but long enough to look at" * 50)
    with pytest.raises(RunError) as error:
        catalog.namespaces()
    assert told(error) == (
        f"catalog 'dev': {file} cannot be read: file is not a database. | check that it is a SQLite file, that you can "
        "write to it and that no process has locked it, or set another path=."
    )


def test_metadata_that_is_gone_or_broken(sales: Catalog) -> None:
    location = sales.load("sales.orders").iceberg.metadata_location
    file = Path(location.removeprefix("file://"))
    content = file.read_text()
    contents._metadata.cache_clear()
    for break_it in (lambda: file.write_text("{"), file.unlink):
        break_it()
        with pytest.raises(RunError) as error:
            sales.load("sales.orders")
        assert error.value.what.startswith(f"table dev.sales.orders: its metadata cannot be read from {location}: ")
        assert error.value.fix == "restore the file, or remove the table from the catalog with .drop_table()."
    file.write_text(content)
    assert sales.load("sales.orders").snapshots() == []


def test_a_reader_waits_for_a_writer_and_says_when_it_gives_up(
    sales: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my lake" / "catalog.db"
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as db:
        db.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.3, db.execute, ["COMMIT"])
        release.start()
        assert sales.exists("sales.orders")
        release.join()
        db.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(contents, "BUSY_SECONDS", 0.05)
        with pytest.raises(RunError) as error:
            sales.exists("sales.orders")
        assert error.value.what == f"catalog 'dev': {file} cannot be read: database is locked."


def test_what_a_killed_writer_left_is_rolled_back(sales: Catalog, tmp_path: Path) -> None:
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size = 1')\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "db.execute('DELETE FROM iceberg_tables')\n"
        "db.executemany('INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, NULL)',"
        " [('dev', 'sales', f't{i}', 'x' * 900) for i in range(200)])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    file = tmp_path / "my lake" / "catalog.db"
    subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert file.with_name("catalog.db-journal").exists()
    assert sales.tables("sales") == ["sales.orders"]


APPEND = """
import sys
import pyarrow as pa
from helios.catalog.spec import Catalog
catalog = Catalog.local("dev", path=sys.argv[1])
try:
    catalog.create_namespace(sys.argv[2])
except Exception as error:
    sys.exit(str(error))
catalog.create_table(sys.argv[2] + ".t", pa.schema([("id", pa.int64())]))
for i in range(8):
    catalog.load(sys.argv[2] + ".t").iceberg.append(pa.table({"id": pa.array([i], pa.int64())}))
"""


def test_several_processes_make_and_write_one_catalog_at_once(catalog: Catalog, tmp_path: Path) -> None:
    names = ("a", "b", "c")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", APPEND, str(tmp_path / "my lake"), name], env=ENVIRONMENT, stderr=subprocess.PIPE
        )
        for name in names
    ]
    results = [(writer.communicate()[1].decode(), writer.returncode) for writer in writers]
    assert results == [("", 0)] * 3
    assert catalog.namespaces() == list(names)
    assert [len(catalog.load(f"{name}.t").snapshots()) for name in names] == [8, 8, 8]


def test_preparing_twice_changes_nothing(sales: Catalog) -> None:
    connections.prepare(sales)
    assert sales.exists("sales.orders")


def test_one_client_per_value(tmp_path: Path) -> None:
    one, same = Catalog.local("dev", path=tmp_path), Catalog.local("dev", path=tmp_path)
    other = Catalog.local("dev", path=tmp_path / "x")
    assert connections.client(one) is connections.client(same)
    assert connections.client(one) is not connections.client(other)


def test_a_memory_catalog_is_gone_with_the_process() -> None:
    code = (
        "import pyarrow as pa\n"
        "from helios.catalog.spec import Catalog\n"
        "catalog = Catalog.memory('m')\n"
        "catalog.create_namespace('a')\n"
        "catalog.create_table('a.t', pa.schema([('id', pa.int64())]))\n"
        "assert Catalog.memory('m').tables('a') == ['a.t']\n"
        "assert Catalog.memory('other').namespaces() == []\n"
        "print(catalog.load('a.t').iceberg.metadata_location)"
    )
    run = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    folder = Path(run.stdout.strip().removeprefix("file://")).parents[4]
    assert folder.name.startswith("helios-m-")
    assert not folder.exists()


# Catalogs with no SQLite file to read: everything goes through PyIceberg's client


@pytest.fixture
def served(sales: Catalog, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The same tables, seen through the client, as those of a server will be."""
    properties = pyiceberg_properties(sales)
    row = CatalogRow(
        keys=(Key("uri", "address", required=True),),
        spark=lambda c: {},
        pyiceberg=lambda c: {**properties, "uri": c.option("uri") or ""},
        warehouse=lambda c: None,
        components=(),
    )
    monkeypatch.setitem(CATALOGS, "served", row)
    return Catalog("dev", "served", (("uri", properties["uri"]),))


def test_a_server_answers_as_the_embedded_catalog_does(served: Catalog, sales: Catalog) -> None:
    sales.create_namespace("sales.eu")
    assert served.namespaces() == sales.namespaces() == ["sales", "sales.eu"]
    assert served.tables("sales") == ["sales.orders"]
    assert served.exists("sales.orders")
    assert not served.exists("sales.oders")
    with pytest.raises(NotFound) as error:
        served.load("sales.oders")
    assert error.value.what == "table sales.oders does not exist in catalog 'dev'. Did you mean 'sales.orders'?"
    with pytest.raises(NotFound) as error:
        served.tables("sale")
    assert error.value.what == "namespace 'sale' does not exist in catalog 'dev'. Did you mean 'sales'?"


def test_metadata_of_a_server_is_cached_for_the_stated_time(
    served: Catalog, sales: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(contents.time, "monotonic", lambda: now[0])
    assert served.load("sales.orders").snapshots() == []
    sales.load("sales.orders").iceberg.append(ids(1))
    now[0] += contents.CACHE_SECONDS - 0.1
    assert served.load("sales.orders").snapshots() == []
    now[0] += 0.2
    assert len(served.load("sales.orders").snapshots()) == 1
    sales.load("sales.orders").iceberg.append(ids(2))
    contents.forget_all(replace(served, name="other"))
    assert len(served.load("sales.orders").snapshots()) == 1
    contents.forget_all(served)  # as a pipeline of this process does when it has written
    assert len(served.load("sales.orders").snapshots()) == 2
    served.drop_table("sales.orders")
    with pytest.raises(NotFound):
        served.load("sales.orders")


def test_a_server_that_is_away(served: Catalog, tmp_path: Path) -> None:
    away = Catalog("dev", "served", (("uri", f"sqlite:///{tmp_path}/none/catalog.db"),))
    with pytest.raises(RunError) as error:
        away.namespaces()
    assert error.value.what.startswith("catalog 'dev' (served) failed: OperationalError: ")
    assert error.value.fix == "run `helios doctor --catalog dev`."
    assert error.value.where == away.origin
