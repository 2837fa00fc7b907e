"""The log of a followed folder, which lists the files of each planned batch.

<checkpoint>/helios/files/<source>/
  7.1f0e9a3bc2d4          entry 7: a header, then a line for each file: its path, size and modification time
  1-32.9c1d22e07ab5       entries 1 to 32 in one file, one after the other
  7.1f0e9a3bc2d4.skipped  the files of entry 7 that were gone when the entry was read
  7.1f0e9a3bc2d4.unread   the files of entry 7 that could not be read
  7.1f0e9a3bc2d4.failed   exists if a run failed on entry 7 and wrote nothing of it: the files may be repaired
  6.80cd5b1f77e9.forgotten  exists if entries 1 to 6 were deleted, as the files that they list are gone for good

An entry is written before Spark's offset log stores its position. The hash of an entry covers its files and the hash of
the previous entry. A position has the hash of an entry, which proves all entries up to it: a log that was cut or
edited is refused. The name of a log file contains the hash, too. So an entry of a crashed driver, or of a batch that
was planned and then given up, is never mistaken for another entry with the same number.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.files.folder_position import FolderPosition

FANOUT = 32
"""The number of log files that are merged into one file. So a million entries take about a hundred files."""

HASH_IN_NAME = 12
"""The number of characters of an entry's hash in the name of a file."""

NAME = re.compile(rf"(\d+)(?:-(\d+))?\.[0-9a-f]{{{HASH_IN_NAME}}}")
SKIPPED = ".skipped"
UNREADABLE = ".unread"
FORGOTTEN = ".forgotten"
FAILED = ".failed"

FileStats = dict[str, tuple[int, int]]
"""The size and modification time of files, by path."""


class Store(Protocol):
    """Small text files under a folder; `helios.spark.checkpoint.small_files` implements it for a checkpoint."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...

    def delete(self, name: str) -> None: ...

    def names(self, folder: str) -> list[str]: ...


@dataclass(frozen=True)
class Entry:
    """The files of one batch.

    Attributes:
        number: The number of the entry; 1 for the first one.
        previous: The hash of the previous entry; empty for the first one.
        planned_at: The time at which the batch was planned, in milliseconds since 1970.
        lines: The files, each as a line of JSON.
    """

    number: int
    previous: str
    lines: tuple[str, ...]
    planned_at: int

    @classmethod
    def of_files(cls, number: int, previous: str, files: Sequence[File], planned_at: int) -> Entry:
        lines = [json.dumps([f.path, f.size, f.modified], ensure_ascii=False, separators=(",", ":")) for f in files]
        return cls(number, previous, tuple(lines), planned_at)

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join((self.previous, str(self.number), *self.lines)).encode()).hexdigest()[:32]

    @property
    def files(self) -> list[File]:
        return [File(*fields) for fields in json.loads(f"[{','.join(self.lines)}]")]

    @property
    def text(self) -> str:
        head = {"v": 1, "entry": self.number, "files": len(self.lines), "previous": self.previous, "hash": self.hash}
        head["planned"] = self.planned_at
        return "".join(f"{line}\n" for line in (json.dumps(head), *self.lines))


@dataclass(frozen=True)
class LogFile:
    """A file of the log, with the entries `first` to `last`. Its name ends with a part of the last entry's hash."""

    name: str
    first: int
    last: int

    @classmethod
    def of_name(cls, name: str) -> LogFile | None:
        """The log file with a name; None if the name is not that of a log file."""
        match = NAME.fullmatch(name)
        return cls(name, int(match[1]), int(match[2] or match[1])) if match is not None else None


def entries(text: str) -> Iterator[Entry]:
    """The entries in the text of a log file; stops at an entry that is damaged or does not follow the previous one."""
    lines = text.split("\n")
    start = 0
    before: Entry | None = None
    while start < len(lines) and lines[start]:
        try:
            head = json.loads(lines[start])
            count = int(head["files"])
            end = start + 1 + count
            entry = Entry(
                int(head["entry"]), str(head["previous"]), tuple(lines[start + 1 : end]), int(head["planned"])
            )
            is_intact = len(entry.lines) == count and end < len(lines) and entry.hash == head["hash"]
        except (ValueError, KeyError, TypeError):
            return
        if not is_intact or (before is not None and (entry.number, entry.previous) != (before.number + 1, before.hash)):
            return
        yield entry
        before, start = entry, end


