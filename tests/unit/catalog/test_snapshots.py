"""Snapshots of a real table."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.metadata import TableMetadataV3

from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, EngineNeeded, InputError, NotFound, RunError
from helios.table import refs
from helios.table.snapshots import Snapshot, Table

pytestmark = pytest.mark.promise("snapshots")

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
    assert error.value.what == ("table local.a.t had no snapshot at 2026-01-01T00:00:00.000Z: main has no snapshots.")


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


# branches, tags, rollback


def test_a_tag_names_a_snapshot(table: Table) -> None:
    first, second, third = table.snapshots()
    assert table.tag("now") == third
    assert table.tag("early", first.id) == first
    assert table.tag("middle", second.timestamp) == second
    assert table.tag("same", "early") == first
    assert table.tags() == {"early": first.id, "middle": second.id, "now": third.id, "same": first.id}
    assert table.branches() == {"main": third.id}
    assert table.drop_tag("same") == first
    assert "same" not in table.tags()


def test_a_branch_begins_at_a_snapshot(table: Table) -> None:
    first, _, third = table.snapshots()
    assert table.branch("audit") == third
    assert table.branch("old", first.id) == first
    assert table.branches() == {"audit": third.id, "main": third.id, "old": first.id}
    assert table.drop_branch("audit") == third
    assert table.branches() == {"main": third.id, "old": first.id}


@pytest.mark.parametrize("make", [Table.tag, Table.branch])
def test_a_name_is_given_once(table: Table, make: Callable[..., Snapshot]) -> None:
    table.tag("v1")
    with pytest.raises(InputError) as error:
        make(table, "v1")
    assert error.value.what == f"table local.a.t has a tag 'v1' already, at snapshot {table.snapshots()[-1].id}."
    with pytest.raises(DeclarationError):
        make(table, "main")


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "a\nb", "a`b", "123", "main", " a", None, 5])
def test_what_is_no_name(table: Table, name: str) -> None:
    before = table.iceberg.metadata_location
    with pytest.raises(DeclarationError) as error:
        table.tag(name)
    assert error.value.what == f"{name!r} cannot be the name of a tag or a branch."
    assert table.iceberg.refresh().metadata_location == before


def test_a_missing_tag_is_told_with_the_nearest(table: Table) -> None:
    table.tag("release-1")
    with pytest.raises(NotFound, match="Did you mean 'release-1'"):
        table.drop_tag("release1")
    with pytest.raises(NotFound, match="has no branch 'release-1'"):
        table.drop_branch("release-1")
    with pytest.raises(DeclarationError, match="'main' is the table itself"):
        table.drop_branch("main")
    with pytest.raises(NotFound, match="has no branch or tag 'v1', and it is not a time"):
        table.tag("v2", "v1")
    with pytest.raises(NotFound, match="has no snapshot 5"):
        table.tag("v2", 5)


def test_an_empty_table_has_nothing_to_name(empty: Table) -> None:
    with pytest.raises(InputError, match="has no snapshots: there is nothing to name"):
        empty.tag("v1")
    with pytest.raises(NotFound):
        empty.rollback_to("2999-01-01")


def test_a_text_that_is_a_time_and_a_name_is_ambiguous(table: Table) -> None:
    first = table.snapshots()[0]
    table.tag("2999-01-01", first.id)
    with pytest.raises(DeclarationError) as error:
        table.find("2999-01-01")
    assert error.value.fix == f"give the snapshot id {first.id}, or a datetime."


def test_a_rollback_goes_back_and_forth(table: Table) -> None:
    first, second, third = table.snapshots()
    table.tag("start", first.id)
    done = table.rollback_to(second.id)
    assert (done.snapshot, done.former, done.pipelines) == (second, third, ())
    assert table.current_snapshot() == second
    assert table.rollback_to("start").snapshot == first
    assert table.iceberg.scan().to_arrow().num_rows == 1
    assert table.rollback_to(third.id).former == first, "forward again, to where main has stood"
    assert table.rollback_to(third.timestamp).snapshot == third
    assert table.current_snapshot() == third
    location = table.iceberg.metadata_location
    assert table.rollback_to(third.id).former == third
    assert table.iceberg.refresh().metadata_location == location, "nothing to do is no commit"


def test_a_rollback_keeps_the_retention_of_main(table: Table) -> None:
    third = table.snapshots()[-1]
    kept = table.iceberg.manage_snapshots().create_branch(third.id, "main", None, 1000, 7)
    kept.commit()
    table.rollback_to(table.snapshots()[0].id)
    main = table.iceberg.refresh().metadata.refs["main"]
    assert (main.max_snapshot_age_ms, main.min_snapshots_to_keep) == (1000, 7)


def test_a_rollback_publishes_no_branch(table: Table) -> None:
    table.branch("audit")
    table.iceberg.append(pa.table({"id": pa.array([9], pa.int64())}), branch="audit")
    with pytest.raises(InputError, match="was never at snapshot"):
        table.rollback_to("audit")


def test_a_rollback_names_the_pipelines_that_it_stops(table: Table) -> None:
    _, second, third = table.snapshots()
    with table.iceberg.transaction() as change:
        change.set_properties(
            {
                "helios.ledger.late": json.dumps({"v": 1, "batch": 2, "snapshot": third.id, "sequence": 3}),
                "helios.ledger.early": json.dumps({"v": 1, "batch": 1, "snapshot": second.id, "sequence": 2}),
                "helios.ledger.expired": json.dumps({"v": 1, "batch": 0, "snapshot": 77, "sequence": 3}),
                "helios.ledger.new": json.dumps({"v": 1, "batch": -1, "snapshot": None, "sequence": 0}),
                "helios.ledger.damaged": "{",
                "other": "{}",
            }
        )
    assert table.rollback_to(second.id).pipelines == ("expired", "late")


def test_a_commit_in_between_is_told(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = table.snapshots()[0]
    other = Catalog.local(path=tmp_path).load("a.t")
    real = refs.refresh

    def then_another_writer(loaded: Table) -> None:
        real(loaded)
        other.iceberg.append(pa.table({"id": pa.array([9], pa.int64())}))

    monkeypatch.setattr(refs, "refresh", then_another_writer)
    with pytest.raises(RunError, match="was changed by another writer meanwhile; nothing was done"):
        table.rollback_to(first.id)
    table.iceberg.refresh()
    assert table.current_snapshot() == table.snapshots()[-1]


def test_a_catalog_that_is_away_is_told(table: Table, tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_text("no database")
    with pytest.raises(RunError, match=r"table local.a.t: reading it failed: DatabaseError"):
        table.tag("v1")


def test_format_v3_is_left_to_spark(table: Table) -> None:
    table.iceberg.metadata = TableMetadataV3.model_validate(
        {**table.iceberg.metadata.model_dump(by_alias=True), "format-version": 3, "next-row-id": 3}
    )
    before = table.iceberg.metadata_location
    first = table.snapshots()[0].id
    for action, command in (
        ("create_tag", f"helios tag local.a.t v1 --snapshot {first}"),
        ("create_branch", f"helios branch local.a.t v1 --snapshot {first}"),
        ("remove_tag", "helios tag local.a.t v1 --delete"),
        ("set_main", f"helios rollback local.a.t {first}"),
    ):
        with pytest.raises(EngineNeeded, match=f"has format v3, whose metadata PyIceberg reads.*Fix: run `{command}`"):
            refs.apply(table, refs.RefChange(action, "v1", first))
    assert table.iceberg.metadata_location == before
