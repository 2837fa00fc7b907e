"""Stores deliveries on disk, as lines of JSON in segments. Each delivery is durable before it is acknowledged.

A segment has a hidden name until it is large or old enough. Then it is sealed: it gets its final name. So readers of
the folder see only complete segments. For each sealed segment, another file has the ids of the segment's deliveries, to
find duplicates after a restart.

    orders/
      .lock               the lock of the only receiver
      .open-<name>.json   a segment that is being written
      .ids/<name>         the ids of the deliveries of a segment, one per line; deleted after the window of duplicates
      <name>.json         a sealed segment; deleted when a run has committed it
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
"""Seconds that a receiver waits for the lock. A run takes it for a moment, to test it or to seal abandoned segments."""

PROBE_BYTES = b"\n" * 65536
"""The bytes of the test write that must succeed after a disk error before deliveries are accepted again."""


@dataclass
class Segment:
    """A segment that is not sealed yet, so that readers do not see it.

    Attributes:
        path: The hidden file of the segment.
        size: The bytes of its durable deliveries. Any bytes after them were never acknowledged.
        ids: The ids of its durable deliveries.
        renamed: Whether the file has its final name already.
    """

    path: Path
    size: int = 0
    ids: list[str] = field(default_factory=list)
    renamed: bool = False


class Segments:
    """The segments in a folder, as their only writer sees them.

    Args:
        folder: The folder; it is created if missing.
        window: Seconds for which the ids of deliveries are kept.
        seal_size: The size in bytes at which a segment is sealed.
    """

    def __init__(self, folder: Path, *, window: float = 86_400.0, seal_size: int = 32_000_000) -> None:
        self._folder = folder
        self._window = window
        self._seal_size = seal_size
        self._lock: FileLock | None = None
        self._file: int | None = None
        self._open = Segment(folder)
        self._began = 0.0
        self._unsealed: list[Segment] = []

    def open(self, *, wait: float = LOCK_SECONDS) -> dict[str, float]:
        """Locks the folder, and seals the segments that a crashed writer has left.

        Args:
            wait: Seconds to wait for another writer's lock.

        Returns:
            The ids of all deliveries inside the window, each with the time of its sealing, in seconds since 1970.

        Raises:
            RunError: Another receiver writes to the folder, or the disk fails.
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
            raise self._disk_error(error) from error
        self._lock = lock
        try:
            for path in sorted(self._folder.glob(f"{OPEN}*.json")):
                self._unsealed.append(_abandoned(path))
            self._seal_all()
            self.forget()
            return {delivery_id: at for file, at in self._id_files() for delivery_id in _lines(file)}
        except OSError as error:
            self._unlock()
            raise self._disk_error(error) from error

    def append(self, deliveries: Sequence[tuple[str, bytes]]) -> None:
        """Writes deliveries. They are durable when the method returns.

        Args:
            deliveries: The id of each delivery, and its JSON on one line, without the line break.

        Raises:
            OSError: The disk is full or broken. None of the deliveries is stored then.
        """
        file = self._open_file()
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
        """Seals the open segment, so that readers see it. An empty segment stays open.

        Raises:
            OSError: The disk fails. Nothing is lost: `mend` tries again.
        """
        if self._file is not None and self._open.size:
            self._end_open()
        self._seal_all()

    def mend(self) -> None:
        """Seals the segments that could not be sealed, and tests whether deliveries can be written again.

        Raises:
            OSError: The disk still fails.
        """
        self._seal_all()
        self._open_file()
        probe = os.open(self._folder / PROBE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
        try:
            _write_all(probe, PROBE_BYTES)
            os.fsync(probe)
        finally:
            os.close(probe)
            (self._folder / PROBE).unlink()

    @property
    def age(self) -> float:
        """Seconds since the open segment was begun; 0 if it is empty, or if there is none."""
        return time.monotonic() - self._began if self._file is not None and self._open.size else 0.0

    @property
    def due(self) -> bool:
        """True if the open segment is large enough to be sealed, or a segment waits for `mend`."""
        return bool(self._unsealed) or self._open.size >= self._seal_size

    def waiting(self) -> int:
        """Bytes of all segments that no run has committed yet."""
        return sum(_size_of(file) for file in self._folder.glob("*.json"))

    def forget(self) -> None:
        """Deletes the ids of segments that are older than the window."""
        oldest = time.time() - self._window
        for file, at in self._id_files():
            if at < oldest:
                file.unlink()

    def close(self) -> None:
        """Seals the open segment, and unlocks the folder.

        Raises:
            RunError: The disk fails. The deliveries stay on the disk, and the next receiver or run seals them.
        """
        try:
            self.seal()
            if self._file is not None:
                os.close(self._file)
                self._file = None
                self._open.path.unlink()
        except OSError as error:
            raise RunError(
                f"the last deliveries in {self._folder} cannot be sealed: {error.strerror or error}.",
                fix="check the disk. Nothing is lost: the next receiver or run of this source seals them.",
            ) from error
        finally:
            self._unlock()

    def _disk_error(self, error: OSError) -> RunError:
        return RunError(
            f"no deliveries can be stored in {self._folder}: {error.strerror or error}.",
            fix="check the disk and the rights of this user, or name another folder with .segments(folder).",
        )

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _open_file(self) -> int:
        """The file descriptor of the open segment; begins a segment if none is open."""
        if self._file is None:
            # No name is ever used twice, since readers identify a segment by its name.
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
        """Removes the bytes of deliveries whose write failed, since their senders send them again."""
        try:
            os.ftruncate(file, self._open.size)
            os.lseek(file, self._open.size, os.SEEK_SET)
            os.fsync(file)
        except OSError:
            self._end_open()

    def _end_open(self) -> None:
        """Ends the open segment; `_seal_all` cuts it to the acknowledged deliveries, and seals it."""
        file, self._file = self._file, None
        self._unsealed.append(self._open)
        self._open = Segment(self._folder)
        if file is not None:
            os.close(file)

    def _seal_all(self) -> None:
        while self._unsealed:
            self._seal(self._unsealed[0])
            del self._unsealed[0]

    def _seal(self, segment: Segment) -> None:
        """Seals a segment. After an error, the method can be called again."""
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

    def _id_files(self) -> list[tuple[Path, float]]:
        """The files with ids, each with its modification time in seconds since 1970."""
        return [(file, file.stat().st_mtime) for file in sorted((self._folder / IDS).iterdir())]


def is_taken(folder: Path) -> bool:
    """True if a receiver is writing to a folder."""
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
    """The hidden segments of a folder that have acknowledged deliveries."""
    return [file.name for file in sorted(folder.glob(f"{OPEN}*.json")) if _size_of(file)]


def recover(folder: Path, window: float) -> bool:
    """Seals the segments that a crashed receiver has left, unless another receiver writes to the folder.

    Args:
        window: Seconds for which the ids of deliveries are kept.

    Returns:
        True if all acknowledged deliveries are in sealed segments.

    Raises:
        RunError: The disk fails.
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


def _abandoned(path: Path) -> Segment:
    """A segment that a crashed writer has left."""
    data = path.read_bytes()
    whole_lines = data[: data.rfind(b"\n") + 1]  # an incomplete last line was never acknowledged
    ids = [json.loads(line)[ID] for line in whole_lines.splitlines()]
    return Segment(path, len(whole_lines), [id for id in ids if id])


def _lines(file: Path) -> list[str]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _size_of(file: Path) -> int:
    """The size of a file; 0 if a reader has deleted the file in the meantime."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
