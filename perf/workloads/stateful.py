"""Streams with state or a second table: windows, duplicates, running totals, joins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helios import aggregate, dedupe, expect, join, watermark, window
from perf.harness.workload import Workload, summed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from helios.model.flow import Transform

START = 1_767_225_600
HOURS = 6


class Windows(Workload):
    """A fifth as many keys as rows, in windows of an hour, which are appended once the watermark has passed."""

    name = "windows"
    says = "sums of windows of an hour, a fifth as many keys as rows, appended behind a watermark"
    rows = 5_000_000
    goal = "not slower than naive, whose state is in memory twice"

    def prepare(self) -> None:
        self.make(8)

    def make(self, files: int) -> None:
        """Makes the source in so many files, in the order of time."""
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, files)
        rows = ids.select(
            "id",
            F.pmod(F.xxhash64("id"), F.lit(max(1, self.size // 5))).alias("key"),
            F.timestamp_seconds(START + (F.col("id") * 3600 * HOURS / self.size).cast("bigint")).alias("at"),
            (F.col("id") % 1000).alias("amount"),
        )
        self.lake.write(rows, "source")

    def expected(self) -> DataFrame:
        from pyspark.sql import functions as F

        latest = START + int((self.size - 1) * 3600 * HOURS / self.size)
        grouped = self.lake.read("source").groupBy(F.window("at", "1 hour"), "key")
        summed = grouped.agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
        flat = summed.select("window.start", "window.end", "key", "amount", "n").toDF(
            "window_start", "window_end", "key", "amount", "n"
        )
        return flat.where(F.col("window_end") <= F.timestamp_seconds(F.lit(latest - 600)))

    def steps(self) -> Transform:
        return watermark("at", "10 minutes") >> window("at", "1 hour").group_by("key").agg(
            amount="sum(amount)", n="count(*)"
        )

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source().incremental() >> self.steps() >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        self.windowed(target)

    def windowed(self, target: str, **options: str) -> None:
        """The stream by hand, with options of its source."""
        from pyspark.sql import functions as F

        stream = self.lake.stream("source", **options).withWatermark("at", "10 minutes")
        grouped = stream.groupBy(F.window("at", "1 hour"), "key")
        summed = grouped.agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
        flat = summed.select("window.start", "window.end", "key", "amount", "n")
        self.lake.streamed(flat.toDF("window_start", "window_end", "key", "amount", "n"), target)

    def tuned(self, target: str) -> None:
        """The same with state outside of the heap, as Helios has it."""
        from helios.spark.session.launch import STATE_STORE_CONF

        for key, value in STATE_STORE_CONF.items():
            self.lake.spark.conf.set(key, value)
        self.naive(target)


class Dedupe(Workload):
    """Every fourth row comes again within the hour."""

    name = "dedupe"
    says = "one row in four comes again within the hour, and is left out"
    rows = 2_000_000
    goal = "at most 3 times the time of naive, whose result depends on how rows are cut into batches"

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 8)
        first = F.when(F.col("id") % 4 == 3, F.col("id") - 3).otherwise(F.col("id"))
        at = F.timestamp_seconds(START + (F.col("id") * 3600 * HOURS / self.size).cast("bigint"))
        self.lake.write(ids.select(first.alias("key"), at.alias("at"), "id"), "source")

    def expected(self) -> DataFrame:
        return self.settled("source").where("key = id")

    def found(self, target: str) -> tuple[int, int]:
        return summed(self.settled(target))

    def settled(self, table: str) -> DataFrame:
        """The rows that the watermark has passed at the end; Helios holds later ones until it has."""
        from pyspark.sql import functions as F

        latest = START + int((self.size - 1) * 3600 * HOURS / self.size)
        return self.lake.read(table).where(F.col("at") < F.timestamp_seconds(F.lit(latest - 3600)))

    def helios(self, target: str) -> None:
        steps = watermark("at", "1 hour") >> dedupe("key", within="1 hour")
        self.lake.drained(self.lake.source().incremental() >> steps >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        stream = self.lake.stream("source").withWatermark("at", "1 hour")
        self.lake.streamed(stream.dropDuplicatesWithinWatermark(["key"]), target)


class Totals(Workload):
    """A tenth as many groups as a round has rows."""

    name = "totals"
    says = "running totals of a followed table, upserted by their group"
    rows = 1_000_000
    goal = "ahead of naive"
    keeps = True

    def of_round(self, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 4)
        key = F.pmod(F.xxhash64("id", F.lit(number)), F.lit(max(1, self.size // 10)))
        return ids.select(key.alias("key"), (F.col("id") % 1000).alias("amount"))

    def prepare(self) -> None:
        self.lake.write(self.of_round(0).limit(0), "source")

    def change(self, number: int) -> int:
        self.of_round(number).writeTo(self.lake.name("source")).append()
        return self.size

    def expected(self) -> DataFrame:
        from pyspark.sql import functions as F

        grouped = self.lake.read("source").groupBy("key")
        return grouped.agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))

    def create(self, target: str, contender: str) -> None:
        merge_on_read = {"format-version": "3", "write.merge.mode": "merge-on-read"}
        self.lake.write(self.expected().limit(0), target, **(merge_on_read if contender == "helios" else {}))

    def helios(self, target: str) -> None:
        steps = aggregate("key", amount="sum(amount)", n="count(*)")
        self.lake.drained(self.lake.source().incremental() >> steps >> self.lake.sink(target).upsert("key"))

    def naive(self, target: str) -> None:
        from pyspark.sql import functions as F

        def merge(batch: Any, number: int) -> None:
            batch.createOrReplaceTempView("batch")
            batch.sparkSession.sql(
                f"MERGE INTO {self.lake.name(target)} t USING batch s ON t.key = s.key "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        grouped = self.lake.stream("source").groupBy("key")
        totals = grouped.agg(F.sum("amount").alias("amount"), F.count("*").alias("n"))
        self.lake.streamed(totals, target, merge, mode="update")


class Joined(Workload):
    """Each row finds its customer among 100,000."""

    name = "join"
    says = "a followed table joined with a table of 100,000 rows"
    rows = 5_000_000
    goal = "ahead of naive"

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 8)
        customer = F.pmod(F.xxhash64("id"), F.lit(100_000)).alias("customer")
        self.lake.write(ids.select("id", customer, (F.col("id") % 1000).alias("amount")), "source")
        customers = self.lake.spark.range(0, 100_000, 1, 1).withColumnRenamed("id", "customer")
        self.lake.write(customers.withColumn("country", F.concat(F.lit("c"), F.col("customer") % 200)), "customers")

    def expected(self) -> DataFrame:
        return self.lake.read("source").join(self.lake.read("customers"), "customer")

    def helios(self, target: str) -> None:
        steps = join(self.lake.source("customers"), on="customer")
        self.lake.drained(self.lake.source().incremental() >> steps >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        self.lake.streamed(self.lake.stream("source").join(self.lake.read("customers"), "customer"), target)


class Expected(Workload):
    """One row in a hundred fails an expectation, is left out and counted."""

    name = "expect"
    says = "three expectations, one row in a hundred fails one and is left out"
    rows = 5_000_000
    goal = "not slower than naive, which counts nothing"
    rules = ("amount >= 0", "name IS NOT NULL", "kind < 100")

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 8)
        amount = F.when(F.col("id") % 100 == 7, -F.col("id")).otherwise(F.col("id") % 1000).alias("amount")
        kind, name = (F.col("id") % 90).cast("int").alias("kind"), F.concat(F.lit("n"), F.col("id") % 500).alias("name")
        self.lake.write(ids.select("id", amount, kind, name), "source")

    def expected(self) -> DataFrame:
        return self.lake.read("source").where(" AND ".join(self.rules))

    def helios(self, target: str) -> None:
        rules = {f"rule {number}": rule for number, rule in enumerate(self.rules)}
        steps = expect(rules, on_fail="drop")
        self.lake.drained(self.lake.source().incremental() >> steps >> self.lake.sink(target))

    def native(self, target: str) -> None:
        self.helios(target)  # in the process of this contender the engine is required

    def naive(self, target: str) -> None:
        self.lake.streamed(self.lake.stream("source").where(" AND ".join(self.rules)), target)
