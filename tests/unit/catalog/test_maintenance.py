"""Which snapshots may expire and for whom others stay, over real tables and without a JVM."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import CommitTableRequest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.refs import SnapshotRef

from helios.catalog.spec import Catalog
from helios.errors import CheckpointError, ConfigError, DeclarationError, InputError, RunError
from helios.model.maintenance import Maintenance, maintenance
from helios.table import maintenance as expiring
from helios.table.readers import Reader, Warehouse, readers_of, snapshots_needed_by, warehouses
from helios.table.snapshots import Table

pytestmark = pytest.mark.promise("maintain")

IDS = pa.schema([("id", pa.int64())])
FAR = "2999-01-01"


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    monkeypatch.chdir(tmp_path)  # where the configuration is looked for
    catalog = Catalog.local(path=tmp_path / ".helios")
    catalog.create_namespace("a")
    return catalog


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("a.t", IDS)
    for i in range(5):
        append(made, i)
    return made


def append(table: Table, *ids: int, branch: str = "main") -> None:
    table.iceberg.append(pa.table({"id": pa.array(ids, pa.int64())}), branch=branch)


def ids(table: Table) -> list[int]:
    return [snapshot.id for snapshot in table.snapshots()]


def offset(snapshot: int) -> str:
    return json.dumps({"version": 1, "snapshot_id": snapshot, "position": 1, "scan_all_files": False})


def checkpoint(
    folder: Path,
    *,
    sources: tuple[str, ...] = ("local.a.t",),
    ends: dict[int, list[str]] | None = None,
    committed: int | None = None,
    start: list[int | None] | None = None,
    path: str = "snapshot ranges",
) -> Path:
    """A checkpoint as Spark and Helios leave it."""
    (folder / "helios").mkdir(parents=True)
    identity = {"v": 1, "id": "x", "pipeline": folder.name, "target": "local.b.u", "target_uuid": "", "state": []}
    (folder / "helios/identity.json").write_text(json.dumps({**identity, "sources": sources, "path": path}))
    if start is not None:
        places = [{"snapshot_id": -1 if s is None else s} for s in start]
        declared = [{"declared": "the current state", "place": place} for place in places]
        (folder / "helios/start.json").write_text(json.dumps(declared))
    for batch, lines in (ends or {}).items():
        (folder / "offsets").mkdir(exist_ok=True)
        (folder / f"offsets/{batch}").write_text("\n".join(["v1", "{}", *lines]))
        (folder / f"offsets/.{batch}.crc").write_text("")
        (folder / "commits").mkdir(exist_ok=True)
        if committed is None or batch <= committed:
            (folder / f"commits/{batch}").write_text("v1\n{}")
    return folder


def known(tmp_path: Path, name: str = "copy") -> Path:
    return tmp_path / ".helios/warehouse/_helios/checkpoints" / name


# which snapshots go


def test_the_current_snapshot_always_stays(table: Table) -> None:
    all_of_them = ids(table)
    done = table.expire(FAR)
    assert [snapshot.id for snapshot in done.snapshots] == all_of_them[:-1]
    assert ids(table) == all_of_them[-1:]
    assert sorted(table.iceberg.scan().to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert table.expire(FAR).snapshots == (), "nothing is left to expire"


def test_a_snapshot_remembers_the_parent_that_expired(table: Table, catalog: Catalog) -> None:
    before = table.snapshots()
    table.expire(retain_last=2)
    kept = catalog.load("a.t").snapshots()
    assert [(s.id, s.parent_id) for s in kept] == [(s.id, s.parent_id) for s in before[-2:]]
    assert kept[0].parent_id == before[2].id, "PyIceberg's own expiry forgets it"
    log = [entry.snapshot_id for entry in table.iceberg.metadata.snapshot_log]
    assert log == [s.id for s in before[-2:]]


def test_the_log_of_states_begins_behind_a_gap(table: Table) -> None:
    first, second, third, fourth, fifth = table.snapshots()
    table.tag("kept", second.id)
    table.expire(third.timestamp + timedelta(milliseconds=1))
    assert ids(table) == [second.id, fourth.id, fifth.id]
    log = [entry.snapshot_id for entry in table.iceberg.metadata.snapshot_log]
    assert log == [fourth.id, fifth.id], "at the time of the third, the second was no longer the state"
    assert first.id not in log


def test_age_and_number(table: Table) -> None:
    times = [snapshot.timestamp for snapshot in table.snapshots()]
    assert len(table.expiry(times[2]).snapshots) == 2
    assert len(table.expiry(times[2].isoformat()).snapshots) == 2
    assert len(table.expiry(times[2].replace(tzinfo=None)).snapshots) == 2
    assert len(table.expiry(FAR, retain_last=4).snapshots) == 1
    assert len(table.expiry(retain_last=2).snapshots) == 3
    assert len(table.expiry("1d").snapshots) == len(table.expiry(timedelta(days=1)).snapshots) == 0
    assert table.expiry().snapshots == (), "the table's own retention is 5 days"
    assert len(ids(table)) == 5, "to look changes nothing"


def test_the_tables_own_retention(table: Table) -> None:
    with table.iceberg.transaction() as change:
        change.set_properties({expiring.MAX_AGE: "1", expiring.MIN_KEPT: "3"})
    time.sleep(0.01)
    assert len(table.expiry().snapshots) == 2
    with table.iceberg.transaction() as change:
        change.set_properties({expiring.MAX_AGE: "a week"})
    with pytest.raises(InputError, match=r"history.expire.max-snapshot-age-ms is 'a week', which is not a number"):
        table.expiry()


def test_gc_that_is_off_is_respected(table: Table) -> None:
    with table.iceberg.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(InputError, match=r"gc.enabled is false"):
        table.expire(FAR)
    assert len(ids(table)) == 5


@pytest.mark.parametrize(
    ("older_than", "retain_last"), [("soon", None), (None, 0), (None, True), (None, "3"), (FAR, -1), ([], None)]
)
def test_what_is_no_retention(table: Table, older_than: Any, retain_last: Any) -> None:
    with pytest.raises(DeclarationError):
        table.expire(older_than, retain_last)
    assert len(ids(table)) == 5


def test_branches_and_tags_stay(table: Table) -> None:
    first, second, third, _, fifth = ids(table)
    table.tag("v1", first)
    table.branch("audit", third)
    append(table, 9, branch="audit")
    audited = table.branches()["audit"]
    gone = {snapshot.id for snapshot in table.expire(FAR).snapshots}
    assert set(ids(table)) == {first, fifth, audited}
    assert second in gone
    assert third in gone, "a head stays, not what it stands on"


def test_a_branch_has_its_own_retention(table: Table) -> None:
    third = ids(table)[2]
    table.iceberg.manage_snapshots().create_branch(third, "slow", None, 10**12, None).commit()
    assert {s.id for s in table.expiry(FAR).snapshots} == {ids(table)[3]}, "the branch keeps all of its ancestors"
    table.iceberg.manage_snapshots().create_branch(ids(table)[4], "main", None, None, 5).commit()
    assert table.expiry(FAR).snapshots == ()


def test_snapshots_of_no_branch_go_by_age(table: Table) -> None:
    all_of_them = table.snapshots()
    table.rollback_to(all_of_them[1].id)
    left = {snapshot.id for snapshot in table.expiry(all_of_them[3].timestamp).snapshots}
    assert left == {all_of_them[0].id, all_of_them[2].id}
    assert {s.id for s in table.expiry("1d").snapshots} == set()


def test_another_commit_in_between_is_retried(table: Table, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    other, real, calls = catalog.load("a.t"), expiring.remove_snapshots, []

    def late(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 1:
            append(other, 99)
        real(*arguments)

    monkeypatch.setattr(expiring, "remove_snapshots", late)
    table.expire(FAR)
    assert len(calls) == 2
    assert ids(catalog.load("a.t")) == [ids(other)[-1]]
    assert 99 in catalog.load("a.t").iceberg.scan().to_arrow()["id"].to_pylist()


def test_a_table_that_is_never_quiet_is_told(table: Table, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    other, real = catalog.load("a.t"), expiring.remove_snapshots

    def always_late(*arguments: Any) -> None:
        append(other, 99)
        real(*arguments)

    monkeypatch.setattr(expiring, "remove_snapshots", always_late)
    with pytest.raises(RunError, match="was changed by another writer meanwhile"):
        table.expire(FAR)
    assert len(ids(catalog.load("a.t"))) == 5 + expiring.COMMIT_TRIES


def test_a_snapshot_that_was_tagged_meanwhile_does_not_go(table: Table, catalog: Catalog) -> None:
    first = ids(table)[0]
    catalog.load("a.t").tag("late", first)
    with pytest.raises(CommitFailedException, match="has moved to a snapshot that was to expire"):
        expiring.remove_snapshots(table.iceberg, [first])
    assert first in ids(catalog.load("a.t"))


def test_a_server_is_told_in_its_own_words() -> None:
    update = expiring._remove_snapshots_update().model_validate({"snapshot-ids": [1, 2]})
    request = CommitTableRequest.model_validate(
        {"identifier": {"namespace": ["a"], "name": "t"}, "requirements": (), "updates": (update,)}
    )
    sent = json.loads(request.model_dump_json(by_alias=True))
    assert sent["updates"] == [{"action": "remove-snapshots", "snapshot-ids": [1, 2]}]


# readers


def test_a_reader_needs_where_it_stands_and_what_came_after() -> None:
    parents = {2: 1, 3: 2, 4: 3, 30: 2}
    assert snapshots_needed_by(Reader("p", "", 3), parents) == {3, 4}
    assert snapshots_needed_by(Reader("p", "", 2), parents) == {2, 3, 4, 30}, "whatever branch it follows"
    assert snapshots_needed_by(Reader("p", "", 1), parents) == {2, 3, 4, 30}, "expired, but its child is there"
    assert snapshots_needed_by(Reader("p", "", None), parents) == {2, 3, 4, 30}
    assert snapshots_needed_by(Reader("p", "", 99), parents) == frozenset()


def test_a_known_reader_keeps_its_snapshots(table: Table, tmp_path: Path) -> None:
    _, second, third, fourth, fifth = ids(table)
    folder = checkpoint(
        known(tmp_path), ends={0: [offset(second)], 1: [offset(third)], 2: [offset(fourth)]}, committed=1
    )
    done = table.expire(FAR)
    assert ids(table) == [third, fourth, fifth], "batch 2 is planned and not committed: the reader stands at the third"
    assert [(h.reader, h.snapshots) for h in done.held] == [
        (Reader("copy", f"file://{folder}", third), (third, fourth))
    ]
    assert done.held[0].reader.name == f"copy (file://{folder})"
    assert done.held[0].reader.progress == f"is at snapshot {third}"


def test_a_reader_of_several_sources_stands_by_their_order(table: Table, tmp_path: Path) -> None:
    third = ids(table)[2]
    lines = [json.dumps({"n": 3}), offset(third)]
    checkpoint(known(tmp_path), sources=("/data/in", "local.a.t"), ends={0: lines}, path="stateful stream")
    assert ids(table)[2:] == [s for s in ids(table) if s in snapshots_needed_by(_one(table, tmp_path), _parents(table))]


def test_a_reader_that_has_not_begun_needs_its_start(table: Table, tmp_path: Path) -> None:
    fourth = ids(table)[3]
    checkpoint(known(tmp_path), start=[fourth], ends={0: [offset(ids(table)[4])]}, committed=-1)
    table.expire(FAR)
    assert ids(table)[0] == fourth


@pytest.mark.parametrize("lines", [["-"], [offset(-1)]])
def test_a_reader_of_a_table_that_was_empty_needs_all(table: Table, tmp_path: Path, lines: list[str]) -> None:
    checkpoint(known(tmp_path), start=[None], ends={0: lines})
    done = table.expire(FAR)
    assert (done.snapshots, len(done.held[0].snapshots)) == ((), 4)
    assert done.held[0].reader.progress == "has read nothing yet"


def test_a_reader_without_any_place_needs_all(table: Table, tmp_path: Path) -> None:
    checkpoint(known(tmp_path))
    assert table.expire(FAR).snapshots == ()


def test_who_reads_something_else_holds_nothing(table: Table, tmp_path: Path) -> None:
    checkpoint(known(tmp_path, "other"), sources=("local.a.other",))
    checkpoint(known(tmp_path, "batch"), path="batch")
    checkpoint(known(tmp_path, "elsewhere"), sources=("dev.a.t",))
    known(tmp_path, "unused").mkdir()
    assert len(table.expire(FAR).snapshots) == 4


def test_a_reader_that_calls_the_catalog_otherwise_is_told_by_its_snapshot(table: Table, tmp_path: Path) -> None:
    third = ids(table)[2]
    checkpoint(known(tmp_path), sources=("lake.a.t",), ends={0: [offset(third)]})
    table.expire(FAR)
    assert ids(table)[0] == third


def test_a_topic_with_the_name_of_a_table_behind_its_first_dot_is_none_of_its_readers(
    table: Table, tmp_path: Path
) -> None:
    """Debezium names topics by prefix, schema and table."""
    folder = checkpoint(
        known(tmp_path),
        sources=("kafka:shop.a.t",),
        ends={0: ['{"topics": {"shop.a.t": {"id": "x", "offsets": [5]}}}']},
    )
    start = [{"declared": "Kafka.source(shop.a.t)", "place": {"topics": {}}}]
    for kept in (None, json.dumps(start)):
        if kept is not None:
            (folder / "helios/start.json").write_text(kept)
        place = Warehouse("local", str(tmp_path / ".helios/warehouse"), {})
        assert readers_of(table.name, table.iceberg.metadata, [place]) == []


def test_a_reader_that_lost_its_place_is_told(table: Table, tmp_path: Path) -> None:
    checkpoint(known(tmp_path), ends={0: [offset(77)]})
    done = table.expire(FAR)
    assert (len(done.snapshots), done.held) == (4, ())
    assert [reader.snapshot for reader in done.lost] == [77]


def test_readers_in_other_catalogs_of_the_configuration(table: Table, tmp_path: Path) -> None:
    third = ids(table)[2]
    (tmp_path / "helios.toml").write_text('[catalogs.gold]\ntype = "local"\npath = "gold"\n')
    checkpoint(tmp_path / "gold/warehouse/_helios/checkpoints/gold.b.u", ends={0: [offset(third)]})
    done = table.expire(FAR)
    assert ids(table)[0] == third
    assert done.held[0].reader.pipeline == "gold.b.u"


def test_a_broken_configuration_hides_no_reader(table: Table, tmp_path: Path) -> None:
    (tmp_path / "helios.toml").write_text("[catalogs.gold]\n")
    with pytest.raises(ConfigError):
        table.expire(FAR)
    assert len(ids(table)) == 5


def test_readers_that_are_given(table: Table, tmp_path: Path) -> None:
    third = ids(table)[2]
    folder = checkpoint(tmp_path / "elsewhere", ends={0: [offset(third)]})
    assert table.expiry(FAR, readers=["elsewhere"]) == table.expiry(FAR, readers=[f"file://{folder}"])
    table.expire(FAR, readers=[str(folder)])
    assert ids(table)[0] == third


def test_a_stream_of_another_program_is_told_by_its_snapshots(table: Table, tmp_path: Path) -> None:
    fourth = ids(table)[3]
    folder = checkpoint(tmp_path / "spark", ends={7: [offset(12), offset(fourth)]})
    (folder / "helios/identity.json").unlink()
    table.expire(FAR, readers=[str(folder)])
    assert ids(table)[0] == fourth
    (folder / "offsets/7").write_text(f"v1\n{{}}\n{offset(12)}")
    with pytest.raises(CheckpointError, match=r"names no snapshot of local.a.t; until then, nothing is expired"):
        table.expire(FAR, readers=[str(folder)])


@pytest.mark.parametrize(
    ("sources", "path", "told"),
    [
        (("local.a.other",), "snapshot ranges", "does not follow local.a.t, but local.a.other."),
        (("local.a.t",), "batch", "does not follow local.a.t, but local.a.t."),
    ],
)
def test_a_given_checkpoint_must_be_a_readers(
    table: Table, tmp_path: Path, sources: tuple[str, ...], path: str, told: str
) -> None:
    folder = checkpoint(tmp_path / "elsewhere", sources=sources, path=path)
    with pytest.raises(CheckpointError) as error:
        table.expire(FAR, readers=[str(folder)])
    assert error.value.what.endswith(told)
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        table.expire(FAR, readers=[str(tmp_path / "nothing")])
    assert len(ids(table)) == 5


def _damage_identity(folder: Path) -> None:
    (folder / "helios/identity.json").write_text('{"v": 1')


def _newer(folder: Path) -> None:
    text = (folder / "helios/identity.json").read_text()
    (folder / "helios/identity.json").write_text(text.replace('"v": 1', '"v": 2'))


def _lose_identity(folder: Path) -> None:
    (folder / "helios/identity.json").unlink()


def _lose_offsets(folder: Path) -> None:
    (folder / "offsets/0").unlink()


def _damage_offsets(folder: Path) -> None:
    (folder / "offsets/0").write_text("v1\n{}\n{")


def _other_offsets(folder: Path) -> None:
    (folder / "offsets/0").write_text('v1\n{}\n{"n": 3}')


def _too_few_offsets(folder: Path) -> None:
    (folder / "offsets/0").write_text("v1\n{}")


def _damage_start(folder: Path) -> None:
    (folder / "helios/start.json").write_text('[{"place": {"snapshot_id": 1}}, {"place": {"snapshot_id": 2}}]')


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_damage_identity, "helios/identity.json"),
        (_newer, "written by a newer Helios"),
        (_lose_identity, "no helios/identity.json"),
        (_lose_offsets, "offsets/0 is missing or damaged"),
        (_damage_offsets, "offsets/0 is missing or damaged"),
        (_other_offsets, "offsets/0 has a position of no known kind of source"),
        (_too_few_offsets, "offsets/0 has 0 sources, and the pipeline has 1"),
        (_damage_start, "2 starting positions for 1 sources"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named(table: Table, tmp_path: Path, damage: Any, told: str) -> None:
    folder = checkpoint(known(tmp_path), ends={0: [offset(ids(table)[0])]})
    damage(folder)
    with pytest.raises(CheckpointError) as error:
        table.expire(FAR)
    assert f"checkpoint file://{folder} of a reader cannot be read" in error.value.what
    assert told in error.value.what
    assert len(ids(table)) == 5


def test_a_source_of_another_kind_beside_the_table(table: Table, tmp_path: Path) -> None:
    """Its places are its own; those of the table are found beside them, and under a former name of the table."""
    seen, uuid = ids(table)[2], str(table.iceberg.metadata.table_uuid)
    folder = checkpoint(known(tmp_path), sources=("counter", "local.a.former"))
    starts = [{"place": {"n": 0}, "uuid": None}, {"place": {"snapshot_id": seen}, "uuid": uuid}]
    (folder / "helios/start.json").write_text(json.dumps(starts))
    assert _one(table, tmp_path).snapshot == seen
    done = table.expire(FAR)
    assert ids(table)[0] == seen
    assert [held.reader.pipeline for held in done.held] == ["copy"]


def test_a_folder_that_cannot_be_read_is_told(table: Table, tmp_path: Path) -> None:
    folder = checkpoint(known(tmp_path))
    (folder / "helios/identity.json").unlink()
    (folder / "helios/identity.json").mkdir()
    with pytest.raises(RunError, match="cannot be read: "):
        table.expire(FAR)


@pytest.mark.parametrize("uri", ["nfs4://host/warehouse", "s3://bucket/warehouse"])
def test_a_storage_that_cannot_be_reached_is_told(table: Table, uri: str) -> None:
    away = Warehouse("gold", uri, {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "x", "s3.connect-timeout": "1"})
    with pytest.raises(RunError, match=f"{uri}/_helios/checkpoints of catalog gold cannot be read"):
        readers_of("local.a.t", table.iceberg.metadata, [away])


def test_warehouses_that_only_a_server_knows_hold_no_checkpoints(catalog: Catalog) -> None:
    assert [w.catalog for w in warehouses([catalog, Catalog.memory("gone")])] == ["local"]


def _one(table: Table, tmp_path: Path) -> Reader:
    place = Warehouse("local", f"file://{tmp_path}/.helios/warehouse", {})
    (reader,) = readers_of(table.name, table.iceberg.metadata, [place])
    return reader


def _parents(table: Table) -> dict[int, int | None]:
    return {snapshot.id: snapshot.parent_id for snapshot in table.snapshots()}


# what .maintain() takes


def test_settings() -> None:
    assert maintenance(compact=True, expire="7d", orphans="3d", readers=["/a"]) == Maintenance(
        compact=0, expire=7 * 86400.0, orphans=3 * 86400.0, readers=("/a",)
    )
    assert maintenance(compact="64MB").compact == 64 << 20
    assert maintenance(compact=False, expire=60) == Maintenance(expire=60.0)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"compact": False},
        {"compact": "12 parsecs"},
        {"compact": 0},
        {"expire": "soon"},
        {"expire": 0},
        {"orphans": "1h"},
        {"expire": "7d", "readers": "/a"},
        {"expire": "7d", "readers": [""]},
        {"compact": True, "readers": ["/a"]},
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError) as error:
        maintenance(**settings)
    assert error.value.where is not None


def test_retention_is_read_once(table: Table) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    kept = expiring.retention(table.iceberg.metadata, "1h", None)
    assert abs(now - 3_600_000 - kept.before) < 5_000
    assert kept.last == 1
    assert isinstance(table.iceberg.metadata.refs["main"], SnapshotRef)
