"""Chooses the heap of a driver on a local master: a quarter of the memory of the machine, or of its container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HEAP_DIVISOR = 4
"""The heap is the memory divided by this number, as in the JVM's own default. Spark's default is always 1 GB."""
MIN_HEAP, MAX_HEAP = 1 << 30, 16 << 30
HEAP_IF_UNKNOWN = 2 << 30

CGROUP = Path("/sys/fs/cgroup")
LIMIT_FILES = ("memory.max", "memory/memory.limit_in_bytes")
"""The files with a container's memory limit: the first for version 2 of cgroups, the second for version 1."""


@dataclass(frozen=True)
class Heap:
    """The heap of a driver on a local master."""

    bytes: int
    reason: str

    @property
    def conf(self) -> str:
        """The size in the format of `spark.driver.memory`."""
        return f"{self.bytes >> 20}m"


def local_heap(physical: int | None, limit: int | None) -> Heap:
    """The heap for a machine.

    Args:
        physical: The machine's memory in bytes; None if it is unknown.
        limit: The container's limit in bytes; None without a limit.

    Examples:
        >>> local_heap(16 << 30, None)
        Heap(bytes=4294967296, reason='a quarter of the 16 GB of this machine')
        >>> local_heap(64 << 30, 6 << 30).conf
        '1536m'
        >>> local_heap(2 << 30, None).conf, local_heap(256 << 30, None).conf
        ('1024m', '16384m')
    """
    if physical is None and limit is None:
        return Heap(HEAP_IF_UNKNOWN, "the memory of this machine is unknown")
    limited = limit is not None and (physical is None or limit < physical)
    memory = min(size for size in (physical, limit) if size is not None)
    heap = min(max(memory // HEAP_DIVISOR, MIN_HEAP), MAX_HEAP)
    bound = {MIN_HEAP: ", 1 GB at least", MAX_HEAP: ", 16 GB at most"}.get(heap, "")
    owner = "this container" if limited else "this machine"
    return Heap(heap, f"a quarter of the {memory / (1 << 30):.3g} GB of {owner}{bound}")


def driver_heap() -> Heap:
    """The heap for this machine."""
    return local_heap(_physical(), container_limit())


def driver_memory_text(master: str, conf: Mapping[str, str]) -> str:
    """One line with the size of a driver's heap and the reason for the size.

    Examples:
        >>> driver_memory_text("local[*]", {"spark.driver.memory": "3g"})
        'driver memory 3g (spark.driver.memory in [spark.conf])'
        >>> driver_memory_text("spark://host:7077", {})
        "driver memory 1g (Spark's default on a cluster)"
    """
    declared = conf.get("spark.driver.memory")
    if declared is not None:
        return f"driver memory {declared} (spark.driver.memory in [spark.conf])"
    if not master.startswith("local"):
        return "driver memory 1g (Spark's default on a cluster)"
    heap = driver_heap()
    return f"driver memory {heap.bytes / (1 << 30):.3g} GB ({heap.reason})"


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def container_limit(root: Path = CGROUP) -> int | None:
    """The memory limit of this process's container, in bytes; None without a limit.

    Args:
        root: The mount point of the control groups. A container finds the files of its own group there.
    """
    for name in LIMIT_FILES:
        try:
            text = (root / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None  # "max" means that there is no limit
    return None
