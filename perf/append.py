"""A filtered append from one Iceberg table to another: Helios beside three ways by hand, interleaved in one session.

    python perf/append.py --rows 12000000 --rounds 5

The source has 12 files of 5 narrow columns; the filter keeps 6 of 7 rows. Every round each contender writes them into a
new, empty table. Told are rows read per second of the whole way, from the start of the query (for Helios with its
compilation, its ledger and its lease) until it has ended. The contenders take turns in going first. The first rounds,
in which the JVM compiles what it runs and Python's workers start, do not count. All write zstd of the same level: by
default Iceberg's Java writer is at 3, PyIceberg and pyarrow at 1.

docs       as the docs of Spark and Iceberg have it: `readStream`, filter, `toTable`, availableNow
helios     `source.incremental() >> where(...) >> sink`, drained once, by Spark alone
native     the same pipeline with `[spark] native = "require"`: the columnar engine in Spark's tasks
pyiceberg  PyIceberg in one process, without Spark: a filtered scan to Arrow, held in memory, and an append
arrow      an experiment: PyIceberg plans the files, Spark's tasks read, filter and write them with Arrow, one thread
           each, and the driver commits them once with Iceberg's Java API. It knows no row-level deletes, no evolved
           columns, no partitions, no steps but this filter, and no exactly-once

In every round the targets must hold the same rows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from batches import Batches
from pyarrow.fs import FileSystem
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios import Catalog, Iceberg, Pipeline, where
from helios.catalog.conf import spark_conf
from helios.config import load
from helios.engine import runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.run import PipelineRun
from helios.spark.session import session

CONTENDERS = ("docs", "helios", "native", "pyiceberg", "arrow")
BASE = "docs"
FILTER = "kind <> 0"
FILES = 12
ROW_GROUP = 1 << 20
"""Rows of a row group, which is also PyIceberg's default."""


def rows(ids: DataFrame) -> DataFrame:
    mixed = F.pmod(F.xxhash64("id"), F.lit(10_000_000))
    return ids.select(
        "id",
        (F.col("id") % 7).cast("int").alias("kind"),
        (mixed / 100).alias("amount"),
        F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("at"),
        F.concat(F.lit("name "), mixed % 1000).alias("name"),
    )


