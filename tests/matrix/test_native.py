"""The columnar engine on every storage: Spark's rows, each once, and nothing left of a batch that Spark does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from helios import bucket, where, with_columns
from helios.catalog.conf import pyiceberg_properties
from helios.errors import CheckFailed
from helios.model.values import Secret
from helios.native.storage import list_files
from helios.plan.native import engine as choice
from helios.spark.native import batch as native
from helios.spark.native import spread, stores
from tests.matrix.test_promises import KILLED
from tests.streaming.conftest import World
from tests.streaming.native_cases import KINDS, rows_of, table

pytestmark = [pytest.mark.promise("engine"), pytest.mark.sampled(1)]

IDS = pa.schema([("id", pa.int64())])
SCHEMA = ", ".join(f"c{i} {kind}" for i, kind in enumerate(KINDS))


@pytest.fixture
def engine(lake: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets which engine runs, small batches too; Spark's workers run in the tests' Python, which has Polars."""
    monkeypatch.setattr(choice, "MIN_NATIVE_BYTES", 0)
    monkeypatch.setattr(lake.spark.sparkContext, "pythonExec", sys.executable)
    lake.events.clear()
    config = lake.folder / "helios.toml"
    yield lambda setting: config.write_text(f'[spark]\nnative = "{setting}"\n') and None
    config.unlink(missing_ok=True)


def told(lake: Any) -> list[str]:
    return [event.message for event in lake.events if event.kind == "noted"]


def stored(lake: Any, name: str) -> list[str]:
    """The names of the data files that the storage has of a table, whether the table has them or not."""
    folder = f"{lake.load(name).iceberg.location()}/data"
    found = (one for one, _ in list_files(folder, pyiceberg_properties(lake.catalog)))
    return sorted(one for one in found if one.endswith(".parquet"))


def live(lake: Any, name: str) -> list[str]:
    """Those of the data files that a table has."""
    return sorted(task.file.file_path.rpartition("/")[2] for task in lake.load(name).iceberg.scan().plan_files())


def scanned(lake: Any, name: str) -> pa.Table:
    return lake.spark.read.table(f"lake.{name}").toArrow()


@pytest.mark.cases(landing="rest-s3")
def test_rows_of_any_type_are_those_of_spark(lake: Any, engine: Callable[[str], None]) -> None:
    """Renamed and widened columns and deleted rows of several files, into partitions."""
    rows = table(Random(7), KINDS, 120)
    lake.sql("CREATE NAMESPACE IF NOT EXISTS lake.native")
    lake.spark.createDataFrame(rows, SCHEMA).repartition(3).writeTo("lake.native.s").using("iceberg").create()
    for change in (
        "SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
        "RENAME COLUMN c5 TO label",
        "ALTER COLUMN c1 TYPE bigint",
        "ADD COLUMN late string",
    ):
        lake.sql(f"ALTER TABLE lake.native.s {change}")
    lake.sql("DELETE FROM lake.native.s WHERE c1 = 7")
    steps = where("c2 IS NULL OR c2 <> 1") >> with_columns(twice="label", big="c1 > 3")
    for name, setting in (("native", "require"), ("spark", "off")):
        engine(setting)
        pipeline = lake.source("native.s") >> steps >> lake.sink(f"native.{name}").partition_by(bucket(3, "twice"))
        assert lake.plan(pipeline).engine.native == (setting == "require")
        lake.run(pipeline)
    assert told(lake) == []
    assert rows_of(scanned(lake, "native.native")) == rows_of(scanned(lake, "native.spark"))
    assert stored(lake, "native.native") == live(lake, "native.native")


def test_a_replayed_batch_adds_nothing(lake: Any, engine: Callable[[str], None]) -> None:
    engine("require")
    pipeline = lake.source("again.s").incremental(poll=1) >> where("id > 0") >> lake.sink("again.t")
    for number in (1, 2):
        lake.feed("again.s", [{"id": number}, {"id": -number}], IDS)
        lake.run(pipeline)
    before = lake.snapshots("again.t")
    lake.progress(pipeline).delete("commits/1")
    lake.run(pipeline)
    assert lake.ids("again.t") == [1, 2]
    assert lake.snapshots("again.t") == before
    assert stored(lake, "again.t") == live(lake, "again.t")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_process_doubles_nothing(lake: Any, tmp_path: Path) -> None:
    """`kill -9` right after the commit."""
    lake.feed("dead.source", [{"id": 1}, {"id": 2}], IDS)
    script, native = KILLED.replace("killed.", "dead."), 'native = "require"'
    done = lake.command(tmp_path, script, native, KILLED="yes")
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    before = lake.snapshots("dead.target")
    done = lake.command(tmp_path, script, native)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lake.ids("dead.target") == [1, 2]
    assert lake.snapshots("dead.target") == before
    assert stored(lake, "dead.target") == live(lake, "dead.target")


