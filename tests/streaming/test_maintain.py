"""Maintenance of real tables, beside writers and readers that go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlparse

import pytest

from helios.catalog.names import TableName
from helios.errors import DeclarationError, EngineNeeded, InputError, RunError
from helios.model.maintenance import Maintenance
from helios.spark.checkpoint.small_files import small_files
from helios.spark.maintenance import compact as compacting
from helios.spark.maintenance import maintain
from helios.spark.maintenance.compact import compact, size_deviation
from helios.spark.maintenance.upkeep import Maintainer
from helios.table.maintenance import expiry_plan
from helios.table.readers import warehouses
from helios.table.refs import creation, removal, rollback

pytestmark = pytest.mark.promise("maintain")

World: TypeAlias = Any
FAR = "2999-01-01"
MERGE_ON_READ = {f"write.{change}.mode": "merge-on-read" for change in ("merge", "delete", "update")}
ROW = {"who": "concat('user-', id % 5000)", "amount": "round(rand() * 1000, 2)", "note": "uuid()"}
DAYS = {**ROW, "ts": "timestamp '2026-01-01' + make_interval(0, 0, 0, cast(id % 4 as int))"}


def name(table: str, world: World) -> TableName:
    namespace, _, plain = table.partition(".")
    return TableName(world.catalog, (namespace,), plain)


def grow(
    world: World, table: str, commits: int, *, rows: int = 2000, columns: dict[str, str] = ROW, at: int = 0
) -> None:
    """Many small commits; the ids begin at `at`."""
    for commit in range(commits):
        first = at + commit * rows
        df = world.spark.range(first, first + rows).coalesce(1)
        df = df.selectExpr("id", *(f"{expression} AS {column}" for column, expression in columns.items()))
        df.sortWithinPartitions(*(["ts"] if "ts" in columns else ["id"])).writeTo(f"local.{table}").append()


def make(
    world: World,
    table: str,
    columns: dict[str, str] = ROW,
    partition: str = "",
    properties: dict[str, str] = {},  # noqa: B006
) -> TableName:
    world.sql("CREATE NAMESPACE IF NOT EXISTS local.a")
    types = {"ts": "timestamp", "amount": "double"}
    listed = ", ".join(f"{column} {types.get(column, 'string')}" for column in columns)
    given = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    world.sql(
        f"CREATE TABLE local.{table} (id bigint, {listed}) USING iceberg {partition} "
        f"{f'TBLPROPERTIES ({given})' if given else ''}"
    )
    return name(table, world)


@dataclass(frozen=True)
class DataFile:
    """A data file of a table, with its partition as text."""

    partition: str
    size: int
    rows: int


def files(world: World, table: TableName) -> list[DataFile]:
    listed = world.spark.read.table(f"{table.sql}.data_files")
    partition = "cast(partition AS string)" if "partition" in listed.columns else "''"
    return [DataFile(*row) for row in listed.selectExpr(partition, "file_size_in_bytes", "record_count").collect()]


def size(world: World, table: TableName) -> int:
    return sum(file.size for file in files(world, table))


def distance(world: World, table: TableName, target: int) -> float:
    there = files(world, table)
    return size_deviation(len(there), sum(file.size for file in there), target)


def expire(world: World, table: TableName, **terms: Any) -> maintain.Expired:
    loaded = world.catalog.load(table.name_in_catalog)
    plan = expiry_plan(loaded, FAR, None, terms.get("readers", ()), warehouses([world.catalog]))
    return maintain.expire(world.spark, table, plan)


# compaction


SHAPES = {
    # The rows of files, how many files have so many, and the target size by the mean size of a file.
    "small": ({2000: 40}, 8.0),
    "half of the target": ({2000: 12}, 1.9),
    "two thirds of the target": ({2000: 12}, 1.5),
    "of any size": ({500: 8, 4000: 4, 1500: 8, 250: 8, 3000: 4}, 5.0),
    "beside large ones": ({20_000: 3, 1000: 30}, 5.5),
    "mostly footers": ({10: 60}, 15.0),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_compaction_ends_within_30_percent_of_bytes_by_target_size(shape: str, world: World) -> None:
    table = make(world, "a.t")
    sizes, factor = SHAPES[shape]
    first = 0
    for rows, count in sizes.items():
        df = world.spark.range(first, first + rows * count, 1, count)
        df.selectExpr("id", *(f"{value} AS {column}" for column, value in ROW.items())).writeTo("local.a.t").append()
        first += rows * count
    target = int(size(world, table) / sum(sizes.values()) * factor)
    assert distance(world, table, target) > 0.3
    done = compact(world.spark, table, target)
    assert distance(world, table, target) == done.size_deviation <= 0.3
    assert world.ids("a.t") == list(range(first))
    again = compact(world.spark, table, target)
    assert again.read <= done.read / 2, "what is well is not rewritten over and over"


def test_a_compaction_reads_no_more_than_it_may(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 8, rows=200)
    half = size(world, table) // 2
    done = compact(world.spark, table, max_bytes=half)
    assert 2 <= done.rewritten <= 4
    assert done.read <= 1.1 * half
    assert done.files == 8 - done.rewritten + 1
    assert world.ids("a.t") == list(range(8 * 200))


def test_compaction_ends_at_bytes_by_target_size_while_a_writer_goes_on(world: World) -> None:
    # An append that merges a hundred manifests does conflict with a rewrite of them, which comes by chance.
    table = make(world, "a.t", properties={"commit.manifest-merge.enabled": "false"})
    grow(world, "a.t", 50)
    target = size(world, table) // 25
    stop = threading.Event()
    written = [50 * 2000]

    def write() -> None:
        while not stop.is_set():
            grow(world, "a.t", 1, rows=10, at=written[0])
            written[0] += 10
            stop.wait(1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = compact(world.spark, table, target)
    finally:
        stop.set()
        writer.join()
    assert (done.conflicts, done.gave_up) == (0, None), "appends do not conflict"
    new_ones = [file for file in files(world, table) if file.rows <= 10]
    assert new_ones, "the writer has gone on"
    assert done.rewritten >= 50
    assert size_deviation(len(files(world, table)) - len(new_ones), size(world, table), target) <= 0.3
    assert compact(world.spark, table, target).gave_up is None
    assert distance(world, table, target) <= 0.3
    assert world.ids("a.t") == list(range(written[0]))


def test_compaction_of_a_partitioned_table(world: World) -> None:
    table = make(world, "a.t", DAYS, "PARTITIONED BY (days(ts))")
    grow(world, "a.t", 25, rows=4000, columns=DAYS)
    before = files(world, table)
    assert (len(before), len({file.partition for file in before})) == (100, 4)
    target = size(world, table) // 24
    done = compact(world.spark, table, target)
    assert distance(world, table, target) <= 0.3
    assert done.files == len(files(world, table))
    assert done.size_deviation <= 0.3
    assert world.ids("a.t") == list(range(100_000))


def test_a_compaction_yields_and_begins_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(world, "a.t", properties=MERGE_ON_READ)
    grow(world, "a.t", 6)
    real, deletes = compacting.actions, iter([1, 2, 3])

    def after_a_delete(spark: Any) -> Any:
        # The table object is older than the delete: the commit must see it.
        if (id := next(deletes, None)) is not None:
            world.sql(f"DELETE FROM local.a.t WHERE id % 2000 = {id}")
        return real(spark)

    monkeypatch.setattr(compacting, "actions", after_a_delete)
    done = compact(world.spark, table)
    assert (done.conflicts, done.gave_up, done.rewritten, done.added) == (2, None, 6, 1)
    assert len(world.ids("a.t")) == 6 * 1997, "what was deleted in between stays deleted"


def test_a_compaction_that_always_loses_gives_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(world, "a.t", properties=MERGE_ON_READ)
    grow(world, "a.t", 6)
    real, deletes = compacting.actions, iter(range(100))

    def after_a_delete(spark: Any) -> Any:
        world.sql(f"DELETE FROM local.a.t WHERE id % 2000 = {next(deletes)}")
        return real(spark)

    monkeypatch.setattr(compacting, "actions", after_a_delete)
    done = compact(world.spark, table)
    assert (done.conflicts, done.rewritten) == (3, 0)
    assert done.gave_up is not None
    assert done.gave_up.startswith("it yielded to another writer 3 times: ")
    assert len(world.ids("a.t")) == 6 * 1996, "the writer has lost nothing"


def test_a_file_that_cannot_be_read_is_told(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 6, rows=10)
    next((world.folder / ".helios/warehouse/a/t/data").glob("*.parquet")).unlink()
    with pytest.raises(RunError, match=r"the compaction of local.a.t failed: .*File .* does not exist"):
        compact(world.spark, table)
    assert len(files(world, table)) == 6


@pytest.mark.parametrize("properties", [MERGE_ON_READ, {}], ids=["merge-on-read", "copy-on-write"])
@pytest.mark.cases(landing="merge-on-read")
def test_a_writer_that_changes_rows_never_fails_for_a_compaction(world: World, properties: dict[str, str]) -> None:
    table = make(world, "a.t", properties=properties)
    grow(world, "a.t", 8)
    failures: list[str] = []
    tried: list[int] = []

    def merge(batch: int) -> None:
        for attempt in range(4):  # the tries of `.retry()` by default
            try:
                world.sql(
                    "MERGE INTO local.a.t t USING (SELECT id FROM range(0, 16000, 100)) s ON t.id = s.id "
                    f"WHEN MATCHED THEN UPDATE SET who = 'batch {batch}'"
                )
            except Exception as error:  # a conflict, by whatever class
                failures.append(str(error).splitlines()[0])
                continue
            tried.append(attempt + 1)
            return

    writer = threading.Thread(target=lambda: [merge(batch) for batch in range(4)])
    writer.start()
    done = [compact(world.spark, table) for _ in range(2)]
    writer.join()
    assert len(tried) == 4, failures
    assert max(tried) <= 4
    assert world.rows("a.t", "who")[("batch 3",)] == 160
    assert all(one.rewritten or one.gave_up for one in done[:1])


def test_position_deletes_and_manifests_are_rewritten(world: World) -> None:
    table = make(world, "a.t", properties={**MERGE_ON_READ, "write.delete.granularity": "partition"})
    grow(world, "a.t", 24, rows=200)
    for id in range(6):
        world.sql(f"DELETE FROM local.a.t WHERE id = {id}")
    done = compact(world.spark, table, 2000)  # every data file is as large as that
    assert (done.rewritten, done.deletes) == (0, 6)
    assert done.manifests > 20
    assert world.ids("a.t") == list(range(6, 24 * 200))
    assert len(world.sql("SELECT * FROM local.a.t.manifests")) <= 3


def test_a_branch_is_compacted_and_main_stays(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 1)
    world.catalog.load("a.t").branch("audit")
    for i in range(6):
        world.sql(f"INSERT INTO local.a.t.branch_audit SELECT {9000 + i}, 'x', 1.0, 'y'")
    main = world.catalog.load("a.t").branches()["main"]
    done = compact(world.spark, table, branch="audit")
    assert (done.files, done.added) == (1, 1)
    assert world.catalog.load("a.t").branches()["main"] == main
    assert world.sql("SELECT count(*) FROM local.a.t.branch_audit")[0][0] == 2006


@pytest.mark.landing
def test_the_ledger_survives_compaction_and_expiry(world: World) -> None:
    world.fill("src.t", range(10))
    pipeline = world.source("src.t").incremental(poll=1) >> world.sink("a.copy")
    for at in range(10, 60, 10):
        world.run(pipeline)
        world.fill("src.t", range(at, at + 10))
    table = name("a.copy", world)
    assert compact(world.spark, table).added == 1
    done = expire(world, table)
    assert len(done.snapshots) == 5
    assert done.data_files == 5, "the small files are deleted"
    world.run(pipeline)
    assert world.ids("a.copy") == list(range(60))


# expiry


@pytest.mark.short
def test_expiry_keeps_what_a_reader_still_needs(world: World) -> None:
    source = name("src.t", world)
    world.fill("src.t", range(10))
    pipeline = world.source("src.t").incremental(poll=1) >> world.sink("a.copy")
    world.run(pipeline)
    stood = world.catalog.load("src.t").current_snapshot()
    assert stood is not None
    for at in range(10, 40, 10):
        world.fill("src.t", range(at, at + 10))
    plan = expiry_plan(world.catalog.load("src.t"), FAR, None, (), warehouses([world.catalog]))
    assert plan.snapshots == ()
    assert [(held.reader.pipeline, held.reader.snapshot) for held in plan.held] == [("local.a.copy", stood.id)]
    assert expire(world, source).snapshots == ()
    world.run(pipeline)
    assert world.ids("a.copy") == list(range(40))
    assert len(expire(world, source).snapshots) == 3, "the reader has caught up"
    world.fill("src.t", range(40, 50))
    world.run(pipeline)
    assert world.ids("a.copy") == list(range(50))


def test_an_expiry_without_a_jvm_leaves_readers_their_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder)
    world.fill("src.t", range(10))
    pipeline = world.source("src.t").incremental(poll=1) >> world.sink("a.copy")
    world.run(pipeline)
    world.fill("src.t", range(10, 20))
    world.run(pipeline)
    world.fill("src.t", range(20, 30))
    assert len(world.catalog.load("src.t").expire(FAR).snapshots) == 1
    parents = world.sql("SELECT parent_id FROM local.src.t.snapshots ORDER BY committed_at")
    assert parents[0][0] is not None, "Iceberg keeps the parents of snapshots whose parents expire, and so do we"
    world.run(pipeline)
    assert world.ids("a.copy") == list(range(30))


def reachable(world: World, table: str) -> set[str]:
    """The data files, manifests and manifest lists that some snapshot names."""
    loaded = world.load(table).iceberg
    found: set[str] = set()
    for snapshot in loaded.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(loaded.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(loaded.io)}
    return {urlparse(path).path for path in found}


def on_disk(world: World, table: str) -> set[str]:
    """The same files, and those that no snapshot names, which are there."""
    folder = Path(urlparse(world.load(table).iceberg.location()).path)
    found = (path for path in folder.rglob("*") if path.suffix in (".parquet", ".avro", ".puffin"))
    return {str(path) for path in found if not path.name.startswith(".")}


@pytest.mark.parametrize("on_driver", [True, False], ids=["on the driver", "by Spark"])
def test_an_expiry_deletes_the_files_that_only_its_snapshots_named(world: World, on_driver: bool) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 3, rows=10)
    world.sql("ALTER TABLE local.a.t CREATE TAG kept")
    world.sql("DELETE FROM local.a.t WHERE id = 5")
    world.compact("a.t")
    grow(world, "a.t", 2, rows=10)
    world.sql("ALTER TABLE local.a.t CREATE BRANCH other")
    world.sql("INSERT INTO local.a.t.branch_other SELECT * FROM local.a.t LIMIT 3")
    rows, before = world.rows("a.t"), on_disk(world, "a.t")
    plan = expiry_plan(world.load("a.t"), FAR, 1, (), ())
    done = maintain.expire(world.spark, table, plan, on_driver=on_driver)
    assert done.snapshots == tuple(sorted(one.id for one in plan.snapshots)) != ()
    assert on_disk(world, "a.t") == reachable(world, "a.t") < before
    assert world.rows("a.t") == rows
    assert world.sql("SELECT count(*) AS n FROM local.a.t VERSION AS OF 'kept'")[0].n == 30


def test_an_expiry_that_iceberg_would_widen_is_refused(world: World) -> None:
    world.fill("src.t", range(10))
    world.fill("src.t", range(10, 20))
    world.run(world.source("src.t").incremental(poll=1) >> world.sink("a.copy"))
    world.fill("src.t", range(20, 30))
    world.fill("src.t", range(30, 40))
    main = world.catalog.load("src.t").iceberg
    head = main.metadata.current_snapshot_id
    main.manage_snapshots().create_branch(head, "main", None, 1, 1).commit()  # keeps a snapshot for a millisecond
    first = world.catalog.load("src.t").snapshots()[0]
    plan = expiry_plan(world.catalog.load("src.t"), "1d", None, (), warehouses([world.catalog]))
    assert [snapshot.id for snapshot in plan.snapshots] == [first.id]
    with pytest.raises(InputError, match="which a reader needs; nothing was expired"):
        maintain.expire(world.spark, name("src.t", world), plan)
    assert len(world.catalog.load("src.t").snapshots()) == 4


def test_a_tag_in_between_stops_an_expiry(world: World) -> None:
    world.fill("src.t", range(10))
    world.fill("src.t", range(10, 20))
    plan = expiry_plan(world.catalog.load("src.t"), FAR, None, (), [])
    world.catalog.load("src.t").tag("late", plan.snapshots[0].id)
    with pytest.raises(RunError, match="was changed by another writer meanwhile; nothing was expired"):
        maintain.expire(world.spark, name("src.t", world), plan)
    assert len(world.catalog.load("src.t").snapshots()) == 2


# orphan files


@pytest.mark.short
def test_orphan_files_of_a_day_and_more_go(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 2)
    data = world.folder / ".helios/warehouse/a/t/data"
    checkpoint = world.folder / ".helios/warehouse/_helios/checkpoints/x/offsets/0"
    checkpoint.parent.mkdir(parents=True)
    four_days_ago = time.time() - 4 * 86400
    for file in (data / "old.parquet", data / "young.parquet", checkpoint):
        file.write_text("left over")
    for file in (data / "old.parquet", checkpoint):
        os.utime(file, (four_days_ago, four_days_ago))
    for file in data.glob("0*.parquet"):
        os.utime(file, (four_days_ago, four_days_ago))
    found = maintain.remove_orphans(world.spark, table, 3 * 86400, dry_run=True)
    assert (found.files, found.deleted) == ((f"file:{data}/old.parquet",), False)
    assert (data / "old.parquet").exists()
    assert maintain.remove_orphans(world.spark, table, 3 * 86400).deleted
    assert not (data / "old.parquet").exists()
    assert (data / "young.parquet").exists()
    assert checkpoint.exists()
    assert world.ids("a.t") == list(range(4000))
    with pytest.raises(DeclarationError, match="may be part of a commit under way"):
        maintain.remove_orphans(world.spark, table, 3600)


def test_a_folder_that_holds_another_table_is_left_alone(world: World) -> None:
    make(world, "a.t")
    world.sql("CREATE NAMESPACE local.a.t")
    world.sql("CREATE TABLE local.a.t.inner (id bigint) USING iceberg")
    with pytest.raises(InputError, match=r"also holds .*/a/t/inner, whose files would be taken for orphans"):
        maintain.remove_orphans(world.spark, name("a.t", world), 3 * 86400, dry_run=True)


# branches and tags of format v3


def test_spark_changes_what_pyiceberg_cannot_write(world: World) -> None:
    table = make(world, "a.t", properties={"format-version": "3"})
    grow(world, "a.t", 2, rows=10)
    loaded = world.catalog.load("a.t")
    first, second = loaded.snapshots()
    with pytest.raises(EngineNeeded, match="has format v3"):
        loaded.tag("v1")
    with pytest.raises(EngineNeeded, match="helios expire"):
        loaded.expire(FAR)
    maintain.change_ref(world.spark, table, creation(loaded, "create_tag", "v1", first.id))
    maintain.change_ref(world.spark, table, creation(loaded, "create_branch", "dev", None))
    fresh = world.catalog.load("a.t")
    assert (fresh.tags(), fresh.branches()) == ({"v1": first.id}, {"dev": second.id, "main": second.id})
    change, done = rollback(fresh, "v1")
    assert change is not None
    maintain.change_ref(world.spark, table, change)
    assert (done.snapshot, world.catalog.load("a.t").current_snapshot()) == (first, first)
    fresh = world.catalog.load("a.t")
    for action, ref in (("remove_tag", "v1"), ("remove_branch", "dev")):
        maintain.change_ref(world.spark, table, removal(fresh, action, ref))
    assert world.catalog.load("a.t").tags() == {}
    assert len(expire(world, table).snapshots) == 1, "of format v3 too"


# between the batches of a writer


def test_upkeep_between_batches(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 5)
    target = size(world, table)
    keeper = Maintainer(world.spark, table, Maintenance(compact=target))
    done = []
    for batch in range(5, 40):
        grow(world, "a.t", 1, at=batch * 2000)
        done += keeper.after_batch()
    assert [one.problem for one in done] == [None] * len(done)
    assert {one.kind for one in done} == {"compact"}
    assert len(done) <= 8, "not after every batch"
    left = files(world, table)
    wanted = sum(file.size for file in left) / target
    small = [file for file in left if file.rows == 2000]
    assert len(small) < 5
    assert len(left) - len(small) <= 1.3 * wanted + 1
    assert world.ids("a.t") == list(range(40 * 2000))


def test_upkeep_is_remembered_and_a_failure_does_not_stop_the_writer(world: World) -> None:
    table = make(world, "a.t")
    grow(world, "a.t", 3, rows=10)
    notes = small_files(world.spark, str(world.folder / "checkpoint"))
    settings = Maintenance(expire=0.001, orphans=86400.0)

    def keeper(settings: Maintenance = settings) -> Maintainer:
        return Maintainer(world.spark, table, settings, catalogs=[world.catalog], notes=notes)

    damaged = world.folder / ".helios/warehouse/_helios/checkpoints/reader/helios/identity.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    first = keeper()
    (told,) = first.after_batch()
    assert (told.kind, told.done) == ("expire", None)
    assert told.problem is not None
    assert str(damaged.parent.parent) in told.problem
    assert first.after_batch() == [], "tried again later"
    damaged.unlink()
    (expired,) = keeper().after_batch()
    assert isinstance(expired.done, maintain.Expired)
    assert len(expired.done.snapshots) == 2
    remembered = json.loads((world.folder / "checkpoint/helios/maintenance/local.a.t.json").read_text())
    assert set(remembered) == {"expire", "orphans"}
    grow(world, "a.t", 1, rows=10)
    assert keeper(Maintenance(expire=86400.0, orphans=86400.0)).after_batch() == [], "done a moment ago, by another run"


# the command line


def test_the_commands_that_need_spark(world: World) -> None:
    make(world, "a.t")
    grow(world, "a.t", 6, rows=10)
    script = (
        "import sys\n"
        "from helios.cli import main\n"
        "for arguments in (['compact'], ['expire', '--retain-last', '1'], ['orphans', '--dry-run']):\n"
        "    main([arguments[0], 'a.t', *arguments[1:], '--json'], standalone_mode=False)\n"
        "main(['rename', 'a.t', 'a.renamed', '--json'], standalone_mode=False)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=world.folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert shown.returncode == 0, shown.stderr
    compacted, expired, orphaned, renamed = _documents(shown.stdout)
    assert (compacted["rewritten"], compacted["added"], compacted["files"]) == (6, 1, 1)
    assert (len(expired["snapshots"]), expired["data_files"], expired["held"]) == (6, 6, [])
    assert orphaned == {"table": "local.a.t", "files": [], "deleted": False}
    assert "starting Spark" in shown.stderr
    assert renamed == {
        "table": "local.a.t", "to": "local.a.renamed", "pipelines": [], "checkpoints": [], "quarantines": []
    }  # fmt: skip
    assert world.ids("a.renamed") == list(range(60))


def _documents(text: str) -> list[dict[str, Any]]:
    decoder, found = json.JSONDecoder(), []
    while text.strip():
        document, end = decoder.raw_decode(text.lstrip())
        found.append(document)
        text = text.lstrip()[end:]
    return found