class Race:
    """The session, the source, and the contenders: methods that write the filtered source into a table."""

    jars: tuple[str, ...] = ("iceberg", "sqlite")

    def __init__(self, folder: Path, rows: int, cores: int, level: int) -> None:
        self.folder = folder
        self.source = f"source_{rows}"
        self.rows = rows
        self.cores = cores
        self.properties = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": str(level)}
        self.catalog = Catalog.local(path=folder / ".helios")
        if "perf" not in self.catalog.namespaces():
            self.catalog.create_namespace("perf")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for Spark's workers, which have no pyarrow otherwise
        self.config = replace(load(folder), master=f"local[{cores}]", spark_conf={"spark.driver.memory": "8g"})
        self.spark = session.start(self.config, self.jars)
        for key, value in spark_conf(self.catalog).items():
            self.spark.conf.set(key, value)
        self.batches = Batches()
        self.spark.streams.addListener(self.batches)

    def prepare(self) -> None:
        """Writes the source, unless the folder has it from an earlier run."""
        if not self.catalog.exists(f"perf.{self.source}"):
            df = rows(self.spark.range(0, self.rows, 1, FILES))
            df.writeTo(f"local.perf.{self.source}").using("iceberg").create()

    def expected(self) -> tuple[int, int]:
        """What every target must hold."""
        found = self.content(self.source, FILTER)
        print(f"{self.rows:,} rows in {self.files(self.source)}; {found[0]:,} are kept", flush=True)
        return found

    def create(self, target: str) -> None:
        writer = rows(self.spark.range(0)).writeTo(f"local.perf.{target}").using("iceberg")
        for key, value in self.properties.items():
            writer = writer.tableProperty(key, value)
        writer.create()

    def helios(self, target: str) -> None:
        self.drained(self.pipeline(target), native="off")

    def native(self, target: str) -> None:
        self.drained(self.pipeline(target), native="require")

    def pipeline(self, target: str) -> Pipeline:
        source = Iceberg.source(f"perf.{self.source}", catalog=self.catalog).incremental()
        return source >> where(FILTER) >> Iceberg.sink(f"perf.{target}", catalog=self.catalog)

    def drained(self, pipeline: Pipeline, native: str = "off") -> None:
        """Runs a pipeline of Helios once, as `helios run --once` does in a session of its own."""
        context = Context(config=replace(self.config, native=native), catalogs={"local": self.catalog})
        plan = runnable(*compile_pipelines([pipeline], context, lenient=True))[0]
        cloned = session.clone(self.spark, [plan])
        cloned.streams.addListener(self.batches)
        PipelineRun(plan, cloned, once=True).start().await_termination()

    def docs(self, target: str) -> None:
        self.streamed(self.spark.readStream.format("iceberg").load(f"local.perf.{self.source}").where(FILTER), target)

    def streamed(self, stream: DataFrame, target: str) -> None:
        """Runs a stream of Spark's into a table, until it has read what is there."""
        checkpoint = self.folder / "checkpoints" / target
        writer = stream.writeStream.format("iceberg").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).toTable(f"local.perf.{target}").awaitTermination()

    def pyiceberg(self, target: str) -> None:
        found = self.catalog.load(f"perf.{self.source}").iceberg.scan(row_filter=FILTER).to_arrow()
        self.catalog.load(f"perf.{target}").iceberg.append(found)

    def arrow(self, target: str) -> None:
        tasks = list(self.catalog.load(f"perf.{self.source}").iceberg.scan(row_filter=FILTER).plan_files())
        assert not any(task.delete_files for task in tasks), "row-level deletes would be read as rows"
        sizes = {task.file.file_path: task.file.file_size_in_bytes for task in tasks}
        largest = sorted(sizes, key=lambda path: sizes[path], reverse=True)
        shares = [share for core in range(self.cores) if (share := largest[core :: self.cores])]
        util = self._jvm.org.apache.iceberg.spark.Spark3Util
        table = util.loadIcebergTable(self.spark._jsparkSession, f"local.perf.{target}")
        ids = {str(field.name()): int(field.fieldId()) for field in table.schema().columns()}
        copy = copier(shares, str(table.locationProvider().newDataLocation("arrow")), ids, self.properties)
        written = self.spark.range(0, len(shares), 1, len(shares)).mapInArrow(copy, "path string").collect()
        self.commit(table, [row.path for row in written])

    def commit(self, table: Any, paths: list[str]) -> None:
        """Appends data files, whose metrics Iceberg reads from their footers."""
        iceberg = self._jvm.org.apache.iceberg
        append = table.newAppend()
        for path in paths:
            file = table.io().newInputFile(path)
            metrics = iceberg.parquet.ParquetUtil.fileMetrics(file, iceberg.MetricsConfig.forTable(table))
            made = iceberg.DataFiles.builder(table.spec()).withInputFile(file).withFormat("parquet")
            append.appendFile(made.withMetrics(metrics).build())
        append.commit()

    def timed(self, name: str, target: str) -> tuple[float, float]:
        """Runs a contender, and returns the seconds of the whole, and of its batches where it is a stream."""
        self.batches.seconds = 0.0
        began = time.monotonic()
        getattr(self, name)(target)
        seconds = time.monotonic() - began
        context: Any = self.spark._jsparkSession.sparkContext()
        context.listenerBus().waitUntilEmpty()
        return seconds, self.batches.seconds

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    def content(self, table: str, condition: str = "true") -> tuple[int, int]:
        """The number of rows of a table, and a sum over all that they hold."""
        return summed(self.spark.read.table(f"local.perf.{table}").where(condition))

    def files(self, table: str) -> str:
        summary = self.catalog.load(f"perf.{table}").snapshots()[-1].summary
        return f"{summary['total-data-files']} files, {int(summary['total-files-size']) / 1e6:.1f} MB"

    def drop(self, table: str) -> None:
        self.spark.sql(f"DROP TABLE local.perf.{table} PURGE")


