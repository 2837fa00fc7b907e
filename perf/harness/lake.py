"""A contender's own view of the tables: the catalog, a session of Spark, and the ways to run a job in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helios import Catalog
from helios.config import load
from helios.environment import jars, java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from helios import Pipeline
    from helios.model.sink import IcebergSink
    from helios.plan.nodes import Plan
    from helios.sources.iceberg.declare import IcebergSource
    from helios.spark.run.events import Event
    from helios.spark.run.run import PipelineRun

NAMESPACE = "perf"
NATIVE = "native"
"""The contender that is Helios with its columnar engine."""
ZSTD = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "3"}
"""What every target has: Iceberg's Java writer is at level 3 by default, PyIceberg and DuckDB are not."""


def local(location: str) -> Path:
    """The path of a local location; Hadoop writes a single slash.

    Examples:
        >>> str(local("file:/tmp/a")), str(local("file:///tmp/a")), str(local("/tmp/a"))
        ('/tmp/a', '/tmp/a', '/tmp/a')
    """
    return Path("/" + location.removeprefix("file:").lstrip("/"))


@dataclass(frozen=True)
class Settings:
    """What all contenders of a race have alike.

    Attributes:
        folder: Where tables, checkpoints and made files go.
        rows: The size of the workload.
        cores: Of each engine: Spark's local master, DuckDB's threads.
        heap: Of each JVM, as Spark writes it.
    """

    folder: Path
    rows: int
    cores: int = 2
    heap: str = "4g"


class Lake:
    """The tables, as one contender's process sees them.

    Args:
        settings: The race's.
        contender: Whose process this is: those of Helios get its session, all others one as the docs have it.
    """

    def __init__(self, settings: Settings, contender: str) -> None:
        self.settings = settings
        self.contender = contender
        self.folder = settings.folder
        self.rows = settings.rows

    @cached_property
    def catalog(self) -> Catalog:
        catalog = Catalog.local(path=self.folder / ".helios")
        if NAMESPACE not in catalog.namespaces():
            catalog.create_namespace(NAMESPACE)
        return catalog

    @cached_property
    def config(self) -> Any:
        master, conf = f"local[{self.settings.cores}]", {"spark.driver.memory": self.settings.heap}
        native = "require" if self.contender == NATIVE else "off"
        return replace(load(self.folder), master=master, spark_conf=conf, native=native)

    @cached_property
    def spark(self) -> SparkSession:
        """The session: Helios's own for its contenders, for all others one that is built as Iceberg's docs do."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        from helios.catalog.conf import spark_conf

        conf = spark_conf(self.catalog)
        if self.contender == NATIVE or self.contender.startswith("helios"):
            from helios.spark.session import session

            started = session.start(self.config, ("iceberg", "sqlite"))
            for key, value in conf.items():
                started.conf.set(key, value)
            return started
        from pyspark.sql import SparkSession

        os.environ.update(java.environment(java.find_java()))
        version, _ = jars.installed_spark()
        builder = (
            SparkSession.builder.master(f"local[{self.settings.cores}]")
            .config("spark.jars", ",".join(map(str, jars.ensure(("iceberg", "sqlite"), spark_version=version))))
            .config("spark.driver.memory", self.settings.heap)
            .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "4")
        )
        for key, value in conf.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()

    # jobs

    def drained(self, *pipelines: Pipeline) -> None:
        """Runs pipelines once, as `helios run --once` does, in a session of their own.

        Raises:
            HeliosError: One failed.
        """
        from helios.spark.run.scheduler import Runner
        from helios.spark.session import session

        plans = self.plans(pipelines)
        runner = Runner(plans, session.clone(self.spark, plans), once=True)
        if not runner.run():
            raise next(run.error for run in runner.runs if run.error is not None)

    def following(self, pipeline: Pipeline, emit: Callable[[Event], object] | None = None) -> PipelineRun:
        """Starts a pipeline that follows its source until it is stopped."""
        from helios.spark.run.run import PipelineRun
        from helios.spark.session import session

        plans = self.plans([pipeline])
        told = {"emit": emit} if emit is not None else {}
        return PipelineRun(plans[0], session.clone(self.spark, plans), **told).start()

    def plans(self, pipelines: Sequence[Pipeline]) -> list[Plan]:
        """Pipelines, compiled."""
        from helios.engine import require_runnable
        from helios.plan import Context, compile_pipelines

        context = Context(config=self.config, catalogs={"local": self.catalog})
        return require_runnable(*compile_pipelines(pipelines, context, lenient=True))

    def stream(self, table: str, **options: str) -> DataFrame:
        return self.spark.readStream.format("iceberg").options(**options).load(self.name(table))

    def source(self, table: str = "source") -> IcebergSource:
        from helios import Iceberg

        return Iceberg.source(f"{NAMESPACE}.{table}", catalog=self.catalog)

    def sink(self, table: str) -> IcebergSink:
        from helios import Iceberg

        return Iceberg.sink(f"{NAMESPACE}.{table}", catalog=self.catalog)

    def streamed(self, df: DataFrame, target: str, each: Any = None, mode: str = "append") -> None:
        """Runs a stream by hand until it has read what is there: into a table, or by a function of `foreachBatch`."""
        self.started(df, target, each, mode).awaitTermination()

    def started(self, df: DataFrame, target: str, each: Any = None, mode: str = "append", **trigger: Any) -> Any:
        """Starts a stream by hand, until it has read what is there unless another trigger is given."""
        checkpoint = self.folder / "checkpoints" / f"{self.contender}-{target}"
        writer = df.writeStream.option("checkpointLocation", str(checkpoint)).outputMode(mode)
        writer = writer.trigger(**(trigger or {"availableNow": True}))
        return writer.foreachBatch(each).start() if each else writer.format("iceberg").toTable(self.name(target))

    # tables

    def name(self, table: str) -> str:
        return f"local.{NAMESPACE}.{table}"

    def read(self, table: str) -> DataFrame:
        return self.spark.read.table(self.name(table))

    def write(self, df: DataFrame, table: str, *partitions: Any, **properties: str) -> None:
        """Makes a table of some rows."""
        writer = df.writeTo(self.name(table)).using("iceberg")
        for key, value in (ZSTD | properties).items():
            writer = writer.tableProperty(key, value)
        (writer.partitionedBy(*partitions) if partitions else writer).create()

    def iceberg(self, table: str) -> Any:
        """A table, as PyIceberg has it."""
        return self.catalog.load(f"{NAMESPACE}.{table}").iceberg

    def paths(self, table: str, row_filter: str | None = None) -> list[str]:
        """The local files of a table, as PyIceberg plans them: for engines that read parquet and no Iceberg."""
        scan = self.iceberg(table).scan(**({"row_filter": row_filter} if row_filter else {}))
        tasks = list(scan.plan_files())
        assert not any(task.delete_files for task in tasks), "row-level deletes would be read as rows"
        return [str(local(task.file.file_path)) for task in tasks]

    def new_folder(self, target: str) -> Path:
        """Where an engine that writes parquet by itself puts the files of a target."""
        made = local(self.iceberg(target).location()) / "data"
        made.mkdir(parents=True, exist_ok=True)
        return made

    def add(self, target: str, files: list[Path]) -> None:
        """Commits files that are there; PyIceberg reads their footers."""
        self.iceberg(target).add_files([str(path) for path in files])

    def drop(self, table: str) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS {self.name(table)} PURGE")
