"""A filter that matches 1% of a table's partitions: Helios beside the jobs by hand, interleaved in one session.

    python perf/pruning.py --rows 250000000 --days 1000 --rounds 3

The source has a partition and a file for each day; the filter names 1% of the days by the time stamp itself. Every
round each contender writes the matching rows into a new, empty table. Told are the seconds of the whole query with its
start and, of a stream, of its batch alone as Spark tells them; the files that Spark's tasks opened; where Iceberg
planned a batch scan, the files that it found and left out, and the time that it took. The contenders take turns in
going first. The first rounds, in which the JVM compiles what it runs, do not count.

docs           as the docs have it: `readStream`, filter, `toTable`, availableNow
helios         `source.incremental().where(...) >> sink`, drained once
docs batch     `spark.read`, filter, `writeTo(...).append()`
helios batch   `source.where(...) >> sink`

Then the planning of that read alone is timed, warm. At last the files of all other days are moved away: what opens none
of them still gives the same rows, and the docs' stream fails.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from batches import Batches
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios import Catalog, Iceberg
from helios.catalog.conf import spark_conf
from helios.config import load
from helios.engine import require_runnable
from helios.errors import HeliosError
from helios.plan import Context, Plan, compile_pipelines
from helios.sources.iceberg.offsets import IcebergOffset, range_between
from helios.sources.iceberg.spark.snapshot import source_table
from helios.sources.iceberg.spark.snapshot_reader import SnapshotReader
from helios.spark.iceberg.filters import expression
from helios.spark.run.run import PipelineRun
from helios.spark.session import session

BASES = {"helios": "docs", "helios batch": "docs batch"}
CONTENDERS = ("docs", "helios", "docs batch", "helios batch")
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
METRICS = {
    "number of file splits read": "opened",
    "number of result data files": "found",
    "number of skipped data files": "left out",
    "total planning duration (ms)": "ms planning",
}
"""What Iceberg's scans tell Spark, and how it is called here."""


@dataclass(frozen=True)
class Lap:
    """One run of a contender.

    Attributes:
        query: Seconds of the whole query.
        batch: Seconds of its batches; 0.0 where it has none.
        scanned: What its scans came to, by the names in `METRICS`.
        content: What its target then held.
    """

    query: float
    batch: float
    scanned: dict[str, int]
    content: tuple[int, int]

    def __str__(self) -> str:
        text = f"{self.query:.2f} s"
        text += f", batch {self.batch:.2f} s" if self.batch else ""
        text += f"; {self.scanned['opened']} files opened"
        if self.scanned.get("found"):
            text += "; planned in {ms planning} ms, {found} found, {left out} left out".format_map(self.scanned)
        return text


