"""`helios diff`, as far as it needs no Spark: states, columns, files that are the same, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from pyiceberg.types import LongType, StringType, StructType

from helios import Catalog
from helios.cli import diff, output, rehearse
from helios.table import compared_columns, states
from helios.table.snapshots import Table
from helios.table.states import RowDiff

pytestmark = pytest.mark.promise("diff")

Run = Callable[..., Result]


@pytest.fixture
def orders(folder: Path) -> Table:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int32()), ("v", pa.string())]))
    for i in range(3):
        table.iceberg.append(pa.table({"id": pa.array([i], pa.int32()), "v": ["a"]}))
    return table


def changes(table: Table, before: object = None, after: object = None) -> list[str]:
    first, second = (states.state_at(table, point) for point in (before, after))  # type: ignore[arg-type]
    return [change.text() for change in compared_columns.column_changes(first, second)]


def test_the_states_that_are_compared_by_default(cli: Run, orders: Table) -> None:
    first, second, third = (snapshot.id for snapshot in orders.snapshots())
    now = states.state_at(orders, None)
    assert (now.snapshot, states.state_before(now).snapshot) == (third, second)
    assert states.state_before(states.state_at(orders, first)).snapshot is None
    shown = json.loads(cli("diff", "shop.orders", "--from", str(third), "--json").stdout)
    assert (shown["from"]["snapshot"], shown["to"]["snapshot"], shown["to"]["state"]) == (third, third, "main")
    assert shown["rows"] == {"added": 0, "removed": 0, "changed": 0}
    orders.branch("staged")
    shown = cli("diff", "shop.orders", "--to", "staged", "--exit-code")
    assert (shown.exit_code, shown.output) == (0, "local.shop.orders: main -> branch staged\nrows: no difference.\n")


def test_the_snapshots_of_one_batch_are_one_commit(orders: Table) -> None:
    begin = orders.snapshots()[-1].id
    for number in range(2):
        rows = pa.table({"id": pa.array([number], pa.int32()), "v": ["b"]})
        orders.iceberg.append(rows, snapshot_properties={"helios.attempt": "one"})
    assert states.state_before(states.state_at(orders, None)).snapshot == begin


def test_columns_are_known_by_their_ids(cli: Run, orders: Table) -> None:
    first = orders.snapshots()[-1].id
    with orders.iceberg.update_schema() as update:
        update.rename_column("v", "w")
        update.add_column("s", StructType())
        update.update_column("id", LongType())
    with orders.iceberg.update_schema() as update:
        update.add_column(("s", "x"), StringType())
        update.add_column("v", StringType())
    told = changes(orders, first)
    assert told == ["s struct: added", "v string: added", "id: int, now long", "w: renamed from v"]
    assert changes(orders, None, first) == [
        "s struct: removed",
        "v string: removed",
        "id: long, now int",
        "v: renamed from w",
    ]
    shown = cli("diff", "shop.orders", "--from", str(first), "--exit-code")
    assert (shown.exit_code, shown.output.splitlines()[1]) == (2, "column s struct: added")
    older = states.state_at(orders, first)
    [earlier, later] = compared_columns.fields_to_read(states.state_at(orders, None), older)
    assert earlier == later
    assert [(one["name"], one["type"]) for one in later] == [("id", "long"), ("v", "string")]


def test_keys_are_those_that_the_table_declares(orders: Table) -> None:
    now = states.state_at(orders, None)
    assert states.row_key_columns(now, now, ()) == ()
    assert states.row_key_columns(now, now, ("ID",)) == ("id",)
    record = {"v": 1, "checkpoint": "c", "upserts": {"keys": ["id"]}}
    with orders.iceberg.transaction() as change:
        change.set_properties({"helios.ledger.p": json.dumps(record)})
    now = states.state_at(orders, None)
    assert states.row_key_columns(now, now, ()) == ("id",)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["shop.ordrs"], "Did you mean 'shop.orders'?"),
        (["shop.orders", "--from", "v9"], "has no branch or tag 'v9', and it is not a time. Known: main."),
        (["shop.orders", "--to", "1990-01-01"], "had no snapshot at 1990-01-01T00:00:00.000Z: its first state is of"),
        (
            ["shop.orders", "--key", "ids"],
            "--key ids: local.shop.orders at main has no column 'ids'. Did you mean 'id'",
        ),
        (["shop.orders", "shop.others"], "table shop.others does not exist in catalog 'local'. Did you mean"),
        (["shop.orders", "--rows", "-1"], "Invalid value for '--rows'"),
    ],
    ids=range(6),
)
def test_bad_input(cli: Run, arguments: list[str], told: str) -> None:
    shown = cli("diff", *arguments)
    assert shown.exit_code == 2
    assert told in " ".join(shown.stderr.split())


def test_a_table_without_commits_and_one_whose_past_has_expired(cli: Run, orders: Table, folder: Path) -> None:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_table("shop.empty", pa.schema([("x", pa.int32())]))
    shown = cli("diff", "shop.empty")
    assert (shown.exit_code, shown.output.splitlines()[1]) == (0, "rows: no difference.")
    shown = cli("diff", "shop.empty", "shop.orders")
    assert "have no common column with comparable types" in shown.stderr
    orders.expire(retain_last=1)
    shown = cli("diff", "shop.orders")
    assert (shown.exit_code, "has expired: it was snapshot" in shown.stderr) == (2, True)


def test_values_that_python_compares_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    """NaN is itself, -0.0 is not 0.0, a map has no order; and JSON has neither NaN nor Infinity."""
    nan = float("nan")
    before: dict[str, object] = {"id": 1, "f": nan, "zero": 0.0, "m": {"a": [nan], "b": 1}, "inf": 1.0}
    now: dict[str, object] = {"id": 1, "f": float("nan"), "zero": -0.0, "m": {"b": 1, "a": [nan]}, "inf": float("inf")}
    rows = RowDiff(changed=1, sample_changed=[(before, now)])
    shown = [diff._change(before[name], now[name]) for name in now]
    assert shown == ["1", "nan", "0.0 -> -0.0", "{'b': 1, 'a': [nan]}", "1.0 -> inf"]
    assert rehearse._change(before, now, ["id"]) == "id=1: zero is -0.0, was 0.0; inf is inf, was 1.0"
    output.print_json({"changed": rows.sample_changed})
    [[_, printed]] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["changed"]
    assert (printed["f"], printed["m"], printed["inf"]) == ("NaN", {"b": 1, "a": ["NaN"]}, "Infinity")


def test_columns_that_spark_cannot_compare_by_are_refused_before_it_starts(cli: Run, folder: Path) -> None:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    columns = pa.schema([("A", pa.int32()), ("a", pa.int32())])
    cased = catalog.create_table("shop.cased", columns).iceberg
    nested = pa.list_(pa.map_(pa.string(), pa.int32()))
    made = pa.schema([("id", pa.int32()), ("m", pa.map_(pa.string(), pa.int32())), ("n", nested)])
    table = catalog.create_table("shop.maps", made).iceberg
    for number in range(2):
        cased.append(pa.Table.from_pylist([{"A": number, "a": 1}], schema=columns))
        table.append(pa.Table.from_pylist([{"id": number}], schema=made))
    shown = cli("diff", "shop.cased")
    assert (shown.exit_code, "has the columns 'A' and 'a': their names differ by case alone" in shown.stderr) == (
        2,
        True,
    )
    for key, kind in (("m", "map<string, int>"), ("n", "list<map<string, int>>")):
        shown = cli("diff", "shop.maps", "--key", key)
        assert shown.exit_code == 2
        assert (
            f"--key {key}: the column is of type {kind}, and a map or a variant cannot identify a row" in shown.stderr
        )
