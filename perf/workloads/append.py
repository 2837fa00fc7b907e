"""Appends from one Iceberg table to another: narrow, wide, and into many partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helios import where
from perf.harness.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES = 12


class Append(Workload):
    """A filter keeps 6 of 7 rows of 12 files with 5 narrow columns."""

    name = "append"
    says = "5 narrow columns, Iceberg to Iceberg, a filter that keeps 6 of 7 rows"
    rows = 12_000_000
    goal = "5 times naive, 1.3 times PyIceberg"
    condition = "kind <> 0"

    def generated(self) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, FILES)
        mixed = F.pmod(F.xxhash64("id"), F.lit(10_000_000))
        return ids.select(
            "id",
            (F.col("id") % 7).cast("int").alias("kind"),
            (mixed / 100).alias("amount"),
            F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("at"),
            F.concat(F.lit("name "), mixed % 1000).alias("name"),
        )

    def prepare(self) -> None:
        self.lake.write(self.generated(), "source")

    def expected(self) -> DataFrame:
        return self.lake.read("source").where(self.condition)

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source().incremental() >> where(self.condition) >> self.lake.sink(target))

    def native(self, target: str) -> None:
        self.helios(target)  # in the process of this contender the engine is required

    def naive(self, target: str) -> None:
        self.lake.streamed(self.lake.stream("source").where(self.condition), target)

    def tuned(self, target: str) -> None:
        """The stream only says that there is something: its snapshot is read as a batch, columnar and pruned."""

        def write(batch: Any, number: int) -> None:
            rows = batch.sparkSession.read.table(self.lake.name("source")).where(self.condition)
            rows.writeTo(self.lake.name(target)).option("distribution-mode", "none").append()

        self.lake.streamed(self.lake.stream("source"), target, write)

    def pyiceberg(self, target: str) -> None:
        self.lake.iceberg(target).append(self.lake.iceberg("source").scan(row_filter=self.condition).to_arrow())

    def duckdb(self, target: str) -> None:
        import duckdb

        made = self.lake.new_folder(target)
        with duckdb.connect() as connection:
            connection.execute(f"SET threads = {self.lake.settings.cores}; SET preserve_insertion_order = false")
            connection.execute(
                f"COPY (SELECT * FROM read_parquet($files) WHERE {self.condition}) TO '{made}' (FORMAT parquet, "
                "COMPRESSION zstd, COMPRESSION_LEVEL 3, PER_THREAD_OUTPUT true, OVERWRITE_OR_IGNORE true)",
                {"files": self.lake.paths("source", self.condition)},
            )
        self.lake.add(target, sorted(made.glob("*.parquet")))

    def polars(self, target: str) -> None:
        import polars

        made = self.lake.new_folder(target) / "polars.parquet"
        rows = polars.scan_parquet(self.lake.paths("source", self.condition))
        kept = rows.filter(polars.sql_expr(self.condition))
        kept.sink_parquet(made, compression="zstd", compression_level=3)
        self.lake.add(target, [made])


class WideAppend(Append):
    """The same with 100 columns."""

    name = "wide-append"
    says = "100 columns (40 bigint, 30 double, 20 string, 10 timestamp), Iceberg to Iceberg, the same filter"
    rows = 2_000_000
    goal = "3 times naive, ahead of PyIceberg"

    def generated(self) -> DataFrame:
        from pyspark.sql import functions as F

        def mixed(number: int) -> Any:
            return F.pmod(F.xxhash64("id", F.lit(number)), F.lit(1_000_000))

        ids = self.lake.spark.range(0, self.size, 1, FILES)
        return ids.select(
            "id",
            (F.col("id") % 7).cast("int").alias("kind"),
            *(mixed(n).alias(f"n{n}") for n in range(38)),
            *((mixed(n) / 7).alias(f"d{n}") for n in range(30)),
            *(F.concat(F.lit("text "), mixed(n) % 5000).alias(f"s{n}") for n in range(20)),
            *(F.timestamp_seconds(F.lit(1_700_000_000) + mixed(n)).alias(f"t{n}") for n in range(10)),
        )


PARTITIONS = 1_000


class PartitionedAppend(Append):
    """Rows of 1,000 partitions, mixed in every file of the source."""

    name = "partitions"
    says = "append into 1,000 partitions, rows of all of them mixed in each file"
    rows = 5_000_000
    goal = "3 times naive, memory at most that of tuned"
    condition = "kind <> 0"

    def generated(self) -> DataFrame:
        from pyspark.sql import functions as F

        return super().generated().withColumn("part", (F.pmod(F.xxhash64("id"), F.lit(PARTITIONS))).cast("int"))

    def create(self, target: str, contender: str) -> None:
        self.lake.write(self.expected().limit(0), target, _column("part"))

    def tuned(self, target: str) -> None:
        """One sort by the partition in each task, instead of Spark's shuffle to one task a partition."""

        def write(batch: Any, number: int) -> None:
            rows = batch.sparkSession.read.table(self.lake.name("source")).where(self.condition)
            rows = rows.repartition(self.lake.settings.cores, "part").sortWithinPartitions("part")
            rows.writeTo(self.lake.name(target)).option("distribution-mode", "none").append()

        self.lake.streamed(self.lake.stream("source"), target, write)

    # The files of DuckDB and Polars would lie in folders of their own naming; PyIceberg's own write takes minutes.
    duckdb = polars = None  # type: ignore[assignment]


def _column(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.col(name)
