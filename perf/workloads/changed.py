"""Rows of a large target that change: upserts, erasures, and partitions that are written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from perf.harness.workload import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGE_ON_READ = dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read")
V3 = MERGE_ON_READ | {"format-version": "3"}
MERGE = """
    MERGE INTO {} t USING batch s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *
"""
ROUNDS = 64
"""Rounds for which `expected` knows ids: more than anyone asks for."""


class Upsert(Workload):
    """Every round appends a commit, of 1% scattered keys and a tenth as many new ones, which each contender follows."""

    name = "upsert"
    says = "1% scattered keys and 0.1% new ones, newest row per key, into a table of format v3"
    rows = 10_000_000
    goal = "6 times naive, ahead of tuned"
    keeps = True
    one_in = 100
    """Of so many keys one changes in a round."""
    properties: ClassVar[dict[str, dict[str, str]]] = {"helios": V3, "native": V3, "tuned": V3}

    def of_round(self, ids: DataFrame, number: int) -> DataFrame:
        """The rows of some ids in one round; 0 is what the targets begin with."""
        from pyspark.sql import functions as F

        mixed = F.xxhash64("id", F.lit(number))
        return ids.select(
            "id",
            (F.col("id") % 50_000).cast("int").alias("customer_id"),
            (F.pmod(mixed, F.lit(1_000_000)) / 100).cast("decimal(12,2)").alias("amount"),
            F.element_at(
                F.array(*map(F.lit, ("new", "paid", "sent"))), (F.pmod(mixed, F.lit(3)) + 1).cast("int")
            ).alias("state"),
            F.timestamp_seconds(F.lit(1_767_225_600 + number)).alias("updated_at"),
            F.sha2(mixed.cast("string"), 256).alias("note"),
        )

    def prepare(self) -> None:
        self.lake.write(self.of_round(self.lake.spark.range(0), 0), "changes")

    def create(self, target: str, contender: str) -> None:
        ids = self.lake.spark.range(0, self.size, 1, max(2, self.size // 1_250_000))
        self.lake.write(self.of_round(ids, 0), target, **self.properties.get(contender, {}))

    def change(self, number: int) -> int:
        from pyspark.sql import functions as F

        drawn = F.pmod(F.xxhash64("id", F.lit(-number)), F.lit(self.one_in))
        scattered = self.lake.spark.range(self.size).where(drawn == 0)
        new = max(1, self.size // 1000)
        ids = scattered.union(self.lake.spark.range(self.size + number * new, self.size + (number + 1) * new))
        self.of_round(ids, number).coalesce(1).writeTo(self.lake.name("changes")).append()
        return int(self.lake.catalog.load("perf.changes").snapshots()[-1].summary["added-records"])

    def expected(self) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        begun = self.of_round(self.lake.spark.range(0, self.size, 1, 8), 0)
        newest = Window.partitionBy("id").orderBy(F.col("updated_at").desc())
        ranked = begun.union(self.lake.read("changes")).withColumn("rank", F.row_number().over(newest))
        return ranked.where("rank = 1").drop("rank")

    def helios(self, target: str) -> None:
        sink = self.lake.sink(target).upsert("id", order_by="updated_at")
        self.lake.drained(self.lake.source("changes").incremental() >> sink)

    def native(self, target: str) -> None:
        """By the columnar engine, which the configuration of this contender requires."""
        self.helios(target)

    def naive(self, target: str) -> None:
        """On a table as it is made by default, copy-on-write; a key twice, late rows and replays are not met."""

        def merge(batch: Any, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            batch.sparkSession.sql(MERGE.format(self.lake.name(target)))

        self.lake.streamed(self.lake.stream("changes"), target, merge)

    def tuned(self, target: str) -> None:
        """Deletion vectors, one row per key, a hash join; late rows are kept out, replays are not met."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        self.lake.spark.conf.set("spark.sql.join.preferSortMergeJoin", "false")
        newest = Window.partitionBy("id").orderBy(F.col("updated_at").desc())
        late = "WHEN MATCHED AND s.updated_at >= t.updated_at THEN"
        statement = MERGE.format(self.lake.name(target)).replace("WHEN MATCHED THEN", late)

        def merge(batch: Any, number: int) -> None:
            ranked = batch.withColumn("rank", F.row_number().over(newest)).where("rank = 1").drop("rank")
            ranked.createOrReplaceTempView("batch")
            batch.sparkSession.sql(statement)

        self.lake.streamed(self.lake.stream("changes"), target, merge)


class UpsertV2(Upsert):
    """The same into tables of format v2, with position delete files."""

    name = "upsert-v2"
    says = "the same into a table of format v2, merge-on-read"
    goal = "ahead of tuned"
    properties: ClassVar[dict[str, dict[str, str]]] = {"helios": MERGE_ON_READ, "tuned": MERGE_ON_READ}

    native = None  # type: ignore[assignment]


class Erase(Upsert):
    """Every round names 1% of the keys, whose rows go."""

    name = "erase"
    says = "delete the rows of 1% scattered keys from a table of format v3"
    goal = "ahead of naive"

    def expected(self) -> DataFrame:
        begun = self.of_round(self.lake.spark.range(0, self.size, 1, 8), 0)
        return begun.join(self.lake.read("changes").select("id"), "id", "left_anti")

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source("changes").incremental() >> self.lake.sink(target).delete("id"))

    def naive(self, target: str) -> None:
        def erase(batch: Any, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            batch.sparkSession.sql(
                f"MERGE INTO {self.lake.name(target)} t USING batch s ON t.id = s.id WHEN MATCHED THEN DELETE"
            )

        self.lake.streamed(self.lake.stream("changes"), target, erase)

    native = tuned = None  # type: ignore[assignment]


class Backfill(Workload):
    """Every round computes 10 of 100 days anew, and replaces them."""

    name = "backfill"
    says = "10 of 100 days computed anew, overwrite_partitions"
    rows = 5_000_000
    goal = "not slower than naive"
    keeps = True

    def of_round(self, number: int, days: int) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size * days // 100, 1, 4)
        mixed = F.xxhash64("id", F.lit(number))
        return ids.select(
            "id",
            F.date_add(F.lit("2026-01-01").cast("date"), ((F.col("id") % days) + number % 10).cast("int")).alias("day"),
            (F.pmod(mixed, F.lit(1_000_000)) / 100).cast("decimal(12,2)").alias("amount"),
            F.sha2(mixed.cast("string"), 256).alias("note"),
        )

    def prepare(self) -> None:
        self.lake.write(self.of_round(0, 10).limit(0), "staged")
        self.lake.write(self.of_round(0, 100), "wanted", "day")

    def create(self, target: str, contender: str) -> None:
        self.lake.write(self.lake.read("wanted"), target, "day")

    def change(self, number: int) -> int:
        batch = self.of_round(number, 10)
        batch.writeTo(self.lake.name("staged")).overwrite(_always())
        batch.writeTo(self.lake.name("wanted")).overwritePartitions()
        return self.size // 10

    def expected(self) -> DataFrame:
        return self.lake.read("wanted")

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source("staged") >> self.lake.sink(target).overwrite_partitions())

    def naive(self, target: str) -> None:
        self.lake.read("staged").writeTo(self.lake.name(target)).overwritePartitions()


def _always() -> Any:
    from pyspark.sql import functions as F

    return F.lit(True)
