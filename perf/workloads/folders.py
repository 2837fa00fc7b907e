"""Folders of files into an Iceberg table, with every check of Helios's files source on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from helios import Files
from perf.harness.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "id bigint, kind int, amount decimal(12,2), at timestamp, name string"
FILES = 20


class Csv(Workload):
    """20 files with a header."""

    name = "csv"
    says = "20 csv files with a header into an Iceberg table"
    rows = 4_000_000
    goal = "2 times naive"
    format: ClassVar[str] = "csv"
    options: ClassVar[dict[str, Any]] = {"header": True}

    @property
    def folder(self) -> Path:
        return self.lake.folder / "files"

    def generated(self) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, FILES)
        mixed = F.pmod(F.xxhash64("id"), F.lit(10_000_000))
        return ids.select(
            "id",
            (F.col("id") % 7).cast("int").alias("kind"),
            (mixed / 100).cast("decimal(12,2)").alias("amount"),
            F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("at"),
            F.concat(F.lit("name "), mixed % 1000).alias("name"),
        )

    def prepare(self) -> None:
        self.generated().write.format(self.format).options(**self.options).save(str(self.folder))
        (self.folder / "_SUCCESS").unlink()

    def expected(self) -> DataFrame:
        return self.generated()

    def helios(self, target: str) -> None:
        source = Files.source(str(self.folder), self.format, SCHEMA).option(**self.options).incremental()
        self.lake.drained(source >> self.lake.sink(target))

    def native(self, target: str) -> None:
        self.helios(target)  # in the process of this contender the engine is required

    def naive(self, target: str) -> None:
        reader = self.lake.spark.readStream.format(self.format).schema(SCHEMA).options(**self.options)
        self.lake.streamed(reader.load(str(self.folder)), target)

    def tuned(self, target: str) -> None:
        """One batch over the folder, which keeps no track of what it has read."""
        reader = self.lake.spark.read.format(self.format).schema(SCHEMA).options(**self.options)
        reader.load(str(self.folder)).writeTo(self.lake.name(target)).option("distribution-mode", "none").append()


class Json(Csv):
    """The same rows as JSON lines."""

    name = "json"
    says = "20 files of JSON lines into an Iceberg table"
    format = "json"
    options: ClassVar[dict[str, Any]] = {}


class Parquet(Csv):
    """The same rows as parquet files."""

    name = "parquet"
    says = "20 parquet files, which no table has, into an Iceberg table"
    rows = 12_000_000
    format = "parquet"
    options: ClassVar[dict[str, Any]] = {}

    def prepare(self) -> None:
        # Spark's default, INT96, is deprecated, and the columnar engine leaves it to Spark.
        self.lake.spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        super().prepare()
