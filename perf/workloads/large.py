"""Jobs that are far larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios import with_columns
from perf.harness.workload import Workload
from perf.workloads.changed import Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HASHES = ", ".join(f"sha2(concat(id, '-{n}'), 512)" for n in range(4))


class LargeUpsert(Upsert):
    """5% of the keys of a table change in one batch, wherever they lie."""

    name = "large-upsert"
    says = "5% scattered keys and 0.1% new ones, in one batch, into a table of format v3"
    rows = 100_000_000
    goal = "ends within 6 GB in all (--heap 3g)"
    one_in = 20


class LargeAppend(Workload):
    """Each row grows by a kilobyte of text that does not compress to nothing, on its way to the target."""

    name = "large-append"
    says = "rows that grow by a kilobyte of text on their way"
    rows = 20_000_000
    goal = "20 GB, ends within 6 GB in all (--heap 3g)"
    text = f"repeat(concat({HASHES}), 2)"

    def prepare(self) -> None:
        self.lake.write(self.lake.spark.range(0, self.size, 1, 16), "source")

    def expected(self) -> DataFrame:
        return self.lake.read("source").selectExpr("id", f"{self.text} AS text")

    def helios(self, target: str) -> None:
        self.lake.drained(self.lake.source().incremental() >> with_columns(text=self.text) >> self.lake.sink(target))

    def naive(self, target: str) -> None:
        stream = self.lake.stream("source").selectExpr("id", f"{self.text} AS text")
        self.lake.streamed(stream, target)
