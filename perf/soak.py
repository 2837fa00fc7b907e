"""The long life of a pipeline: prints, minute by minute, what it keeps in memory and on disk, and how late it is.

    python perf/soak.py --minutes 60
    python perf/soak.py --minutes 60 --expire 5m --compact
    python perf/soak.py --minutes 5 --copies 10 --growth 1.5

One process appends a row a second to a table. This one follows it with a poll of a second, on a heap of 2 GB, with or
without `.maintain(expire=, compact=)`. At each look the JVM collects its garbage and counts what is left: the heap, the
copies of the tables' metadata, threads and open handles; then the disk of the target, its commits, and the time from
append to visible. With `--copies` and `--growth` it fails where there are more, or where the heap grows by more.

`--no-gc` switches Python's own collection of cycles off: then nothing but reference counts frees the JVM's objects.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from py4j.finalizer import ThreadSafeFinalizer
from pyspark import SparkContext

from helios import Catalog, Iceberg
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.events import Event
from helios.spark.run.run import PipelineRun
from helios.spark.session import session

CONFIG = """
[spark]
master = "local[2]"
[spark.conf]
"spark.driver.memory" = "{heap}"
"""

COPIES = "org.apache.iceberg.TableMetadata"


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look found; sizes in MB, times in seconds."""

    minute: float
    heap: float
    copies: int
    proxies: int
    callbacks: int
    threads: int
    handles: int
    data: float
    metadata: float
    commits: int
    rows: int
    p50: float
    p99: float


def append(folder: Path, rate: float, seconds: float) -> None:
    """Appends a row at a time, and notes when each could be read."""
    import pyarrow as pa

    table = Catalog.local(path=folder / ".helios").load("soak.source").iceberg
    began = time.monotonic()
    with (folder / "appended").open("w", buffering=1) as noted:
        for number in range(int(seconds * rate)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            table.append(pa.table({"id": pa.array([number], pa.int64()), "text": [f"row {number}"]}))
            noted.write(f"{number} {time.time()}\n")
            if number % 60 == 59:  # the source's own upkeep is no part of the measurement
                table.maintenance.expire_snapshots().older_than(_minutes_ago(2)).commit()
                table.refresh()


def _minutes_ago(minutes: float):  # type: ignore[no-untyped-def]
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) - timedelta(minutes=minutes)


class Soak:
    """A running pipeline and what is seen of it.

    Args:
        folder: Its catalog, and the notes of the writer.
        given: The arguments.
    """

    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.folder = folder
        self.given = given
        self.began = time.monotonic()
        self.visible: list[tuple[int, float]] = []  # rows so far, and when
        self.catalog = Catalog.local(path=folder / ".helios")
        self._reported = 0
        self._maintained = 0

    def run(self) -> PipelineRun:
        (self.folder / "helios.toml").write_text(CONFIG.format(heap=self.given.heap))
        source = Iceberg.source("soak.source", catalog=self.catalog)
        sink = Iceberg.sink("soak.target", catalog=self.catalog).checkpoint(str(self.folder / "checkpoint"))
        if self.given.expire or self.given.compact:
            sink = sink.maintain(expire=self.given.expire, compact=True if self.given.compact else None)
        pipeline = source.incremental(poll=self.given.poll) >> sink
        context = Context(config=load(self.folder), catalogs={self.catalog.name: self.catalog})
        [plan] = require_runnable(*compile_pipelines([pipeline], context, lenient=True))
        spark = session.for_run(context.config, [plan], None)
        return PipelineRun(plan, spark, emit=self._seen).start()

    def _seen(self, event: Event) -> None:
        if event.kind == "batch":
            so_far = self.visible[-1][0] if self.visible else 0
            self.visible.append((so_far + event.rows, time.time()))
        elif event.kind == "maintained":
            self._maintained += 1
        elif event.kind == "failed":
            print(event.message, file=sys.stderr, flush=True)

    def look(self) -> Look:
        """A look at the process, after the JVM's full collection."""
        gateway = SparkContext._gateway
        assert gateway is not None
        heap, copies = _live(gateway.proc.pid)
        delays = self._delays()
        where = self.folder / ".helios"
        folders = {
            kind: sum(_disk(found) for found in where.glob(f"**/target/{kind}")) for kind in ("data", "metadata")
        }
        return Look(
            minute=round((time.monotonic() - self.began) / 60, 2),
            heap=round(heap / 1e6, 1),
            copies=copies,
            proxies=len(ThreadSafeFinalizer.finalizers),
            callbacks=len(gateway.gateway_property.pool),
            threads=len(os.listdir(f"/proc/{gateway.proc.pid}/task")) + len(os.listdir("/proc/self/task")),
            handles=len(os.listdir(f"/proc/{gateway.proc.pid}/fd")) + len(os.listdir("/proc/self/fd")),
            data=round(folders["data"] / 1e6, 2),
            metadata=round(folders["metadata"] / 1e6, 2),
            commits=len(self.visible),
            rows=self.visible[-1][0] if self.visible else 0,
            p50=round(statistics.median(delays), 2) if delays else 0.0,
            p99=round(sorted(delays)[int(len(delays) * 0.99)], 2) if delays else 0.0,
        )

    def _delays(self) -> list[float]:
        """Seconds from append to visible of the rows since the last look."""
        noted = [line.split() for line in (self.folder / "appended").read_text().splitlines()]
        appended = {int(number): float(at) for number, at in (line for line in noted if len(line) == 2)}
        delays, first = [], self.visible[self._reported - 1][0] if self._reported else 0
        for rows, at in self.visible[self._reported :]:
            delays += [at - appended[number] for number in range(first, rows) if number in appended]
            first = rows
        self._reported = len(self.visible)
        return delays


