"""How long a folder of many files takes to be listed: by Spark's file stream, and by `Files.source`.

    python -m perf.files_listing [FILES]

Both look for new files again and again, as a followed folder does; nothing is new after the first look.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from helios.sources.files.settling import Settling
from helios.sources.files.spark import listing

LOOKS = 7


def main(files: int = 100_000) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        inbox = Path(folder) / "in"
        inbox.mkdir()
        for number in range(files):
            (inbox / f"part-{number:06d}.csv").write_text("1\n")
        time.sleep(3)
        theirs = of_spark(spark, inbox, Path(folder) / "checkpoint")
        ours = of_helios(spark, inbox)
    median = statistics.median(ours) / statistics.median(theirs)
    print(
        f"{files:,} files, seconds of a look: Spark's stream {shown(theirs)}; Files.source {shown(ours)}; {median:.2f}"
    )
    spark.stop()


def of_spark(spark: SparkSession, inbox: Path, checkpoint: Path) -> list[float]:
    """The time of `latestOffset` in each trigger."""
    stream = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).option("maxCachedFiles", 0)
    query = (
        stream.csv(f"file:{inbox}")
        .writeStream.format("noop")
        .trigger(processingTime="50 milliseconds")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    while len(query.recentProgress) < LOOKS:
        time.sleep(0.5)
    found = [one["durationMs"]["latestOffset"] / 1000 for one in query.recentProgress[:LOOKS]]
    query.stop()
    return found


def of_helios(spark: SparkSession, inbox: Path) -> list[float]:
    """The time of a listing, and of finding out what in it is new."""
    found: list[float] = []
    settling, known = Settling("csv"), {}
    for _ in range(LOOKS):
        began = time.perf_counter()
        listed = listing.list_path(spark, f"file:{inbox}") or {}
        new = {path: stat for path, stat in listed.items() if known.get(path) != stat}
        known |= settling.finished(new, time.time())
        found.append(time.perf_counter() - began)
    return found


def shown(seconds: list[float]) -> str:
    return f"{', '.join(f'{one:.2f}' for one in seconds)} (median {statistics.median(seconds):.2f})"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
