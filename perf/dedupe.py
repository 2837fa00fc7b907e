"""What `dedupe(keys, within=)` costs beside Spark's `dropDuplicatesWithinWatermark`, interleaved in one session.

    python perf/dedupe.py --rows 1000000 --rounds 5

The source has 10 commits of equal size. Times go on by a second a row and lie up to two minutes back, within the
watermark's ten. Half of the keys come about five times in the whole, and half five times in one hour. Each contender
drains the source, a commit a batch, into a new table. Told are the seconds that Spark's batches take, and the ratio to
Spark's operator in the same round. The first rounds, in which the JVM compiles what it runs, do not count.

spark     a stream by hand with Spark's operator, whose result depends on how the rows are cut into batches
operator  the same stream with Helios's operator in its place: the cost of the operator alone
helios    the pipeline: `watermark(...) >> dedupe(..., within=)`, into Helios's exactly-once sink

What Helios keeps must be equal in every round, and equal to a reference in Python that goes through the rows in the
order of their times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from batches import Batches
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios import Catalog, Iceberg, dedupe, watermark
from helios.catalog.conf import spark_conf
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.run import PipelineRun
from helios.spark.session import session
from helios.spark.steps.steps import Scope, apply
from helios.steps.dedupe import Dedupe

CONTENDERS = ("spark", "operator", "helios")
COMMITS, EACH = 10, 5
WITHIN, DELAY = "1 hour", "10 minutes"
FAR = 10_000_000
"""Seconds after the last row: its row moves the watermark over all others."""


class Race:
    """The session, the source, and the contenders: methods that write what they keep into a table."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.catalog = Catalog.local(path=folder / ".helios")
        self.catalog.create_namespace("perf")
        self.config = replace(load(folder), master="local[2]", spark_conf={"spark.driver.memory": "8g"})
        self.spark = session.start(self.config, ("iceberg", "sqlite"))
        for key, value in spark_conf(self.catalog).items():
            self.spark.conf.set(key, value)
        self.spark.conf.set("spark.sql.shuffle.partitions", "2")
        self.batches = Batches()
        self.spark.streams.addListener(self.batches)

    def prepare(self) -> None:
        each = self.rows // COMMITS
        for commit in range(COMMITS):
            ids = self.spark.range(commit * each, (commit + 1) * each, 1, 1)
            hour = F.floor(F.col("id") / 3600)
            far = F.pmod(F.xxhash64("id"), F.lit(self.rows // 2 // EACH))
            near = self.rows + hour * (1800 // EACH) + F.pmod(F.xxhash64("id"), F.lit(1800 // EACH))
            back = F.pmod(F.xxhash64("id", F.lit("back")), F.lit(120))
            found = ids.select(
                "id",
                F.when(F.col("id") % 2 == 0, far).otherwise(near).alias("k"),
                F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id") - back).alias("at"),
            )
            self.write(found)
        last = f"select -1L as id, -1L as k, timestamp_seconds({1_700_000_000 + self.rows + FAR}) as at"
        self.write(self.spark.sql(last))
        self.expected = self.reference()

    def write(self, df: DataFrame) -> None:
        table = "local.perf.source"
        if self.catalog.exists("perf.source"):
            df.writeTo(table).append()
        else:
            df.writeTo(table).using("iceberg").create()

    def reference(self) -> Counter[tuple[int, Any]]:
        """The keys and times that the contract keeps."""
        within = 3600
        found: Counter[tuple[int, Any]] = Counter()
        last: dict[int, int] = {}
        times = self.spark.table("local.perf.source").select("k", F.unix_seconds("at").alias("at"))
        for key, at in sorted(map(tuple, times.collect()), key=lambda row: row[1]):
            if key != -1 and (key not in last or at - last[key] > within):
                last[key] = at
                found[key, at] += 1
        return found

    def by_hand(self, target: str, *, own: bool) -> None:
        reader = self.spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", "1")
        df = reader.load("local.perf.source").withWatermark("at", DELAY)
        if own:
            df = apply(df, [Dedupe(keys=("k",), within=3600.0)], Scope(lambda flow: df))
        else:
            df = df.dropDuplicatesWithinWatermark(["k"])
        writer = df.writeStream.format("iceberg").option(
            "checkpointLocation", str(self.folder / "checkpoints" / target)
        )
        writer.trigger(availableNow=True).toTable(f"local.perf.{target}").awaitTermination()

    def run(self, name: str, target: str) -> None:
        self.spark.sql(f"CREATE TABLE local.perf.{target} (id bigint, k bigint, at timestamp) USING iceberg")
        if name != "helios":
            self.by_hand(target, own=name == "operator")
            return
        source = Iceberg.source("perf.source", catalog=self.catalog)
        steps = watermark("at", DELAY) >> dedupe("k", within=WITHIN)
        followed = source.incremental(start="earliest", max_files=1)
        pipeline = followed >> steps >> Iceberg.sink(f"perf.{target}", catalog=self.catalog)
        context = Context(config=self.config, catalogs={"local": self.catalog})
        plan = require_runnable(*compile_pipelines([pipeline], context, lenient=True))[0]
        cloned = session.clone(self.spark, [plan])
        cloned.streams.addListener(self.batches)
        PipelineRun(plan, cloned, once=True).start().await_termination()

    def timed(self, name: str) -> float:
        """Runs a contender and checks what it has kept; returns the seconds of its batches."""
        target = f"{name}_{uuid.uuid4().hex[:8]}"
        self.batches.seconds = 0.0
        self.run(name, target)
        context: Any = self.spark._jsparkSession.sparkContext()
        context.listenerBus().waitUntilEmpty()
        seconds = self.batches.seconds
        rows = self.spark.table(f"local.perf.{target}").select("k", F.unix_seconds("at").alias("at")).where("k <> -1")
        found = Counter(map(tuple, rows.collect()))
        if name != "spark" and found != self.expected:
            raise SystemExit(f"{name} has kept {found.total():,} rows, and the reference {self.expected.total():,}")
        self.spark.sql(f"DROP TABLE local.perf.{target} PURGE")
        return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        race = Race(Path(made), given.rows)
        race.prepare()
        print(f"{given.rows:,} rows, of which {race.expected.total():,} are kept", flush=True)
        seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for number in range(given.warm_up + given.rounds):
            turn = number % len(CONTENDERS)
            for name in CONTENDERS[turn:] + CONTENDERS[:turn]:
                seconds[name].append(race.timed(name))
            print(", ".join(f"{name} {seconds[name][-1]:.1f} s" for name in CONTENDERS), flush=True)
        for name in CONTENDERS:
            mine, base = (seconds[one][given.warm_up :] for one in (name, "spark"))
            ratios = [a / b for a, b in zip(mine, base, strict=True)]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{name}: {statistics.median(mine):.1f} s, {statistics.median(ratios):.2f} times ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