def test_what_spark_does_after_all_leaves_no_files(
    lake: Any, engine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First a task of several refuses, then the whole job fails."""
    engine("auto")
    monkeypatch.setattr(spread, "LARGEST_SHARE", 1)
    for ids in ([{"id": 1}], [{"id": 2**63 - 1}], [{"id": 3}]):
        lake.feed("left.s", ids, IDS)
    steps = with_columns(next="CASE WHEN id > 100 THEN 0L ELSE id + 1 END")
    lake.run(lake.source("left.s") >> steps >> lake.sink("left.t").partition_by(bucket(4, "id")))
    (message,) = told(lake)
    assert message.startswith("engine spark, because Spark may fail on a value of the batch")
    assert lake.rows("left.t", "next") == {(2,): 1, (0,): 1, (4,): 1}
    assert stored(lake, "left.t") == live(lake, "left.t")
    real = native.run_tasks

    def fails(*arguments: Any) -> list[Any]:
        assert real(*arguments)
        raise RuntimeError("the job failed")

    with monkeypatch.context() as patched:
        patched.setattr(native, "run_tasks", fails)
        with pytest.raises(Exception, match="the job failed"):
            lake.run(lake.source("left.s") >> lake.sink("left.u").partition_by(bucket(4, "id")))
    assert stored(lake, "left.u") == []


@pytest.mark.cases(landing="rest-s3")
def test_keys_are_nowhere_to_be_read(lake: Any, engine: Callable[[str], None]) -> None:
    storage = lake.catalog.storage
    secrets = [value.reveal() for _, value in storage.options if isinstance(value, Secret)] if storage else []
    engine("require")
    lake.feed("silent.s", [{"id": 1}], IDS)
    pipeline = lake.source("silent.s") >> lake.sink("silent.t")
    lake.run(pipeline)
    plan = lake.plan(pipeline)
    shown = [str(plan), plan.to_json(), *map(str, lake.events), str(lake.load("silent.t").current_snapshot().summary)]
    assert not [one for one in shown for secret in secrets if secret in one]


def test_keys_that_tasks_are_refused_with_leave_the_batch_to_spark(
    lake: Any, engine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if lake.combination.storage != "s3":
        pytest.skip("neither folders nor the emulators of the others refuse a key")
    engine("auto")
    lake.feed("refused.s", [{"id": 1}], IDS)
    real = stores.pyiceberg_properties
    wrong = {"s3.secret-access-key": "wrong"}
    monkeypatch.setattr(stores, "pyiceberg_properties", lambda catalog: {**real(catalog), **wrong})
    lake.run(lake.source("refused.s") >> lake.sink("refused.t"))
    (message,) = told(lake)
    assert message.startswith("engine spark, because the engine failed: ")
    assert "wrong" not in message
    assert lake.ids("refused.t") == [1]
    assert stored(lake, "refused.t") == live(lake, "refused.t")


def test_a_wrong_key_is_the_error_that_it_is_by_spark(lake: Any, engine: Callable[[str], None]) -> None:
    if lake.combination.storage != "s3":
        pytest.skip("neither folders nor the emulators of the others refuse a key")
    wrong = ("secret_access_key", Secret("wrong"))
    storage = replace(lake.catalog.storage, options=(*lake.catalog.storage.options, wrong))
    for setting in ("off", "auto"):
        engine(setting)
        with pytest.raises(CheckFailed, match="the secret does not match the key"):
            World(lake.spark, lake.folder, replace(lake.catalog, name="wrong", storage=storage))


def test_a_property_of_the_catalog_that_iceberg_alone_follows_leaves_it_to_spark(
    lake: Any, engine: Callable[[str], None]
) -> None:
    if lake.combination.storage != "s3":
        pytest.skip("what is told of S3 holds for the others")
    if lake.combination.catalog == "local":
        pytest.skip("its tables go by the catalog's name")
    lake.feed("encrypted.s", [{"id": 1}], IDS)
    engine("auto")
    world = World(lake.spark, lake.folder, replace(lake.catalog, name="other", properties=(("s3.acl", "private"),)))
    sink = world.sink("encrypted.t").checkpoint(str(lake.folder / "checkpoints" / "encrypted"))
    plan = world.plan(world.source("encrypted.s") >> sink)
    assert str(plan.engine) == "spark, because the catalog other has the property s3.acl"


def test_settings_that_a_server_gives_leave_it_to_spark(
    lake: Any, engine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the storage said nothing of the region and the keys that Iceberg's client has."""
    if lake.combination.storage != "s3":
        pytest.skip("what is told of S3 holds for the others")
    lake.feed("vended.s", [{"id": 1}], IDS)
    engine("auto")
    real = stores.spark_conf
    given = ("client.region", "s3.access-key-id", "s3.secret-access-key")
    monkeypatch.setattr(
        stores, "spark_conf", lambda catalog: {k: v for k, v in real(catalog).items() if not k.endswith(given)}
    )
    lake.run(lake.source("vended.s") >> lake.sink("vended.t"))
    assert told(lake) == [
        f"engine spark, because the catalog's server sets how the table's files are accessed ({', '.join(given)})"
    ]
