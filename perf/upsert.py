"""An upsert of 1% scattered keys into a large table: Helios beside two jobs by hand, interleaved in one session.

    python perf/upsert.py --rows 10000000 --rounds 5

Each contender follows the same source table, to which every round appends one commit, and has a copy of the target of
its own, written alike. A round's time is that of a whole streaming query, from its start until it has drained the
source. The contenders take turns in going first; the first round warms up and does not count.

helios  `.upsert("id", order_by="updated_at")`: exactly once, the newest row per key, within and across batches
docs    as Spark's and Iceberg's docs have it: `MERGE INTO ... UPDATE SET * ... INSERT *` in foreachBatch, on a table as
        it is made by default: copy-on-write, neither deduplicated nor idempotent
expert  by hand for speed: a merge-on-read table, the batch deduplicated by row_number, older rows kept out, a hash join
        without a sort, and files written where the join left the rows

At the end the three tables must be equal.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from helios import Catalog, Iceberg, Memory
from helios.config import load
from helios.engine import runnable
from helios.plan import Context, compile_pipelines
from helios.spark import session

CONF = {
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "8",
    # What an expert sets for a small batch against a large table; all three contenders have it.
    "spark.sql.join.preferSortMergeJoin": "false",
}
ALIKE = {"write.target-file-size-bytes": str(128 << 20), "write.parquet.compression-codec": "zstd"}
MERGE_ON_READ = dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read")
PROPERTIES = {
    "helios": {**ALIKE, **MERGE_ON_READ},
    "docs": ALIKE,
    "expert": {**ALIKE, **MERGE_ON_READ, "write.merge.distribution-mode": "none"},
}
MERGE = "MERGE INTO local.perf.{} t USING batch s ON t.id = s.id WHEN MATCHED {} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"  # noqa: E501 # fmt: skip


def rows(ids: DataFrame, number: int) -> DataFrame:
    """The rows of ids as a batch has them; 0 is what the target begins with."""
    at = F.lit(f"2026-01-01 00:00:{number:02d}").cast("timestamp")
    return ids.select(
        "id",
        (F.col("id") % 50_000).cast("int").alias("customer_id"),
        (F.pmod(F.xxhash64("id", F.lit(number)), F.lit(1_000_000)) / 100).cast("decimal(12,2)").alias("amount"),
        F.element_at(F.array(*map(F.lit, ("new", "paid", "sent", "done"))), (F.col("id") % 4 + 1).cast("int")).alias("state"),  # noqa: E501
        at.alias("updated_at"),
        F.substring(F.sha2(F.concat_ws("-", "id", F.lit(number)), 256), 1, 20).alias("note"),
    )  # fmt: skip


class Race:
    """The session, the tables, and one run of each contender per round."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.rows = rows
        self.catalog = Catalog.local(path=folder / ".helios")
        config = replace(load(folder), spark_conf=CONF)
        self.context = Context(config=config, catalogs={"local": self.catalog})
        any_plan = self.plan(Memory.source([{"id": 1}]) >> Iceberg.sink("perf.any"))
        self.spark = session.start(config, any_plan.components)
        session.declare_catalogs(self.spark, [any_plan])

    def plan(self, pipeline: Any) -> Any:
        return runnable(*compile_pipelines([pipeline], self.context, lenient=True))[0]

    def create(self, contenders: list[str]) -> None:
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS local.perf")
        parts = max(2, self.rows // 1_250_000)
        for name in contenders:
            writer = rows(self.spark.range(0, self.rows, 1, parts), 0).writeTo(f"local.perf.{name}").using("iceberg")
            for key, value in PROPERTIES[name].items():
                writer = writer.tableProperty(key, value)
            writer.create()
        rows(self.spark.range(0), 0).writeTo("local.perf.changes").using("iceberg").create()

    def change(self, number: int) -> int:
        """Appends a batch to the source: 1% of the keys, and a tenth as many new ones."""
        scattered = self.spark.range(self.rows).where(F.pmod(F.xxhash64("id", F.lit(number)), F.lit(100)) == 0)
        first = self.rows + number * (self.rows // 1000)
        batch = rows(scattered.union(self.spark.range(first, first + self.rows // 1000)), number)
        batch.coalesce(1).writeTo("local.perf.changes").append()
        return batch.count()

    def by_hand(self, name: str, upsert: Callable[[DataFrame, int], None]) -> None:
        query = (
            self.spark.readStream.format("iceberg")
            .load("local.perf.changes")
            .writeStream.foreachBatch(upsert)
            .option("checkpointLocation", str(self.folder / "checkpoints" / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def docs(self) -> None:
        def upsert(batch: DataFrame, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            batch.sparkSession.sql(MERGE.format("docs", ""))

        self.by_hand("docs", upsert)

    def expert(self) -> None:
        newest = Window.partitionBy("id").orderBy(F.col("updated_at").desc())

        def upsert(batch: DataFrame, number: int) -> None:
            ranked = batch.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
            ranked.createOrReplaceTempView("batch")
            batch.sparkSession.sql(MERGE.format("expert", "AND s.updated_at >= t.updated_at"))

        self.by_hand("expert", upsert)

    def helios(self) -> None:
        pipeline = (
            Iceberg.source("perf.changes").incremental()
            >> Iceberg.sink("perf.helios").upsert("id", order_by="updated_at")
        )  # fmt: skip
        from helios.spark.run import PipelineRun

        PipelineRun(self.plan(pipeline), session.clone(self.spark, [self.plan(pipeline)]), once=True).start().await_termination()

    def cpu(self) -> float:
        """Seconds of processor time that the JVM has used."""
        jvm: Any = self.spark._jvm
        fields = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contenders", nargs="+", default=list(PROPERTIES), choices=list(PROPERTIES))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return race(Race(given.folder or Path(made), given.rows), given.rounds, given.contenders)


def race(track: Race, rounds: int, contenders: list[str]) -> int:
    track.create(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(1, rounds + 2):
        changed = track.change(number)
        turn = number % len(contenders)
        for name in contenders[turn:] + contenders[:turn]:
            began, cpu = time.monotonic(), track.cpu()
            getattr(track, name)()
            seconds[name].append(time.monotonic() - began)
            print(f"round {number - 1}: {name} {seconds[name][-1]:.2f} s, cpu {track.cpu() - cpu:.2f} s, {changed} rows", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
