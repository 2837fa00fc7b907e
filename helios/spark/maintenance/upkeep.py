"""Maintenance of a table by the pipeline that writes the table."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.names import TableName, file_name
from helios.catalog.spec import Catalog
from helios.errors import HeliosError, first_line
from helios.model.maintenance import Maintenance
from helios.spark.maintenance.compact import Compaction, compact, head_of, load_existing, target_size
from helios.spark.maintenance.maintain import Expired, Orphans, expire, remove_orphans
from helios.table.maintenance import expiry_plan
from helios.table.readers import warehouses
from helios.table.refs import refresh
from helios.table.snapshot import as_snapshot

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

EXPIRE_EVERY = 3600.0
"""The seconds between two expiries by a running pipeline, or a tenth of the setting `expire` if that is less."""
ORPHANS_EVERY = 86400.0
"""The seconds between two searches for orphan files. A search lists all files in the table's folder."""
RETRY_SECONDS = 600.0
"""Seconds before a failed task is retried."""
MAX_BYTES = 4 << 30
"""About how many bytes a compaction between two batches may read, since the writer waits for it."""
SMALL_HISTORY, FEW_FILES = 2_000, 100_000
"""Up to this many snapshots and data files, the driver finds the files to delete, in 0.15 s. Spark takes 1.1 s."""
MIN_NEW_FILES, MAX_NEW_FILES = 5, 100
"""The least and the largest number of new files after which a table is compacted.

Between the two, the number is a twentieth of the files that the table would have with files of the target size.
"""


@dataclass(frozen=True)
class MaintenanceResult:
    """The result of one maintenance task between two batches.

    Attributes:
        kind: The task: compact, expire or orphans.
        done: The result of the task; None if it failed.
        problem: Why the task failed; None if it succeeded. The writer continues, and the task is retried later.
    """

    kind: str
    done: Compaction | Expired | Orphans | None = None
    problem: str | None = None
    seconds: float = 0.0


class TextFiles(Protocol):
    """A folder of small text files, such as a checkpoint."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...


class Maintainer:
    """Maintains a table between the batches of its writer, so that maintenance and batches cannot conflict.

    In most calls of `after_batch`, no task is due. Such a call only reads the summary of one snapshot.

    Args:
        spark: A session with the table's catalog, in UTC.
        catalogs: The catalogs whose warehouses hold the checkpoints of known readers.
        notes: Keeps the times of the last tasks for later runs; None to forget them.
        branch: The branch that the writer writes; None for main.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        settings: Maintenance,
        *,
        catalogs: Iterable[Catalog] = (),
        notes: TextFiles | None = None,
        branch: str | None = None,
    ) -> None:
        self.spark = spark
        self.table = table
        self.settings = settings
        self.branch = branch
        self._catalogs = {catalog.name: catalog for catalog in (*catalogs, table.catalog)}
        self._store = notes
        self._last_times: dict[str, float] = self._load_times()
        self._not_before: dict[str, float] = {}
        self._baseline: dict[str, int] = {}  # the numbers of files after the last compaction

    def after_batch(self) -> list[MaintenanceResult]:
        """Runs the tasks that are due, and returns their results; a failure does not stop the writer."""
        work: list[tuple[str, Callable[[], Compaction | Expired | Orphans | None]]] = []
        if self.settings.compact is not None:
            work.append(("compact", self._compact))
        if self.settings.expire is not None and self._due("expire", min(EXPIRE_EVERY, self.settings.expire / 10)):
            work.append(("expire", self._expire))
        if self.settings.orphans is not None and self._due("orphans", ORPHANS_EVERY):
            work.append(("orphans", self._orphans))
        results = (self._try(kind, act) for kind, act in work if time.time() >= self._not_before.get(kind, 0))
        return [result for result in results if result is not None]

    def _try(self, kind: str, act: Callable[[], Compaction | Expired | Orphans | None]) -> MaintenanceResult | None:
        began = time.monotonic()
        try:
            done = act()
        except (HeliosError, Py4JError, PySparkException, OSError) as error:
            self._not_before[kind] = time.time() + RETRY_SECONDS
            return MaintenanceResult(kind, problem=first_line(error), seconds=time.monotonic() - began)
        return MaintenanceResult(kind, done, seconds=time.monotonic() - began) if done is not None else None

    def _due(self, kind: str, every: float) -> bool:
        return time.time() - self._last_times.get(kind, 0.0) >= every

    # tasks

    def _compact(self) -> Compaction | None:
        size = self.settings.compact
        if size is None or not self._has_grown(size):
            return None
        done = compact(self.spark, self.table, size, branch=self.branch, max_bytes=MAX_BYTES)
        after = head_of(load_existing(self.spark, self.table), self.branch)
        deletes = int(after.summary().get("total-delete-files") or 0) if after is not None else 0
        # Without a baseline after a compaction that came near its limit, the compaction goes on after the next batch.
        self._baseline = {} if done.read >= MAX_BYTES / 2 else {"files": done.files, "deletes": deletes}
        return done if done.rewritten or done.deletes or done.gave_up else None

    def _has_grown(self, size: int) -> bool:
        """True if enough files are new. Releases the table's metadata before the compaction begins."""
        table = load_existing(self.spark, self.table)
        head = head_of(table, self.branch)
        if head is None:
            return False
        counts = ("total-data-files", "total-delete-files", "total-files-size")
        files, deletes, total = (int(head.summary().get(key) or 0) for key in counts)
        ideal = max(1, total // target_size(table, size))
        now = {"files": files, "deletes": deletes}
        baseline = {"files": ideal, "deletes": 0, **self._baseline}
        # If another process has compacted since, there are fewer files, and the baseline is lower.
        self._baseline = {key: min(baseline[key], now[key]) for key in now}
        enough = min(MAX_NEW_FILES, max(MIN_NEW_FILES, ideal // 20))
        return files - self._baseline["files"] >= enough or deletes - self._baseline["deletes"] >= enough

    def _expire(self) -> Expired | None:
        loaded = self.table.catalog.load(self.table.name_in_catalog)
        refresh(loaded)
        age = timedelta(seconds=self.settings.expire or 0.0)
        known_warehouses = warehouses(self._catalogs.values())
        expiry = expiry_plan(loaded, age, None, self.settings.readers, known_warehouses)
        done = expire(self.spark, self.table, expiry, on_driver=_is_faster_on_driver(loaded.iceberg.metadata))
        self._store_time("expire")
        return done if done.snapshots else None

    def _orphans(self) -> Orphans | None:
        done = remove_orphans(self.spark, self.table, self.settings.orphans or 0.0)
        self._store_time("orphans")
        return done if done.files else None

    # times of the last tasks

    @property
    def _file_name(self) -> str:
        return f"helios/maintenance/{file_name(self.table.text)}.json"

    def _load_times(self) -> dict[str, float]:
        text = self._store.read(self._file_name) if self._store is not None else None
        try:
            return {str(kind): float(at) for kind, at in json.loads(text).items()} if text else {}
        except (ValueError, AttributeError, TypeError):
            return {}  # without the times, tasks only run earlier

    def _store_time(self, kind: str) -> None:
        self._last_times[kind] = time.time()
        if self._store is not None:
            self._store.write(self._file_name, json.dumps(self._last_times))


def _is_faster_on_driver(metadata: TableMetadata) -> bool:
    """True if the driver finds the files to delete faster than a Spark job."""
    head = metadata.current_snapshot()
    files = as_snapshot(head).summary.get("total-data-files") if head is not None else None
    return len(metadata.snapshots) <= SMALL_HISTORY and int(files or 0) <= FEW_FILES