class FileLog:
    """The log of one followed folder; `number` is the source's number among the followed sources."""

    def __init__(self, store: Store, root: str, number: int) -> None:
        self._store = store
        self._folder = f"helios/files/{number}"
        self.location = f"{root}/{self._folder}"
        self._log_files: list[LogFile] = []

    # reading

    def load(self, at: FolderPosition, other: FileLog | None = None) -> FileStats:
        """Returns the files that were read up to a position, after a check of all hashes.

        The next `append` continues at the position. `other` is the log of the checkpoint that this checkpoint replaces:
        if this log lacks an entry, all entries of `other` up to the position are copied.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        self._log_files = []
        if not at.hash:
            return {}
        try:
            chain = list(self._chain(at))
        except CheckpointError:
            if other is None or other.location == self.location:
                raise
            return self._load_copied(at, other)
        chain.reverse()
        self._log_files = [
            LogFile(name, file_entries[0].number, file_entries[-1].number) for name, file_entries in chain
        ]
        return self._known([entry for _, file_entries in chain for entry in file_entries])

    def _load_copied(self, at: FolderPosition, other: FileLog) -> FileStats:
        """Loads another log up to a position, and copies its entries into one file of this log, with their notes."""
        known = other.load(at)
        copied = [entry for _, file_entries in reversed(list(other._chain(at))) for entry in file_entries]
        oldest = copied[0]
        if oldest.previous:
            self._note_forgotten(oldest)
        name = f"{oldest.number}-{at.entry}.{at.hash[:HASH_IN_NAME]}"
        self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in copied))
        for entry in copied:
            if skipped := other.skipped(entry):
                self.note_skipped(FolderPosition(log="", entry=entry.number, hash=entry.hash), sorted(skipped))
        if unreadable := other.unreadable():
            self.note_unreadable(at, {File(path, *stat): "" for path, stat in unreadable.items()})
        self._log_files = [LogFile(name, oldest.number, at.entry)]
        return known

    def files(self, after: int, at: FolderPosition) -> list[File]:
        """The files of the entries from number `after + 1` up to a position, without skipped files.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        files: list[File] = []
        for entry in self._entries_after(after, at):
            skipped = self.skipped(entry)
            files += [file for file in entry.files if file.path not in skipped]
        return files

    def planned_times(self, after: int, at: FolderPosition) -> dict[str, int]:
        """The times at which files were planned, in ms since 1970, by path. The entries are those of `files`.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        return {file.path: entry.planned_at for entry in self._entries_after(after, at) for file in entry.files}

    def _entries_after(self, after: int, at: FolderPosition) -> list[Entry]:
        later: list[Entry] = []
        for _, file_entries in self._chain(at):
            later = [entry for entry in file_entries if entry.number > after] + later
            if file_entries[0].number <= after + 1:
                break
        return later

    def _chain(self, at: FolderPosition) -> Iterator[tuple[str, list[Entry]]]:
        """The names of the log files up to a position, newest first, each with its entries up to the position."""
        names = self._store.names(self._folder)
        number, digest = at.entry, at.hash
        while digest and not self._is_forgotten(names, number, digest):
            name, file_entries = self._file_with(names, number, digest, at)
            yield name, file_entries
            number, digest = file_entries[0].number - 1, file_entries[0].previous

    def _file_with(self, names: Iterable[str], number: int, digest: str, at: FolderPosition) -> tuple[str, list[Entry]]:
        """The name of the log file with the entry that has a number and a hash, and the file's entries up to it."""
        candidates = [file for file in map(LogFile.of_name, names) if file and file.first <= number <= file.last]
        # A merged file is tried before the files that were merged into it, which may still exist. Among files with the
        # same first entry, the one that ends with the wanted entry is tried first.
        candidates.sort(key=lambda file: (file.first, not file.name.endswith(f".{digest[:HASH_IN_NAME]}")))
        for file in candidates:
            text = self._store.read(f"{self._folder}/{file.name}") or ""
            kept = [entry for entry in entries(text) if entry.number <= number]
            if kept and kept[-1].number == number and kept[-1].hash == digest:
                return file.name, kept
        raise self._missing_entry_error(number, bool(candidates), at)

    def _missing_entry_error(self, number: int, has_file: bool, at: FolderPosition) -> CheckpointError:
        count = f", which has {at.files:,} files" if number == at.entry else ""
        return CheckpointError(
            f"{self.location}, the log of the files that were read, no longer has entry {number}{count}: "
            f"{'the log was cut or changed' if has_file else 'the file of the entry is gone'}. Without the entry it is "
            "unknown which files were read.",
            fix="restore the folder from a backup, refill the target with `helios run --full-refresh` while the files "
            "are there, or run under a new name into a new target.",
        )

    def _known(self, entries_read: Sequence[Entry]) -> FileStats:
        """The files of entries, without skipped files."""
        known: FileStats = {}
        any_skipped = any(name.endswith(SKIPPED) for name in self._store.names(self._folder))
        for entry in entries_read:
            skipped = self.skipped(entry) if any_skipped else frozenset[str]()
            files = json.loads(f"[{','.join(entry.lines)}]")
            known |= {path: (size, modified) for path, size, modified in files if path not in skipped}
        return known

    def skipped(self, entry: Entry) -> frozenset[str]:
        """The files of an entry that were gone when the entry was read."""
        text = self._store.read(self._note_name(entry.number, entry.hash, SKIPPED))
        return frozenset(json.loads(text)) if text else frozenset()

    def _note_name(self, number: int, digest: str, suffix: str) -> str:
        return f"{self._folder}/{number}.{digest[:HASH_IN_NAME]}{suffix}"

    # writing

    def append(self, after: FolderPosition, files: Sequence[File]) -> FolderPosition:
        """Writes the entry of a batch. The entry is durable before Spark's offset log stores its position.

        `after` is the position at which the log was loaded, or the result of the last `append`.
        """
        entry = Entry.of_files(after.entry + 1, after.hash, files, time.time_ns() // 1_000_000)
        self._write(entry)
        self._merge(after.entry)
        position = FolderPosition(
            log=self.location,
            entry=entry.number,
            files=len(files),
            bytes=sum(file.size for file in files),
            hash=entry.hash,
            read=after.read + len(files),
        )
        return position.with_names(files)

    def note_skipped(self, at: FolderPosition, paths: Sequence[str]) -> None:
        """Notes that files of an entry were gone. If they appear again, they are read as new files."""
        name = self._note_name(at.entry, at.hash, SKIPPED)
        noted: list[str] = json.loads(self._store.read(name) or "[]")
        self._store.write(name, json.dumps(sorted({*noted, *paths}), ensure_ascii=False))

    def note_unreadable(self, at: FolderPosition, files: Mapping[File, str]) -> None:
        """Notes files of an entry that could not be read, with the causes. A repaired file is read as a new file."""
        noted = [[file.path, file.size, file.modified, cause] for file, cause in files.items()]
        self._store.write(self._note_name(at.entry, at.hash, UNREADABLE), json.dumps(noted, ensure_ascii=False))

    def note_failed(self, at: FolderPosition) -> None:
        """Notes that a run failed on an entry: its files may change before the entry is read again."""
        self._store.write(self._note_name(at.entry, at.hash, FAILED), "{}")

    def has_failed(self, at: FolderPosition) -> bool:
        return self._store.read(self._note_name(at.entry, at.hash, FAILED)) is not None

    def unreadable_of(self, at: FolderPosition) -> dict[File, str]:
        """The unreadable files of an entry with their causes; files without a noted cause are left out."""
        noted = json.loads(self._store.read(self._note_name(at.entry, at.hash, UNREADABLE)) or "[]")
        return {File(*file): cause for *file, cause in noted if cause}

    def unreadable(self) -> FileStats:
        """The unreadable files of all entries, with the size and time that they had when they could not be read."""
        names = [name for name in self._store.names(self._folder) if name.endswith(UNREADABLE)]
        names.sort(key=lambda name: int(name.partition(".")[0]))  # if two entries note a file, the later one wins
        unreadable: FileStats = {}
        for name in names:
            files = json.loads(self._store.read(f"{self._folder}/{name}") or "[]")
            unreadable |= {path: (size, modified) for path, size, modified, _ in files}
        return unreadable

    def forget(self, at: FolderPosition) -> None:
        """Deletes the entries before a position, so that the log does not grow for ever.

        The files of these entries must be gone for good. Entries in the log file of the position itself are kept.
        """
        _, kept = next(self._chain(at), ("", []))
        if not kept or not kept[0].previous:  # there is no entry before `kept`
            return
        oldest = kept[0]
        # The note is written first, since it ends the chain of hashes: after a crash, only unneeded files are left.
        noted = self._note_forgotten(oldest)
        for name in self._store.names(self._folder):
            last = name.partition(".")[0].rpartition("-")[2]
            if last.isdigit() and int(last) < oldest.number and name != noted:
                self._store.delete(f"{self._folder}/{name}")
        self._log_files = [file for file in self._log_files if file.last >= oldest.number]

    def _note_forgotten(self, oldest: Entry) -> str:
        """Notes that an entry is the oldest one that is kept, and returns the name of the note."""
        name = f"{oldest.number - 1}.{oldest.previous[:HASH_IN_NAME]}{FORGOTTEN}"
        self._store.write(f"{self._folder}/{name}", json.dumps({"v": 1, "hash": oldest.previous}))
        return name

    def _is_forgotten(self, names: Iterable[str], number: int, digest: str) -> bool:
        name = f"{number}.{digest[:HASH_IN_NAME]}{FORGOTTEN}"
        return name in names and f'"{digest}"' in (self._store.read(f"{self._folder}/{name}") or "")

    def _write(self, entry: Entry) -> None:
        name = f"{entry.number}.{entry.hash[:HASH_IN_NAME]}"
        self._store.write(f"{self._folder}/{name}", entry.text)
        self._log_files.append(LogFile(name, entry.number, entry.number))

    def _merge(self, last: int) -> None:
        """Merges log files if `last`, the number of the entry before the newest, completes 32, 1024, ... entries."""
        size = FANOUT
        while last and last % size == 0:
            log_files = [file for file in self._log_files if file.first > last - size and file.last <= last]
            if len(log_files) > 1:
                merged = [entry for file in log_files for entry in self._entries(file)]
                name = f"{merged[0].number}-{last}.{merged[-1].hash[:HASH_IN_NAME]}"
                self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in merged))
                for file in log_files:
                    self._store.delete(f"{self._folder}/{file.name}")
                start = self._log_files.index(log_files[0])
                self._log_files[start : start + len(log_files)] = [LogFile(name, merged[0].number, last)]
            size *= FANOUT

    def _entries(self, file: LogFile) -> list[Entry]:
        text = self._store.read(f"{self._folder}/{file.name}") or ""
        return [entry for entry in entries(text) if file.first <= entry.number <= file.last]


def stats_of(files: Iterable[File]) -> FileStats:
    return {file.path: (file.size, file.modified) for file in files}


def oldest_first(files: FileStats) -> list[File]:
    """The files of a listing, by modification time, then by path.

    Examples:
        >>> [file.path for file in oldest_first({"b": (1, 5), "a": (1, 5), "c": (1, 2)})]
        ['c', 'a', 'b']
    """
    return sorted((File(path, *stat) for path, stat in files.items()), key=lambda file: (file.modified, file.path))
