"""The heap of a driver that is the whole of Spark: a share of the machine's memory, or of its container's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SHARE = 4
"""A quarter, as the JVM takes by itself; Spark would tell it 1 GB, whatever the machine."""
LEAST, MOST = 1 << 30, 16 << 30
UNKNOWN = 2 << 30
"""The heap where the machine does not tell its memory."""

CGROUP = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""A container's limit, in the files of cgroups version 2 and 1; the other one is missing."""


@dataclass(frozen=True)
class Heap:
    """The heap of a driver on a local master.

    Attributes:
        bytes: Its size.
        why: Where the size comes from.
    """

    bytes: int
    why: str

    @property
    def conf(self) -> str:
        """The size as `spark.driver.memory` takes it."""
        return f"{self.bytes >> 20}m"


def local_heap(physical: int | None, limit: int | None) -> Heap:
    """The heap for a machine.

    Args:
        physical: Bytes of its memory; None where that is unknown.
        limit: Bytes that its container permits; None without a limit.

    Examples:
        >>> local_heap(16 << 30, None)
        Heap(bytes=4294967296, why='a quarter of the 16 GB of this machine')
        >>> local_heap(64 << 30, 6 << 30).conf
        '1536m'
        >>> local_heap(2 << 30, None).conf, local_heap(256 << 30, None).conf
        ('1024m', '16384m')
    """
    if physical is None and limit is None:
        return Heap(UNKNOWN, "the memory of this machine is unknown")
    contained = limit is not None and (physical is None or limit < physical)
    known = min(size for size in (physical, limit) if size is not None)
    heap = min(max(known // SHARE, LEAST), MOST)
    bound = {LEAST: ", 1 GB at least", MOST: ", 16 GB at most"}.get(heap, "")
    whose = "this container" if contained else "this machine"
    return Heap(heap, f"a quarter of the {known / (1 << 30):.3g} GB of {whose}{bound}")


def driver_heap() -> Heap:
    """The heap for this machine."""
    return local_heap(_physical(), container_limit())


def shown(master: str, conf: Mapping[str, str]) -> str:
    """The heap that a driver gets, and where its size comes from.

    Args:
        master: Spark's master.
        conf: The conf that the user gives.

    Examples:
        >>> shown("local[*]", {"spark.driver.memory": "3g"})
        'driver memory 3g (spark.driver.memory in [spark.conf])'
        >>> shown("spark://host:7077", {})
        "driver memory 1g (Spark's default on a cluster)"
    """
    if (given := conf.get("spark.driver.memory")) is not None:
        return f"driver memory {given} (spark.driver.memory in [spark.conf])"
    if not master.startswith("local"):
        return "driver memory 1g (Spark's default on a cluster)"
    heap = driver_heap()
    return f"driver memory {heap.bytes / (1 << 30):.3g} GB ({heap.why})"


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on Windows
        return None


def container_limit(root: Path = CGROUP) -> int | None:
    """The bytes that this process's container permits; None without a limit.

    Args:
        root: Where the control groups are mounted; a container sees its own there.
    """
    for name in LIMITS:
        try:
            text = (root / name).read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None  # "max"
    return None
