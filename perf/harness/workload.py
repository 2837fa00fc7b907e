"""What a workload is: data from a seed, a target for each contender, the contenders themselves, and a check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from perf.harness.lake import Lake, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CONTENDERS = {
    "helios": "Helios, by Spark alone",
    "native": "the same pipeline of Helios with the columnar engine in Spark's tasks",
    "naive": "PySpark as the docs of Spark and Iceberg have it",
    "tuned": "PySpark as an expert writes it",
    "pyiceberg": "PyIceberg in one process, without Spark",
    "duckdb": "DuckDB reads and writes the parquet files, PyIceberg plans and commits them",
    "polars": "Polars reads and writes the parquet files, PyIceberg plans and commits them",
}
"""Every contender that a workload may have: it has those that it has a method for."""
JUDGE = "helios-judge"
"""The process that makes the data and looks at the targets."""


class Workload:
    """A job that several contenders do, each into a target of its own.

    A workload has a method for each of its contenders, by the names in `CONTENDERS`, which takes the target's name. The
    time is taken around that method alone.

    Attributes:
        name: Its name on the command line.
        says: What it is, in a line.
        rows: Its size, unless `--rows` says otherwise.
        goal: What Helios is to reach.
        keeps: Whether a target lives through all rounds, and each round changes the source; else each round has a
            new target.
    """

    name: ClassVar[str]
    says: ClassVar[str]
    rows: ClassVar[int]
    goal: ClassVar[str]
    keeps: ClassVar[bool] = False

    def __init__(self, settings: Settings, contender: str) -> None:
        self.lake = Lake(settings, contender)
        self.size = settings.rows

    @classmethod
    def contenders(cls) -> list[str]:
        return [name for name in CONTENDERS if getattr(cls, name, None) is not None]

    # the judge's part

    def prepare(self) -> None:
        """Makes the source."""
        raise NotImplementedError

    def change(self, number: int) -> int:
        """Changes the source before a round; returns the rows that a contender reads in it."""
        return self.size

    def create(self, target: str, contender: str) -> None:
        """Makes a target without a row; by default with the columns of what is expected."""
        self.lake.write(self.expected().limit(0), target)

    def expected(self) -> DataFrame:
        """What every target must hold after the last round."""
        raise NotImplementedError

    def wanted(self) -> tuple[int, int]:
        """The sums of what every target must hold; by default of `expected`."""
        return summed(self.expected())

    def found(self, target: str) -> tuple[int, int]:
        """The sums of what a target holds."""
        return summed(self.lake.read(target))

    def written(self, target: str) -> tuple[int, int]:
        """The live data files of a target, and their bytes."""
        summary = self.lake.catalog.load(f"perf.{target}").snapshots()[-1].summary
        return int(summary["total-data-files"]), int(summary["total-files-size"])

    def drop(self, target: str) -> None:
        self.lake.drop(target)


def summed(df: Any) -> tuple[int, int]:
    """The number of rows, and a sum over all that they hold, by the columns in the order of their names."""
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name}`") for name in sorted(df.columns)]
    row = df.agg(F.count("*"), F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))).collect()[0]
    return int(row[0]), int(row[1] or 0)
