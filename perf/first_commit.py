"""Time from the start of a process to its first commit: `helios run` beside the same job written by hand in PySpark.

    python perf/first_commit.py --rounds 5

Both follow an Iceberg table of 100,000 rows into a new one, filter it, and end when they have drained it. Both use the
same local jars, master and driver memory. The rounds alternate; the time is taken from the commit's own timestamp.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helios import Catalog
from helios.environment import jars

HELIOS = """
from helios import Iceberg, where
copy = Iceberg.source("perf.source").incremental() >> where("id % 7 <> 0") >> Iceberg.sink("perf.TARGET")
"""

BY_HAND = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars", "JARS").config("spark.driver.memory", "2g")
    .config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "UI")
    .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
    .config("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.local.type", "jdbc").config("spark.sql.catalog.local.jdbc.schema-version", "V1")
    .config("spark.sql.catalog.local.uri", "jdbc:sqlite:FOLDER/.helios/catalog.db")
    .config("spark.sql.catalog.local.warehouse", "file://FOLDER/.helios/warehouse")
    .getOrCreate()
)
stream = spark.readStream.format("iceberg").load("local.perf.source").where("id % 7 <> 0")
spark.sql("CREATE TABLE IF NOT EXISTS local.perf.TARGET (id bigint, name string) USING iceberg")
query = (
    stream.writeStream.trigger(availableNow=True).option("checkpointLocation", "FOLDER/checkpoints/TARGET")
    .toTable("local.perf.TARGET")
)
query.awaitTermination()
"""


def seconds_to_commit(folder: Path, catalog: Catalog, target: str, command: list[str]) -> tuple[float, int]:
    """Runs a job, and returns the seconds from its start to its target's first commit, and the rows of that."""
    began = time.time()
    with (folder / "log.txt").open("w") as log:
        subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=log)
    first = catalog.load(f"perf.{target}").snapshots()[0]
    return first.timestamp.timestamp() - began, int(first.summary["added-records"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ui", action="store_true", help="leave Spark's UI on in the job by hand, as it is by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        folder = Path(made)
        return compare(folder, given.rounds, ui=given.ui)


def compare(folder: Path, rounds: int, *, ui: bool) -> int:
    import pyarrow as pa

    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("perf")
    data = pa.table({"id": range(100_000), "name": [f"name {i}" for i in range(100_000)]})
    catalog.create_table("perf.source", data.schema).iceberg.append(data)
    version, _ = jars.installed_spark()
    local = ",".join(str(p) for p in jars.ensure(("iceberg", "sqlite"), spark_version=version))
    ratios = []
    for number in range(rounds + 1):
        ours, theirs = f"helios{number}", f"hand{number}"
        (folder / "pipeline.py").write_text(HELIOS.replace("TARGET", ours))
        by_hand = BY_HAND.replace("TARGET", theirs).replace("FOLDER", str(folder)).replace("JARS", local)
        (folder / "by_hand.py").write_text(by_hand.replace("UI", str(ui).lower()))
        run = [sys.executable, "-m", "helios", "run", "pipeline.py", "--once"]
        a, rows = seconds_to_commit(folder, catalog, ours, run)
        b, same = seconds_to_commit(folder, catalog, theirs, [sys.executable, "by_hand.py"])
        assert rows == same, f"helios wrote {rows} rows, the job by hand {same}"
        warm = "warm-up" if number == 0 else f"round {number}"
        print(f"{warm}: helios {a:.2f} s, by hand {b:.2f} s, ratio {a / b:.3f}", flush=True)
        if number > 0:
            ratios.append(a / b)
    print(
        f"median ratio over {rounds} rounds: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
