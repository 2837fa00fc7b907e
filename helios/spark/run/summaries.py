"""One-line summaries of maintenance between batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helios.spark.maintenance.upkeep import Upkeep


def summary(upkeep: Upkeep) -> str:
    """A one-line summary of maintenance."""
    done: Any = upkeep.done
    return SUMMARIES[upkeep.kind](done)


SUMMARIES: dict[str, Callable[[Any], str]] = {
    "compact": lambda done: (
        f"compacted {done.rewritten} files into {done.added}"
        + (f", {done.deletes} delete files" if done.deletes else "")
        + (f"; gave up: {done.gave_up}" if done.gave_up else "")
    ),
    "expire": lambda done: (
        f"expired {len(done.snapshots)} snapshots"
        + (f" and {done.data_files} data files" if done.data_files is not None else "")
    ),
    "orphans": lambda done: f"deleted {len(done.files)} orphan files",
}
"""The summary of each kind of maintenance."""
