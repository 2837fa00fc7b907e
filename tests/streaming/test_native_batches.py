"""The way of a batch through the columnar engine: exactly once, changed sources, and what stays with Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

from helios import rename, where, with_columns
from helios.errors import CheckFailed, HeliosError
from helios.plan.native import engine
from helios.sources.iceberg.spark.reader import IcebergReader
from helios.spark.iceberg.transaction import Transaction
from helios.spark.native import batch as native
from helios.spark.native import spread, upsert
from tests.streaming.native_cases import rows_of, scanned, set_engine, told
from tests.suite.waiting import until

pytestmark = [pytest.mark.usefixtures("native_workers"), pytest.mark.promise("engine")]


@pytest.fixture
def required(world: Any) -> Any:
    set_engine(world, "require")
    return world


def data(world: Any, name: str) -> set[str]:
    """The data files that are on disk of a table."""
    return {str(path) for path in Path(urlparse(world.load(name).iceberg.location()).path, "data").rglob("*.parquet")}


def live(world: Any, name: str) -> set[str]:
    """The data files that a table has."""
    return {urlparse(task.file.file_path).path for task in world.load(name).iceberg.scan().plan_files()}


@pytest.mark.landing
def test_a_followed_table_is_copied_once_with_its_stamps(required: Any) -> None:
    world = required
    world.fill("a.s", range(10), part="id % 2")
    pipeline = (
        world.source("a.s").incremental(poll=1)
        >> where("id <> 3")
        >> rename({"part": "p"})
        >> world.sink("a.t").partition_by("p").snapshot_properties({"team": "x"})
    )
    assert "\n  engine    native\n" in str(world.plan(pipeline))
    assert json.loads(world.plan(pipeline).to_json())["engine"] == {"native": True, "why": None, "from_bytes": 0}
    world.run(pipeline)
    world.fill("a.s", range(10, 20), part="id % 2")
    run = world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == [i for i in range(20) if i != 3]
    assert sorted(row.id for row in world.sql("SELECT id FROM local.a.t WHERE p = 1 AND id < 12")) == [1, 5, 7, 9, 11]
    summary: Mapping[str, str] = world.load("a.t").current_snapshot().summary
    assert (summary["helios.batch"], summary["team"]) == ("1", "x")
    assert (summary["added-records"], summary["added-data-files"]) == ("10", "2")
    assert {"spark.app.id", "engine-name"} <= summary.keys()
    assert run.metrics().records_written == 10
    assert told(world) == []
    assert data(world, "a.t") == live(world, "a.t")


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.cases(landing="False")
def test_a_driver_that_dies_around_the_commit_doubles_nothing(
    required: Any, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = required
    world.fill("a.s", range(10))
    pipeline = world.source("a.s").incremental(poll=1) >> where("id > 0") >> world.sink("a.t")
    real = Transaction.commit

    def dies(self: Transaction) -> None:
        if landed:
            real(self)
        raise RuntimeError("the driver dies")

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", dies)
        with pytest.raises(Exception, match="the driver dies"):
            world.run(pipeline)
    world.run(pipeline)
    assert world.ids("a.t") == list(range(1, 10))


@pytest.mark.landing
def test_a_job_that_fails_leaves_no_files(required: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = required
    world.fill("a.s", range(10))
    pipeline = world.source("a.s") >> world.sink("a.t")
    real = native.run_tasks

    def fails(*arguments: Any) -> list[Any]:
        real(*arguments)
        raise RuntimeError("the job failed")

    with monkeypatch.context() as patched:
        patched.setattr(native, "run_tasks", fails)
        with pytest.raises(Exception, match="the job failed"):
            world.run(pipeline)
    assert data(world, "a.t") == set()
    world.run(pipeline)
    assert world.ids("a.t") == list(range(10))


CHANGES = (
    "DELETE FROM local.a.s WHERE id % 3 = 1",
    "ALTER TABLE local.a.s ADD COLUMN extra string",
    "ALTER TABLE local.a.s RENAME COLUMN part TO portion",
    "ALTER TABLE local.a.s ALTER COLUMN portion TYPE bigint",
    "ALTER TABLE local.a.s ALTER COLUMN f TYPE double",
    "ALTER TABLE local.a.s ALTER COLUMN d TYPE decimal(20,2)",
    "INSERT INTO local.a.s SELECT id + 100, 3000000000, 1.1D, 123456789012.34BD, 'new' FROM range(4)",
    "DELETE FROM local.a.s WHERE id IN (2, 102)",
)


@pytest.mark.parametrize("version", [2, 3])
def test_deleted_rows_and_evolved_columns_are_read_as_by_spark(required: Any, version: int) -> None:
    world = required
    world.fill("a.s", range(10), part="CAST(id % 2 AS INT)", f="CAST(id / 3 AS FLOAT)", d="CAST(id AS DECIMAL(9,2))")
    world.sql(
        f"ALTER TABLE local.a.s SET TBLPROPERTIES ('format-version' = '{version}', "
        "'write.delete.mode' = 'merge-on-read', 'write.delete.granularity' = 'partition')"
    )
    for i, change in enumerate(CHANGES):
        world.sql(change)
        if i in (0, 5, 7):
            world.run(world.source("a.s") >> where("id <> 5") >> world.sink(f"a.t{i}"))
            wanted = world.spark.read.table("local.a.s").where("id <> 5").toArrow()
            assert rows_of(scanned(world, f"a.t{i}")) == rows_of(wanted), change
    assert told(world) == []


@pytest.mark.landing
def test_partitions_are_overwritten(required: Any) -> None:
    world = required
    world.fill("a.s", range(10), part="id % 3")
    pipeline = world.source("a.s") >> where("id > 1") >> world.sink("a.t").partition_by("part").overwrite_partitions()
    world.sql("CREATE TABLE local.a.t (id bigint, part bigint) USING iceberg PARTITIONED BY (part)")
    world.sql("INSERT INTO local.a.t VALUES (100, 0), (101, 1), (103, 7)")
    assert world.plan(pipeline).engine.native
    world.run(pipeline)
    assert world.ids("a.t") == [*range(2, 10), 103]
    summary: Mapping[str, str] = world.load("a.t").current_snapshot().summary
    assert (summary["helios.batch"], summary["replace-partitions"]) == ("0", "true")
    assert told(world) == []


def test_files_and_partitions_count_as_by_spark(world: Any) -> None:
    """Also where Spark has no plan of the rows, which would have counted them."""
    world.sql("CREATE NAMESPACE local.a")
    world.sql("CREATE TABLE local.a.s (id bigint, day date) PARTITIONED BY (day)")
    for _ in range(2):
        world.sql("INSERT INTO local.a.s SELECT id, date_add(DATE '2026-01-01', CAST(id AS int)) FROM range(20)")
    asked = "day = DATE '2026-01-03'"
    first = world.load("a.s").snapshots()[0].id
    sources = {
        "batch": world.source("a.s").where(asked),
        "state": world.source("a.s").incremental(poll=1).where(asked),
        "steps": world.source("a.s").incremental(poll=1) >> where(asked),
        "range": world.source("a.s").incremental(poll=1, start=first).where(asked),
        "bounded": world.source("a.s").incremental(poll=1, max_files=7).where(asked),
    }
    for name, source in sources.items():
        found = {}
        for setting in ("off", "require"):
            set_engine(world, setting)
            found[setting] = world.run(source >> world.sink(f"a.{name}_{setting}")).metrics().snapshot()
        assert found["require"].files_matched == (1 if name == "range" else 2), name
        for figure in ("files_matched", "files_skipped", "partitions_matched", "partitions_skipped", "bytes_read"):
            assert getattr(found["require"], figure) == getattr(found["off"], figure), (name, figure)
        assert world.ids(f"a.{name}_require") == world.ids(f"a.{name}_off")
    assert told(world) == []


def test_columns_that_come_while_a_run_follows(required: Any) -> None:
    """What Spark's analyzer has said at the start holds for the columns of that time alone."""
    world = required
    world.fill("a.s", [1])
    run = world.start(world.source("a.s").incremental(poll=0.1) >> where("id > 0") >> world.sink("a.t"))
    until(lambda: world.catalog.exists("a.t") and world.ids("a.t") == [1])
    world.sql("ALTER TABLE local.a.s ADD COLUMN extra string")
    world.sql("INSERT INTO local.a.s VALUES (2, 'x'), (-2, 'y')")
    until(lambda: world.ids("a.t") == [1, 2])
    run.stop()
    assert run.await_termination(60)
    assert world.rows("a.t", "id", "extra") == {(1, None): 1, (2, "x"): 1}
    assert told(world) == []


