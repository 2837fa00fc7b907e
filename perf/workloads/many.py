"""Many pipelines in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf.harness.workload import Workload, summed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIPELINES = 50


class Fifty(Workload):
    """Fifty pipelines in one session follow one table, each into a table of its own; a round is a commit."""

    name = "fifty"
    says = f"{PIPELINES} pipelines of one process, each a filter and a target of its own; a commit a round"
    rows = 10_000
    goal = "not slower than naive, and no more memory"
    keeps = True

    def of_round(self, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(number * self.size, (number + 1) * self.size, 1, 1)
        return ids.select("id", F.concat(F.lit("name "), "id").alias("name"))

    def prepare(self) -> None:
        self.lake.write(self.of_round(0).limit(0), "source")

    def change(self, number: int) -> int:
        self.of_round(number).writeTo(self.lake.name("source")).append()
        return self.size * PIPELINES

    def expected(self) -> DataFrame:
        from pyspark.sql import functions as F

        numbers = self.lake.spark.range(PIPELINES).select(F.col("id").alias("number"))
        rows = self.lake.read("source").crossJoin(numbers).where("id % 50 <> number")
        return rows.select("id", "name")

    def create(self, target: str, contender: str) -> None:
        for number in range(PIPELINES):
            self.lake.write(self.of_round(0).limit(0), f"{target}_{number}")

    def found(self, target: str) -> tuple[int, int]:
        tables = [self.lake.read(f"{target}_{number}") for number in range(PIPELINES)]
        rows, total = zip(*map(summed, tables), strict=True)
        return sum(rows), sum(total)

    def written(self, target: str) -> tuple[int, int]:
        files, size = zip(*(super(Fifty, self).written(f"{target}_{n}") for n in range(PIPELINES)), strict=True)
        return sum(files), sum(size)

    def helios(self, target: str) -> None:
        from helios import where

        source = self.lake.source().incremental()
        self.lake.drained(
            *(source >> where(f"id % 50 <> {n}") >> self.lake.sink(f"{target}_{n}") for n in range(PIPELINES))
        )

    def naive(self, target: str) -> None:
        stream = self.lake.stream("source")
        started = [self.lake.started(stream.where(f"id % 50 <> {n}"), f"{target}_{n}") for n in range(PIPELINES)]
        for query in started:
            query.awaitTermination()