def _live(pid: int) -> tuple[int, int]:
    """Bytes of the heap after a full collection, and the copies of tables' metadata in it."""
    told = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True).stdout
    copies = re.search(rf"^\s*\d+:\s+(\d+)\s+\d+\s+{re.escape(COPIES)}\s*$", told, re.MULTILINE)
    total = re.search(r"^Total\s+\d+\s+(\d+)", told, re.MULTILINE)
    assert total is not None, told[-500:]
    return int(total[1]), int(copies[1]) if copies else 0


def _disk(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size
        except FileNotFoundError:
            continue  # expired meanwhile
    return found


def soak(folder: Path, given: argparse.Namespace) -> int:
    import pyarrow as pa

    under = Soak(folder, given)
    under.catalog.create_namespace("soak")
    under.catalog.create_table("soak.source", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    (folder / "appended").touch()
    run = under.run()
    while run.state != "running":
        time.sleep(0.1)
        if run.error is not None:
            raise run.error
    if given.no_gc:
        gc.collect()
        gc.disable()
    under.began = time.monotonic()
    seconds = given.minutes * 60
    options = ["--folder", str(folder), "--rate", str(given.rate), "--seconds", str(seconds)]
    writer = subprocess.Popen([sys.executable, __file__, "--append", *options])
    looks = []
    for number in range(1, max(1, round(seconds / given.every)) + 1):
        time.sleep(max(0.0, under.began + number * given.every - time.monotonic()))
        if run.error is not None:
            raise run.error
        looks.append(under.look())
        print(json.dumps(asdict(looks[-1])), flush=True)
    written = writer.wait()
    run.stop()
    run.await_termination()
    return 1 if written or _exceeded(looks, given) else 0


def _exceeded(looks: list[Look], given: argparse.Namespace) -> bool:
    """Whether there are more copies, or the heap has grown by more, than is permitted; says so."""
    exceeded = False
    most = max(look.copies for look in looks)
    if given.copies is not None and most > given.copies:
        print(f"{most} copies of the tables' metadata are alive; {given.copies} are permitted", file=sys.stderr)
        exceeded = True
    first, last = looks[min(1, len(looks) - 1)].heap, looks[-1].heap  # the first look is at a JVM that warms up
    if given.growth is not None and last > first * given.growth:
        print(f"the heap grew from {first} to {last} MB; {given.growth} times are permitted", file=sys.stderr)
        exceeded = True
    return exceeded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--every", type=float, default=60, help="seconds between two looks")
    parser.add_argument("--rate", type=float, default=1, help="rows a second, each a commit of the source")
    parser.add_argument("--poll", default="1s")
    parser.add_argument("--heap", default="2g")
    parser.add_argument("--expire", help="the age at which the target's snapshots expire, such as 5m")
    parser.add_argument("--compact", action="store_true", help="compact the target")
    parser.add_argument("--no-gc", action="store_true", help="switch Python's collection of cycles off")
    parser.add_argument("--copies", type=int, help="fail at more copies of the tables' metadata")
    parser.add_argument(
        "--growth", type=float, help="fail where the heap of the last look is so many times the second's"
    )
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--append", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.append:
        append(given.folder, given.rate, given.seconds)
        return 0
    with tempfile.TemporaryDirectory(prefix="helios-soak-") as made:
        return soak(Path(given.folder or made), given)


if __name__ == "__main__":
    sys.exit(main())
