"""`helios branch TABLE NAME --publish` without Spark: the records, the choices, and bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog
from helios.errors import RunError
from helios.table import publish
from helios.table.maintenance import remove_snapshots
from helios.table.refs import LEDGER, translating_errors
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("publish")

Run = Callable[..., Result]
NAME = "local.shop.orders"


@pytest.fixture
def orders(folder: Path) -> Table:
    """A table whose branch `staged` has two commits that main lacks."""
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]))
    add(table, 0)
    table.branch("staged")
    add(table, 1, "staged")
    add(table, 2, "staged")
    return table


def add(table: Table, id: int, branch: str = "main", **stamps: str) -> int:
    table.iceberg.append(pa.table({"id": [id]}), branch=branch, snapshot_properties=stamps)
    table.iceberg.refresh()
    return table.branches()[branch]


def record(table: Table, pipeline: str, **fields: Any) -> None:
    position = {"sources": [{"source": "local.a.s", "uuid": "u", "place": {"snapshot_id": 1}}]}
    whole = {"v": 1, "checkpoint": "c", "batch": 2, "position": position, **fields}
    with table.iceberg.transaction() as change:
        change.set_properties({LEDGER + pipeline: json.dumps(whole)})
    table.iceberg.refresh()


def kept(folder: Path, pipeline: str) -> dict[str, Any]:
    properties = Catalog.local(path=folder / ".helios").load("shop.orders").iceberg.properties
    found: dict[str, Any] = json.loads(properties[LEDGER + pipeline])
    return found


def test_main_moves_to_the_branch(cli: Run, orders: Table, folder: Path) -> None:
    former, head = orders.branches()["main"], orders.branches()["staged"]
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, shown.output) == (
        0,
        f"{NAME}: staged is published with 2 commits. Main is at snapshot {head}, and was at {former}.\n",
    )
    assert Catalog.local(path=folder / ".helios").load("shop.orders").branches() == {"main": head, "staged": head}
    again = cli("branch", "shop.orders", "staged", "--publish")
    assert (again.exit_code, again.output) == (0, f"{NAME}: main has all commits of staged already.\n")
    add(orders, 3)
    assert "main has all commits of staged already" in cli("branch", "shop.orders", "staged", "--publish").output


def test_records_change_in_the_same_commit(cli: Run, orders: Table, folder: Path) -> None:
    head = orders.branches()["staged"]
    record(orders, f"{NAME}@staged", branch="staged", snapshot=head)
    record(orders, f"{NAME}@staged.replay", branch="staged")
    record(orders, "named", branch="staged", snapshot=head)
    record(orders, "named.backfill", branch="staged")
    record(orders, "elsewhere", branch="other")
    versions = len(orders.iceberg.metadata.metadata_log)
    shown = json.loads(cli("branch", "shop.orders", "staged", "--publish", "--json").stdout)
    assert (shown["commits"], shown["pipelines"], shown["changed"]) == (2, [NAME, "named"], True)
    copy = kept(folder, NAME)
    assert (copy["published"], copy.get("branch"), copy["snapshot"]) == (f"{NAME}@staged", None, head)
    assert copy["formerly"] == [f"{NAME}@staged"]
    assert kept(folder, "named").get("branch") is None
    assert kept(folder, "named.backfill").get("branch") is None
    assert kept(folder, f"{NAME}@staged")["branch"] == "staged"
    assert kept(folder, "elsewhere")["branch"] == "other"
    orders.iceberg.refresh()
    assert not any(key.endswith("orders.replay") for key in orders.iceberg.properties)
    assert len(orders.iceberg.metadata.metadata_log) == versions + 1
    assert not json.loads(cli("branch", "shop.orders", "staged", "--publish", "--json").stdout)["changed"]


def test_records_follow_a_main_that_another_engine_has_moved(cli: Run, orders: Table, folder: Path) -> None:
    head = orders.branches()["staged"]
    record(orders, "named", branch="staged", snapshot=head)
    orders.iceberg.manage_snapshots().create_branch(head, "main").commit()
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert shown.exit_code == 0
    assert "main has all commits of staged already. Now main also has the progress of the branch's" in shown.output
    assert kept(folder, "named").get("branch") is None


def test_main_that_has_moved_is_refused_with_the_choices(cli: Run, orders: Table) -> None:
    fork = orders.branches()["main"]
    add(orders, 9, **{"helios.pipeline": "other"})
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert shown.exit_code == 2
    told = " ".join(shown.stderr.split())
    assert f"main of {NAME} has moved since staged began at snapshot {fork}: 1 commit by other; nothing was" in told
    assert f"helios rollback {NAME} {fork}" in told
    assert orders.branches()["main"] != orders.branches()["staged"]


def test_commits_that_were_rolled_back_do_not_return(cli: Run, orders: Table) -> None:
    first, second = orders.branches()["main"], add(orders, 5)
    orders.branch("later")
    add(orders, 6, "later")
    orders.rollback_to(first)
    shown = cli("branch", "shop.orders", "later", "--publish")
    told = " ".join(shown.stderr.split())
    assert shown.exit_code == 2
    assert f"main of {NAME} was rolled back from snapshot {second}, which later has, to {first}" in told
    assert f"helios rollback {NAME} {second}" in told
    orders.rollback_to(second)
    assert cli("branch", "shop.orders", "later", "--publish").exit_code == 0


def test_a_branch_with_expired_snapshots_is_published_if_older_metadata_proves_where_it_begins(
    cli: Run, orders: Table, folder: Path
) -> None:
    head = orders.branches()["staged"]
    between = next(s for s in orders.iceberg.metadata.snapshots if s.snapshot_id == head).parent_snapshot_id
    assert between is not None
    remove_snapshots(orders.iceberg, [between])
    files = {Path(entry.metadata_file) for entry in orders.iceberg.metadata.metadata_log}
    saved = {file: file.read_bytes() for file in map(local, files)}
    for file in saved:
        file.unlink()
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, "nothing proves that staged of" in shown.stderr) == (2, True)
    for file, content in saved.items():
        file.write_bytes(content)
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, "staged is published with 1 commit." in shown.output) == (0, True)
    assert Catalog.local(path=folder / ".helios").load("shop.orders").branches()["main"] == head


def local(file: Path) -> Path:
    """The path of a file that is named by a URI."""
    return Path(str(file).removeprefix("file:"))


def test_a_record_of_main_that_reads_the_same_source_is_not_overwritten(cli: Run, orders: Table) -> None:
    record(orders, f"{NAME}@staged", branch="staged")
    record(orders, NAME, position={"sources": [{"source": "local.a.s", "uuid": "u", "place": {"snapshot_id": 7}}]})
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, "up to another position" in shown.stderr) == (2, True)
    record(orders, NAME, position={"sources": [{"source": "local.a.z", "uuid": "z", "place": {"snapshot_id": 7}}]})
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, "goes on" in shown.output) == (0, False)


def test_a_branch_that_lacks_the_last_batch_of_its_pipeline_is_refused(cli: Run, orders: Table) -> None:
    fork, lost = orders.branches()["main"], orders.branches()["staged"]
    record(orders, "named", branch="staged", snapshot=lost, sequence=3)
    orders.iceberg.manage_snapshots().create_branch(fork, "staged").commit()
    add(orders, 7, "staged")
    shown = cli("branch", "shop.orders", "staged", "--publish")
    told = " ".join(shown.stderr.split())
    assert (shown.exit_code, f"it lacks snapshot {lost} with batch 2 of named" in told) == (2, True)


def test_deletes_that_main_would_not_find_are_refused(cli: Run, orders: Table) -> None:
    record(orders, "named", branch="staged", upserts={"keys": ["id"], "remembers": "deleted keys"})
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert (shown.exit_code, "named keeps its deleted keys in its checkpoint" in shown.stderr) == (2, True)


def test_state_that_stays_in_the_checkpoint_is_reported(cli: Run, orders: Table) -> None:
    record(orders, f"{NAME}@staged", branch="staged", position={"sources": [{"source": "s", "to": {}}]})
    shown = cli("branch", "shop.orders", "staged", "--publish")
    assert f".named(NAME, was='{NAME}@staged')" in " ".join(shown.stderr.split())
    assert (LEDGER + NAME) not in orders.iceberg.refresh().properties


def test_a_table_that_changes_meanwhile_is_not_published(orders: Table) -> None:
    record(orders, "named", branch="staged")
    changes = (
        lambda: add(orders, 3, "staged"),
        lambda: add(orders, 4),
        lambda: record(orders, "named", branch="staged", checkpoint="a new one"),
    )
    for change in changes:
        main = orders.branches()["main"]
        planned = publish.plan_publication(orders, "staged")
        change()
        moved = orders.branches()["main"]
        with (
            pytest.raises(RunError, match="changed by another writer meanwhile"),
            translating_errors(orders, "publishing"),
        ):
            publish._commit(orders, planned)
        orders.iceberg.refresh()
        assert orders.branches()["main"] == moved
        if moved != main:
            orders.rollback_to(main)


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["stagde"], "has no branch 'stagde'. Did you mean 'staged'?"),
        (["main"], "main is the branch that others are published to."),
        (["v1"], "v1 is a tag of local.shop.orders, and only a branch can be published."),
        (["helios_audit_orders"], "has a batch of orders that waits for its audit."),
        (["staged", "--delete"], "--publish needs a NAME, and excludes --snapshot and --delete."),
        ([], "--publish needs a NAME, and excludes --snapshot and --delete."),
    ],
    ids=range(6),
)
def test_bad_input(cli: Run, orders: Table, arguments: list[str], told: str) -> None:
    orders.tag("v1")
    orders.branch("helios_audit_orders")
    shown = cli("branch", "shop.orders", *arguments, "--publish")
    assert shown.exit_code == 2
    assert told in " ".join(shown.stderr.split())


KILLED = """
import os, signal, sys
from pyiceberg.catalog.sql import SqlCatalog

real = SqlCatalog.commit_table

def killed(*given):
    if sys.argv[1] == "after":
        real(*given)
    os.kill(os.getpid(), signal.SIGKILL)

SqlCatalog.commit_table = killed
from helios.cli import main
main(["branch", "shop.orders", "staged", "--publish"])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_publication_is_whole_or_none(cli: Run, orders: Table, folder: Path, moment: str) -> None:
    main, head = orders.branches()["main"], orders.branches()["staged"]
    record(orders, f"{NAME}@staged", branch="staged", snapshot=head)
    command = [sys.executable, "-c", KILLED, moment]
    assert subprocess.run(command, cwd=folder, check=False).returncode == -signal.SIGKILL
    orders.iceberg.refresh()
    done = moment == "after"
    assert orders.branches()["main"] == (head if done else main)
    assert (f"{LEDGER}{NAME}" in orders.iceberg.properties) == done
    assert json.loads(cli("branch", "shop.orders", "staged", "--publish", "--json").stdout)["changed"] == (not done)
    assert kept(folder, NAME)["published"] == f"{NAME}@staged"
