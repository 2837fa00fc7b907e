"""`expire`, `rollback`, `tag`, `branch`, `compact`, `orphans`, as far as they need no Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("snapshots")

Run = Callable[..., Result]


@pytest.fixture
def orders(folder: Path) -> Table:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    for i in range(3):
        table.iceberg.append(pa.table({"id": pa.array([i], pa.int64())}))
    return table


def fresh(folder: Path) -> Table:
    return Catalog.local(path=folder / ".helios").load("shop.orders")


def reader(folder: Path, snapshot: int) -> Path:
    """The checkpoint of a pipeline that has not begun."""
    at = folder / ".helios/warehouse/_helios/checkpoints/copy/helios"
    at.mkdir(parents=True)
    identity = {"v": 1, "pipeline": "copy", "sources": ["local.shop.orders"], "path": "snapshot ranges"}
    (at / "identity.json").write_text(json.dumps(identity))
    (at / "start.json").write_text(json.dumps([{"declared": "", "place": {"snapshot_id": snapshot}}]))
    return at.parent


def test_tags(cli: Run, orders: Table, folder: Path) -> None:
    first, _, third = orders.snapshots()
    shown = cli("tag", "shop.orders", "v1")
    assert shown.exit_code == 0
    assert shown.output == (
        f"local.shop.orders: tag v1 is at snapshot {third.id} of {third.timestamp:%Y-%m-%d %H:%M:%S} UTC.\n"
    )
    as_json = json.loads(cli("tag", "shop.orders", "v0", "--snapshot", str(first.id), "--json").stdout)
    assert as_json == {"table": "local.shop.orders", "tag": "v0", "snapshot": first.id, "deleted": False}
    assert cli("tag", "shop.orders").output.splitlines() == ["TAG  SNAPSHOT", f"v0   {first.id}", f"v1   {third.id}"]
    assert cli("tag", "shop.orders", "v0", "--delete").output.startswith("local.shop.orders: tag v0 removed; it was at")
    assert fresh(folder).tags() == {"v1": third.id}
    assert json.loads(cli("tag", "shop.orders", "--json").stdout) == [{"tag": "v1", "snapshot": third.id}]


def test_branches(cli: Run, orders: Table, folder: Path) -> None:
    first, _, third = orders.snapshots()
    assert cli("tag", "shop.orders").stderr == "table local.shop.orders has no tags.\n"
    assert cli("branch", "shop.orders", "dev", "--snapshot", str(first.id)).exit_code == 0
    assert fresh(folder).branches() == {"dev": first.id, "main": third.id}
    assert cli("branch", "shop.orders").output.split()[2:] == ["dev", str(first.id), "main", str(third.id)]
    assert cli("branch", "shop.orders", "dev", "--delete").exit_code == 0
    assert fresh(folder).branches() == {"main": third.id}


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tag", "shop.orders", "1"], "error[H101]: '1' cannot be the name of a tag or a branch."),
        (["tag", "shop.orders", "v1", "--delete"], "has no tag 'v1'. There are none."),
        (["tag", "shop.orders", "v1", "--snapshot", "5"], "has no snapshot 5. Newest: "),
        (["tag", "shop.orders", "--delete"], "--delete needs a NAME, and excludes --snapshot."),
        (["tag", "shop.orders", "a", "--delete", "--snapshot", "5"], "--delete needs a NAME, and excludes --snapshot."),
        (["branch", "shop.orders", "main", "--delete"], "the branch 'main' is the table itself, and stays."),
        (["rollback", "shop.orders", "v9"], "has no branch or tag 'v9', and it is not a time. Known: main, v1."),
        (["rollback", "shop.orders", "2020-01-01"], "had no snapshot at 2020-01-01T00:00:00.000Z: its first state"),
        (["rollback", "shop.oders", "v1"], "Did you mean 'shop.orders'?"),
        (["rollback", "shop.orders"], "Missing argument 'TO'."),
        (["expire", "shop.orders", "--older-than", "soon"], "older_than='soon' is not a duration."),
        (["expire", "shop.orders", "--retain-last", "0"], "retain_last=0: the current snapshot always stays."),
        (["expire", "shop.orders", "--reader", "nowhere"], "is not a checkpoint."),
        (["compact", "shop.orders", "--target-size", "big"], "--target-size='big' is not a size."),
        (["compact", "shop.oders"], "Did you mean 'shop.orders'?"),
        (["orphans", "shop.orders", "--older-than", "x"], "--older-than='x' is not a duration."),
        (
            ["orphans", "shop.orders", "--older-than", "1h"],
            "a file younger than 1 d may be part of a commit under way.",
        ),
    ],
)
def test_wrong_input_is_told_before_anything_is_done(cli: Run, folder: Path, arguments: list[str], told: str) -> None:
    if "v9" in arguments:
        cli("tag", "shop.orders", "v1")
    before = fresh(folder).iceberg.metadata_location
    shown = cli(*arguments)
    assert shown.exit_code == 2
    assert told in shown.stderr
    assert fresh(folder).iceberg.metadata_location == before


def test_rollback(cli: Run, orders: Table, folder: Path) -> None:
    first, second, third = orders.snapshots()
    shown = cli("rollback", "shop.orders", str(second.id))
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == (
        f"local.shop.orders: main is at snapshot {second.id} of {second.timestamp:%Y-%m-%d %H:%M:%S} UTC, and was at "
        f"{third.id}.\n"
    )
    assert cli("rollback", "shop.orders", str(second.id)).stdout.endswith(" UTC already.\n")
    cli("tag", "shop.orders", "start", "--snapshot", str(first.id))
    as_json = json.loads(cli("rollback", "shop.orders", "start", "--json").stdout)
    assert as_json == {
        "table": "local.shop.orders",
        "snapshot": first.id,
        "former": second.id,
        "changed": True,
        "pipelines": [],
    }
    assert fresh(folder).current_snapshot() == first


def test_rollback_says_which_pipelines_stop(cli: Run, orders: Table) -> None:
    second, third = orders.snapshots()[1:]
    record = {"v": 1, "checkpoint": "x", "batch": 3, "snapshot": third.id, "sequence": 3}
    with orders.iceberg.transaction() as change:
        change.set_properties(
            {"helios.ledger.copy": json.dumps(record), "helios.ledger.copy.replay": json.dumps(record)}
        )
    shown = cli("rollback", "shop.orders", str(second.id))
    assert "note: copy has replayed rows that main no longer holds" in shown.stderr
    assert (
        "note: copy has written batches that main no longer holds: its next batch stops with an error." in shown.stderr
    )
    assert f"`helios rollback local.shop.orders {third.id}`" in shown.stderr
    assert "--new-checkpoint" in shown.stderr


def test_expire_shows_what_would_go_and_what_is_kept(cli: Run, orders: Table, folder: Path) -> None:
    first, second, third = orders.snapshots()
    checkpoint = reader(folder, second.id)
    shown = cli("expire", "shop.orders", "--retain-last", "1", "--dry-run")
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert lines[1].split()[0] == str(first.id)
    assert lines[2:] == [
        "local.shop.orders: 1 snapshot would expire.",
        f"kept 1 snapshot for copy (file://{checkpoint}), which is at snapshot {second.id}.",
    ]
    as_json = json.loads(cli("expire", "shop.orders", "--retain-last", "1", "--dry-run", "--json").stdout)
    assert as_json == {
        "table": "local.shop.orders",
        "dry_run": True,
        "snapshots": [first.id],
        "held": [{"pipeline": "copy", "location": f"file://{checkpoint}", "snapshot": second.id, "keeps": [second.id]}],
        "lost": [],
    }
    assert [s.id for s in fresh(folder).snapshots()] == [first.id, second.id, third.id]


def test_expire_keeps_a_week_by_default(cli: Run, orders: Table) -> None:
    shown = cli("expire", "shop.orders")
    assert (shown.exit_code, shown.output) == (0, "local.shop.orders: nothing to expire.\n"), "and starts no Spark"
    assert len(orders.snapshots()) == 3


def test_expire_names_a_reader_that_lost_its_place(cli: Run, orders: Table, folder: Path) -> None:
    checkpoint = reader(folder, 77)
    shown = cli("expire", "shop.orders", "--older-than", "2999-01-01", "--dry-run")
    assert f"note: copy (file://{checkpoint}) is at snapshot 77, which is no longer in the" in shown.stderr
    assert f"{len(orders.snapshots()) - 1} snapshots would expire." in shown.output


def test_expire_refuses_to_guess_a_reader(cli: Run, orders: Table, folder: Path) -> None:
    (reader(folder, orders.snapshots()[0].id) / "helios/start.json").write_text("[")
    shown = cli("expire", "shop.orders", "--older-than", "2999-01-01")
    assert shown.exit_code == 2
    assert "of a reader cannot be read: helios/start.json" in shown.stderr
