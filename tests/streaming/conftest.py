"""One Spark session for all streaming tests; each test has a catalog of its own in a clone of it."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pytest_spark.config import SparkConfigBuilder

from helios import Catalog, Iceberg, Memory, Pipeline
from helios.config import load
from helios.engine import require_runnable
from helios.environment import jars
from helios.plan import Context, Plan, compile_pipelines
from helios.plan.native import engine
from helios.spark.run.events import Event
from helios.spark.run.run import PipelineRun
from helios.spark.run.scheduler import Runner
from helios.spark.session import launch, session
from helios.spark.session.ml import register_when_imported
from helios.table.snapshots import Table
from tests.suite import jvm


@pytest.fixture(scope="session")
def shared_spark(request: pytest.FixtureRequest) -> SparkSession:
    """The session of pytest-spark, with Iceberg's extensions and the jars of all tests that will use it."""
    version, _ = jars.installed_spark()
    marked = [c for item in request.session.items for mark in item.iter_markers("jars") for c in mark.args]
    components = tuple(dict.fromkeys(("iceberg", "sqlite", *marked)))
    config = replace(load(Path.cwd()), master="local[2]", spark_conf={launch.DRIVER_MEMORY: "2g", **jvm.CONF})
    running = SparkContext._gateway is not None  # the tests of another folder have begun
    started = launch.launch(config, components, java_options=jvm.options(version), running=running)
    if not running:
        SparkContext._ensure_initialized(gateway=session.gateway(started))  # pytest-spark's session finds it
        register_when_imported()
    if started.log is not None:
        started.log.close()
    for key, value in started.conf.items():
        SparkConfigBuilder.get().set(key, value)
    spark: SparkSession = request.getfixturevalue("spark_session")
    return spark


class World:
    """A catalog, by default one in a temporary folder, and the ways in which tests use it."""

    def __init__(self, spark: SparkSession, folder: Path, catalog: Catalog | None = None) -> None:
        self.folder = folder
        self.catalog = catalog or Catalog.local(path=folder / ".helios")
        self.spark = spark.newSession()
        self.events: list[Event] = []
        self._lock = threading.Lock()
        session.declare_catalogs(self.spark, [self.plan(Memory.source([{"id": 1}]) >> self.sink("any.thing"))])

    def source(self, table: str) -> Any:
        return Iceberg.source(table, catalog=self.catalog)

    def sink(self, table: str) -> Any:
        return Iceberg.sink(table, catalog=self.catalog)

    def context(self) -> Context:
        return Context(config=load(self.folder), catalogs={self.catalog.name: self.catalog})

    def plan(self, pipeline: Pipeline) -> Plan:
        return require_runnable(*compile_pipelines([pipeline], self.context(), lenient=True))[0]

    def start(self, pipeline: Pipeline, **options: Any) -> PipelineRun:
        return PipelineRun(self.plan(pipeline), self.spark, emit=self._emit, **options).start()

    def run(self, pipeline: Pipeline, **options: Any) -> PipelineRun:
        """Runs a pipeline until it has drained its sources."""
        run = self.start(pipeline, once=True, **options)
        assert run.await_termination(120)
        return run

    def runner(self, pipelines: Sequence[Pipeline], **options: Any) -> Runner:
        plans = require_runnable(*compile_pipelines(pipelines, self.context(), lenient=True))
        return Runner(plans, self.spark, emit=self._emit, **options)

    def _emit(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    def fill(self, table: str, ids: Sequence[int], **columns: str) -> None:
        """Appends ids, and columns as SQL expressions of them, by hand: the table of somebody else."""
        expressions = ["id", *(f"{expression} AS `{name}`" for name, expression in columns.items())]
        df = self.spark.createDataFrame([(i,) for i in ids], "id bigint").selectExpr(*expressions).coalesce(1)
        self.sql(f"CREATE NAMESPACE IF NOT EXISTS local.{table.split('.', maxsplit=1)[0]}")
        if self.catalog.exists(table):
            df.writeTo(f"local.{table}").append()
        else:
            df.writeTo(f"local.{table}").using("iceberg").create()

    def sql(self, query: str) -> list[Any]:
        return self.spark.sql(query).collect()

    def load(self, table: str) -> Table:
        return self.catalog.load(table)

    def rows(self, table: str, *columns: str) -> Counter[tuple[Any, ...]]:
        """The table's rows as a multiset, read by PyIceberg."""
        selected = columns or ("*",)
        arrow = self.load(table).iceberg.scan(selected_fields=selected).to_arrow()
        names = columns or arrow.column_names
        return Counter(zip(*(arrow[name].to_pylist() for name in names), strict=True))

    def ids(self, table: str) -> list[int]:
        """The table's ids, ascending, each as often as it is there."""
        return sorted(row[0] for row in self.rows(table, "id").elements())

    def checkpoint(self, pipeline: Pipeline) -> Path:
        return Path(self.plan(pipeline).checkpoint.removeprefix("file://"))

    def expire(self, table: str) -> None:
        """Expires all snapshots but the current one."""
        self.sql(
            f"CALL local.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP '2099-01-01 00:00:00', "
            "retain_last => 1)"
        )

    def compact(self, table: str) -> None:
        self.sql(f"CALL local.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")


@pytest.fixture
def world(shared_spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(shared_spark, tmp_path)
    yield made
    for query in made.spark.streams.active:
        query.stop()


@pytest.fixture
def copy(world: Any) -> Pipeline:
    """A pipeline whose two batches have been committed."""
    world.fill("a.s", range(10))
    pipeline: Pipeline = world.source("a.s").incremental(poll=1) >> world.sink("a.t").exactly_once()
    world.run(pipeline)
    world.fill("a.s", range(10, 20))
    world.run(pipeline)
    world.events.clear()
    return pipeline


@pytest.fixture
def forget_commit() -> Callable[[Path, int], None]:
    """Removes a batch's entry from Spark's commit log: at the next start the batch is replayed."""

    def forget(checkpoint: Path, batch: int) -> None:
        for name in (f"{batch}", f".{batch}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=name.startswith("."))

    return forget


@pytest.fixture
def command() -> Callable[[str], ModuleType]:
    """Loads a command of `perf/` as a module; its pipelines then use the session of the tests."""
    return lambda name: import_module(f"perf.{name}")


@pytest.fixture
def native_workers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has Spark's workers run in the tests' Python, which has Polars, and the columnar engine do small batches too."""
    monkeypatch.setattr(engine, "MIN_NATIVE_BYTES", 0)
    monkeypatch.setattr(world.spark.sparkContext, "pythonExec", sys.executable)
