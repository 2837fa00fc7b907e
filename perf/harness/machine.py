"""The machine on which something was measured, and the versions of what ran on it."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "duckdb", "polars")


def machine() -> dict[str, str]:
    """What a reader wants to know of it, by name."""
    from helios.environment import jars, java
    from helios.environment.coordinates import coordinates

    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    version, _ = jars.installed_spark()
    iceberg = next(c for c in coordinates(version, ("iceberg",)) if "iceberg" in c)
    return {
        "processor": f"{cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores",
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "python": platform.python_version(),
        "java": str(java.find_java().version),
        "iceberg": iceberg.rpartition(":")[2],
        **{name: metadata.version(name) for name in PACKAGES},
    }