def summed(df: DataFrame) -> tuple[int, int]:
    """The number of rows, and a sum over all that they hold."""
    return tuple(df.agg(F.count("*"), F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)"))).collect()[0])


def copier(
    shares: list[list[str]], prefix: str, ids: dict[str, int], properties: dict[str, str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a task does: one share of the files becomes one file, whose path it tells.

    Args:
        shares: The paths of the files, by the number of the task.
        prefix: What the path of a new file begins with.
        ids: The target's field ids by the names of its columns.
        properties: The target's.
    """
    codec, level = (properties[f"write.parquet.compression-{what}"] for what in ("codec", "level"))
    wanted = pc.field("kind") != 0

    def copy(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)
        for number in (n for batch in numbers for n in batch.column(0).to_pylist()):
            paths = [FileSystem.from_uri(path) for path in shares[number]]
            source = ds.dataset([path for _, path in paths], filesystem=paths[0][0], format="parquet")
            schema = pa.schema([source.schema.field(n).with_metadata({"PARQUET:field_id": str(ids[n])}) for n in ids])
            # A name of its own for each try of a task: what a failed one has written belongs to no table.
            made = f"{prefix}-{uuid.uuid4()}.parquet"
            filesystem, path = FileSystem.from_uri(made)
            filesystem.create_dir(os.path.dirname(path))
            with pq.ParquetWriter(
                path, schema, filesystem=filesystem, compression=codec, compression_level=int(level)
            ) as writer:
                for group in grouped(source.to_batches(columns=list(ids), filter=wanted, use_threads=False)):
                    writer.write_table(pa.Table.from_batches(group))
            yield pa.record_batch({"path": [made]})

    def grouped(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
        group: list[pa.RecordBatch] = []
        for batch in batches:
            group.append(batch)
            if sum(len(one) for one in group) >= ROW_GROUP:
                yield group
                group = []
        if group:
            yield group

    return copy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before those that count")
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--cores", type=int, default=2, help="of Spark's local master")
    parser.add_argument("--level", type=int, default=3, help="the level of zstd that all write")
    parser.add_argument("--folder", type=Path, help="where the tables go; by default a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        track = Race(given.folder or Path(made), given.rows, given.cores, given.level)
        return race(track, given.warm_up, given.rounds, given.contenders)


def race(track: Race, warm_up: int, rounds: int, contenders: list[str]) -> int:
    track.prepare()
    expected = track.expected()
    wholes: dict[str, list[float]] = {name: [] for name in contenders}
    batches: dict[str, list[float]] = {name: [] for name in contenders}
    written: dict[str, str] = {}
    for number in range(1, warm_up + rounds + 1):
        turn = number % len(contenders)
        for name in contenders[turn:] + contenders[:turn]:
            target = f"{name}_{uuid.uuid4().hex[:8]}"
            track.create(target)
            whole, batch = track.timed(name, target)
            wholes[name].append(track.rows / whole)
            batches[name].append(track.rows / batch if batch else 0.0)
            found = track.content(target)
            if found != expected:
                print(f"{name} has written {found}, and not {expected}")
                return 1
            written[name] = track.files(target)
            track.drop(target)
        what = f"round {number - warm_up}" if number > warm_up else f"warm-up {number}"
        told = [f"{name} {shown(wholes[name][-1])}{against(wholes, name, slice(-1, None))}" for name in contenders]
        print(f"{what}: {', '.join(told)}", flush=True)
    counted = slice(warm_up, None)
    for name in contenders:
        print(f"{name}: {shown(statistics.median(wholes[name][counted]))}{against(wholes, name, counted)}", end="")
        if all(batches[name]):
            print(f", the batch alone {shown(statistics.median(batches[name][counted]))}", end="")
            print(against(batches, name, counted), end="")
        print(f"; {written[name]}")
    print(f"in every round all targets held the same {expected[0]:,} rows")
    return 0


def shown(rate: float) -> str:
    return f"{rate / 1e6:.2f} M rows/s" if rate >= 1e6 else f"{rate / 1e3:.1f} k rows/s"


def against(rates: dict[str, list[float]], name: str, rounds: slice) -> str:
    """The ratios to the base in some rounds, as text; nothing for the base itself, or without it."""
    if BASE not in rates or name == BASE:
        return ""
    ratios = [mine / base for mine, base in zip(rates[name][rounds], rates[BASE][rounds], strict=True)]
    spread = f", {min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else ""
    return f" ({statistics.median(ratios):.2f} times{spread})"


if __name__ == "__main__":
    sys.exit(main())
