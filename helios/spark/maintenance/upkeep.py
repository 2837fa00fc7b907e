"""Maintenance of a target between its writer's own batches, so that the two cannot conflict."""

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
from helios.errors import HeliosError
from helios.model.maintenance import Maintenance
from helios.spark.maintenance.compact import Compaction, compact, head_of, opened, target_size
from helios.spark.maintenance.maintain import Expired, Orphans, expire, orphans
from helios.table.maintenance import planned_among
from helios.table.readers import warehouses
from helios.table.snapshot import as_snapshot

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

EXPIRE_EVERY = 3600.0
"""Seconds between two expiries by a running pipeline; or a tenth of `expire`, if that is shorter."""
ORPHANS_EVERY = 86400.0
"""Seconds between two searches for orphan files, which list the table's whole folder."""
AFTER_FAILURE = 600.0
"""Seconds before a failed task is retried."""
MOST_BYTES = 4 << 30
"""About how many bytes a compaction between two batches may read, since the writer waits for it."""
SMALL_HISTORY, FEW_FILES = 2_000, 100_000
"""Up to this many snapshots and data files, the driver finds the files to delete: it takes 0.15 s, and Spark 1.1 s."""
LEAST_NEW_FILES, MOST_NEW_FILES = 5, 100
"""The bounds of the number of new files that are worth a compaction: a twentieth of what the table should have."""


@dataclass(frozen=True)
class Upkeep:
    """The result of one maintenance task between two batches.

    Attributes:
        kind: compact, expire or orphans.
        done: Its result; None when it failed.
        problem: Why it failed. The writer continues, and the task is retried later.
        seconds: How long it took.
    """

    kind: str
    done: Compaction | Expired | Orphans | None = None
    problem: str | None = None
    seconds: float = 0.0


class Notes(Protocol):
    """Small files that persist, such as those of a checkpoint."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...


class Maintainer:
    """Maintains a table between its writer's own batches, so that the two cannot conflict.

    Most calls of `after_batch` read the summary of one snapshot, and return.

    Args:
        spark: A session with the table's catalog, in UTC.
        table: The table.
        settings: The tasks and their limits.
        catalogs: The catalogs whose warehouses hold the checkpoints of known readers.
        notes: Keeps the times of the last tasks; None to start over with every run.
        branch: The branch that the writer writes; None for main.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: TableName,
        settings: Maintenance,
        *,
        catalogs: Iterable[Catalog] = (),
        notes: Notes | None = None,
        branch: str | None = None,
    ) -> None:
        self.spark = spark
        self.table = table
        self.settings = settings
        self.branch = branch
        self._catalogs = {catalog.name: catalog for catalog in (*catalogs, table.catalog)}
        self._notes = notes
        self._done: dict[str, float] = self._remembered()
        self._not_before: dict[str, float] = {}
        self._left: dict[str, int] = {}  # the counts of files after the last compaction

    def after_batch(self) -> list[Upkeep]:
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

    def _try(self, kind: str, act: Callable[[], Compaction | Expired | Orphans | None]) -> Upkeep | None:
        began = time.monotonic()
        try:
            done = act()
        except (HeliosError, Py4JError, PySparkException, OSError) as error:
            self._not_before[kind] = time.time() + AFTER_FAILURE
            return Upkeep(kind, problem=str(error).splitlines()[0], seconds=time.monotonic() - began)
        return Upkeep(kind, done, seconds=time.monotonic() - began) if done is not None else None

    def _due(self, kind: str, every: float) -> bool:
        return time.time() - self._done.get(kind, 0.0) >= every

    # tasks

    def _compact(self) -> Compaction | None:
        size = self.settings.compact
        if size is None or not self._has_grown(size):
            return None
        done = compact(self.spark, self.table, size, branch=self.branch, most=MOST_BYTES)
        after = head_of(opened(self.spark, self.table), self.branch)
        left = int(after.summary().get("total-delete-files") or 0) if after is not None else 0
        # A compaction that reached its limit continues after the next batch.
        self._left = {} if done.read >= MOST_BYTES / 2 else {"files": done.files, "deletes": left}
        return done if done.rewritten or done.deletes or done.gave_up else None

    def _has_grown(self, size: int) -> bool:
        """True if enough files are new. The table's metadata is released before the compaction begins."""
        table = opened(self.spark, self.table)
        head = head_of(table, self.branch)
        if head is None:
            return False
        counts = ("total-data-files", "total-delete-files", "total-files-size")
        files, deletes, total = (int(head.summary().get(key) or 0) for key in counts)
        wanted = max(1, total // target_size(table, size))
        now = {"files": files, "deletes": deletes}
        left = {"files": wanted, "deletes": 0, **self._left}
        # Another process may have compacted since: the counts begin at its result.
        self._left = {key: min(left[key], now[key]) for key in now}
        enough = min(MOST_NEW_FILES, max(LEAST_NEW_FILES, wanted // 20))
        return files - self._left["files"] >= enough or deletes - self._left["deletes"] >= enough

    def _expire(self) -> Expired | None:
        loaded = self.table.catalog.load(self.table.within)
        loaded.iceberg.refresh()
        age = timedelta(seconds=self.settings.expire or 0.0)
        places = warehouses(self._catalogs.values())
        expiry = planned_among(loaded, age, None, self.settings.readers, places)
        done = expire(self.spark, self.table, expiry, on_driver=_is_small(loaded.iceberg.metadata))
        self._remember("expire")
        return done if done.snapshots else None

    def _orphans(self) -> Orphans | None:
        done = orphans(self.spark, self.table, self.settings.orphans or 0.0)
        self._remember("orphans")
        return done if done.files else None

    # times of the last tasks

    @property
    def _note_name(self) -> str:
        return f"helios/maintenance/{file_name(self.table.text)}.json"

    def _remembered(self) -> dict[str, float]:
        text = self._notes.read(self._note_name) if self._notes is not None else None
        try:
            return {str(kind): float(at) for kind, at in json.loads(text).items()} if text else {}
        except (ValueError, AttributeError):
            return {}  # without the note, tasks only run earlier

    def _remember(self, kind: str) -> None:
        self._done[kind] = time.time()
        if self._notes is not None:
            self._notes.write(self._note_name, json.dumps(self._done))


def _is_small(metadata: TableMetadata) -> bool:
    head = metadata.current_snapshot()
    files = as_snapshot(head).summary.get("total-data-files") if head is not None else None
    return len(metadata.snapshots) <= SMALL_HISTORY and int(files or 0) <= FEW_FILES
