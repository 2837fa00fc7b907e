"""A filter that matches 1% of a table's partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from perf.workloads.append import Append

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DAYS = 1000
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
BOUNDS = (FIRST + timedelta(days=DAYS // 2), FIRST + timedelta(days=DAYS // 2 + DAYS // 100))


class Pruned(Append):
    """A file for each of 1,000 days; the filter names 10 days by the time stamp itself."""

    name = "prune"
    says = "a filter on 1% of 1,000 partitions, a file each"
    rows = 100_000_000
    goal = "20 times naive"
    condition = f"at >= TIMESTAMP '{BOUNDS[0]:%Y-%m-%d} 00:00:00' AND at < TIMESTAMP '{BOUNDS[1]:%Y-%m-%d} 00:00:00'"

    def generated(self) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 4)
        day = F.expr(f"id div {max(1, self.size // DAYS)}")
        return ids.select(
            "id",
            F.timestamp_seconds(F.lit(int(FIRST.timestamp())) + day * 86400 + F.col("id") % 86400).alias("at"),
            (F.pmod(F.xxhash64("id"), F.lit(10_000_000)) / 100).alias("amount"),
            F.concat(F.lit("name "), F.col("id") % 1000).alias("name"),
        )

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        # A fan-out writer holds a file of each day open, with a megabyte of buffers each.
        one_file_at_a_time = {"write.spark.fanout.enabled": "false"}
        self.lake.write(self.generated(), "source", F.partitioning.days("at"), **one_file_at_a_time)

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source().incremental().where(self.condition) >> self.lake.sink(target))

    # PyIceberg's parser of filters knows no TIMESTAMP literal, and the others take their files from its plan.
    pyiceberg = duckdb = polars = None  # type: ignore[assignment]
