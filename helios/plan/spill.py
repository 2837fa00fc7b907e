"""The sorts and shuffles of a batch that may spill to a local disk, and the folder on that disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helios.config import Config
from helios.model.flow import flows

if TYPE_CHECKING:
    from helios.plan.nodes import Plan, WritePlan


@dataclass(frozen=True, kw_only=True)
class Spill:
    """The use of a local disk by a pipeline's batches.

    Attributes:
        folder: Spark's folder on the local disk; None on a cluster, where each executor has its own.
        free: The free bytes of the disk; None if unknown.
        what: The sorts and shuffles of a batch. Shuffles always go to the disk, sorts only if they exceed memory.
        target: The size in bytes of the target's data files if batches are joined with them by key; None without keys,
            or if unknown.
    """

    folder: str | None
    free: int | None
    what: tuple[str, ...]
    target: int | None = None


def spill_of(plan: Plan, config: Config) -> Spill | None:
    """The use of a local disk by a pipeline; None if its batches are neither sorted nor shuffled.

    Spark always writes shuffles to `spark.local.dir`. It also writes sorts and hash tables there when they exceed
    memory (Spark's configuration, "Application Properties").
    """
    operations = tuple(dict.fromkeys((*_shuffling_steps(plan), *_shuffling_writes(plan.write))))
    if not operations:
        return None
    target = plan.write.bytes if plan.write.mode.traits.keyed else None
    if not config.master.startswith("local"):
        return Spill(folder=None, free=None, what=operations, target=target)
    folders = os.environ.get("SPARK_LOCAL_DIRS") or config.spark_conf.get("spark.local.dir") or tempfile.gettempdir()
    folder = folders.partition(",")[0]
    return Spill(folder=folder, free=_free(Path(folder)), what=operations, target=target)


def _shuffling_steps(plan: Plan) -> Iterator[str]:
    for flow in flows(plan.stream):
        for step in flow.steps:
            if step.traits.shuffles:
                yield step.call()


def _shuffling_writes(write: WritePlan) -> Iterator[str]:
    """Yields the joins, shuffles and sorts that the write of a batch needs, as text."""
    sink = write.sink.iceberg
    if sink is None:
        return
    if write.mode.traits.keyed:
        yield "the batch and the target's rows by key"
    distribution = sink.distributes
    if distribution is None and write.partitioning and not write.mode.traits.keyed:
        distribution = "hash"
    if distribution not in (None, "none"):
        yield "rows by partition" if distribution == "hash" else "rows by range"
    if sink.sort:
        yield "sorted rows"


def _free(folder: Path) -> int | None:
    """The free bytes of a folder's disk; None if unknown."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
