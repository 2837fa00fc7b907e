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
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from helios.errors import RunError
from helios.sources.files.durable import sync_folder
from helios.sources.webhook.declare import ID

OPEN, IDS, LOCK, PROBE = ".open-", ".ids", ".lock", ".probe"

LOCK_SECONDS = 5.0
"""Seconds that a receiver waits for the lock: a run holds it while it looks, or recovers what another one has left."""

PROBED = b"\n" * 65536
"""The bytes that must fit on the disk before deliveries are accepted again."""


@dataclass
class Segment:
    """A segment that readers do not see yet.

    Attributes:
        path: Its hidden file.
        size: Bytes of the deliveries that are durable in it; what lies behind them was never acknowledged.
        ids: The ids of these.
        renamed: Whether it has its name already.
    """

    path: Path
    size: int = 0
    ids: list[str] = field(default_factory=list)
    renamed: bool = False


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
        self._open = Segment(folder)
        self._began = 0.0
        self._unsealed: list[Segment] = []

    def open(self, *, wait: float = LOCK_SECONDS) -> dict[str, float]:
        """Takes the folder, and seals what a writer that died has left.

        Args:
            wait: Seconds for which another writer may hold it.

        Returns:
            The ids of all deliveries of the window, and when they became whole, in seconds since 1970.

        Raises:
            RunError: Another receiver writes there, or the disk refuses.
        """
        try:
            (self._folder / IDS).mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._folder / LOCK)
            lock.acquire(timeout=wait)
        except Timeout:
            raise RunError(
                f"another receiver writes to {self._folder}.",
                fix="stop it, or give this source a folder of its own by .segments(folder).",
            ) from None
        except OSError as error:
            raise self._refused(error) from error
        self._lock = lock
        try:
            for left in sorted(self._folder.glob(f"{OPEN}*.json")):
                self._unsealed.append(_found(left))
            self._publish_all()
            self.forget()
            return {delivery: at for file, at in self._remembered() for delivery in _lines(file)}
        except OSError as error:
            self._let_go()
            raise self._refused(error) from error

    def append(self, deliveries: Sequence[tuple[str, bytes]]) -> None:
        """Writes deliveries; they are durable when this returns.

        Args:
            deliveries: Id, and a line of JSON without line ends.

        Raises:
            OSError: The disk is full or broken; none of them is in the segment then.
        """
        file = self._begun()
        data = b"".join(line + b"\n" for _, line in deliveries)
        try:
            _write_all(file, data)
            os.fsync(file)
        except OSError:
            self._undo(file)
            raise
        self._open.size += len(data)
        self._open.ids += [delivery for delivery, _ in deliveries if delivery]

    def seal(self) -> None:
        """Makes what was appended a whole segment, which readers see; without a delivery it does nothing.

        Raises:
            OSError: The disk refuses. Nothing is lost: `mend` goes on with it.
        """
        if self._file is not None and self._open.size:
            self._put_off()
        self._publish_all()

    def mend(self) -> None:
        """Seals what could not be sealed, and finds out whether deliveries can be written.

        Raises:
            OSError: Not yet.
        """
        self._publish_all()
        self._begun()
        probe = os.open(self._folder / PROBE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            _write_all(probe, PROBED)
            os.fsync(probe)
        finally:
            os.close(probe)
            (self._folder / PROBE).unlink()

    @property
    def age(self) -> float:
        """Seconds since the open segment has begun; 0 if none is open or it is empty."""
        return time.monotonic() - self._began if self._file is not None and self._open.size else 0.0

    @property
    def due(self) -> bool:
        """True if the open segment is full, or a segment waits for `mend`."""
        return bool(self._unsealed) or self._open.size >= self._full

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
        """Seals the open segment, and lets the folder go.

        Raises:
            RunError: The disk refuses; the deliveries stay, and the next receiver or run seals them.
        """
        try:
            self.seal()
            if self._file is not None:
                os.close(self._file)
                self._file = None
                self._open.path.unlink()
        except OSError as error:
            raise RunError(
                f"the last deliveries in {self._folder} cannot be shown to readers: {error.strerror or error}.",
                fix="look at the disk. Nothing is lost: the next receiver or run of this source goes on with them.",
            ) from error
        finally:
            self._let_go()

    def _refused(self, error: OSError) -> RunError:
        return RunError(
            f"no deliveries can be kept in {self._folder}: {error.strerror or error}.",
            fix="look at the disk and the rights of this user, or name another folder by .segments(folder).",
        )

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _begun(self) -> int:
        """The open segment."""
        if self._file is None:
            # A name never comes again: readers know a segment by it.
            name = f"{time.time_ns() // 1_000_000:013d}-{os.urandom(4).hex()}"
            path = self._folder / f"{OPEN}{name}.json"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            try:
                sync_folder(self._folder)
            except OSError:
                os.close(file)
                path.unlink()
                raise
            self._file, self._open, self._began = file, Segment(path), time.monotonic()
        return self._file

    def _undo(self, file: int) -> None:
        """Takes out what was written of deliveries that failed: their senders send them again."""
        try:
            os.ftruncate(file, self._open.size)
            os.lseek(file, self._open.size, os.SEEK_SET)
            os.fsync(file)
        except OSError:
            self._put_off()

    def _put_off(self) -> None:
        """Ends the open segment; it is cut to what was acknowledged, and shown, by `_publish_all`."""
        file, self._file = self._file, None
        self._unsealed.append(self._open)
        self._open = Segment(self._folder)
        if file is not None:
            os.close(file)

    def _publish_all(self) -> None:
        while self._unsealed:
            self._publish(self._unsealed[0])
            del self._unsealed[0]

    def _publish(self, segment: Segment) -> None:
        """Shows a segment to readers; after an error it can be called again."""
        name = segment.path.name.removeprefix(OPEN)
        if not segment.size:
            segment.path.unlink(missing_ok=True)
            return
        if not segment.renamed:
            file = os.open(segment.path, os.O_WRONLY)
            try:
                if os.fstat(file).st_size != segment.size:
                    os.ftruncate(file, segment.size)
                os.fsync(file)
            finally:
                os.close(file)
            with (self._folder / IDS / name.removesuffix(".json")).open("w", encoding="utf-8") as ids:
                ids.writelines(f"{json.dumps(delivery)}\n" for delivery in segment.ids)
                ids.flush()
                os.fsync(ids.fileno())
            sync_folder(self._folder / IDS)
            segment.path.rename(self._folder / name)
            segment.renamed = True
        sync_folder(self._folder)

    def _remembered(self) -> list[tuple[Path, float]]:
        return [(file, file.stat().st_mtime) for file in sorted((self._folder / IDS).iterdir())]


def is_taken(folder: Path) -> bool:
    """True if a receiver writes to a folder now."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def unsealed(folder: Path) -> list[str]:
    """The hidden segments of a folder that hold acknowledged deliveries."""
    sized = ((file.name, _size_of(file)) for file in sorted(folder.glob(f"{OPEN}*.json")))
    return [name for name, size in sized if size]


def recover(folder: Path, window: float) -> bool:
    """Shows readers what a receiver that died has left, where no other one writes.

    Args:
        folder: The folder.
        window: Seconds for which the ids of deliveries are kept.

    Returns:
        Whether no deliveries are hidden any more.

    Raises:
        RunError: The disk refuses.
    """
    if not unsealed(folder):
        return True
    segments = Segments(folder, window=window)
    try:
        segments.open(wait=0)
    except RunError:
        if is_taken(folder):
            return False
        raise
    segments.close()
    return True


def _found(left: Path) -> Segment:
    """A segment as a writer that died has left it."""
    data = left.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]  # an incomplete line after it was never acknowledged
    return Segment(left, len(whole), [delivery for line in whole.splitlines() if (delivery := json.loads(line)[ID])])


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
