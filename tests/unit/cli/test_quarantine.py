"""`quarantine`: what it shows, and the setting aside of audited batches, over a real embedded catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog
from helios.errors import InputError, LedgerError, RunError
from helios.table import quarantine
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("quarantine")

Run = Callable[..., Result]

REJECTED = pa.schema(
    [
        ("pipeline", pa.string()),
        ("batch", pa.int64()),
        ("step", pa.string()),
        ("reason", pa.string()),
        ("position", pa.string()),
        ("payload", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
STEP = "expect(positive=amount > 0, on_fail=quarantine)"


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    made = Catalog.local(path=folder / ".helios")
    made.create_namespace("shop")
    return made


@pytest.fixture
def rejected(catalog: Catalog) -> Table:
    table = catalog.create_table("shop.rejected", REJECTED)
    for pipeline, batch, reason, number in (
        ("one", 0, "positive (amount > 0)", 1),
        ("one", 1, "positive (amount > 0)", 2),
        ("one", 2, "positive (amount > 0)", 3),
        ("one", 7, "positive (amount > 0)", 4),
        ("two", None, "null key: id", 5),
    ):
        row = {
            "pipeline": pipeline,
            "batch": batch,
            "step": STEP if batch is not None else "",
            "reason": reason,
            "position": json.dumps({"sources": [{"source": "local.shop.raw", "to": number}], "pins": {}}),
            "payload": json.dumps({"id": number, "amount": -1}) if number != 2 else "no JSON",
            "at": datetime(2026, 1, number, tzinfo=UTC),
        }
        table.iceberg.append(pa.Table.from_pylist([row], schema=REJECTED))
    return table


def record(batch: int, checkpoint: str = "c1", **more: Any) -> str:
    fields = {"checkpoint": checkpoint, "batch": batch, "position": None, "snapshot": None, "sequence": 0, "steps": "s"}
    return json.dumps({"v": 1, **fields, **more})


SCHEMA = pa.schema([("id", pa.int64())])


def audited(catalog: Catalog, *pipelines: str, batch: int = 3, checkpoint: str = "c1") -> Table:
    """A target at batch 2 of each pipeline, in whose audit branch a later one waits."""
    table = catalog.create_table("shop.orders", SCHEMA)
    table.iceberg.append(pa.Table.from_pydict({"id": [1]}, schema=SCHEMA))
    main = table.iceberg.current_snapshot().snapshot_id
    for pipeline in pipelines:
        with table.iceberg.transaction() as change:
            change.set_properties({f"helios.ledger.{pipeline}": record(2, snapshot=main, sequence=1)})
        stage(table, pipeline, batch, checkpoint)
    return table


def stage(table: Table, pipeline: str, batch: int, checkpoint: str = "c1") -> None:
    branch = f"helios_audit_{pipeline}"
    main = table.iceberg.current_snapshot().snapshot_id
    manage = table.iceberg.manage_snapshots()
    if branch in table.branches():
        manage = manage.remove_branch(branch)
    manage.create_branch(main, branch).commit()
    stamps = {
        "helios.pipeline": pipeline,
        "helios.batch": str(batch),
        "helios.position": json.dumps({"sources": [{"source": "local.shop.raw", "to": batch}], "pins": {}}),
        "helios.checkpoint": checkpoint,
        "helios.steps": "s2",
    }
    rows = pa.Table.from_pydict({"id": [5, 6]}, schema=SCHEMA)
    table.iceberg.append(rows, snapshot_properties=stamps, branch=branch)


# what is there


@pytest.mark.usefixtures("rejected")
def test_groups(cli: Run) -> None:
    header, *lines = cli("quarantine", "shop.rejected").output.splitlines()
    assert header.split() == ["PIPELINE", "REASON", "ROWS", "BATCHES", "NEWEST", "STEP"]
    assert lines[0].split() == ["two", "null", "key:", "id", "1", "2026-01-05", "00:00:00", "UTC"]
    assert lines[1].split("  ")[0] == "one"
    assert "0-2, 7" in lines[1]
    assert lines[1].endswith(STEP)
    two, one = json.loads(cli("quarantine", "shop.rejected", "--json").stdout)
    assert one == {
        "pipeline": "one",
        "step": STEP,
        "reason": "positive (amount > 0)",
        "rows": 4,
        "batches": [0, 1, 2, 7],
        "newest": "2026-01-04T00:00:00.000Z",
    }
    assert (two["step"], two["batches"]) == ("", [])


@pytest.mark.usefixtures("rejected")
def test_rows(cli: Run) -> None:
    shown = cli("quarantine", "shop.rejected", "--rows", "2").output.splitlines()
    assert [line.split()[0] for line in shown] == ["PIPELINE", "two", "one"]
    assert shown[2].endswith('{"id": 4, "amount": -1}')
    found = json.loads(cli("quarantine", "show", "shop.rejected", "--rows", "9", "--json").stdout)
    assert [row["payload"] for row in found[-2:]] == ["no JSON", {"id": 1, "amount": -1}]
    assert found[0]["position"] == {"sources": [{"source": "local.shop.raw", "to": 5}], "pins": {}}
    assert found[0]["at"] == "2026-01-05T00:00:00.000Z"


def test_an_empty_quarantine(cli: Run, catalog: Catalog) -> None:
    catalog.create_table("shop.rejected", REJECTED)
    for arguments in ((), ("--rows", "1")):
        shown = cli("quarantine", "shop.rejected", *arguments)
        assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "local.shop.rejected has no rows.\n")
    assert json.loads(cli("quarantine", "shop.rejected", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("shop.orders",), "is not a quarantine table: it lacks at, batch, payload, pipeline, position, reason, step"),
        (("shop.orders", "--rows", "1"), "is not a quarantine table"),
        (("shop.order",), "Did you mean 'shop.orders'?"),
        (("shop.orders", "--rows", "1", "--batch", "2"), "pass one"),
        (("shop.orders", "--pipeline", "p"), "--pipeline goes with --batch"),
        (("--batch", "2", "shop.orders"), "no batch waits in local.shop.orders"),
    ],
)
def test_wrong_input(cli: Run, catalog: Catalog, arguments: tuple[str, ...], said: str) -> None:
    catalog.create_table("shop.orders", SCHEMA)
    shown = cli("quarantine", *arguments)
    assert shown.exit_code == 2
    assert said in shown.stderr


def test_the_group_and_its_commands_have_help(cli: Run) -> None:
    assert "TABLE | replay SCRIPT[:name]" in cli("quarantine", "--help").output
    assert "--batch" in cli("quarantine", "shop.orders", "--help").output
    assert "--step" in cli("quarantine", "replay", "--help").output


# clearing


def test_rows_that_are_mended_elsewhere_are_cleared(cli: Run, rejected: Table) -> None:
    asked = cli("quarantine", "clear", "shop.rejected", "--reason", "null key")
    assert asked.exit_code == 1
    assert "Delete 1 row from local.shop.rejected?" in asked.stderr
    assert rejected.iceberg.refresh().scan().count() == 5
    done = cli("quarantine", "clear", "shop.rejected", "--reason", "null key", "--yes")
    assert done.stdout == "local.shop.rejected: 1 row deleted.\n"
    assert cli("quarantine", "clear", "shop.rejected", "--step", "gone", "--yes").stdout.endswith("no row matches.\n")
    assert "Did you mean 'one'" in cli("quarantine", "clear", "shop.rejected", "--pipeline", "on", "--yes").stderr
    cleared = cli("quarantine", "clear", "shop.rejected", "--pipeline", "one", "--yes", "--json")
    assert json.loads(cleared.stdout) == {"table": "local.shop.rejected", "rows": 4}
    assert rejected.iceberg.refresh().scan().count() == 0


def test_rows_that_were_set_aside_meanwhile_stay(catalog: Catalog, rejected: Table) -> None:
    table = catalog.load("shop.rejected")
    found = quarantine.matching_groups(table, None, None, "positive")
    last = rejected.iceberg.scan("batch = 7").to_arrow()
    rejected.iceberg.refresh().append(last)
    with pytest.raises(RunError, match="changed by another writer meanwhile; nothing was done"):
        quarantine.delete_groups(table, found)
    assert rejected.iceberg.refresh().scan().count() == 6


# setting a batch aside


def test_a_batch_is_set_aside_in_one_commit(cli: Run, catalog: Catalog) -> None:
    table = audited(catalog, "local.shop.orders")
    staged = table.branches()["helios_audit_local.shop.orders"]
    commits = len(table.iceberg.metadata.metadata_log)
    shown = cli("quarantine", "shop.orders", "--batch", "3")
    assert shown.output.splitlines()[0] == (
        "local.shop.orders: batch 3 of local.shop.orders is set aside (2 rows), under the tag "
        "helios_quarantine_local.shop.orders_3."
    )
    table.iceberg.refresh()
    assert len(table.iceberg.metadata.metadata_log) == commits + 1
    assert table.branches().keys() == {"main"}
    assert table.tags() == {"helios_quarantine_local.shop.orders_3": staged}
    assert table.iceberg.scan().count() == 1
    written = json.loads(table.iceberg.properties["helios.ledger.local.shop.orders"])
    assert written == {
        "v": 1,
        "checkpoint": "c1",
        "batch": 3,
        "position": {"sources": [{"source": "local.shop.raw", "to": 3}], "pins": {}},
        "snapshot": table.iceberg.current_snapshot().snapshot_id,
        "sequence": 1,
        "steps": "s2",
        "aside": True,
    }
    again = json.loads(cli("quarantine", "shop.orders", "--batch", "3", "--json").stdout)
    assert (again["again"], again["snapshot"]) == (True, staged)
    assert "was set aside before" in cli("quarantine", "shop.orders", "--batch", "3").output


def test_the_quarantined_rows_of_the_batch_go_with_it(cli: Run, catalog: Catalog, rejected: Table) -> None:
    with rejected.iceberg.transaction() as change:
        change.set_properties({"helios.ledger.one": record(7), "helios.ledger.two": record(3)})
    before = rejected.iceberg.current_snapshot().snapshot_id
    table = audited(catalog, "one", "two", batch=3)
    # What was read tells which rows they are: the numbers of a pipeline that is run again begin again.
    shown = cli("quarantine", "shop.orders", "--batch", "3", "--pipeline", "one")
    assert shown.exit_code == 0, shown.stderr
    assert "batch 3 of one is set aside (2 rows), under the tag helios_quarantine_one_3." in shown.output
    assert (
        "1 rejected row of the batch left the quarantine table, and can be read under the same tag of that table."
        in shown.output
    )
    rejected.iceberg.refresh()
    assert rejected.tags() == {"helios_quarantine_one_3": before}
    left = rejected.iceberg.scan().to_arrow().to_pylist()
    assert sorted((row["pipeline"], row["batch"]) for row in left if row["batch"] is not None) == [
        ("one", 0), ("one", 1), ("one", 7),
    ]  # fmt: skip
    again = json.loads(cli("quarantine", "shop.orders", "--batch", "3", "--pipeline", "one", "--json").stdout)
    assert (again["again"], again["quarantined"]) == (True, 0)
    assert len(rejected.iceberg.metadata.snapshots) == len(rejected.iceberg.refresh().metadata.snapshots)
    table.iceberg.refresh()
    assert quarantine.discard_batch(table, 3, "two").quarantined == 0


def test_another_batch_is_named(cli: Run, catalog: Catalog) -> None:
    audited(catalog, "p")
    shown = cli("quarantine", "shop.orders", "--batch", "4")
    assert shown.exit_code == 2
    assert "the batch of p that waits in local.shop.orders is 3, not 4" in shown.stderr
    shown = cli("quarantine", "shop.orders", "--batch", "1")
    assert "the batch of p that waits in local.shop.orders is 3, not 1" in shown.stderr


def test_a_batch_that_is_published_stays(cli: Run, catalog: Catalog) -> None:
    table = audited(catalog, "p", batch=2)
    shown = cli("quarantine", "shop.orders", "--batch", "2")
    assert "batch 2 of p is published already: the pipeline is at batch 2" in shown.stderr
    with table.iceberg.manage_snapshots() as manage:
        manage.remove_branch("helios_audit_p")
    shown = cli("quarantine", "shop.orders", "--batch", "1", "--pipeline", "p")
    assert "batch 1 of p is published already" in shown.stderr


def test_a_branch_that_holds_nothing_of_its_own(cli: Run, catalog: Catalog) -> None:
    table = audited(catalog, "p")
    with table.iceberg.manage_snapshots() as manage:
        manage.remove_branch("helios_audit_p").create_branch(
            table.iceberg.current_snapshot().snapshot_id, "helios_audit_p"
        )
    shown = cli("quarantine", "shop.orders", "--batch", "3")
    assert "the branch helios_audit_p has no unpublished batch" in shown.stderr
    table.iceberg.append(pa.Table.from_pydict({"id": [9]}, schema=SCHEMA), branch="helios_audit_p")
    assert cli("quarantine", "shop.orders", "--batch", "3").exit_code == 2, "a commit of somebody else"


def test_the_pipeline_is_said_where_several_wait(cli: Run, catalog: Catalog) -> None:
    audited(catalog, "orders_eu", "orders_us")
    shown = cli("quarantine", "shop.orders", "--batch", "3")
    assert "several audited pipelines write local.shop.orders: orders_eu, orders_us" in shown.stderr
    assert "--pipeline orders_eu" in shown.stderr
    near = cli("quarantine", "shop.orders", "--batch", "3", "--pipeline", "order_us")
    assert "Did you mean 'orders_us'?" in near.stderr
    assert cli("quarantine", "shop.orders", "--batch", "3", "--pipeline", "orders_us").exit_code == 0
    assert cli("quarantine", "shop.orders", "--batch", "3").exit_code == 0, "only one is left"


def test_a_batch_of_another_checkpoint_is_left(catalog: Catalog) -> None:
    table = audited(catalog, "p", checkpoint="old")
    with pytest.raises(LedgerError, match=r"was staged from the checkpoint old, and the pipeline now runs from .* c1"):
        quarantine.discard_batch(table, 3)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "lacks the record"), ("{}", "is damaged"), ('{"v": 99}', "newer Helios")]
)
def test_a_record_that_cannot_be_read(catalog: Catalog, text: str | None, said: str) -> None:
    table = audited(catalog, "p")
    with table.iceberg.transaction() as change:
        if text is None:
            change.remove_properties("helios.ledger.p")
        else:
            change.set_properties({"helios.ledger.p": text})
    with pytest.raises(LedgerError, match=said):
        quarantine.discard_batch(table, 3)


def test_batches_of_a_new_checkpoint_find_the_tags_of_the_old_one(catalog: Catalog) -> None:
    table = audited(catalog, "p")
    quarantine.discard_batch(table, 3)
    with table.iceberg.transaction() as change:
        change.set_properties({"helios.ledger.p": record(2, checkpoint="c2")})
    stage(table, "p", 3, "c2")
    done = quarantine.discard_batch(table, 3)
    assert not done.again
    assert done.tag == f"helios_quarantine_p_3_{done.snapshot}"
    assert len(table.tags()) == 2


@pytest.mark.parametrize(
    ("meanwhile", "outcome"),
    [
        ("an append", "done"),
        ("staged again", "done"),
        ("published", InputError),
        ("always", RunError),
    ],
)
def test_what_happens_meanwhile_is_seen(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, meanwhile: str, outcome: Any
) -> None:
    table = audited(catalog, "p")
    commit, other = quarantine._commit, catalog.load("shop.orders")
    tries = 0

    def disturbed(*arguments: Any) -> None:
        nonlocal tries
        tries += 1
        other.iceberg.refresh()
        if meanwhile == "staged again" and tries == 1:
            stage(other, "p", 3)
        elif meanwhile == "published" and tries == 1:
            staged = other.branches()["helios_audit_p"]
            other.iceberg.manage_snapshots().set_current_snapshot(staged).commit()
            with other.iceberg.transaction() as change:
                change.set_properties({"helios.ledger.p": record(3, snapshot=staged)})
        elif meanwhile == "always" or tries == 1:
            other.iceberg.append(pa.Table.from_pydict({"id": [tries]}, schema=SCHEMA))
        commit(*arguments)

    monkeypatch.setattr(quarantine, "_commit", disturbed)
    if outcome == "done":
        done = quarantine.discard_batch(table, 3)
        assert tries == 2
        assert table.tags() == {done.tag: done.snapshot}
        return
    with pytest.raises(outcome):
        quarantine.discard_batch(table, 3)
    assert table.tags() == {}
    assert tries == (quarantine.COMMIT_TRIES if meanwhile == "always" else 1)


def test_replay_of_a_script_without_a_quarantine(cli: Run, folder: Path) -> None:
    (folder / "p.py").write_text(
        "from helios import *\np = Memory.source([{'id': 1}]) >> Iceberg.sink('shop.orders')\n"
    )
    shown = cli("quarantine", "replay", "p.py")
    assert shown.exit_code == 2
    assert "no pipeline of p.py has a quarantine" in shown.stderr
