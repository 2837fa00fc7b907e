"""A writer of small batches with `.maintain(compact=...)`: prints data files beside bytes / target size as it goes on.

    python perf/small_files.py --batches 200

One pipeline follows a table in small bounded batches. Between its batches small files are compacted. After each
compaction the number of data files is compared with the bytes over the target size; the writer goes on after it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from helios import Catalog, Iceberg
from helios.config import load
from helios.engine import require_runnable
from helios.plan import Context, compile_pipelines
from helios.spark.run.events import Event
from helios.spark.run.run import PipelineRun
from helios.spark.session import session


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=4000, help="of a batch: of 24 random bytes each")
    parser.add_argument("--target", default="256KB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="helios-perf-") as made:
        return watch(Path(made), given)


def watch(folder: Path, given: Any) -> int:
    catalog = Catalog.local(path=folder / ".helios")
    catalog.create_namespace("perf")
    random = np.random.default_rng(1)
    source = None
    for _ in range(given.batches):
        rows = pa.table({name: random.integers(-(2**62), 2**62, given.rows) for name in ("a", "b", "c")})
        source = source or catalog.create_table("perf.source", rows.schema).iceberg
        source.append(rows)
        source.refresh()
    sink = Iceberg.sink("perf.target", catalog=catalog).flush(rows=given.rows).maintain(compact=given.target)
    pipeline = Iceberg.source("perf.source", catalog=catalog).incremental() >> sink
    config = load(folder)
    plan = require_runnable(*compile_pipelines([pipeline], Context(config=config, catalogs={"local": catalog})))[0]
    target = plan.write.sink.maintenance.compact if plan.write.sink.maintenance else None
    assert target
    spark = session.for_run(config, [plan], None)
    began, batches, told = time.monotonic(), [0], list[float]()

    def tell(event: Event) -> None:
        batches[0] += event.kind == "batch"
        if event.kind == "maintained":
            summary = catalog.load("perf.target").iceberg.refresh().current_snapshot().summary  # type: ignore[union-attr]
            assert summary is not None
            files, size = int(summary["total-data-files"] or 0), int(summary["total-files-size"] or 0)
            told.append(files / (size / target) - 1)
            print(
                f"{time.monotonic() - began:.0f} s, after batch {batches[0]}: {event.message}; {files} files, "
                f"{size / target:.1f} by size, {told[-1]:+.1%}",
                flush=True,
            )

    PipelineRun(plan, spark, once=True, emit=tell).start().await_termination()
    rows = catalog.load("perf.target").iceberg.scan().count()
    assert rows == given.batches * given.rows, f"{rows} rows"
    print(f"{batches[0]} batches, {len(told)} compactions, {rows:,} rows; after the last compaction {told[-1]:+.1%}")
    return 0 if abs(told[-1]) <= 0.3 else 1


if __name__ == "__main__":
    sys.exit(main())
