"""One-line summaries of maintenance between batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helios.model.values import counted
from helios.spark.maintenance.upkeep import MaintenanceResult


def summary(upkeep: MaintenanceResult) -> str:
    done: Any = upkeep.done
    return SUMMARIES[upkeep.kind](done)


SUMMARIES: dict[str, Callable[[Any], str]] = {
    "compact": lambda done: (
        f"compacted {counted(done.rewritten, 'file')} into {done.added}"
        + (f", and removed {counted(done.deletes, 'delete file')}" if done.deletes else "")
        + (f"; gave up: {done.gave_up}" if done.gave_up else "")
    ),
    "expire": lambda done: (
        f"expired {counted(len(done.snapshots), 'snapshot')}"
        + (f" and {counted(done.data_files, 'data file')}" if done.data_files is not None else "")
    ),
    "orphans": lambda done: f"deleted {counted(len(done.files), 'orphan file')}",
}