def test_spark_plans_no_rows_that_the_engine_writes(required: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = required
    world.fill("a.s", range(3))
    planned: list[object] = []
    read = IcebergReader.read
    monkeypatch.setattr(IcebergReader, "read", lambda *args, **more: planned.append(args) or read(*args, **more))
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.run(pipeline)
    assert (world.ids("a.t"), planned) == ([0, 1, 2], [])
    monkeypatch.setattr(native, "run_tasks", lambda *_: [{"refused": "a reason"}])
    set_engine(world, "auto")
    world.fill("a.s", [3])
    world.run(pipeline)
    assert (world.ids("a.t"), len(planned)) == ([0, 1, 2, 3], 1)
    assert told(world) == ["engine spark, because a reason"]


@pytest.mark.parametrize("upserts", [False, True])
def test_small_batches_are_left_to_spark_without_a_word(
    world: Any, upserts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of less than a number of bytes; of an upsert, those of the table that it changes count too."""
    did: list[str] = []
    for module in (native, upsert):
        real = module.run_tasks
        monkeypatch.setattr(module, "run_tasks", lambda *args, real=real: did.append(args[1]) or real(*args))
    set_engine(world, "auto")
    sink = world.sink("a.t").upsert("id", order_by="part") if upserts else world.sink("a.t")
    pipeline = world.source("a.s").incremental(poll=1) >> where("id < 15") >> sink
    sizes = (1 << 20, 1)
    for number, size in enumerate(sizes):
        monkeypatch.setattr(engine, "MIN_NATIVE_BYTES", size)
        world.fill("a.s", range(10 * number, 10 * number + 10), part="id % 4")
        world.run(pipeline)
        assert bool(did) == (size == 1)
    assert told(world) == []
    assert world.ids("a.t") == list(range(15))


def test_commits_of_a_batch_are_small_together_or_not(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is, and the last most of all."""
    did: list[str] = []
    monkeypatch.setattr(native, "run_tasks", lambda *args, real=native.run_tasks: did.append(args[1]) or real(*args))
    set_engine(world, "auto")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t")
    world.fill("a.s", [0])
    world.run(pipeline)
    did.clear()
    world.fill("a.s", range(1, 50))
    world.fill("a.s", [50])
    sizes = [int(one.summary["added-files-size"]) for one in world.load("a.s").snapshots()[1:]]
    for small, done in ((max(sizes) + 1, True), (sum(sizes) + 1, False)):
        monkeypatch.setattr(engine, "MIN_NATIVE_BYTES", small)
        world.run(pipeline)
        assert bool(did) == done
        did.clear()
        world.fill("a.s", [99])
    assert world.ids("a.t") == [*range(51), 99]
    assert told(world) == []


def test_many_more_files_than_spark_writes_are_left_to_it(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first when they are written, then as the last commit says how many partitions there are."""
    for name, value in (("FEW_FILES", 3), ("MAX_RATIO", 1), ("LARGEST_SHARE", 1)):
        monkeypatch.setattr(spread, name, value)
    set_engine(world, "auto")
    world.fill("a.s", range(8), part="id % 4")
    world.fill("a.s", range(8, 16), part="id % 4")
    pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").partition_by("part")
    assert world.plan(pipeline).engine.native
    for ids in ((16, 20), (20, 24)):
        world.run(pipeline)
        world.fill("a.s", range(*ids), part="id % 4")
        world.fill("a.s", range(ids[0] + 100, ids[1] + 100), part="id % 4")
    found = told(world)
    assert [one.split(", because ")[1].split(" for each partition")[0] for one in found] == [
        "native tasks wrote many small files", "each native task would write a file",
    ]  # fmt: skip
    assert data(world, "a.t") == live(world, "a.t")
    assert len(live(world, "a.t")) == 8
    world.run(world.source("a.s") >> where("id < 8") >> world.sink("a.u").partition_by("part"))
    assert len(told(world)) == 2


def test_rows_that_spark_spreads_by_their_order_are_left_to_it(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    set_engine(world, "auto")
    world.fill("a.s", range(8))
    world.run(world.source("a.s") >> world.sink("a.t").sort_by("id desc"))
    monkeypatch.setattr(spread, "SORTED_SHARE", 1)
    world.run(world.source("a.s") >> world.sink("a.apart").sort_by("id desc").distribution("none"))
    assert told(world) == []
    world.run(world.source("a.s") >> world.sink("a.u").sort_by("id desc"))
    (message,) = told(world)
    assert message.startswith("engine spark, because the sort order or distribution of the table needs all rows in one")
    for name in ("a.t", "a.apart", "a.u"):
        assert world.load(name).iceberg.scan().to_arrow()["id"].to_pylist() == list(range(7, -1, -1))
        assert {row.sort_order_id for row in world.sql(f"SELECT sort_order_id FROM local.{name}.files")} == {1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE local.a.s SET TBLPROPERTIES ('write.format.default' = 'orc')", "files of the source are orc"),
        ("INSERT INTO local.a.s VALUES (9223372036854775807, 0)", "Spark may fail on a value of the batch"),
    ],
)
def test_spark_does_what_the_engine_does_not(world: Any, change: str, reason: str) -> None:
    set_engine(world, "auto")
    world.fill("a.s", range(10), part="CAST(id % 2 AS INT)")
    world.sql(change)
    world.sql("INSERT INTO local.a.s VALUES (20, 1)")
    pipeline = (
        world.source("a.s") >> with_columns(next="CASE WHEN id > 100 THEN 0L ELSE id + 1 END") >> world.sink("a.t")
    )
    assert world.plan(pipeline).engine.native
    world.run(pipeline)
    (message,) = told(world)
    assert message.startswith(f"engine spark, because {reason}")
    found = {row.id: row.next for row in world.sql("SELECT id, next FROM local.a.t")}
    kept = [row.id for row in world.sql("SELECT id FROM local.a.s")]
    assert found == {i: 0 if i > 100 else i + 1 for i in kept}
    assert data(world, "a.t") == live(world, "a.t")


def test_a_required_engine_that_cannot_stops_the_run(required: Any) -> None:
    world = required
    world.fill("a.s", range(3))
    with pytest.raises(CheckFailed, match="is an expression that the native engine"):
        world.run(world.source("a.s") >> where("sha2(id, 256) <> ''") >> world.sink("a.t"))
    world.sql("ALTER TABLE local.a.s SET TBLPROPERTIES ('write.format.default' = 'orc')")
    world.sql("INSERT INTO local.a.s VALUES (20)")
    with pytest.raises(HeliosError, match="files of the source are orc"):
        world.run(world.source("a.s") >> world.sink("a.t"))
    assert not world.catalog.exists("a.t") or world.rows("a.t") == {}


KILLED = """
import os
import signal

from helios import Iceberg, where
from helios.spark.iceberg.transaction import Transaction

moment, real = os.environ.get("KILLED", "never"), Transaction.commit


def commit(self):
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    real(self)
    if moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)


Transaction.commit = commit

pipeline = Iceberg.source("a.s").incremental(poll=1) >> where("id <> 3") >> Iceberg.sink("a.t")
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_process_doubles_nothing(required: Any) -> None:
    """`kill -9` between the staging and the commit, then right after the commit."""
    world = required
    world.fill("a.s", range(10))
    (world.folder / "pipeline.py").write_text(KILLED)
    command = [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"]
    for moment, code in (("before", -signal.SIGKILL), ("after", -signal.SIGKILL), ("never", 0)):
        environment = {**os.environ, "KILLED": moment}
        done = subprocess.run(command, cwd=world.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert "engine spark" not in done.stdout
        if moment == "before":
            assert world.rows("a.t") == {}
            assert len(data(world, "a.t")) == 1  # nobody was left to delete it
        world.load("a.t").iceberg.refresh()
    assert world.ids("a.t") == [i for i in range(10) if i != 3]
    assert len(live(world, "a.t")) == 1
