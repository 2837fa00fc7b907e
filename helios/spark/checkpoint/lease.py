"""The lease on a checkpoint, by which at most one live driver uses it."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from contextlib import suppress

from helios.errors import LeaseError
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.jvm.death import NO_ANSWER
from helios.table.lease import FILE, LEASE_SECONDS, RELEASED, Holder, is_alive, lease_error, parse_holder, process_start

REPLACING_SECONDS = 0.5
"""The time after which a lease file that was missing is looked up once more; it may have been replaced meanwhile."""


class Lease:
    """The lease of one driver on a checkpoint.

    The holder writes its host, its process and a time into a file, and renews the time. A holder on this host is dead
    when its process has ended. A holder on another host is dead when its time is older than `LEASE_SECONDS`.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._files = checkpoint.files
        self._location = checkpoint.location
        self.owner = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._renewing = threading.Lock()

    def acquire(self) -> None:
        """Takes the lease. Raises a LeaseError if another driver is alive on the checkpoint."""
        with self._files.locked() as exclusive:
            holder = self._holder()
            if holder is None and not self._files.replaces_at_once:
                time.sleep(REPLACING_SECONDS)  # a live driver may be replacing the file
                holder = self._holder()
            if holder is not None and is_alive(holder):
                raise lease_error(self._location, holder)
            self._write()
        if not exclusive:
            # Two drivers that start together both write the file. The second one replaces the first, and wins.
            time.sleep(0.05)
        self.verify()
        self._thread = threading.Thread(target=self._renew, name="helios-lease", daemon=True)
        self._thread.start()

    def verify(self) -> None:
        """Raises a LeaseError if this driver no longer holds the lease."""
        with self._renewing:
            holder = self._holder()
        if holder is None or holder.get("owner") != self.owner:
            who = f"process {holder['pid']} on {holder['host']}" if holder else "somebody who removed its lease file"
            raise LeaseError(f"the checkpoint {self._location} was taken over by {who}; this driver stops.")

    def release(self) -> None:
        """Deletes the lease. If the file system is unreachable, only this process knows that the lease is released."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        RELEASED.add(self.owner)
        with suppress(*NO_ANSWER):
            holder = self._holder()
            if holder is not None and holder.get("owner") == self.owner:
                self._files.delete(FILE)

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                holder = self._holder()
                if holder is None or holder.get("owner") != self.owner:
                    return  # verify() raises the error at the next batch
                with self._renewing:
                    self._write()
            except NO_ANSWER:
                continue  # the file system is unreachable: the lease lasts for three more attempts

    def _holder(self) -> Holder | None:
        return parse_holder(self._files.read(FILE))

    def _write(self) -> None:
        mine: Holder = {
            "owner": self.owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "renewed": time.time(),
        }
        self._files.write(FILE, json.dumps(mine))
