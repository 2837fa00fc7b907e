"""`status`, over tables and checkpoints as a run leaves them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result

from helios import Catalog
from helios.cli.status import _show
from helios.table import growth
from helios.table.snapshots import Table
from helios.table.status import Status

pytestmark = pytest.mark.promise("commands")

Run = Callable[..., Result]

SCHEMA = pa.schema([("id", pa.int64())])
SCRIPT = """
from helios import Iceberg
orders = Iceberg.source("shop.raw").incremental() >> Iceberg.sink("shop.orders")
other = Iceberg.source("shop.raw").incremental() >> Iceberg.sink("shop.other").target_file_size("4KB")
"""


@pytest.fixture
def catalog(folder: Path) -> Catalog:
    made = Catalog.local(path=folder / ".helios")
    made.create_namespace("shop")
    return made


def append(table: Table, *, branch: str = "main", rows: int = 1, **stamps: object) -> int:
    properties = {f"helios.{key}": str(value) for key, value in stamps.items()}
    data = pa.Table.from_pydict({"id": list(range(rows))}, schema=SCHEMA)
    table.iceberg.append(data, snapshot_properties=properties, branch=branch)
    return table.branches()[branch]


def remember(table: Table, pipeline: str, batch: int, source: Table | None = None, **fields: Any) -> None:
    """The record of a pipeline, which has read a source up to where it is now."""
    position = None
    if source is not None:
        to = source.iceberg.current_snapshot().snapshot_id
        position = {"sources": [{"source": source.name, "state": None, "after": 1, "to": to}], "pins": {}}
    kept = {"checkpoint": "c", "batch": batch, "position": position, "snapshot": None, "sequence": 0, "steps": "s"}
    with table.iceberg.transaction() as change:
        change.set_properties({f"helios.ledger.{pipeline}": json.dumps({"v": 1, **kept, **fields})})


def checkpoint(folder: Path, pipeline: str, source: str, batch: int, snapshot: int) -> Path:
    """A checkpoint whose pipeline has read a source up to a snapshot."""
    made = folder / ".helios" / "warehouse" / "_helios" / "checkpoints" / pipeline
    identity = {"v": 1, "id": "c", "pipeline": pipeline, "target": pipeline, "target_uuid": "", "sources": [source]}
    for name, text in {
        "helios/identity.json": json.dumps({**identity, "state": [], "path": "snapshot ranges"}),
        "helios/start.json": json.dumps([{"declared": "", "place": {"snapshot_id": snapshot}}]),
        f"offsets/{batch}": f'v1\n{{}}\n{{"version":1,"snapshot_id":{snapshot},"position":1,"scan_all_files":false}}',
        f"commits/{batch}": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    return made


@pytest.fixture
def shop(catalog: Catalog) -> tuple[Table, Table]:
    """A source of three commits, and a target that has the first."""
    raw, orders = catalog.create_table("shop.raw", SCHEMA), catalog.create_table("shop.orders", SCHEMA)
    append(raw)
    made = append(orders, rows=7, pipeline="local.shop.orders", batch=0)
    remember(orders, "local.shop.orders", 0, raw, snapshot=made, sequence=1)
    append(raw)
    append(raw)
    return raw, orders


def one(cli: Run, *arguments: str) -> dict[str, Any]:
    (found,) = json.loads(cli("status", *arguments, "--json").stdout)
    return dict(found)


def test_nothing_yet(cli: Run) -> None:
    shown = cli("status")
    assert (shown.exit_code, shown.stdout, shown.stderr) == (0, "", "no pipeline has written anything yet.\n")
    assert json.loads(cli("status", "--json").stdout) == []


def test_the_last_commit_and_the_small_files(cli: Run, shop: tuple[Table, Table]) -> None:
    _, orders = shop
    found = one(cli)
    current = orders.current_snapshot()
    assert current is not None
    assert (found["pipeline"], found["table"]) == ("local.shop.orders", "local.shop.orders")
    assert (found["batch"], found["snapshot"], found["rows"]) == (0, current.id, 7)
    assert found["committed"] == current.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert (found["files"], found["small"]) == (1, 0)  # nothing that it could be put together with
    assert (found["audit"], found["notes"]) == (None, [])
    header, line = cli("status").output.splitlines()
    assert header.split("  ")[0] == "PIPELINE"
    assert [*line.split()[:2], *line.split()[-3:]] == ["local.shop.orders", "0", "0", "of", "1"]
    size = orders.iceberg.inspect.files()["file_size_in_bytes"][0].as_py()
    append(orders)
    for target, small in ((2 * size, 0), (2 * size + 1, 2)):
        with orders.iceberg.transaction() as change:
            change.set_properties({"write.target-file-size-bytes": str(target)})
        assert one(cli)["small"] == small


def test_a_column_that_is_empty_is_left_out(cli: Run, shop: tuple[Table, Table]) -> None:
    assert shop
    header, _ = cli("status").output.splitlines()
    assert re.split(" {2,}", header) == ["PIPELINE", "BATCH", "COMMITTED", "ROWS", "BEHIND", "SMALL FILES"]


def test_notes_stand_below_the_table_of_a_terminal(
    shop: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shop
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _show([Status(pipeline="a.b", table="a.b", notes=("batch 1 waits",)), Status(pipeline="a.c", table="a.c")])
    out = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert [line.strip() for line in out.splitlines() if line.strip(" \u2500")] == [
        "pipeline", "a.b", "a.c", "a.b: batch 1 waits."
    ]  # fmt: skip


def test_the_lag_is_told_by_the_record_where_no_checkpoint_is(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, _ = shop
    found = one(cli)
    oldest = raw.snapshots()[1].timestamp.timestamp()
    assert found["behind"] == 2
    assert abs(time.time() - oldest - found["seconds"]) < 30
    assert "2 snapshots, " in cli("status").output


def test_a_commit_without_files_is_nothing_to_read(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, _ = shop
    raw.iceberg.append(pa.Table.from_pydict({"id": []}, schema=SCHEMA))
    assert len(raw.iceberg.refresh().metadata.snapshots) == 4
    assert one(cli)["behind"] == 2


@pytest.mark.parametrize(
    ("read", "place", "behind"),
    [
        (0, {}, 2),
        (2, {}, 0),
        (1, {"files": 1, "after": 0}, 2),  # the second commit is partly read
        (0, {"files": 0, "state": True}, 3),  # of the first state nothing is
    ],
)
def test_the_offset_of_the_record_counts(
    cli: Run, shop: tuple[Table, Table], read: int, place: dict[str, Any], behind: int
) -> None:
    raw, orders = shop
    snapshot = raw.snapshots()[read].id
    entry = {"source": raw.name, "after": 1, "to": None, "place": {"snapshot_id": snapshot, **place}}
    remember(orders, "local.shop.orders", 0, position={"sources": [entry], "pins": {}})
    assert one(cli)["behind"] == behind


def test_the_checkpoint_knows_of_batches_that_wrote_nothing(cli: Run, shop: tuple[Table, Table], folder: Path) -> None:
    raw, _ = shop
    newest = raw.iceberg.current_snapshot().snapshot_id
    made = checkpoint(folder, "local.shop.orders", "local.shop.raw", 3, newest)
    assert (one(cli)["behind"], one(cli)["seconds"]) == (0, 0.0)
    assert cli("status").output.splitlines()[1].split()[-4] == "no"
    (made / "offsets" / "3").write_text("")
    assert one(cli)["behind"] == 2, "a checkpoint that cannot be read"


def test_a_script_names_its_pipelines_and_their_checkpoints(cli: Run, shop: tuple[Table, Table], folder: Path) -> None:
    raw, _ = shop
    text = SCRIPT.replace('"shop.orders")', f'"shop.orders").checkpoint("{folder}/elsewhere")')
    (folder / "p.py").write_text(text)
    made = checkpoint(folder, "local.shop.orders", "local.shop.raw", 0, raw.snapshots()[1].id)
    made.rename(folder / "elsewhere")
    orders, other = json.loads(cli("status", "p.py", "--json").stdout)
    assert (orders["pipeline"], orders["behind"]) == ("local.shop.orders", 1)
    assert (other["pipeline"], other["batch"], other["notes"]) == ("local.shop.other", None, ["has not run yet"])
    assert cli("status", "p.py:other").output.splitlines()[1].split() == [
        "local.shop.other", "has", "not", "run", "yet",
    ]  # fmt: skip


def test_the_sink_says_the_target_file_size(cli: Run, catalog: Catalog, folder: Path) -> None:
    (folder / "p.py").write_text(SCRIPT)
    append(catalog.create_table("shop.raw", SCHEMA))
    other = catalog.create_table("shop.other", SCHEMA)
    append(other)
    made = append(other)
    remember(other, "local.shop.other", 0, snapshot=made)
    assert one(cli, "p.py:other")["small"] == 2
    (folder / "p.py").write_text(SCRIPT.replace("4KB", "1KB"))
    assert one(cli, "p.py:other")["small"] == 0
    assert one(cli, "p.py:other")["behind"] is None


def test_a_source_that_lost_the_place_is_said(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, orders = shop
    remember(orders, "local.shop.orders", 0, raw, snapshot=orders.iceberg.current_snapshot().snapshot_id)
    assert one(cli)["behind"] == 0
    raw.rollback_to(raw.snapshots()[0].id)
    found = one(cli)
    assert found["behind"] is None
    assert found["notes"] == ["the position in local.shop.raw has expired, or was rolled back"]
    assert "unknown" in cli("status").output


def test_a_place_whose_own_snapshot_has_expired_is_still_known(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, _ = shop
    append(raw)
    raw.expire(older_than=0.001, retain_last=3)
    assert len(raw.snapshots()) == 3
    assert one(cli)["behind"] == 3


def test_a_batch_that_waits_for_its_audit_or_was_set_aside(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, orders = shop
    pipeline = "local.shop.orders"
    main = orders.iceberg.current_snapshot().snapshot_id
    orders.branch(f"helios_audit_{pipeline}")
    assert one(cli)["audit"] is None
    append(orders, branch=f"helios_audit_{pipeline}", pipeline=pipeline, batch=1, position="{}", checkpoint="c")
    found = one(cli)
    assert (found["audit"], found["notes"]) == (1, ["batch 1 has not passed its audit"])
    assert found["files"] == 1, "what waits is not in the table"
    remember(orders, pipeline, 1, raw, snapshot=main)
    assert "batch 1 was set aside" in one(cli)["notes"]
    # The first batch of all is set aside, and others follow it: its tag still tells.
    orders.tag(
        f"helios_quarantine_{pipeline}_1",
        snapshot=orders.iceberg.refresh().refs()[f"helios_audit_{pipeline}"].snapshot_id,
    )
    orders.drop_branch(f"helios_audit_{pipeline}")
    remember(orders, pipeline, 2, raw, snapshot=main)
    append(orders, pipeline=pipeline, batch=2, position="{}", checkpoint="c")
    remember(orders, pipeline, 2, raw, snapshot=orders.iceberg.refresh().current_snapshot().snapshot_id)
    found = one(cli)
    assert (found["aside"], found["notes"]) == ([1], ["batch 1 was set aside"])
    assert "batch 1 was set aside" in cli("status").stdout


def test_a_published_batch_that_main_was_rolled_back_behind_does_not_wait(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, orders = shop
    pipeline, first = "local.shop.orders", orders.iceberg.current_snapshot().snapshot_id
    branch = f"helios_audit_{pipeline}"
    orders.branch(branch)
    made = append(orders, branch=branch, pipeline=pipeline, batch=1, position="{}", checkpoint="c")
    orders.iceberg.manage_snapshots().create_branch(made, "main").commit()  # published: main goes there
    remember(orders, pipeline, 1, raw, snapshot=made, sequence=2)
    assert (one(cli)["audit"], one(cli)["notes"]) == (None, [])
    orders.rollback_to(first)
    lost = "rolled back: batch 1 is no longer in the table's history, and the next run stops"
    assert (one(cli)["audit"], one(cli)["notes"]) == (None, [lost])
    refused = cli("quarantine", "local.shop.orders", "--batch", "1")
    assert (refused.exit_code, "batch 1 of local.shop.orders is published already" in refused.stderr) == (2, True)
    # A new checkpoint continues after main, and the branch has what the former one published.
    remember(orders, pipeline, -1, raw, snapshot=first, sequence=1, checkpoint="d")
    assert (one(cli)["audit"], one(cli)["notes"]) == (None, [])


def test_a_rollback_of_main_is_told_where_another_branch_holds_the_batch(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, orders = shop
    first = orders.iceberg.current_snapshot().snapshot_id
    made = append(orders, pipeline="local.shop.orders", batch=1)
    remember(orders, "local.shop.orders", 1, raw, snapshot=made, sequence=2)
    orders.branch("kept")
    assert one(cli)["notes"] == []
    orders.rollback_to(first)
    assert one(cli)["notes"] == ["rolled back: batch 1 is no longer in the table's history, and the next run stops"]


def test_a_pipeline_of_a_branch_is_looked_up_there(cli: Run, shop: tuple[Table, Table]) -> None:
    raw, orders = shop
    orders.branch("stage")
    first = orders.branches()["stage"]
    made = append(orders, branch="stage", pipeline="local.shop.orders", batch=1)
    remember(orders, "local.shop.orders", 1, raw, snapshot=made, sequence=2, branch="stage")
    assert one(cli)["notes"] == []
    orders.branch("kept", snapshot=made)
    orders.drop_branch("stage")
    orders.branch("stage", snapshot=first)
    assert one(cli)["notes"] == ["rolled back: batch 1 is no longer in the table's history, and the next run stops"]


def test_routed_tables_replays_and_quarantines(cli: Run, catalog: Catalog, folder: Path) -> None:
    (folder / "p.py").write_text(
        "from helios import *\n"
        "p = (Memory.source([{'id': 1, 'k': 'a'}]) >> Iceberg.sink('shop.t').route(by='k').quarantine('shop.bad'))"
        ".named('routed')\n"
    )
    for name in ("shop.t_a", "shop.t_b", "shop.unrelated"):
        table = catalog.create_table(name, SCHEMA)
        remember(table, "routed", 4, snapshot=append(table, pipeline="routed", batch=4))
        remember(table, "routed.replay", 0)
    columns = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
    bad = catalog.create_table("shop.bad", pa.schema([(name, pa.string()) for name in columns]))
    remember(bad, "routed", 4)
    found = json.loads(cli("status", "p.py", "--json").stdout)
    assert [(f["pipeline"], f["table"]) for f in found] == [
        ("routed", "local.shop.t_a"),
        ("routed", "local.shop.t_b"),
    ]
    everything = json.loads(cli("status", "--json").stdout)
    assert [f["table"] for f in everything] == ["local.shop.t_a", "local.shop.t_b", "local.shop.unrelated"]


def test_the_quarantine_of_routed_tables_is_shown_once(cli: Run, catalog: Catalog, folder: Path) -> None:
    for name in ("shop.raw", "shop.orders_eu", "shop.orders_rejected"):
        table = catalog.create_table(name, SCHEMA)
        append(table, pipeline="p", batch=0)
        remember(table, "p", 0)
    sink = 'Iceberg.sink("shop.orders").route(by="id").quarantine("shop.orders_rejected")'
    source = 'Iceberg.source("shop.raw").incremental()'
    (folder / "p.py").write_text(f'from helios import Iceberg\np = ({source} >> {sink}).named("p")\n')
    shown = json.loads(cli("status", "p.py", "--json").output)
    assert [status["table"] for status in shown] == ["local.shop.orders_rejected", "local.shop.orders_eu"]


def test_rejected_rows_and_lost_replays_are_told(cli: Run, catalog: Catalog) -> None:
    table = catalog.create_table("shop.t", SCHEMA)
    first = append(table, pipeline="p", batch=0)
    remember(table, "p", 0, snapshot=first)
    remember(table, "p.replay", 0, snapshot=append(table, pipeline="p.replay", batch=0))
    columns = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
    bad = catalog.create_table("shop.bad", pa.schema([(name, pa.string()) for name in columns]))
    rows = [dict.fromkeys(columns, "x") | {"pipeline": pipeline} for pipeline in ("p", "p", "other")]
    bad.iceberg.append(pa.Table.from_pylist(rows, schema=bad.iceberg.schema().as_arrow()))
    remember(bad, "p", 0, snapshot=bad.current_snapshot().id)
    rejected, written = json.loads(cli("status", "--json").stdout)
    assert (rejected["table"], rejected["notes"]) == ("local.shop.bad", ["2 rejected rows"])
    assert written["notes"] == []
    table.rollback_to(first)
    _, written = json.loads(cli("status", "--json").stdout)
    assert written["notes"] == ["rolled back: replay 0 is no longer in the table's history, and the next run stops"]


def test_a_damaged_record_hides_no_other(cli: Run, shop: tuple[Table, Table]) -> None:
    _, orders = shop
    with orders.iceberg.transaction() as change:
        change.set_properties({"helios.ledger.broken": "{"})
    broken, well = json.loads(cli("status", "--json").stdout)
    assert (broken["batch"], well["batch"]) == (None, 0)
    assert "the ledger record helios.ledger.broken of local.shop.orders is damaged" in broken["notes"][0]
    with orders.iceberg.transaction() as change:
        change.set_properties({f"helios.ledger.{well['pipeline']}.replay": "{"})
    _, well = json.loads(cli("status", "--json").stdout)
    assert well["batch"] == 0
    assert f"{well['pipeline']}.replay of local.shop.orders is damaged" in " ".join(well["notes"])


def test_a_catalog_that_is_away_hides_no_other(cli: Run, shop: tuple[Table, Table], folder: Path) -> None:
    assert shop
    (folder / "away").mkdir()
    (folder / "away" / "catalog.db").write_text("no database")
    (folder / "helios.toml").write_text('[catalogs.away]\ntype = "local"\npath = "away"\n')
    shown = cli("status")
    assert shown.exit_code == 1
    assert "local.shop.orders" in shown.stdout
    assert "catalog 'away'" in shown.stderr


def test_a_pipeline_with_a_problem_hides_no_other(cli: Run, shop: tuple[Table, Table], folder: Path) -> None:
    assert shop
    orders, _, other = SCRIPT.rpartition("shop.raw")
    (folder / "p.py").write_text(f"{orders}shop.rw{other}")
    shown = cli("status", "p.py")
    assert shown.exit_code == 2
    assert "local.shop.orders" in shown.stdout
    assert "Did you mean 'shop.raw'?" in shown.stderr


def test_wrong_input(cli: Run, folder: Path) -> None:
    assert cli("status", "missing.py").exit_code == 2
    (folder / "p.py").write_text("from helios import *\np = Iceberg.source('shop.nope') >> Iceberg.sink('shop.t')\n")
    shown = cli("status", "p.py")
    assert shown.exit_code == 2
    assert "shop.nope" in shown.stderr


def test_a_long_history_is_told_by_status_and_doctor(
    cli: Run, folder: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = catalog.create_table("shop.orders", SCHEMA)
    for number in range(4):
        append(orders, pipeline="local.shop.orders", batch=number)
    remember(orders, "local.shop.orders", 3)
    assert "snapshots" not in cli("status").stdout
    assert "history of" not in cli("doctor").stdout
    monkeypatch.setattr(growth, "MANY", 4)
    [status] = json.loads(cli("status", "--json").stdout)
    [note] = status["notes"]
    assert re.match(r"4 snapshots, about [\d,]+ commits a day; each commit writes 0\.0 MB of metadata: \.", note)
    checks = {check["name"]: check for check in json.loads(cli("doctor", "--json").stdout)["checks"]}
    assert checks["history of local"]["detail"] == f"local.shop.orders has {note}"
    assert checks["history of local"]["ok"] is None


def test_the_lag_behind_topics_is_what_the_run_last_saw(cli: Run, catalog: Catalog) -> None:
    orders = catalog.create_table("shop.orders", SCHEMA)
    made = append(orders, rows=7, pipeline="local.shop.orders", batch=0)
    place = {"topics": {"orders": {"id": "a", "offsets": [7]}}}
    position = {"sources": [{"source": "kafka:orders", "branch": None, "from": "earliest", "place": place}]}
    remember(orders, "local.shop.orders", 0, position=position, snapshot=made, sequence=1)
    assert (one(cli)["behind_records"], one(cli)["seconds"]) == (None, None)
    assert " unknown " in cli("status").output
    folder = Path(catalog.option("path") or "")  # type: ignore[arg-type]
    kept = checkpoint(folder.parent, "local.shop.orders", "kafka:orders", 0, 5)
    (kept / "helios" / "lag").mkdir()
    text = '{"v": 1, "source": "kafka:orders", "records": 1200, "seconds": 35.5, "at": "2026-01-01T10:00:00+00:00"}'
    (kept / "helios" / "lag" / "0.json").write_text(text)
    found = one(cli)
    assert (found["behind"], found["behind_records"], found["seconds"]) == (None, 1200, 35.5)
    assert found["notes"] == ["the lag behind kafka:orders is that of 2026-01-01 10:00:00 UTC"]
    assert "1,200 records, 35 s" in cli("status").output


def test_a_repair_that_is_done_is_left_out(cli: Run, catalog: Catalog) -> None:
    orders = catalog.create_table("shop.orders", SCHEMA)

    def shown() -> list[str]:
        return [line.split()[0] for line in cli("status").stdout.splitlines()[1:]]

    once = {"sources": [{"source": "local.shop.raw", "snapshot": 5}]}
    remember(orders, "repair", 0, snapshot=append(orders, pipeline="repair", batch=0), sequence=1, position=once)
    other = {"sources": [{"source": "local.shop.returns", "snapshot": 5}]}
    remember(orders, "nightly", 0, snapshot=append(orders, pipeline="nightly", batch=0), sequence=2, position=other)
    assert shown() == ["nightly", "repair"]
    followed = {"sources": [{"source": "local.shop.raw", "state": None, "after": 1, "to": 5}]}
    written = append(orders, pipeline="local.shop.orders", batch=0)
    remember(orders, "local.shop.orders", 0, snapshot=written, sequence=3, position=followed)
    assert shown() == ["local.shop.orders", "nightly"]
    assert cli("status").stderr == "1 finished pipeline is not shown: helios status --all.\n"
    assert len(cli("status", "--all").stdout.splitlines()) == 4
    assert len(json.loads(cli("status", "--json").stdout)) == 3
    # One that is later than the follower is news.
    remember(orders, "repair", 1, snapshot=append(orders, pipeline="repair", batch=1), sequence=4, position=once)
    assert shown() == ["local.shop.orders", "nightly", "repair"]
