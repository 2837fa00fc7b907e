"""An upsert of few keys beside a writer that appends to the same table all the time.

    python perf/beside_writer.py --batches 12 --rate 4

A table of format v2 with 10,000 rows. Batches of 50 keys are upserted into it, first alone and then while another
thread appends a row of another key `--rate` times a second; this is done in turns, so that both meet the same machine.
Told is the time of each batch, the ratio of the medians, and the retries. At the end the table must hold every row of
both writers once, with the newest value.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from helios import Catalog, Iceberg, Memory
from helios.catalog.conf import spark_conf
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.run import PipelineRun
from helios.spark.session import session

ROWS, KEYS, FIRST = 10_000, 50, 1_000_000


class Table:
    """A table, its upserts and its other writer."""

    def __init__(self, folder: Path, rate: float) -> None:
        self.catalog, self.rate = Catalog.local(path=folder / ".helios"), rate
        self.catalog.create_namespace("perf")
        self.config = replace(load(folder), master="local[2]", spark_conf={"spark.driver.memory": "4g"})
        self.spark = session.start(self.config, ("iceberg", "sqlite"))
        for key, value in spark_conf(self.catalog).items():
            self.spark.conf.set(key, value)
        self.spark.range(ROWS).selectExpr("id", "0L AS v").writeTo("local.perf.t").using("iceberg").create()
        self.rows = dict.fromkeys(range(ROWS), 0)
        self.appended = 0
        self.ended = threading.Event()

    def upsert(self, number: int) -> tuple[float, int]:
        """Upserts a batch; returns its seconds, and how often its commit was tried again."""
        keys = range(number * 37 % ROWS, number * 37 % ROWS + KEYS)
        self.rows.update(dict.fromkeys(keys, number))
        sink = Iceberg.sink("perf.t", catalog=self.catalog).upsert("id")
        pipeline = (Memory.source([{"id": key, "v": number} for key in keys]) >> sink).named(f"batch{number}")
        context = Context(config=self.config, catalogs={"local": self.catalog})
        plan = require_runnable(*compile_pipelines([pipeline], context, lenient=True))[0]
        began = time.monotonic()
        run = PipelineRun(plan, session.clone(self.spark, [plan]), once=True).start()
        run.await_termination()
        return time.monotonic() - began, run.metrics().commit_retries

    def append(self) -> None:
        """Appends until it is ended; as fast as it can where that is less than the rate."""
        spark = self.spark.newSession()
        for key, value in spark_conf(self.catalog).items():
            spark.conf.set(key, value)
        while not self.ended.is_set():
            began, key = time.monotonic(), FIRST + self.appended
            spark.sql(f"INSERT INTO local.perf.t VALUES ({key}, 0)")
            self.rows[key] = 0
            self.appended += 1
            self.ended.wait(max(0.0, 1 / self.rate - (time.monotonic() - began)))

    def beside(self, numbers: range) -> list[tuple[float, int]]:
        """Upserts batches while the other writer appends."""
        self.ended.clear()
        writer = threading.Thread(target=self.append)
        writer.start()
        try:
            return [self.upsert(number) for number in numbers]
        finally:
            self.ended.set()
            writer.join()

    def differs(self) -> int:
        found = Counter((row.id, row.v) for row in self.spark.table("local.perf.t").collect())
        expected = Counter(self.rows.items())
        return (found - expected).total() + (expected - found).total()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=12, help="of each kind")
    parser.add_argument("--rate", type=float, default=4, help="appends a second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        table = Table(Path(made), given.rate)
        alone: list[tuple[float, int]] = []
        beside: list[tuple[float, int]] = []
        for number in range(1, 4):
            table.upsert(number)  # the JVM compiles what it runs
        turns, number, seconds = 3, 4, 0.0
        each = -(-given.batches // turns)
        for _ in range(turns):
            alone += [table.upsert(n) for n in range(number, number + each)]
            began = time.monotonic()
            beside += table.beside(range(number + each, number + 2 * each))
            seconds += time.monotonic() - began
            number += 2 * each
        for name, found in (("alone", alone), ("beside", beside)):
            times = " ".join(f"{batch:.1f}" for batch, _ in found)
            print(f"{name}: median {statistics.median(batch for batch, _ in found):.2f} s ({times}), ", end="")
            print(f"retries {' '.join(str(retries) for _, retries in found)}")
        ratio = statistics.median(batch for batch, _ in beside) / statistics.median(batch for batch, _ in alone)
        print(f"beside the writer {ratio:.2f} times; it appended {table.appended / seconds:.1f} times a second")
        print(f"{len(table.rows):,} rows expected, {table.differs()} differ")
        return 1 if table.differs() else 0


if __name__ == "__main__":
    sys.exit(main())
