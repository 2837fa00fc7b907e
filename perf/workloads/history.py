"""Tables with many commits: small batches, and what changed between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf.harness.workload import Workload, summed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COMMITS = 20


class SmallCommits(Workload):
    """A batch for each commit of the source: what a batch costs beside its rows."""

    name = "small-commits"
    says = f"{COMMITS} commits of a file, a batch each"
    rows = 2_000
    goal = "0.4 s a batch of one row"

    def rows_of(self, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, max(1, self.size // COMMITS), 1, 1)
        return ids.select((F.col("id") * COMMITS + number).alias("id"), F.lit(f"of commit {number}").alias("name"))

    def prepare(self) -> None:
        self.lake.write(self.rows_of(0), "source")
        # Files of one second would be one commit for a stream that starts at a time.
        for number in range(1, COMMITS):
            self.rows_of(number).writeTo(self.lake.name("source")).append()

    def expected(self) -> DataFrame:
        return self.lake.read("source")

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source().incremental(start="earliest", max_files=1) >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        options = {"streaming-max-files-per-micro-batch": "1"}
        self.lake.streamed(self.lake.stream("source", **options), target)


class Changes(Workload):
    """A copy-on-write table of which a MERGE has changed 1%."""

    name = "changes"
    says = "the changes between two snapshots of a copy-on-write table, of which 1% of the rows were changed"
    rows = 5_000_000
    goal = "ahead of naive"

    def prepare(self) -> None:
        from pyspark.sql import functions as F

        ids = self.lake.spark.range(0, self.size, 1, 8)
        mixed = F.sha2(F.col("id").cast("string"), 256).alias("note")
        self.lake.write(ids.select("id", F.lit(0).alias("version"), mixed), "source")
        table = self.lake.name("source")
        self.lake.spark.sql(f"UPDATE {table} SET version = 1 WHERE id % 100 = 7 AND id < {self.size // 2}")

    def snapshots(self) -> tuple[int, int]:
        found = self.lake.catalog.load("perf.source").snapshots()
        return found[0].id, found[-1].id

    def view(self) -> DataFrame:
        first, last = self.snapshots()
        self.lake.spark.sql(
            f"CALL local.system.create_changelog_view(table => 'perf.source', changelog_view => 'changes', "
            f"identifier_columns => array('id'), options => map('start-snapshot-id', '{first}', "
            f"'end-snapshot-id', '{last}'))"
        )
        return self.lake.spark.read.table("changes")

    def expected(self) -> DataFrame:
        from pyspark.sql import functions as F

        return self.view().withColumn("_change_ordinal", F.col("_change_ordinal").cast("bigint"))

    def wanted(self) -> tuple[int, int]:
        return summed(self.expected().drop("_change_ordinal"))

    def found(self, target: str) -> tuple[int, int]:
        # Iceberg's view counts the commits of the range, and Helios, which may follow a table, those of the table.
        return summed(self.lake.read(target).drop("_change_ordinal"))

    def helios(self, target: str) -> None:
        first, last = self.snapshots()
        self.lake.drained(self.lake.source().changes_between(first, last, keys=["id"]) >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        self.view().writeTo(self.lake.name(target)).append()
