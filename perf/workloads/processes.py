"""Whole processes: what a run takes from the start of its interpreter to its end."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from helios.environment import jars
from perf.harness.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONFIG = """
[spark]
master = "local[{cores}]"
[spark.conf]
"spark.driver.memory" = "{heap}"
"""
HELIOS = """
from helios import Iceberg, where
copy = Iceberg.source("perf.source").incremental() >> where("id % 7 <> 0") >> Iceberg.sink("perf.{target}")
"""
NAIVE = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[{cores}]").config("spark.jars", "{jars}")
    .config("spark.driver.memory", "{heap}").config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.local.type", "jdbc").config("spark.sql.catalog.local.jdbc.schema-version", "V1")
    .config("spark.sql.catalog.local.uri", "jdbc:sqlite:{folder}/.helios/catalog.db")
    .config("spark.sql.catalog.local.warehouse", "file://{folder}/.helios/warehouse")
    .getOrCreate()
)
stream = spark.readStream.format("iceberg").load("local.perf.source").where("id % 7 <> 0")
spark.sql("CREATE TABLE IF NOT EXISTS local.perf.{target} (id bigint, name string) USING iceberg")
query = (
    stream.writeStream.trigger(availableNow=True).option("checkpointLocation", "{folder}/checkpoints/naive-{target}")
    .toTable("local.perf.{target}")
)
query.awaitTermination()
"""


class FirstCommit(Workload):
    """`helios run --once` beside a script that does the same: Spark's start, a batch, the end of the process."""

    name = "first-commit"
    says = "a process that starts, appends a filtered table, and ends; Spark's UI is off in both"
    rows = 100_000
    goal = "0.6 of the time of naive"

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 1)
        self.lake.write(ids.select("id", F.concat(F.lit("name "), "id").alias("name")), "source")

    def expected(self) -> DataFrame:
        return self.lake.read("source").where("id % 7 <> 0")

    def helios(self, target: str) -> None:
        settings = self.lake.settings
        (self.lake.folder / "helios.toml").write_text(CONFIG.format(cores=settings.cores, heap=settings.heap))
        script = self.lake.folder / f"{target}.py"
        script.write_text(HELIOS.format(target=target))
        self._run("-m", "helios", "run", script.name, "--once")

    def naive(self, target: str) -> None:
        version, _ = jars.installed_spark()
        paths = ",".join(map(str, jars.ensure(("iceberg", "sqlite"), spark_version=version)))
        settings = self.lake.settings
        told = {"cores": settings.cores, "heap": settings.heap, "folder": settings.folder, "jars": paths}
        script = self.lake.folder / f"{target}.py"
        script.write_text(NAIVE.format(target=target, **told))
        self._run(script.name)

    def _run(self, *arguments: str) -> None:
        with (self.lake.folder / f"{self.lake.contender}-runs.log").open("a") as log:
            subprocess.run([sys.executable, *arguments], cwd=self.lake.folder, check=True, stdout=log, stderr=log)


class NothingNew(FirstCommit):
    """The same process started again, when all is there already; the warm-up round has written it."""

    name = "nothing-new"
    says = "a process that starts, finds nothing new, and ends; Spark's UI is off in both"
    keeps = True
