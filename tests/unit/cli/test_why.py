"""`helios why` over tables that PyIceberg writes: rows, conditions that are wrong, and tables of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog
from helios.lineage import rows as lineage_rows

pytestmark = pytest.mark.promise("why")

Run = Callable[..., Result]
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])


def made(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


@pytest.fixture
def orders(folder: Path) -> list[int]:
    """A table of another writer; its snapshots, oldest first."""
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", SCHEMA).iceberg
    table.append(made((1, "ann", 1.0), (2, "bob", 2.0), (3, None, float("nan"))))
    table.append(made((4, "cy", 4.0), (2, "bob", 2.5)))
    table.delete("id = 1")
    table.overwrite(made((4, "cy", 5.0)), "id = 4")
    return [snapshot.snapshot_id for snapshot in table.metadata.snapshots]


def asked(cli: Run, condition: str) -> dict[str, Any]:
    told = cli("why", "shop.orders", condition, "--json")
    assert told.exit_code == 0, told.output
    return dict(json.loads(told.output))


def wrote(row: dict[str, Any]) -> list[int]:
    return [commit["snapshot"] for commit in row["commits"]]


def test_a_row_tells_who_wrote_it_and_what_its_key_had_before(cli: Run, orders: list[int]) -> None:
    found = asked(cli, "id = 4")
    assert (found["matches"], found["key"], found["before"]) == (1, ["id"], "nothing")
    [row] = found["rows"]
    [earlier] = row["earlier"]
    assert (wrote(row), row["row"]["amount"], row["unknown"]) == ([orders[-1]], 5.0, None)
    assert (wrote(earlier), earlier["row"]["amount"], earlier["removed_by"]["snapshot"]) == (
        [orders[1]],
        4.0,
        orders[3],
    )


def test_a_row_that_was_moved_tells_who_wrote_it_first(cli: Run, orders: list[int]) -> None:
    told = asked(cli, "id = 2")["rows"]
    assert {(row["row"]["amount"], *wrote(row)) for row in told} == {(2.0, orders[0]), (2.5, orders[1])}
    assert [row["written_again_maybe"] for row in told if row["row"]["amount"] == 2.0] == [[orders[2]]]


@pytest.mark.parametrize("condition", ["customer IS NULL", "amount IS NAN", "ID = 3", "`id` = 3 AND NOT amount = 2.0"])
def test_nulls_and_nan_are_found(cli: Run, orders: list[int], condition: str) -> None:
    [row] = asked(cli, condition)["rows"]
    assert (row["row"]["id"], wrote(row)) == (3, [orders[0]])


def test_a_row_that_is_gone_tells_who_removed_it(cli: Run, orders: list[int]) -> None:
    found = asked(cli, "id = 1")
    [gone] = found["gone"]
    assert (found["matches"], wrote(gone), gone["removed_by"]["snapshot"]) == (0, [orders[0]], orders[2])
    told = cli("why", "shop.orders", "id = 1").output
    assert "no row matches id = 1" in told
    assert f"removed by  snapshot {orders[2]}" in told


@pytest.mark.usefixtures("orders")
def test_a_row_that_never_was_there(cli: Run) -> None:
    told = cli("why", "shop.orders", "id = 77")
    assert (told.exit_code, told.output.splitlines()[0]) == (0, "local.shop.orders: no row matches id = 77.")
    assert "No earlier row matches either" in told.output


def test_what_has_expired_is_said_and_told_by_earlier_metadata(cli: Run, folder: Path, orders: list[int]) -> None:
    table = Catalog.local(path=folder / ".helios").load("shop.orders")
    table.iceberg.append(made((5, "di", 6.0)))
    table.expire(retain_last=1)
    found = asked(cli, "id IN (4, 5)")
    assert found["before"] == "expired"
    assert {row["row"]["id"]: (wrote(row), row["commits"][0]["expired"]) for row in found["rows"]} == {
        4: ([orders[-1]], True),
        5: ([table.iceberg.refresh().metadata.current_snapshot_id], False),
    }
    # A commit that rewrote a file has moved the row: what was there before it is not known any more.
    [row] = asked(cli, "id = 3")["rows"]
    assert (wrote(row), "earlier files are expired" in row["unknown"]) == ([], True)
    told = cli("why", "shop.orders", "id = 4").output
    assert "(expired; found in an earlier metadata file)" in told
    assert told.splitlines()[-1].endswith("UTC: expired.")
    for entry in table.iceberg.metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()
    [row] = asked(cli, "id = 4")["rows"]
    assert (wrote(row), row["unknown"]) == ([], f"snapshot {orders[-1]}, which added the row's file, has expired")
    assert asked(cli, "id = 1")["gone"] == []


@pytest.mark.usefixtures("orders")
def test_rows_by_the_thousand_are_counted_and_some_shown(
    cli: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_rows, "MAX_ROWS_KEPT", 100)
    table = Catalog.local(path=folder / ".helios").load("shop.orders").iceberg
    table.append(made(*((id, "many", 1.0) for id in range(1000, 6000))))
    told = cli("why", "shop.orders", "customer = 'many'").output
    assert "5,000 rows match customer = 'many'; the first 20 are shown." in told
    assert told.count("written by") == 20
    assert "too many rows have the same customer: other versions are not shown" in told


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("idd = 3", "has no column 'idd'. Did you mean 'id'?"),
        ("id = ", "does not parse"),
        ("", "does not parse"),
        ("lower(customer) = 'ann'", "does not parse"),
        ('customer = "ann"', "write texts and times in single quotes"),
        ("id = 'x'", "does not fit the columns"),
    ],
)
def test_a_wrong_condition_is_named(cli: Run, condition: str, says: str) -> None:
    told = cli("why", "shop.orders", condition)
    assert (told.exit_code, says in told.output) == (2, True), told.output


def test_a_table_that_is_not_there_and_one_without_rows(cli: Run, folder: Path) -> None:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", SCHEMA)
    missing = cli("why", "shop.oders", "id = 1")
    assert (missing.exit_code, "Did you mean 'shop.orders'?" in missing.output) == (2, True)
    empty = cli("why", "shop.orders", "id = 1")
    assert (empty.exit_code, "no row matches" in empty.output) == (0, True)
