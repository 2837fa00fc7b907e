"""The lease on a checkpoint: at most one live driver."""

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
from helios.table.lease import FILE, LEASE_SECONDS, RELEASED, Holder, alive, driven, parse, process_start


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
        with self._files.locked() as alone:
            holder = self._holder()
            if holder is not None and alive(holder):
                raise driven(self._location, holder)
            self._sign()
        if not alone:
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
        with suppress(*NO_ANSWER):
            holder = self._holder()
            if holder is not None and holder.get("owner") == self.owner:
                self._files.delete(FILE)

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_SECONDS / 4):
            try:
                holder = self._holder()
                if holder is None or holder.get("owner") != self.owner:
                    return  # the next batch's verify() says so
                self._sign()
            except NO_ANSWER:
                continue  # the file system is away: the lease lasts for three more tries

    def _holder(self) -> Holder | None:
        return parse(self._files.read(FILE))

    def _sign(self) -> None:
        mine: Holder = {
            "owner": self.owner,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": process_start(os.getpid()),
            "renewed": time.time(),
        }
        self._files.write(FILE, json.dumps(mine))
