"""An upsert of 1% scattered keys into a large table: Helios beside two jobs by hand, interleaved in one session.

    python perf/upsert.py --rows 10000000 --rounds 5

Every round appends one commit to a source table, which each contender follows into a target of its own; the targets
begin alike. A round is a streaming query of each contender that drains the source in one batch. Told are the seconds of
the batch, which is what a running stream takes for it, and of the whole query with its start. The contenders take turns
in going first. The first rounds, in which the JVM compiles what it runs, do not count.

helios  `.upsert("id", order_by="updated_at")`: exactly once, the newest row per key, within and across batches
helios3 the same, into a table of format v3: deletion vectors instead of position delete files
docs    as the docs of Spark and Iceberg have it: `MERGE INTO ... UPDATE SET * ... INSERT *` in foreachBatch, on a table
        as it is made by default, copy-on-write; rows of one key twice in a batch, late rows and replays are not met
expert  by hand for speed: a merge-on-read table, one row per key by row_number, late rows kept out, a hash join instead
        of a sort, and the write distribution that was given; replays are not met

At the end the targets must hold the same rows.
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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from helios import Catalog, Iceberg
from helios.catalog.conf import spark_conf
from helios.config import load
from helios.engine import runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.run import Event, PipelineRun
from helios.spark.session import session

CONF = {
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "8",
    # A small batch meets a large table: hashing beats sorting both. All three contenders have it.
    "spark.sql.join.preferSortMergeJoin": "false",
}
ALIKE = {"write.target-file-size-bytes": str(128 << 20), "write.parquet.compression-codec": "zstd"}
MERGE_ON_READ = dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read")
PROPERTIES = {
    "helios": ALIKE | MERGE_ON_READ,
    "helios3": ALIKE | MERGE_ON_READ | {"format-version": "3"},
    "docs": ALIKE,
    "expert": ALIKE | MERGE_ON_READ,
}
OURS = ("helios", "helios3")
MERGE = """
    MERGE INTO local.perf.{} t USING batch s ON t.id = s.id
    WHEN MATCHED {} THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""
STATES = ("new", "paid", "sent", "done")


def rows(ids: DataFrame, number: int) -> DataFrame:
    """The rows of some ids in one round; 0 is what the targets begin with."""
    of_round = F.xxhash64("id", F.lit(number))
    return ids.select(
        "id",
        (F.col("id") % 50_000).cast("int").alias("customer_id"),
        (F.pmod(of_round, F.lit(1_000_000)) / 100).cast("decimal(12,2)").alias("amount"),
        F.element_at(F.array(*map(F.lit, STATES)), (F.pmod(of_round, F.lit(4)) + 1).cast("int")).alias("state"),
        F.lit(f"2026-01-01 00:00:{number:02d}").cast("timestamp").alias("updated_at"),
        F.sha2(of_round.cast("string"), 256).alias("note"),
    )


