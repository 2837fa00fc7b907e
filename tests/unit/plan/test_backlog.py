"""What a plan says of the next run: the commits that wait, and the files and partitions that a scan opens."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from helios import Catalog, Iceberg, where
from helios.plan import Context, Plan, compile_pipelines
from helios.plan.backlog import with_backlogs
from helios.plan.scans import Backlog, Scan
from helios.sources.iceberg.pruning import row_filter
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("commands")

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("rate", pa.float64()),
        ("paid", pa.bool_()),
        ("p", pa.struct([("a", pa.int32())])),
    ]
)
FIRST = date(2026, 1, 1)
SOURCE = Iceberg.source("a.s")
SINK = Iceberg.sink("a.t")


def rows(ids: range) -> pa.Table:
    """A row for each id, on the day and in the hour of that number."""
    began = datetime(2026, 1, 1)
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "day": FIRST + timedelta(days=i),
                "at": (began + timedelta(hours=i)).replace(tzinfo=UTC),
                "local": began + timedelta(hours=i),
                "name": None if i % 5 == 4 else f"n{i}",
                "amount": Decimal(i) / 4,
                "rate": i / 2,
                "paid": i % 2 == 0,
                "p": {"a": i},
            }
            for i in ids
        ],
        SCHEMA,
    )


def add(table: Table, ids: range, branch: str = "main") -> int:
    """Appends a file for each id, and returns the snapshot."""
    table.iceberg.refresh()
    table.iceberg.append(rows(ids), branch=branch)
    table.iceberg.refresh()
    return table.branches()[branch]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """`a.s`, partitioned by day, empty."""
    return catalog.create_table("a.s", SCHEMA, partition_by=("day",))


@pytest.fixture
def looked(planned: Callable[[Any], Plan]) -> Callable[[Any], Plan]:
    return lambda pipeline: with_backlogs(planned(pipeline))


@pytest.fixture
def scan(looked: Callable[[Any], Plan]) -> Callable[[Any], tuple[Any, ...]]:
    """Files, all files, partitions and all partitions of the scan of a source."""

    def scanned(source: Any) -> tuple[Any, ...]:
        found = looked(source >> SINK).reads[0].scan
        assert found is not None
        return found.files, found.of_files, found.partitions, found.of_partitions

    return scanned


# the files that match


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("day = DATE '2026-01-04'", {3}),
        ("day = '2026-01-04'", {3}),
        ("DATE '2026-01-04' > day", {0, 1, 2}),
        ("day >= DATE '2026-01-09' AND day != DATE '2026-01-09'", {9}),
        # Bounds of a file tell nothing of what a column is not; nor does PyIceberg look at those of a struct's fields.
        ("day >= DATE '2026-01-09' AND id != 8", {8, 9}),
        ("id NOT IN (1, 3)", set(range(10))),
        ("NOT paid AND id > 5", {6, 7, 8, 9}),
        ("p.a = 7", set(range(10))),
        ("at < TIMESTAMP '2026-01-01 02:00:00'", {0, 1}),
        ("at < TIMESTAMP '2026-01-01 03:00:00+01:00'", {0, 1}),
        ("at < '2026-01-01T02:00:00Z'", {0, 1}),
        ("local <= TIMESTAMP_NTZ '2026-01-01 01:00:00'", {0, 1}),
        ("at >= DATE '2026-01-01' AND id <= 0", {0}),
        ("id IN (1, 3, 77)", {1, 3}),
        ("id BETWEEN 2 AND 4", {2, 3, 4}),
        ("NOT (id BETWEEN 2 AND 8)", {0, 1, 9}),
        ("ID <=> 5", {5}),
        ("id > -1 AND id < 1L", {0}),
        ("name IS NULL", {4, 9}),
        ("name IS NOT NULL AND id > 7", {8}),
        ("name LIKE 'n3%'", {3}),
        ("amount = 0.25 OR amount = 2", {1, 8}),
        # PyIceberg counts no NaN, which is more than any number.
        ("rate >= 4", set(range(10))),
        ("rate > 4.5", set(range(10))),
        ("NOT (rate < 4.5)", set(range(10))),
        ("rate <= 0.5", {0, 1}),
        ("NOT (rate > 0.5)", {0, 1}),
        ("rate BETWEEN 3.9 AND 4", set(range(9))),
        ("rate NOT BETWEEN 0 AND 0.5", set(range(10))),
        ("rate = 4", {8}),
        ("paid AND id > 5", {6, 8}),
        ("paid = false AND id < 2", {1}),
        # What is not understood leaves nothing out, and beside it the rest still does.
        ("sqrt(id) > 2", set(range(10))),
        ("sqrt(id) > 2 AND id < 6", {0, 1, 2, 3, 4, 5}),
        ("sqrt(id) > 2 OR id < 6", set(range(10))),
        ("NOT (sqrt(id) > 2 AND id < 6)", set(range(10))),
        ("year(day) = 1999", set(range(10))),
        ("id = amount", set(range(10))),
        ("id = '7'", set(range(10))),
        ("id > 1.5", set(range(10))),
        ("amount = 0.255", set(range(10))),
        ("name LIKE 'n_'", set(range(10))),
        ("day = 'soon'", set(range(10))),
        ("day = current_date", set(range(10))),
    ],
)
def test_which_files_a_predicate_leaves(condition: str, ids: set[int], table: Table) -> None:
    add(table, range(10))
    scan = table.iceberg.scan(row_filter=row_filter([condition], table.iceberg.schema()))
    first = sorted((task.file.partition[0] for task in scan.plan_files()), key=int)
    assert [(date(1970, 1, 1) + timedelta(days=day) - FIRST).days for day in first] == sorted(ids)


def test_several_predicates_must_all_hold(table: Table, scan: Any) -> None:
    add(table, range(10))
    source = SOURCE.where("id > 3")
    assert scan(source.where("id < 6")) == (2, 10, 2, 10)
    assert scan(source.where("sqrt(id) > 1")) == (6, 10, 6, 10)
    # The steps that stand first after the source count too.
    assert scan(source >> where("id < 6")) == (2, 10, 2, 10)
    assert scan(source.where("id > 99")) == (0, 10, 0, 10)


def test_a_table_without_partitions_or_rows(catalog: Catalog, looked: Any, scan: Any) -> None:
    plain = catalog.create_table("a.s", SCHEMA)
    source = SOURCE.where("id = 1")
    assert looked(source >> SINK).reads[0].scan is None
    assert "scan:" not in str(looked(source >> SINK))
    for i in range(3):
        add(plain, range(i, i + 1))
    assert scan(source) == (1, 3, 0, 0)
    size = next(iter(plain.iceberg.scan(row_filter="id = 1").plan_files())).file.file_size_in_bytes
    assert f"scan: 1 of 3 files, {size / 1024:.4g} KB\n" in str(looked(source >> SINK))
    assert looked(SOURCE >> SINK).reads[0].scan is None


def test_partitions_of_several_specs(table: Table, scan: Any) -> None:
    add(table, range(3))
    with table.iceberg.update_spec() as update:
        update.add_identity("id")
    add(table, range(2))
    with table.iceberg.update_spec() as update:
        update.remove_field("id")
        update.remove_field("day")
    add(table, range(1))
    assert scan(SOURCE.where("day = DATE '2026-01-01'")) == (3, 6, 3, 6)


def test_states_and_spans_of_the_past(table: Table, scan: Any) -> None:
    first, second, third = (add(table, range(n)) for n in (2, 3, 4))
    asked = SOURCE.where("id < 1")
    assert scan(asked.at_snapshot(first)) == (1, 2, 1, 2)
    assert scan(asked.between(first, third)) == (2, 7, 1, 4)
    assert scan(asked.between(second, third)) == (1, 4, 1, 4)
    table.branch("b", second)
    add(table, range(5), branch="b")
    assert scan(asked.at_ref("b")) == (3, 10, 1, 5)
    with table.iceberg.update_schema() as update:
        update.rename_column("name", "title")
    # A run reads a state of other columns whole.
    assert scan(asked.at_snapshot(first)) == (2, 2, 2, 2)
    assert scan(asked.between(second, third)) == (1, 4, 1, 4)


def test_of_many_files_it_is_not_looked_which_match(table: Table, looked: Any, monkeypatch: Any) -> None:
    add(table, range(4))
    monkeypatch.setattr("helios.sources.iceberg.backlog.MAX_FILES", 3)
    plan = looked(SOURCE.where("id = 1") >> SINK)
    assert plan.reads[0].scan == Scan(of_files=4)
    assert "scan: unknown which of 4 files match" in str(plan)


# what waits


def checkpoint(plan: Plan, offset: dict[str, Any] | None = None, start: dict[str, Any] | None = None) -> None:
    """Leaves a checkpoint behind as a run does, whose last batch ended at an offset."""
    folder = Path(plan.checkpoint.removeprefix("file://"))
    (folder / "helios").mkdir(parents=True, exist_ok=True)
    if start is not None:
        (folder / "helios" / "start.json").write_text(json.dumps([{"place": start}]))
    if offset is not None:
        for log in ("offsets", "commits"):
            (folder / log).mkdir(exist_ok=True)
        (folder / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(offset)]))
        (folder / "commits" / "0").write_text("v1\n{}")


def waits(plan: Plan) -> str:
    [line] = [line.strip() for line in str(plan).splitlines() if "backlog:" in line]
    assert plan.as_json()["sources"][0]["backlog"] is not None
    return line.removeprefix("backlog: ")


def test_before_the_first_run(table: Table, looked: Any) -> None:
    followed = SOURCE.incremental()
    assert waits(looked(followed >> SINK)) == "nothing yet"
    first, second, third = (add(table, range(n)) for n in (1, 2, 3))
    plan = looked(followed >> SINK)
    assert waits(plan) == f"the state of snapshot {third}, 6 rows in 6 files"
    assert plan.reads[0].scan is None
    starts = {
        "latest": f"nothing since snapshot {third}",
        "earliest": f"the state of snapshot {first}, 1 row in 1 file, then 2 snapshots since snapshot {first}, "
        "5 rows in 5 files",
        second: f"1 snapshot since snapshot {second}, 3 rows in 3 files",
    }
    for start, expected in starts.items():
        assert waits(looked(SOURCE.incremental(start=start) >> SINK)) == expected
    plan = looked(SOURCE.at_snapshot(second).incremental().where("id = 0") >> SINK)
    assert waits(plan) == (
        f"the state of snapshot {second}, 3 rows in 3 files, then 1 snapshot since snapshot {second}, 3 rows in 3 files"
    )
    assert plan.reads[0].scan is not None
    assert (plan.reads[0].scan.files, plan.reads[0].scan.of_files, plan.reads[0].scan.of_partitions) == (3, 6, 3)


def test_once_it_has_begun(table: Table, looked: Any, planned: Any) -> None:
    first, second = (add(table, range(n)) for n in (1, 2))
    pipeline = SOURCE.incremental().where("id = 0") >> SINK
    place = {"snapshot_id": first, "files": 0, "state": True}
    checkpoint(planned(pipeline), start=place)
    assert waits(looked(pipeline)).startswith(f"the state of snapshot {first}, 1 row in 1 file, then 1 snapshot since")
    checkpoint(planned(pipeline), {"snapshot_id": first})
    plan = looked(pipeline)
    assert waits(plan) == f"1 snapshot since snapshot {first}, 2 rows in 2 files"
    assert plan.reads[0].scan == Scan(
        files=1, of_files=2, partitions=1, of_partitions=2, bytes=plan.reads[0].scan.bytes
    )
    third = add(table, range(3))
    checkpoint(planned(pipeline), {"snapshot_id": second, "files": 1, "after": first})
    assert waits(looked(pipeline)) == (
        f"2 snapshots since snapshot {first}, 5 rows in 5 files, of which 1 file has been read"
    )
    checkpoint(planned(pipeline), {"snapshot_id": second, "files": 2, "state": True})
    assert waits(looked(pipeline)) == (
        f"the state of snapshot {second}, 3 rows in 3 files, of which 2 files have been read, then 1 snapshot since "
        f"snapshot {second}, 3 rows in 3 files"
    )
    checkpoint(planned(pipeline), {"snapshot_id": third})
    plan = looked(pipeline)
    assert waits(plan) == f"nothing since snapshot {third}"
    assert plan.reads[0].scan is None
    checkpoint(planned(pipeline), {"snapshot_id": 42})
    plan = looked(pipeline)
    assert waits(plan) == "unknown, since snapshot 42 has expired or was rolled back"
    assert plan.reads[0].backlog == Backlog(since=42, lost=True)


def test_what_the_target_remembers_where_the_checkpoint_is_gone(
    catalog: Catalog, context: Context, table: Table, looked: Any
) -> None:
    first, _ = (add(table, range(n)) for n in (1, 2))
    target = catalog.create_table("a.t", SCHEMA)
    record = {"v": 1, "checkpoint": "c", "batch": 3, "position": {"sources": [{"source": "local.a.s", "to": first}]}}
    with target.iceberg.transaction() as change:
        change.set_properties({"helios.ledger.local.a.t": json.dumps(record)})
    assert waits(looked(SOURCE.incremental() >> SINK)) == f"1 snapshot since snapshot {first}, 2 rows in 2 files"


def test_rows_and_changes_count_other_commits(table: Table, looked: Any, planned: Any) -> None:
    first = add(table, range(3))
    table.iceberg.delete("id = 1")
    add(table, range(1))
    rows, changes = (source >> SINK for source in (SOURCE.incremental(), SOURCE.incremental().changes(keys="id")))
    checkpoint(planned(changes), {"snapshot_id": first})
    assert waits(looked(rows)) == f"1 snapshot since snapshot {first}, 1 row in 1 file"
    assert waits(looked(changes)) == f"2 snapshots since snapshot {first}, 1 row in 2 files"


def test_nothing_is_looked_at_offline(table: Table, context: Context) -> None:
    add(table, range(1))
    plans, _ = compile_pipelines([SOURCE.incremental().where("id = 0") >> SINK], replace(context, offline=True))
    plan = with_backlogs(plans[0])
    assert (plan.reads[0].backlog, plan.reads[0].scan) == (None, None)
    assert "backlog:" not in str(plan)
