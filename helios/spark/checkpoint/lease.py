"""The lease on a checkpoint: at most one live driver."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from typing import TypedDict

from py4j.protocol import Py4JError

from helios.errors import LeaseError
from helios.spark.checkpoint.files import Checkpoint

LEASE_SECONDS = 60.0
"""How long the lease of a driver on another host is honoured after it was last renewed."""


class Holder(TypedDict, total=False):
    """The driver that holds a lease, as its file names it."""

    owner: str
    host: str
    pid: int
    started: str | None
    renewed: float


class Lease:
    """At most one live driver on a checkpoint.

    The holder signs a file with its host, its process and a time that it renews. A holder on this host is dead when its
    process is; on another host when it last renewed the lease more than `LEASE_SECONDS` ago.

    Args:
        checkpoint: The checkpoint.

    Attributes:
        owner: The id of this holder.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._files = checkpoint.files
        self._location = checkpoint.location
        self.owner = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Takes the lease.

        Raises:
            LeaseError: Another driver is alive on the checkpoint.
        """
        holder = self._holder()
        if holder is not None and _alive(holder):
            raise LeaseError(
                f"another driver is running on {self._location}: process {holder['pid']} on {holder['host']}.",
                fix="stop it first; its lease ends with it.",
            )
        self._sign()
        # Two drivers that start at once both sign; the one whose signature stays is the holder.
        time.sleep(0.05)
        self.verify()
        self._thread = threading.Thread(target=self._renew, name="helios-lease", daemon=True)
        self._thread.start()

    def verify(self) -> None:
        """Refuses to go on when another driver has taken the checkpoint over.

        Raises:
            LeaseError: The lease is another driver's.
        """
        holder = self._holder()
        if holder is None or holder.get("owner") != self.owner:
            who = f"process {holder['pid']} on {holder['host']}" if holder else "somebody who removed its lease"
            raise LeaseError(f"the checkpoint {self._location} was taken over by {who}; this driver stops.")

    def release(self) -> None:
        """Gives the lease back; where the file system is away, this process at least forgets it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        RELEASED.add(self.owner)
        with suppress(Py4JError):
            holder = self._holder()
            if holder is not None and holder.get("owner") == self.owner:
                self._files.delete("helios/lease.json")

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                holder = self._holder()
                if holder is None or holder.get("owner") != self.owner:
                    return  # the next batch's verify() says so
                self._sign()
            except Py4JError:
                continue  # the file system is away: the lease lasts for three more tries

    def _holder(self) -> Holder | None:
        text = self._files.read("helios/lease.json")
        try:
            holder: Holder | None = json.loads(text) if text else None
            return holder
        except ValueError:
            return None  # a half-written lease of a dead driver on a file system without atomic rename

    def _sign(self) -> None:
        mine: Holder = {
            "owner": self.owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "renewed": time.time(),
        }
        self._files.write("helios/lease.json", json.dumps(mine))


RELEASED: set[str] = set()
"""Owners in this process that gave their lease back, also where its file could not be deleted."""


def _alive(holder: Holder) -> bool:
    if holder.get("owner") in RELEASED:
        return False
    if holder.get("host") != socket.gethostname():
        return time.time() - float(holder.get("renewed", 0)) < LEASE_SECONDS
    pid = int(holder["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # A pid is used again some day: the same process also started at the same time.
    return holder.get("started") in (None, process_start(pid))


def process_start(pid: int) -> str | None:
    """The kernel's start time of a process (field 22 of proc_pid_stat(5)); None where there is no /proc."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" and pid != os.getpid() else fields[19]
