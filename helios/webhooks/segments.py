"""Deliveries on disk: lines of JSON in segments, each durable before it is acknowledged.

A segment is written under a hidden name and renamed when it is full or old enough; readers of the folder see whole
segments only. Beside it lie the ids of its deliveries, so that duplicates are known after a restart too.

    orders/
      .lock               one receiver at a time
      .open-<name>.json   being written
      .ids/<name>         the ids of a segment, one a line, kept for the window of duplicates
      <name>.json         whole; deleted when a run has committed it
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from helios.errors import RunError
from helios.files.durable import sync_folder
from helios.model.webhook import ID

OPEN, IDS, LOCK = ".open-", ".ids", ".lock"


class Segments:
    """The segments of one folder, for one writer.

    Args:
        folder: The folder; it is made.
        window: Seconds for which the ids of deliveries are kept.
        full: Bytes at which a segment is sealed.
    """

    def __init__(self, folder: Path, *, window: float = 86_400.0, full: int = 32_000_000) -> None:
        self._folder = folder
        self._window = window
        self._full = full
        self._lock: FileLock | None = None
        self._file: int | None = None
        self._name = ""
        self._size = 0
        self._began = 0.0
        self._ids: list[str] = []

    def open(self) -> dict[str, float]:
        """Takes the folder, and seals what a writer that died has left.

        Returns:
            The ids of all deliveries of the window, and when they became whole, in seconds since 1970.

        Raises:
            RunError: Another receiver writes there.
        """
        (self._folder / IDS).mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._folder / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(
                f"another receiver writes to {self._folder}.",
                fix="stop it, or give this source a folder of its own by .segments(folder).",
            ) from None
        self._lock = lock
        for left in sorted(self._folder.glob(f"{OPEN}*.json")):
            self._recover(left)
        self.forget()
        return {one: at for file, at in self._remembered() for one in _lines(file)}

    def append(self, deliveries: Sequence[tuple[str, bytes]]) -> None:
        """Writes deliveries; they are durable when this returns.

        Args:
            deliveries: Id, and a line of JSON without line ends.

        Raises:
            OSError: The disk is full or broken; none of them is in the segment then.
            RunError: It cannot even be told what is in the segment.
        """
        file = self._begun()
        data = b"".join(line + b"\n" for _, line in deliveries)
        try:
            _write_all(file, data)
            os.fsync(file)
        except OSError:
            self._undo(file)
            raise
        self._size += len(data)
        self._ids += [delivery for delivery, _ in deliveries if delivery]
        if self._size >= self._full:
            self.seal()

    def seal(self) -> None:
        """Makes what was appended a whole segment, which readers see; without a delivery it does nothing."""
        if self._file is None or not self._size:
            return
        os.close(self._file)
        self._file = None
        self._publish(self._folder / f"{OPEN}{self._name}.json", self._ids)
        self._ids = []

    @property
    def age(self) -> float:
        """Seconds since the open segment has begun; 0 if none is open or it is empty."""
        return time.monotonic() - self._began if self._file is not None and self._size else 0.0

    def waiting(self) -> int:
        """Bytes of all segments that no run has committed yet."""
        return sum(size for file in self._folder.glob("*.json") if (size := _size_of(file)) is not None)

    def forget(self) -> None:
        """Deletes the ids of segments that are older than the window."""
        oldest = time.time() - self._window
        for file, at in self._remembered():
            if at < oldest:
                file.unlink()

    def close(self) -> None:
        """Seals the open segment, and lets the folder go."""
        self.seal()
        if self._file is not None:
            os.close(self._file)
            self._file = None
            (self._folder / f"{OPEN}{self._name}.json").unlink()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _begun(self) -> int:
        """The open segment."""
        if self._file is None:
            # A name never comes again: readers know a segment by it.
            self._name = f"{time.time_ns() // 1_000_000:013d}-{os.urandom(4).hex()}"
            path = self._folder / f"{OPEN}{self._name}.json"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            sync_folder(self._folder)
            self._size, self._began, self._ids = 0, time.monotonic(), []
        return self._file

    def _undo(self, file: int) -> None:
        """Takes out what was written of deliveries that failed: their senders send them again."""
        try:
            os.ftruncate(file, self._size)
            os.lseek(file, self._size, os.SEEK_SET)
            os.fsync(file)
        except OSError as error:
            raise RunError(
                f"the segment {self._name} in {self._folder} cannot be written or mended: {error.strerror}.",
                fix="look at the disk, and start the receiver again.",
            ) from error

    def _recover(self, left: Path) -> None:
        data = left.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            left.unlink()
            return
        if len(whole) < len(data):  # a line that was being written: nobody was told that it is here
            os.truncate(left, len(whole))
        with left.open("rb") as file:
            os.fsync(file.fileno())
        self._publish(left, [one for line in whole.splitlines() if (one := json.loads(line)[ID])])

    def _publish(self, path: Path, ids: Iterable[str]) -> None:
        name = path.name.removeprefix(OPEN)
        with (self._folder / IDS / name.removesuffix(".json")).open("w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(one)}\n" for one in ids)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self._folder / IDS)
        path.rename(self._folder / name)
        sync_folder(self._folder)

    def _remembered(self) -> list[tuple[Path, float]]:
        return [(file, file.stat().st_mtime) for file in sorted((self._folder / IDS).iterdir())]


def is_taken(folder: Path) -> bool:
    """Whether a receiver writes to a folder now."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _lines(file: Path) -> list[str]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _size_of(file: Path) -> int | None:
    """The size of a file; None if a reader has deleted it meanwhile."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
