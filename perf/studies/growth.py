"""What commits, looks and questions take as a table grows: in snapshots, data files, partitions, batches."""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from perf.harness.lake import local
from perf.harness.study import Study, quantile
from perf.harness.worker import Worker
from perf.harness.workload import Workload

SIZES = (10, 100, 1_000, 10_000)
KINDS = ("snapshots", "data files", "partitions", "batches")
KEPT = 100
"""Batches of which Spark keeps the logs (`spark.sql.streaming.minBatchesToRetain`)."""
COMMITS = 20
ASKED = 10
SECOND = 1_000


class Growing(Workload):
    """Helios, and the same by hand in its session."""

    name = "growing"
    says = "a table that grows"
    rows = 0
    goal = "none"

    def grown(self, kind: str, size: int) -> dict[str, list[float]]:
        """Seconds of each operation on a table of so many snapshots, data files, partitions or batches."""
        name = f"{kind.replace(' ', '_')}_{size}"
        row = self.lake.spark.range(1).selectExpr("id", "CAST(id % 7 AS int) AS part", "'one row' AS text")
        self.lake.write(row, f"{name}_source")
        sink = self.lake.sink(name)
        sink = sink.partition_by("part") if kind == "partitions" else sink
        pipeline = self.lake.source(f"{name}_source").incremental(poll=0.1) >> sink
        self.lake.drained(pipeline)
        if kind == "snapshots":
            with_metadata(self.lake.folder, name, size, _lengthened)
        elif kind == "batches":
            with_batches(self.lake.folder, name, size)
        else:
            self._with_files(name, size)
        return {
            "commit": self._commits(pipeline, row, f"{name}_source"),
            "by hand": [timed(lambda: row.writeTo(self.lake.name(name)).append()) for _ in range(COMMITS)],
            "nothing new": [timed(lambda: self.lake.drained(pipeline)) for _ in range(ASKED)],
            **self._asked(pipeline, name),
        }

    def _with_files(self, name: str, size: int) -> None:
        """Adds so many files of one row, each with a partition's value of its own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.lake.new_folder(name)
        paths = []
        for number in range(size):
            row = {"id": pa.array([number], pa.int64()), "part": pa.array([number], pa.int32()), "text": ["one row"]}
            paths.append(folder / f"made-{number}.parquet")
            pq.write_table(pa.table(row), paths[-1])
        self.lake.add(name, paths)

    def _commits(self, pipeline: Any, row: Any, source: str) -> list[float]:
        """Seconds of batches of one row of a pipeline that follows its source."""
        found: list[float] = []
        run = self.lake.following(
            pipeline, lambda event: found.append(event.seconds) if event.kind == "batch" else None
        )
        for number in range(COMMITS + 2):
            row.writeTo(self.lake.name(source)).append()
            while len(found) <= number:
                if run.wait(0.01):
                    run.await_termination()
        run.stop()
        run.await_termination()
        return found[2:]

    def _asked(self, pipeline: Any, name: str) -> dict[str, list[float]]:
        """Seconds of what is asked without Spark, each with a catalog that remembers nothing."""
        from pyiceberg.catalog import load_catalog

        from helios import Catalog
        from helios.catalog.conf import pyiceberg_properties
        from helios.catalog.operations import forget_all
        from helios.table.status import statuses
        from helios.table.view import View

        def opened() -> Any:
            catalog = Catalog.local(path=self.lake.folder / ".helios")
            forget_all(catalog)
            return catalog

        def plan() -> None:
            forget_all(self.lake.catalog)
            self.lake.plans([pipeline])

        def status() -> None:
            table = opened().load(f"perf.{name}")
            assert statuses(table, View(load=lambda other: opened().load(other.removeprefix("local."))))

        def snapshots() -> None:
            assert opened().load(f"perf.{name}").snapshots()

        def by_iceberg() -> Any:
            return load_catalog("local", **pyiceberg_properties(opened())).load_table(f"perf.{name}")

        asked: dict[str, Callable[[], object]] = {
            "plan": plan,
            "status": status,
            "snapshots": snapshots,
            "load": by_iceberg,
            "files": lambda: list(by_iceberg().scan().plan_files()),
        }
        return {what: [timed(ask) for _ in range(ASKED)] for what, ask in asked.items()}


class Growth(Study):
    """Tables are made of 10 to 10,000 snapshots, files or partitions without writing each."""

    name = "growth"
    says = "a batch of one row, a run with nothing new, plan, status and snapshots, on tables that grow"
    rows = SIZES[-1]
    size_says = "snapshots, data files, partitions or batches at most"
    goal = "p99 grows no more than Iceberg's own for the same work"
    columns = (
        "of", "", "batch of a row, p50", "p99", "an append by hand, p50", "p99", "nothing new", "plan", "status",
        "snapshots", "PyIceberg loads the table", "and plans its files",
    )  # fmt: skip

    def measure(self) -> list[tuple[str, ...]]:
        lines = []
        with Worker(Growing, "helios", self.settings) as worker:
            worker.call("grown", KINDS[0], 2)  # a JVM compiles what it runs
            for kind in KINDS:
                for size in (size for size in SIZES if size <= self.settings.rows):
                    lines.append(_line(kind, size, worker.call("grown", kind, size)))
                    self.tell(", ".join(lines[-1]))
        return lines


def _line(kind: str, size: int, seconds: dict[str, list[float]]) -> tuple[str, ...]:
    both = [f"{quantile(seconds[what], share):.2f} s" for what in ("commit", "by hand") for share in (0.5, 0.99)]
    asked = [quantile(seconds[what], 0.5) for what in ("nothing new", "plan", "status", "snapshots", "load", "files")]
    return (kind, f"{size:,}", *both, f"{asked[0]:.2f} s", *(f"{value * SECOND:.0f} ms" for value in asked[1:]))


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def with_metadata(folder: Path, name: str, size: int, changed: Callable[[dict[str, Any], int], dict[str, Any]]) -> None:
    """Gives a table of one snapshot other metadata."""
    with closing(sqlite3.connect(folder / ".helios" / "catalog.db")) as catalog, catalog:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        path = local(catalog.execute(query, (name,)).fetchone()[0])
        made = path.with_name(f"{size:05d}-{uuid.uuid4()}.metadata.json")
        made.write_text(json.dumps(changed(json.loads(path.read_text()), size)))
        catalog.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (f"file://{made}", name)
        )


def with_batches(folder: Path, name: str, size: int) -> None:
    """Gives the only batch of a pipeline the number `size - 1`, and its checkpoint what Spark keeps of earlier ones."""
    (landed,) = (folder / ".helios").rglob(f"helios/landed/*.{name}.json")
    landed.write_text(json.dumps(json.loads(landed.read_text()) | {"batch": size - 1}))
    for log in (landed.parents[2] / "offsets", landed.parents[2] / "commits"):
        for file in (log / "0", log / ".0.crc"):
            for number in range(max(0, size - KEPT), size):
                if number:
                    shutil.copy(file, file.with_name(file.name.replace("0", str(number))))
            if size > KEPT:
                file.unlink()
    with_metadata(folder, name, size, _renumbered)


def _renumbered(metadata: dict[str, Any], size: int) -> dict[str, Any]:
    (last,) = metadata["snapshots"]
    (record,) = (key for key in metadata["properties"] if key.startswith("helios.ledger."))
    claim = json.loads(metadata["properties"][record]) | {"batch": size - 1}
    return metadata | {
        "properties": metadata["properties"] | {record: json.dumps(claim)},
        "snapshots": [last | {"summary": last["summary"] | {"helios.batch": str(size - 1)}}],
    }


def _lengthened(metadata: dict[str, Any], size: int) -> dict[str, Any]:
    (last,) = metadata["snapshots"]
    summary = {key: value for key, value in last["summary"].items() if not key.startswith("helios.")}
    # As long as Helios's own, of another pipeline.
    summary["written-by"] = "x" * (len(json.dumps(last["summary"])) - len(json.dumps(summary)))
    before, parent = [], None
    for number in range(1, size):
        copy = last | {
            "snapshot-id": last["snapshot-id"] // 2 - size + number,
            "sequence-number": number,
            "timestamp-ms": last["timestamp-ms"] - (size - number) * SECOND,
            "summary": summary,
        }
        copy.pop("parent-snapshot-id", None)
        before.append(copy | ({"parent-snapshot-id": parent} if parent is not None else {}))
        parent = copy["snapshot-id"]
    last = last | {"sequence-number": size, "parent-snapshot-id": parent}
    log = [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in (*before, last)]
    return metadata | {"snapshots": [*before, last], "snapshot-log": log, "last-sequence-number": size}
