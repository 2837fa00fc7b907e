"""The lease on a checkpoint: a file in the checkpoint that describes the driver that holds the lease; without a JVM."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any, TypedDict

from helios.errors import LeaseError, Origin, RunError
from helios.table.readers import checkpoint_text

FILE = "helios/lease.json"
"""The path of the lease file in a checkpoint."""

LEASE_SECONDS = 60.0
"""Seconds for which the lease of a driver on another host stays valid after its last renewal."""

RELEASED: set[str] = set()
"""Owners in this process that have released their lease, even if the lease file could not be deleted."""


class Holder(TypedDict, total=False):
    """The driver that holds a lease, as the lease file describes it."""

    owner: str
    host: str
    pid: int
    started: str | None
    renewed: float


def parse_holder(text: str | None) -> Holder | None:
    """The holder that the text of a lease file describes; None if the text is missing or damaged."""
    try:
        fields = json.loads(text) if text else None
        return _holder(fields) if isinstance(fields, dict) else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None  # a half-written lease of a dead driver on a file system without atomic rename


def _holder(fields: dict[str, Any]) -> Holder:
    started, renewed = fields.get("started"), float(fields.get("renewed", 0))
    return {
        "owner": str(fields["owner"]),
        "host": str(fields["host"]),
        "pid": int(fields["pid"]),
        "started": str(started) if started is not None else None,
        "renewed": renewed,
    }


def is_alive(holder: Holder) -> bool:
    """True if the driver that holds a lease is alive.

    A driver on this host must have a process, and a driver on another host must have renewed its lease in time.
    """
    if holder.get("owner") in RELEASED:
        return False
    if holder.get("host") != socket.gethostname():
        return time.time() - float(holder.get("renewed", 0)) < LEASE_SECONDS
    pid = int(holder["pid"])
    hidden = False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of another user, whose start time may be hidden
        hidden = process_start(pid) is None
    # The kernel reuses pids: only the start time shows that it is the same process.
    return hidden or holder.get("started") in (None, process_start(pid))


def lease_error(location: str, holder: Holder, where: Origin | None = None) -> LeaseError:
    """The error for a checkpoint that another driver holds."""
    return LeaseError(
        f"another driver is running on {location}: process {holder['pid']} on {holder['host']}.",
        where=where,
        fix="stop that process first: its lease ends with it.",
    )


def running_driver_error(
    location: str, properties: Mapping[str, str], where: Origin | None = None
) -> LeaseError | None:
    """The error if another driver is known to hold a checkpoint, for a check before Spark starts; None otherwise.

    Args:
        properties: PyIceberg's properties of the catalog, which open its storage.
    """
    try:
        holder = parse_holder(checkpoint_text(location, properties, FILE))
        return lease_error(location, holder, where) if holder is not None and is_alive(holder) else None
    except (RunError, KeyError, ValueError, TypeError):
        return None  # the run reads the file again when it takes the lease


def process_start(pid: int) -> str | None:
    """The start time of a process (field 22 of proc_pid_stat(5)); None if the process has ended, or without /proc."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    state, start = fields[0], fields[19]
    return None if state == "Z" and pid != os.getpid() else start  # a zombie has ended
