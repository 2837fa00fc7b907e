"""A process that appends to a table at an even pace: `python -m perf.harness.appender FOLDER TABLE NOTES ROWS`."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

COMMITS = 2
"""Commits in a second, of 1,000 rows together."""


def append(folder: Path, name: str, notes: Path, rows: int) -> None:
    """Appends 1,000 rows a second, and notes when each commit was there."""
    import pyarrow as pa

    from helios import Catalog

    table = Catalog.local(path=folder / ".helios").load(f"perf.{name}").iceberg
    each = 1000 // COMMITS
    noted, start = [], time.monotonic()
    for number in range(rows // each):
        time.sleep(max(0.0, start + number / COMMITS - time.monotonic()))
        ids = range(number * each, (number + 1) * each)
        table.append(pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {id_}" for id_ in ids]}))
        noted.append(((number + 1) * each, time.time()))
        if number % 240 == 239:  # the source's own upkeep is no part of the measurement
            old = datetime.now(UTC) - timedelta(minutes=2)
            table.maintenance.expire_snapshots().older_than(old).commit()
            table.refresh()
    notes.write_text(json.dumps(noted))


if __name__ == "__main__":
    append(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
