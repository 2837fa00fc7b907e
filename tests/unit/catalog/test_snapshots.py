"""Snapshots of a real table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, NotFound
from helios.table.snapshots import Table

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def empty(tmp_path: Path) -> Table:
    catalog = Catalog.local(path=tmp_path)
    catalog.create_namespace("a")
    return catalog.create_table("a.t", IDS)


@pytest.fixture
def table(empty: Table) -> Table:
    for i in range(3):
        empty.iceberg.append(pa.table({"id": pa.array([i], pa.int64())}), snapshot_properties={"batch": str(i)})
    return empty


def test_a_table_that_was_never_written(empty: Table) -> None:
    assert empty.snapshots() == []
    assert empty.current_snapshot() is None
    with pytest.raises(NotFound) as error:
        empty.snapshot(5)
    assert error.value.what == "table local.a.t has no snapshot 5. It has none."
    with pytest.raises(NotFound) as error:
        empty.snapshot_at("2026-01-01")
    assert error.value.what == ("table local.a.t had no snapshot at 2026-01-01T00:00:00.000Z: it has no snapshots.")


def test_snapshots_tell_what_happened(table: Table) -> None:
    first, second, third = table.snapshots()
    assert first.parent_id is None
    assert (second.parent_id, third.parent_id) == (first.id, second.id)
    assert [s.operation for s in (first, second, third)] == ["append"] * 3
    assert third.summary["batch"] == "2"
    assert third.summary["total-records"] == "3"
    assert "operation" not in third.summary
    assert third.schema_id == 0
    assert third.manifest_list.endswith(".avro")
    assert third.timestamp.tzinfo is UTC
    assert abs(datetime.now(UTC) - third.timestamp) < timedelta(minutes=5)
    assert third.timestamp.timestamp() * 1000 == table.iceberg.metadata.snapshots[-1].timestamp_ms
    assert table.current_snapshot() == third
    assert table.snapshot(second.id) == second
    assert len({first, second, third}) == 3


def test_an_unknown_id_names_what_exists(table: Table) -> None:
    with pytest.raises(NotFound) as error:
        table.snapshot(5)
    third = table.snapshots()[-1]
    shown = third.timestamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{third.timestamp.microsecond // 1000:03d}Z"
    assert error.value.what.startswith(f"table local.a.t has no snapshot 5. Newest: {third.id} ({shown}), ")
    assert error.value.where is not None
    assert error.value.where.file.endswith("test_snapshots.py")


@pytest.mark.parametrize("id", ["5", True, None])
def test_an_id_is_a_whole_number(table: Table, id: int) -> None:
    with pytest.raises(DeclarationError) as error:
        table.snapshot(id)
    assert error.value.what == f"a snapshot id is a whole number, not {id!r}."


def test_the_state_at_a_time(table: Table) -> None:
    first, second, third = table.snapshots()
    assert table.snapshot_at(second.timestamp) == second
    assert table.snapshot_at(third.timestamp - timedelta(microseconds=1)) == second
    assert table.snapshot_at("2999-01-01") == third
    naive = second.timestamp.replace(tzinfo=None)
    assert table.snapshot_at(naive) == second
    assert table.snapshot_at(naive.isoformat() + "Z") == second
    assert table.snapshot_at(second.timestamp.astimezone(timezone(timedelta(hours=9)))) == second
    with pytest.raises(NotFound) as error:
        table.snapshot_at("2020-01-01T00:00:00+02:00")
    when = first.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert error.value.what == (
        f"table local.a.t had no snapshot at 2019-12-31T22:00:00.000Z: its first state is of {when}."
    )


def test_after_a_rollback_the_state_is_the_one_rolled_back_to(table: Table) -> None:
    first = table.snapshots()[0]
    table.iceberg.manage_snapshots().rollback_to_snapshot(first.id).commit()
    assert table.current_snapshot() == first
    assert table.snapshot_at("2999-01-01") == first
    assert len(table.snapshots()) == 3


@pytest.mark.parametrize("ts", ["yesterday", 5, None])
def test_what_is_no_time(table: Table, ts: str) -> None:
    with pytest.raises(DeclarationError) as error:
        table.snapshot_at(ts)
    assert error.value.what == f"{ts!r} is not a time."
    assert error.value.fix == 'write ISO 8601 ("2026-01-01T00:00:00Z") or a datetime.'
