"""Readers that begin in the past of a table under upkeep: prints how many rows differ at the end, which must be 0.

    python perf/follow.py --commits 200

A table is appended to, compacted and expired all the while, its files with it. Three readers begin `as_of` a time
before the last commits that are there: one reads whole snapshots, one bounded batches of files, and one counts rows by
key in a state of Spark's. Expiry keeps what they have yet to read, and little more. At the end each must hold what the
table holds.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from helios import Catalog, Iceberg, aggregate
from helios.spark.maintenance import maintain
from helios.spark.run.run import PipelineRun

SOURCE = pa.schema([("id", pa.int64()), ("key", pa.int64()), ("text", pa.string())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=200, help="after the first 20, in which the readers begin")
    parser.add_argument("--rows", type=int, default=500, help="of a commit")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return compare(Catalog.local(path=Path(made) / ".helios"), given)


def readers(catalog: Catalog, since: Any) -> dict[str, Any]:
    source = Iceberg.source("perf.events", catalog=catalog).as_of(since)
    counted = source.incremental(poll="300ms") >> aggregate("key", n="count(*)", total="sum(id)")
    return {
        "whole": source.incremental(poll="300ms") >> Iceberg.sink("perf.whole", catalog=catalog),
        "bounded": source.incremental(poll="300ms", max_files=7) >> Iceberg.sink("perf.bounded", catalog=catalog),
        "counted": counted >> Iceberg.sink("perf.counted", catalog=catalog).upsert("key"),
    }


def compare(catalog: Catalog, given: argparse.Namespace, spark: SparkSession | None = None) -> int:
    """Runs the commits, and returns 1 when a reader's table differs from the source."""
    began, dice = time.monotonic(), random.Random(given.seed)
    catalog.create_namespace("perf")
    source = catalog.create_table("perf.events", SOURCE).iceberg
    written = iter(range(10**9))

    def append() -> None:
        ids = [next(written) for _ in range(given.rows)]
        rows = {"id": ids, "key": [i % 17 for i in ids], "text": [f"row {i // 3}" for i in ids]}
        source.refresh().append(pa.table(rows, schema=SOURCE))

    for _ in range(20):
        append()
    since = catalog.load("perf.events").snapshots()[10].timestamp
    pipelines = readers(catalog, since)
    runs: dict[str, PipelineRun] = {name: pipeline.run(spark=spark) for name, pipeline in pipelines.items()}
    for run in runs.values():
        wait(run, lambda run=run: run.batches > 0)
    session = runs["whole"].spark
    name = runs["whole"].plan.reads[0].table
    assert name is not None
    expired = compacted = 0
    for number in range(given.commits):
        append()
        if number % 10 == 9:
            compacted += 1
            session.sql(f"CALL {name.catalog.name}.system.rewrite_data_files(table => 'perf.events')")
        if number % 15 == 14:
            expiry = catalog.load("perf.events").expiry(retain_last=dice.randint(1, 5))
            expired += len(maintain.expire(session, name, expiry).snapshots)
        for run in runs.values():
            wait(run, lambda: True)
    head = catalog.load("perf.events").iceberg.scan().to_arrow()
    wanted = Counter(zip(*(head[c].to_pylist() for c in SOURCE.names), strict=True))
    keys: Counter[tuple[int, int, int]] = Counter()
    for key in range(17):
        ids = [row[0] for row in wanted if row[1] == key]
        keys[key, len(ids), sum(ids)] += 1
    wrong = 0
    for reader, run in runs.items():
        expected = keys if reader == "counted" else wanted
        wait(run, lambda reader=reader, expected=expected: held(catalog, reader) == expected, seconds=120)
        run.stop()
        run.await_termination()
        off = held(catalog, reader)
        differing = sum(((off - expected) + (expected - off)).values())
        print(f"{reader}: {sum(off.values()):,} rows in {run.batches} batches; {differing} differ")
        wrong += differing
    print(
        f"{sum(wanted.values()):,} rows in {given.commits + 20} commits, {compacted} compactions, {expired} snapshots "
        f"expired; {wrong} rows differ; {time.monotonic() - began:.0f} s"
    )
    return 1 if wrong else 0


def held(catalog: Catalog, reader: str) -> Counter[Any]:
    if not catalog.exists(f"perf.{reader}"):
        return Counter()
    rows = catalog.load(f"perf.{reader}").iceberg.scan().to_arrow()
    return Counter(zip(*(rows[c].to_pylist() for c in rows.column_names), strict=True))


def wait(run: PipelineRun, done: Any, seconds: float = 60) -> None:
    """Waits for a reader; one that ends by itself has failed."""
    until = time.monotonic() + seconds
    while True:
        if run.await_termination(0.01):
            raise SystemExit(f"{run.plan.pipeline} ended by itself after {run.batches} batches")
        if done() or time.monotonic() > until:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