class Race:
    """The session, the source, and the contenders: methods that write the matching rows into a table."""

    def __init__(self, folder: Path, rows: int, days: int) -> None:
        self.folder = folder
        self.source = f"source_{rows}_{days}"
        self.per_day = rows // days
        self.rows = self.per_day * days
        first = FIRST + timedelta(days=days // 2)
        self.matching = [first + timedelta(days=n) for n in range(days // 100)]
        bounds = (self.matching[0], self.matching[-1] + timedelta(days=1))
        self.filter = " AND ".join(
            f"at {sign} TIMESTAMP '{bound:%Y-%m-%d %H:%M:%S}'" for sign, bound in zip((">=", "<"), bounds, strict=True)
        )
        self.catalog = Catalog.local(path=folder / ".helios")
        if "perf" not in self.catalog.namespaces():
            self.catalog.create_namespace("perf")
        self.config = replace(load(folder), master="local[2]", spark_conf={"spark.driver.memory": "8g"})
        self.context = Context(config=self.config, catalogs={"local": self.catalog})
        self.spark = session.start(self.config, ("iceberg", "sqlite"))
        for key, value in spark_conf(self.catalog).items():
            self.spark.conf.set(key, value)
        self.told = 0
        self.batches = Batches()
        self.spark.streams.addListener(self.batches)

    def generated(self, rows: int) -> DataFrame:
        """Rows in the order of their days, so that each day is one file."""
        ids = self.spark.range(0, rows, 1, 4)
        day = F.expr(f"id div {self.per_day}")
        return ids.select(
            "id",
            F.timestamp_seconds(F.lit(int(FIRST.timestamp())) + day * 86400 + F.col("id") % 86400).alias("at"),
            (F.pmod(F.xxhash64("id"), F.lit(10_000_000)) / 100).alias("amount"),
            F.concat(F.lit("name "), F.col("id") % 1000).alias("name"),
        )

    def prepare(self) -> None:
        """Writes the source, unless the folder has it from an earlier run."""
        if not self.catalog.exists(f"perf.{self.source}"):
            writer = self.generated(self.rows).writeTo(f"local.perf.{self.source}").using("iceberg")
            writer.partitionedBy(F.partitioning.days("at")).create()

    def create(self, target: str) -> None:
        self.generated(0).writeTo(f"local.perf.{target}").using("iceberg").create()

    def run(self, name: str, target: str) -> None:
        getattr(self, name.replace(" ", "_"))(target)

    def helios(self, target: str) -> None:
        self.drain(self.plan(Iceberg.source(f"perf.{self.source}", catalog=self.catalog).incremental(), target))

    def helios_batch(self, target: str) -> None:
        self.drain(self.plan(Iceberg.source(f"perf.{self.source}", catalog=self.catalog), target))

    def plan(self, source: Any, target: str) -> Plan:
        pipeline = source.where(self.filter) >> Iceberg.sink(f"perf.{target}", catalog=self.catalog)
        return require_runnable(*compile_pipelines([pipeline], self.context, lenient=True))[0]

    def drain(self, plan: Plan) -> None:
        cloned = session.clone(self.spark, [plan])
        cloned.streams.addListener(self.batches)
        PipelineRun(plan, cloned, once=True).start().await_termination()

    def docs(self, target: str) -> None:
        stream = self.spark.readStream.format("iceberg").load(f"local.perf.{self.source}").where(self.filter)
        checkpoint = self.folder / "checkpoints" / target
        writer = stream.writeStream.format("iceberg").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).toTable(f"local.perf.{target}").awaitTermination()

    def docs_batch(self, target: str) -> None:
        self.read().writeTo(f"local.perf.{target}").append()

    def read(self) -> DataFrame:
        return self.spark.read.format("iceberg").load(f"local.perf.{self.source}").where(self.filter)

    # what is told

    def scanned(self) -> dict[str, int]:
        """What the scans of the source came to since this was last asked."""
        jvm: Any = self.spark._jvm
        self.settle()
        store = self.spark._jsparkSession.sharedState().statusStore()
        listed = jvm.scala.jdk.javaapi.CollectionConverters.asJava
        found: dict[str, int] = {}
        for execution in listed(store.executionsList()):
            number = int(execution.executionId())
            if number < self.told:
                continue
            self.told = max(self.told, number + 1)
            values = listed(store.executionMetrics(number))
            names = {
                int(metric.accumulatorId()): METRICS.get(str(metric.name())) for metric in listed(execution.metrics())
            }
            for accumulator, name in names.items():
                value = values.get(accumulator)
                if name is not None and value is not None:
                    found[name] = found.get(name, 0) + int(str(value).replace(",", ""))
        return found

    def settle(self) -> None:
        """Waits until Spark has told its listeners all."""
        context: Any = self.spark._jsparkSession.sparkContext()
        context.listenerBus().waitUntilEmpty()

    def content(self, table: str, condition: str = "true") -> tuple[int, int]:
        """The number of rows of a table, and a sum over all that they hold."""
        df = self.spark.read.table(f"local.perf.{table}").where(condition)
        return tuple(df.agg(F.count("*"), F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)"))).collect()[0])

    # planning alone

    def planning(self) -> dict[str, Callable[[], float]]:
        """What is done before the first row of such a read: each returns the seconds that it took."""
        plan = self.plan(Iceberg.source(f"perf.{self.source}", catalog=self.catalog).incremental(), "planned")
        head = self.catalog.load(f"perf.{self.source}").snapshots()[-1].id
        start = IcebergOffset(snapshot=head, files=0, state=True)
        spark = session.clone(self.spark, [plan])
        feed = SnapshotReader(spark=spark, read=plan.reads[0], predicates=plan.pushed_predicates(0))
        span, table = range_between(start, IcebergOffset(snapshot=head)), source_table(spark, plan.reads[0])
        wanted = expression(feed.spark, table, f"local.perf.{self.source}", feed.predicates)
        jvm: Any = feed.spark._jvm
        iceberg = jvm.org.apache.iceberg

        def by_iceberg() -> float:
            reporter = iceberg.metrics.InMemoryMetricsReporter()
            tasks = table.newScan().filter(wanted).metricsReporter(reporter).planFiles()
            iceberg.relocated.com.google.common.collect.Lists.newArrayList(tasks)
            tasks.close()
            nanoseconds = reporter.scanReport().scanMetrics().totalPlanningDuration().totalDuration().toNanos()
            return float(nanoseconds) / 1e9

        return {
            "the table is loaded": lambda: timed(lambda: source_table(spark, plan.reads[0])),
            "Iceberg plans the files (totalPlanningDuration)": by_iceberg,
            "Helios plans the files (SnapshotReader.tasks)": lambda: timed(lambda: feed.tasks(table, span)),
            "Spark makes the batch read's physical plan": lambda: timed(
                lambda: self.read()._jdf.queryExecution().executedPlan()
            ),
        }

    # the files of other days

    def days_of(self) -> dict[str, list[Path]]:
        """The data files by the folders of their days."""
        location = Path(urlsplit(self.catalog.load(f"perf.{self.source}").iceberg.location()).path)
        return {folder.name: sorted(folder.glob("*.parquet")) for folder in (location / "data").iterdir()}

    def matched(self) -> set[str]:
        return {f"at_day={day:%Y-%m-%d}" for day in self.matching}

    @contextmanager
    def others_away(self) -> Iterator[int]:
        """Moves the files away that hold no matching row."""
        matched = self.matched()
        files = [file for day, files in self.days_of().items() if day not in matched for file in files]
        for file in files:
            file.rename(file.with_suffix(".away"))
        try:
            yield len(files)
        finally:
            for file in files:
                file.with_suffix(".away").rename(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=250_000_000)
    parser.add_argument("--days", type=int, default=1000, help="the partitions, a multiple of 100")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=4, help="rounds before those that count")
    parser.add_argument(
        "--plans", type=int, default=30, help="how often the planning is timed, after as many that warm up"
    )
    parser.add_argument("--folder", type=Path, help="where the tables go; by default a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        track = Race(given.folder or Path(made), given.rows, given.days)
        return race(track, given.warm_up, given.rounds, given.plans)


def race(track: Race, warm_up: int, rounds: int, plans: int) -> int:
    track.prepare()
    expected = track.content(track.source, track.filter)
    days = track.days_of()
    matching = sum(len(days[day]) for day in track.matched())
    print(f"{track.rows:,} rows in {sum(map(len, days.values()))} files of {len(days)} days; ", end="")
    print(f"{expected[0]:,} rows in {matching} files match", flush=True)
    laps: dict[str, list[Lap]] = {name: [] for name in CONTENDERS}
    wrong = []
    for number in range(1, warm_up + rounds + 1):
        print(f"round {number - warm_up}" if number > warm_up else f"warm-up {number}", flush=True)
        turn = number % len(CONTENDERS)
        for name in CONTENDERS[turn:] + CONTENDERS[:turn]:
            done = lap(track, name)
            laps[name].append(done)
            print(f"  {name}: {done}", flush=True)
            if done.content != expected:
                wrong.append(f"{name} has written {done.content}, and not {expected}")
            if name in BASES and done.scanned["opened"] != matching:
                wrong.append(f"{name} has opened {done.scanned['opened']} files, and not {matching}")
    for name in CONTENDERS:
        print(f"{name}: {statistics.median(done.query for done in laps[name][warm_up:]):.2f} s", flush=True)
    for name, base in BASES.items():
        pairs = list(zip(laps[name][warm_up:], laps[base][warm_up:], strict=True))
        print(f"{base} takes {compared([b.query / a.query for a, b in pairs])} times as long as {name}")
        if all(done.batch for pair in pairs for done in pair):
            print(f"  the batch alone: {compared([b.batch / a.batch for a, b in pairs])} times")
    for what, act in track.planning().items():
        times = sorted([act() for _ in range(2 * plans)][plans:])
        print(f"{what}: {statistics.median(times) * 1000:.1f} ms ({times[0] * 1000:.1f} to {times[-1] * 1000:.1f})")
    wrong += without_others(track, expected)
    print("\n".join(wrong) or "all have written the same rows, and Helios has opened the files that match and no other")
    return 1 if wrong else 0


def lap(track: Race, name: str) -> Lap:
    """Runs a contender into a target of its own, which is dropped."""
    target = f"{name.replace(' ', '_')}_{uuid.uuid4().hex[:8]}"
    track.create(target)
    track.scanned()
    track.batches.seconds = 0.0
    try:
        query = timed(lambda: track.run(name, target))
        scanned = track.scanned()
        return Lap(query, track.batches.seconds, scanned, track.content(target))
    finally:
        track.spark.sql(f"DROP TABLE local.perf.{target} PURGE")


def without_others(track: Race, expected: tuple[int, int]) -> list[str]:
    """Runs each contender without the files that it does not need, and returns what went wrong."""
    wrong = []
    with track.others_away() as away:
        print(f"{away} files are moved away")
        for name in CONTENDERS:
            try:
                found = lap(track, name).content
            except (PySparkException, HeliosError) as error:
                print(f"  {name}: fails, {reason(error)}", flush=True)
                if name != "docs":
                    wrong.append(f"{name} has opened a file that it does not need")
                continue
            print(f"  {name}: {found[0]:,} rows", flush=True)
            if found != expected:
                wrong.append(f"{name} has written {found} without the other files, and not {expected}")
    return wrong


def reason(error: Exception) -> str:
    """What an error says of a data file, else its first line."""
    said = re.search(r"\w+Exception: [^:]+: \S+\.parquet", str(error))
    return said.group() if said else str(error).splitlines()[0]


def compared(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"


def timed(act: Callable[[], Any]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
