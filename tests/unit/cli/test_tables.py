"""`tables`, `schema`, `snapshots`, over a real embedded catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog, bucket, day
from helios.cli import output

pytestmark = pytest.mark.promise("commands")

Run = Callable[..., Result]


@pytest.fixture
def orders(folder: Path) -> None:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("ts", pa.timestamp("us", "UTC")), ("c", pa.string())]
    )
    table = catalog.create_table("shop.orders", schema, partition_by=["c"])
    rows = pa.Table.from_pylist([{"id": i, "ts": None, "c": "x"} for i in range(1200)], schema=schema)
    table.iceberg.append(rows)
    table.iceberg.append(rows.slice(0, 1))
    # Writing by another transform than identity needs a package that Helios does not.
    catalog.create_table("shop.empty", schema, partition_by=[day("ts"), bucket(4, "id"), "c"])


@pytest.mark.usefixtures("orders")
def test_tables(cli: Run) -> None:
    assert cli("tables").output.splitlines() == ["local.shop.empty", "local.shop.orders"]
    assert json.loads(cli("tables", "local", "--json").stdout)[1] == {"catalog": "local", "table": "shop.orders"}


def test_tables_of_an_empty_catalog_make_none(cli: Run, folder: Path) -> None:
    shown = cli("tables")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "catalog 'local' has no tables.\n")
    assert list(folder.iterdir()) == []


def test_tables_of_an_unknown_catalog(cli: Run) -> None:
    shown = cli("tables", "locl")
    assert shown.exit_code == 2
    assert "Did you mean 'local'?" in shown.stderr


@pytest.mark.usefixtures("orders")
def test_schema(cli: Run, folder: Path) -> None:
    lines = cli("schema", "shop.orders").output.splitlines()
    assert lines == [
        "ID  COLUMN  TYPE         REQUIRED  DOC",
        " 1  id      long         yes",
        " 2  ts      timestamptz",
        " 3  c       string",
        "partitioned by c",
    ]
    as_json = json.loads(cli("schema", "local.shop.orders", "--json").stdout)
    assert as_json["table"] == "local.shop.orders"
    assert as_json["format_version"] == 2
    assert as_json["columns"][0] == {"id": 1, "name": "id", "type": "long", "required": True, "doc": None}
    assert as_json["partitioning"] == ["c"]
    assert cli("schema", "shop.empty").output.splitlines()[-1] == "partitioned by day(ts), bucket(4, id), c"
    Catalog.local(path=folder / ".helios").create_table("shop.flat", pa.schema([("id", pa.int64())]))
    assert cli("schema", "shop.flat").output.splitlines()[-1] == "unpartitioned"


@pytest.mark.usefixtures("orders")
def test_snapshots(cli: Run) -> None:
    header, first, second = cli("snapshots", "shop.orders").output.splitlines()
    assert header.split() == ["SNAPSHOT", "PARENT", "COMMITTED", "OPERATION", "ADDED", "TOTAL"]
    assert first.split()[-3:] == ["append", "1,200", "1,200"]
    assert second.split()[1] == first.split()[0]
    assert second.split()[-4:] == ["append", "1", "1,201", "*"]
    as_json = json.loads(cli("snapshots", "shop.orders", "--json").stdout)
    assert [one["current"] for one in as_json] == [False, True]
    assert as_json[1]["summary"]["total-records"] == "1201"
    assert as_json[1]["timestamp"].endswith("Z")


@pytest.mark.usefixtures("orders")
def test_snapshots_of_a_table_without_any(cli: Run) -> None:
    shown = cli("snapshots", "shop.empty")
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == "table local.shop.empty has no snapshots.\n"
    assert json.loads(cli("snapshots", "shop.empty", "--json").stdout) == []


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("command", ["schema", "snapshots"])
def test_an_unknown_table_is_told_with_the_nearest(command: str, cli: Run) -> None:
    shown = cli(command, "shop.oders")
    assert shown.exit_code == 2
    assert shown.stderr.startswith("error[H104]: table shop.oders does not exist")
    assert "Did you mean 'shop.orders'?" in shown.stderr


def test_a_table_on_a_terminal_has_rules(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    output.print_table(("name", "n"), [("[bold]x[/bold]", 1)], numbers=("n",))
    shown = capsys.readouterr().out
    assert "─" in shown
    assert "[bold]x[/bold]" in shown, "cells are text, not markup"
