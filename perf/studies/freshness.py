"""How soon a row that is appended to a followed table can be read in the target, and what an idle look costs."""

from __future__ import annotations

import json
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from perf.harness.appender import COMMITS
from perf.harness.lake import local
from perf.harness.study import Study, quantile
from perf.harness.worker import Worker
from perf.harness.workload import Workload

WARM_UP = 30.0
"""Seconds in which a JVM compiles what it runs, which do not count."""
IDLE = 30
"""Seconds, and looks, without anything new."""


class Following(Workload):
    """The contenders, which follow the source until they are stopped."""

    name = "following"
    says = "followers of a table"
    rows = 0
    goal = "none"
    running: Any = None

    def prepare(self) -> None:
        """Makes the contender's own source and target."""
        rows = self.lake.spark.range(0).selectExpr("id", "CAST(id AS STRING) AS text")
        for table in (source(self.lake.contender), target(self.lake.contender)):
            self.lake.write(rows, table)

    def begin(self) -> None:
        """Starts to follow, with a look a second."""
        name = self.lake.contender
        if name == "naive":
            trigger = {"processingTime": "1 second"}
            self.running = self.lake.started(self.lake.stream(source(name)), target(name), **trigger)
            return
        sink = self.lake.sink(target(name))
        sink = sink.maintain(expire="5m", compact=True) if name == "helios-maintained" else sink
        self.running = self.lake.following(self.lake.source(source(name)).incremental(poll=1) >> sink)

    def idle(self, seconds: float) -> None:
        """Leaves the processor to what follows."""
        time.sleep(seconds)

    def end(self) -> None:
        self.running.stop()
        if self.lake.contender != "naive":
            self.running.await_termination()


def source(contender: str) -> str:
    return f"{contender.replace('-', '_')}_source"


def target(contender: str) -> str:
    return f"{contender.replace('-', '_')}_target"


class Freshness(Study):
    """A process appends to a table, and an observer sees when a contender's target has the rows."""

    name = "freshness"
    says = f"1,000 rows a second in {COMMITS} commits, followed with a look a second; one contender after the other"
    rows = 600_000
    size_says = "rows for each contender, 1,000 a second"
    goal = "p50 under 0.7 s, p99 under 1.5 s; with upkeep p99 under 5 s; an idle look under 20 ms of processor time"
    columns = ("contender", "rows", "p50", "p99", "most", "idle look, processor", "files at the end", "peak memory")
    contenders: ClassVar[tuple[str, ...]] = ("helios", "helios-maintained", "naive")

    def measure(self) -> list[tuple[str, ...]]:
        return [self._followed(name) for name in self.contenders]

    def _followed(self, contender: str) -> tuple[str, ...]:
        with Worker(Following, contender, self.settings) as worker:
            worker.call("prepare")
            worker.call("begin")
            observer = Observer(self.settings.folder, target(contender))
            noted = self._append(source(contender))
            observer.until(self.settings.rows, 120)
            _, idle = worker.timed("idle", IDLE)
            observer.stop()
            worker.call("end")
            files, _ = worker.call("written", target(contender))
        delays = observer.delays(noted)
        row = (
            contender,
            f"{len(delays) * 1000 // COMMITS:,}",
            f"{statistics.median(delays):.2f} s",
            f"{quantile(delays, 0.99):.2f} s",
            f"{max(delays):.2f} s",
            f"{idle.cpu / IDLE * 1000:.0f} ms",
            f"{files:,}",
            f"{idle.memory / 2**30:.1f} GiB",
        )
        self.tell(", ".join(row))
        return row

    def _append(self, table: str) -> list[tuple[int, float]]:
        """Has another process append, and returns the rows of the source after each commit, and when it was there."""
        notes = self.settings.folder / "appended.json"
        command = [sys.executable, "-m", "perf.harness.appender", str(self.settings.folder), table]
        subprocess.run([*command, str(notes), str(self.settings.rows)], check=True)
        return [(int(rows), float(at)) for rows, at in json.loads(notes.read_text())]


class Observer:
    """Looks at a table's pointer a hundred times a second, and notes how many rows it has from when on."""

    def __init__(self, folder: Path, table: str) -> None:
        self.folder = folder
        self.table = table
        self.seen: list[tuple[int, float]] = []
        self.error: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._observe, daemon=True)
        self._thread.start()

    def _observe(self) -> None:
        last = ""
        try:
            while not self._ended.wait(0.01):
                now, location = time.time(), _pointer(self.folder, self.table)
                if location != last:
                    self.seen.append((_total(location), now))
                    last = location
        except (OSError, sqlite3.Error) as error:
            self.error = error

    def until(self, rows: int, seconds: float) -> None:
        """Waits for a target with so many rows.

        Raises:
            TimeoutError: It has them not after so many seconds.
        """
        limit = time.monotonic() + seconds
        while not self.seen or self.seen[-1][0] < rows:
            if self.error is not None:
                raise self.error
            if time.monotonic() > limit:
                raise TimeoutError(f"{self.table} has {self.seen[-1:]} after {seconds} s, and not {rows} rows")
            time.sleep(0.1)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def delays(self, noted: list[tuple[int, float]]) -> list[float]:
        """Seconds from append to visible, of each commit of the source after the first seconds."""
        found, place = [], 0
        for rows, at in noted:
            while self.seen[place][0] < rows:
                place += 1
            if at > noted[0][1] + WARM_UP:
                found.append(max(0.0, self.seen[place][1] - at))
        return found


def _pointer(folder: Path, table: str) -> str:
    with closing(sqlite3.connect(f"file:{folder}/.helios/catalog.db?mode=ro", uri=True, timeout=60)) as catalog:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        return str(catalog.execute(query, (table,)).fetchone()[0])


def _total(location: str) -> int:
    metadata = json.loads(local(location).read_text())
    current = metadata.get("current-snapshot-id")
    found = [s for s in metadata.get("snapshots", ()) if s["snapshot-id"] == current]
    return int(found[0]["summary"].get("total-records", 0)) if found else 0