class Race:
    """The session, the tables, and the contenders: methods that drain the source, and return the batch's seconds."""

    def __init__(self, folder: Path, rows: int, distribution: str) -> None:
        self.folder = folder
        self.rows = rows
        self.distribution = distribution
        self.catalog = Catalog.local(path=folder / ".helios")
        self.catalog.create_namespace("perf")
        self.config = replace(load(folder), spark_conf=CONF)
        self.spark = session.start(self.config, ("iceberg", "sqlite"))
        for key, value in spark_conf(self.catalog).items():
            self.spark.conf.set(key, value)

    def create(self, contenders: list[str]) -> None:
        files = max(2, self.rows // 1_250_000)
        for name in contenders:
            writer = rows(self.spark.range(0, self.rows, 1, files), 0).writeTo(f"local.perf.{name}").using("iceberg")
            own = {"write.merge.distribution-mode": self.distribution} if name == "expert" else {}
            for key, value in {**PROPERTIES[name], **own}.items():
                writer = writer.tableProperty(key, value)
            writer.create()
        rows(self.spark.range(0), 0).writeTo("local.perf.changes").using("iceberg").create()

    def change(self, number: int) -> int:
        """Appends a round to the source, and returns its rows: 1% of the ids, and a tenth as many new ones."""
        scattered = self.spark.range(self.rows).where(F.pmod(F.xxhash64("id", F.lit(-number)), F.lit(100)) == 0)
        first, new = self.rows + number * (self.rows // 1000), self.rows // 1000
        batch = rows(scattered.union(self.spark.range(first, first + new)), number)
        batch.coalesce(1).writeTo("local.perf.changes").append()
        return int(self.catalog.load("perf.changes").snapshots()[-1].summary["added-records"])

    def helios(self) -> float:
        return self.declared("helios")

    def helios3(self) -> float:
        return self.declared("helios3")

    def declared(self, name: str) -> float:
        source = Iceberg.source("perf.changes", catalog=self.catalog).incremental()
        sink = Iceberg.sink(f"perf.{name}", catalog=self.catalog).upsert("id", order_by="updated_at")
        context = Context(config=self.config, catalogs={"local": self.catalog})
        plan = runnable(*compile_pipelines([source >> sink], context, lenient=True))[0]
        events: list[Event] = []
        run = PipelineRun(plan, session.clone(self.spark, [plan]), once=True, emit=events.append)
        run.start().await_termination()
        return sum(event.seconds for event in events if event.kind == "batch")

    def docs(self) -> float:
        def upsert(batch: DataFrame, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            batch.sparkSession.sql(MERGE.format("docs", ""))

        return self.by_hand("docs", upsert)

    def expert(self) -> float:
        newest = Window.partitionBy("id").orderBy(F.col("updated_at").desc())

        def upsert(batch: DataFrame, number: int) -> None:
            ranked = batch.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
            ranked.createOrReplaceTempView("batch")
            batch.sparkSession.sql(MERGE.format("expert", "AND s.updated_at >= t.updated_at"))

        return self.by_hand("expert", upsert)

    def by_hand(self, name: str, upsert: Callable[[DataFrame, int], None]) -> float:
        seconds = 0.0

        def timed(batch: DataFrame, number: int) -> None:
            nonlocal seconds
            began = time.monotonic()
            upsert(batch, number)
            seconds += time.monotonic() - began

        query = (
            self.spark.readStream.format("iceberg")
            .load("local.perf.changes")
            .writeStream.foreachBatch(timed)
            .option("checkpointLocation", str(self.folder / "checkpoints" / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seconds

    def cpu(self) -> float:
        """Seconds of processor time that the JVM has used."""
        jvm: Any = self.spark._jvm
        stat = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def content(self, name: str) -> tuple[Any, ...]:
        """The number of rows of a target, and a sum over all that they hold."""
        table = self.spark.read.table(f"local.perf.{name}")
        return tuple(table.agg(F.count("*"), F.sum(F.xxhash64(*table.columns).cast("decimal(38,0)"))).collect()[0])

    def files(self, name: str) -> str:
        summary = self.catalog.load(f"perf.{name}").snapshots()[-1].summary
        return f"{summary['total-data-files']} data files, {summary['total-delete-files']} delete files"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=6, help="rounds before those that count")
    parser.add_argument("--contenders", nargs="+", default=list(PROPERTIES), choices=list(PROPERTIES))
    parser.add_argument("--distribution", default="none", choices=["none", "hash"], help="how the expert writes")
    parser.add_argument("--folder", type=Path, help="where the tables go; by default a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        track = Race(given.folder or Path(made), given.rows, given.distribution)
        return race(track, given.warm_up, given.rounds, given.contenders)


def race(track: Race, warm_up: int, rounds: int, contenders: list[str]) -> int:
    track.create(contenders)
    batches: dict[str, list[float]] = {name: [] for name in contenders}
    queries: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(1, warm_up + rounds + 1):
        changed, told, turn = track.change(number), [], number % len(contenders)
        for name in contenders[turn:] + contenders[:turn]:
            began, cpu = time.monotonic(), track.cpu()
            batches[name].append(getattr(track, name)())
            queries[name].append(time.monotonic() - began)
            told.append(
                f"{name} {batches[name][-1]:.2f} s of {queries[name][-1]:.2f} s (cpu {track.cpu() - cpu:.1f} s)"
            )
        what = f"round {number - warm_up}" if number > warm_up else f"warm-up {number}"
        print(f"{what}: {changed} rows, {', '.join(told)}", flush=True)
    for name in contenders:
        print(f"{name}: {statistics.median(batches[name][warm_up:]):.2f} s per batch, {track.files(name)}")
        for ours in OURS if name not in OURS else ():
            if ours in contenders:
                for what, seconds in {"batch": batches, "query": queries}.items():
                    ratios = compared(seconds[name][warm_up:], seconds[ours][warm_up:])
                    print(f"  {what}: {name} takes {ratios} times as long as {ours}")
    contents = {name: track.content(name) for name in contenders}
    if len(set(contents.values())) > 1:
        print(f"the targets differ: {contents}")
        return 1
    print(f"the targets hold the same {next(iter(contents.values()))[0]} rows")
    return 0


def compared(theirs: list[float], ours: list[float]) -> str:
    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    sys.exit(main())
