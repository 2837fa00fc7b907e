"""The log of a followed folder: which files each planned batch reads.

<checkpoint>/helios/files/<source>/
  7.1f0e9a3bc2d4          entry 7: a header, then a line for each file: its path, size and modification time
  1-32.9c1d22e07ab5       entries 1 to 32 in one file, one after the other
  7.1f0e9a3bc2d4.skipped  the files of entry 7 that were gone when the entry was read
  7.1f0e9a3bc2d4.unread   the files of entry 7 that could not be read
  7.1f0e9a3bc2d4.failed   a run failed on entry 7 before it wrote anything: the files of the entry may be repaired
  6.80cd5b1f77e9.forgotten  entries 1 to 6 are deleted: their files are gone for good

An entry is written before Spark's offset log stores its position. The hash of an entry covers its files and the hash
of the previous entry. So a position proves all entries up to its own: a log that was cut or edited is refused. The name
of a log file contains the hash, too. So an entry that a dead driver wrote, or that was planned and given up, is never
mistaken for another entry with the same number.
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
"""So many log files are merged into one: a million entries take about a hundred files."""

HASH_IN_NAME = 12
"""So many characters of an entry's hash are part of a file's name."""

NAME = re.compile(rf"(\d+)(?:-(\d+))?\.[0-9a-f]{{{HASH_IN_NAME}}}")
SKIPPED = ".skipped"
UNREAD = ".unread"
FORGOTTEN = ".forgotten"
FAILED = ".failed"

Known = dict[str, tuple[int, int]]
"""Size and modification time of every file that was read, by its path."""


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
        number: The number of the batch; 1 for the first one.
        previous: The hash of the entry before.
        lines: The files, each as a line.
        planned: When the batch was planned, in milliseconds since 1970.
    """

    number: int
    previous: str
    lines: tuple[str, ...]
    planned: int

    @classmethod
    def of_files(cls, number: int, previous: str, files: Sequence[File], planned: int) -> Entry:
        lines = [json.dumps([f.path, f.size, f.modified], ensure_ascii=False, separators=(",", ":")) for f in files]
        return cls(number, previous, tuple(lines), planned)

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join((self.previous, str(self.number), *self.lines)).encode()).hexdigest()[:32]

    @property
    def files(self) -> list[File]:
        return [File(*fields) for fields in json.loads(f"[{','.join(self.lines)}]")]

    @property
    def text(self) -> str:
        head = {"v": 1, "entry": self.number, "files": len(self.lines), "previous": self.previous, "hash": self.hash}
        head["planned"] = self.planned
        return "".join(f"{line}\n" for line in (json.dumps(head), *self.lines))


@dataclass(frozen=True)
class Part:
    """A log file, with the entries `first` to `last`. Its name ends with the hash of the last one."""

    name: str
    first: int
    last: int

    @classmethod
    def of_name(cls, name: str) -> Part | None:
        """The log file with a name; None if the name is not that of a log file."""
        match = NAME.fullmatch(name)
        return cls(name, int(match[1]), int(match[2] or match[1])) if match is not None else None


def entries(text: str) -> Iterator[Entry]:
    """The entries in the text of a log file, up to the first that is damaged or does not follow the previous one."""
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
            is_whole = len(entry.lines) == count and end < len(lines) and entry.hash == head["hash"]
        except (ValueError, KeyError, TypeError):
            return
        if not is_whole or (before is not None and (entry.number, entry.previous) != (before.number + 1, before.hash)):
            return
        yield entry
        before, start = entry, end


class FileLog:
    """The log of one followed folder.

    Args:
        store: The files of the checkpoint.
        root: The location of the checkpoint.
        number: The number of the source among the followed sources.
    """

    def __init__(self, store: Store, root: str, number: int) -> None:
        self._store = store
        self._folder = f"helios/files/{number}"
        self.location = f"{root}/{self._folder}"
        self._parts: list[Part] = []

    # reading

    def load(self, at: FolderPosition, elsewhere: FileLog | None = None) -> Known:
        """The files that were read up to a position, proven by their hashes; the log continues at the position.

        Args:
            at: The position.
            elsewhere: The log of the checkpoint that this checkpoint replaces; its entries are copied.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        self._parts = []
        if not at.hash:
            return {}
        try:
            chain = list(self._chain(at))
        except CheckpointError:
            if elsewhere is None or elsewhere.location == self.location:
                raise
            return self._copied(at, elsewhere)
        chain.reverse()
        self._parts = [Part(name, part[0].number, part[-1].number) for name, part in chain]
        return self._known([entry for _, part in chain for entry in part])

    def _copied(self, at: FolderPosition, other: FileLog) -> Known:
        """The files that were read up to a position of another log, whose entries become one file of this log."""
        known = other.load(at)
        copied = [entry for _, part in reversed(list(other._chain(at))) for entry in part]
        oldest = copied[0]
        if oldest.previous:
            self._note_forgotten(oldest)
        name = f"{oldest.number}-{at.entry}.{at.hash[:HASH_IN_NAME]}"
        self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in copied))
        for entry in copied:
            if skipped := other.skipped(entry):
                self.note_skipped(FolderPosition(log="", entry=entry.number, hash=entry.hash), sorted(skipped))
        if unread := other.unread():
            self.note_unread(at, {File(path, *stat): "" for path, stat in unread.items()})
        self._parts = [Part(name, oldest.number, at.entry)]
        return known

    def files(self, after: int, at: FolderPosition) -> list[File]:
        """The files of the entries after number `after`, up to a position.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        files: list[File] = []
        for entry in self._entries_after(after, at):
            skipped = self.skipped(entry)
            files += [file for file in entry.files if file.path not in skipped]
        return files

    def planned(self, after: int, at: FolderPosition) -> dict[str, int]:
        """When each file of the entries after number `after`, up to a position, was planned, in ms since 1970.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        return {file.path: entry.planned for entry in self._entries_after(after, at) for file in entry.files}

    def _entries_after(self, after: int, at: FolderPosition) -> list[Entry]:
        later: list[Entry] = []
        for _, part in self._chain(at):
            later = [entry for entry in part if entry.number > after] + later
            if part[0].number <= after + 1:
                break
        return later

    def _chain(self, at: FolderPosition) -> Iterator[tuple[str, list[Entry]]]:
        """The names of the log files up to a position, newest first, each with its entries up to the position."""
        names = self._store.names(self._folder)
        number, digest = at.entry, at.hash
        while digest and not self._is_forgotten(names, number, digest):
            name, part = self._part(names, number, digest, at)
            yield name, part
            number, digest = part[0].number - 1, part[0].previous

    def _part(self, names: Iterable[str], number: int, digest: str, at: FolderPosition) -> tuple[str, list[Entry]]:
        """The name of the log file that contains the entry with a number and a hash, and its entries up to that one."""
        candidates = [part for part in map(Part.of_name, names) if part and part.first <= number <= part.last]
        # The file with the earliest first entry is tried first, as the files that were merged into it may still exist;
        # among those with the same first entry, the one that ends with the wanted entry.
        candidates.sort(key=lambda part: (part.first, not part.name.endswith(f".{digest[:HASH_IN_NAME]}")))
        for part in candidates:
            text = self._store.read(f"{self._folder}/{part.name}") or ""
            kept = [entry for entry in entries(text) if entry.number <= number]
            if kept and kept[-1].number == number and kept[-1].hash == digest:
                return part.name, kept
        raise self._damaged(number, bool(candidates), at)

    def _damaged(self, number: int, has_file: bool, at: FolderPosition) -> CheckpointError:
        count = f", which has {at.files:,} files," if number == at.entry else ""
        return CheckpointError(
            f"the log of the files that were read, {self.location}, does not have its entry {number}{count} any more: "
            f"{'the log was cut or changed' if has_file else 'its file is gone'}. Without the entry nobody knows which "
            "files were read.",
            fix="restore the folder from a backup, refill the target with `helios run --full-refresh` while the files "
            "are there, or run under a new name into a new target.",
        )

    def _known(self, read: Sequence[Entry]) -> Known:
        known: Known = {}
        any_skipped = any(name.endswith(SKIPPED) for name in self._store.names(self._folder))
        for entry in read:
            skipped = self.skipped(entry) if any_skipped else frozenset[str]()
            files = json.loads(f"[{','.join(entry.lines)}]")
            known |= {path: (size, modified) for path, size, modified in files if path not in skipped}
        return known

    def skipped(self, entry: Entry) -> frozenset[str]:
        """The files of an entry that were gone when the entry was read."""
        text = self._store.read(self._beside(entry.number, entry.hash, SKIPPED))
        return frozenset(json.loads(text)) if text else frozenset()

    def _beside(self, number: int, digest: str, suffix: str) -> str:
        """The name of a note about an entry; the suffix says which note."""
        return f"{self._folder}/{number}.{digest[:HASH_IN_NAME]}{suffix}"

    # writing

    def append(self, after: FolderPosition, files: Sequence[File]) -> FolderPosition:
        """Writes the entry of a batch; it must be durable before Spark's log names it.

        Args:
            after: The position at which the log was loaded, or the result of the last `append`.
            files: The files of the batch.
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
        """Notes files of an entry that were gone: they are read if they appear again."""
        name = self._beside(at.entry, at.hash, SKIPPED)
        noted: list[str] = json.loads(self._store.read(name) or "[]")
        self._store.write(name, json.dumps(sorted({*noted, *paths}), ensure_ascii=False))

    def note_unread(self, at: FolderPosition, files: Mapping[File, str]) -> None:
        """Notes files of an entry that could not be read, with their causes; a repaired file counts as a new one."""
        noted = [[file.path, file.size, file.modified, cause] for file, cause in files.items()]
        self._store.write(self._beside(at.entry, at.hash, UNREAD), json.dumps(noted, ensure_ascii=False))

    def note_failed(self, at: FolderPosition) -> None:
        """Notes that a run failed on an entry: its files may change before the entry is read again."""
        self._store.write(self._beside(at.entry, at.hash, FAILED), "{}")

    def has_failed(self, at: FolderPosition) -> bool:
        """True if a run failed on an entry."""
        return self._store.read(self._beside(at.entry, at.hash, FAILED)) is not None

    def unread_of(self, at: FolderPosition) -> dict[File, str]:
        """The unreadable files of an entry with their causes; files without a noted cause are left out."""
        unread = json.loads(self._store.read(self._beside(at.entry, at.hash, UNREAD)) or "[]")
        return {File(*file): cause for *file, cause in unread if cause}

    def unread(self) -> Known:
        """All files that could not be read, in any entry, with their size and time at that moment."""
        names = [name for name in self._store.names(self._folder) if name.endswith(UNREAD)]
        names.sort(key=lambda name: int(name.partition(".")[0]))  # if two entries note a file, the later one wins
        unread: Known = {}
        for name in names:
            files = json.loads(self._store.read(f"{self._folder}/{name}") or "[]")
            unread |= {path: (size, modified) for path, size, modified, _ in files}
        return unread

    def forget(self, at: FolderPosition) -> None:
        """Deletes the entries before a position, so that the log does not grow for ever; their files are gone for good.

        Args:
            at: The position; its entry is kept, with all entries of the same log file.
        """
        _, kept = next(self._chain(at), ("", []))
        if not kept or not kept[0].previous:  # no entry yet, or none before
            return
        oldest = kept[0]
        # The note comes first, since it ends the chain of hashes: a crash then leaves only files that nobody needs.
        noted = self._note_forgotten(oldest)
        for name in self._store.names(self._folder):
            last = name.partition(".")[0].rpartition("-")[2]
            if last.isdigit() and int(last) < oldest.number and name != noted:
                self._store.delete(f"{self._folder}/{name}")
        self._parts = [part for part in self._parts if part.last >= oldest.number]

    def _note_forgotten(self, oldest: Entry) -> str:
        """Notes that an entry is the oldest that is kept; returns the name of the note."""
        name = f"{oldest.number - 1}.{oldest.previous[:HASH_IN_NAME]}{FORGOTTEN}"
        self._store.write(f"{self._folder}/{name}", json.dumps({"v": 1, "hash": oldest.previous}))
        return name

    def _is_forgotten(self, names: Iterable[str], number: int, digest: str) -> bool:
        name = f"{number}.{digest[:HASH_IN_NAME]}{FORGOTTEN}"
        return name in names and f'"{digest}"' in (self._store.read(f"{self._folder}/{name}") or "")

    def _write(self, entry: Entry) -> None:
        name = f"{entry.number}.{entry.hash[:HASH_IN_NAME]}"
        self._store.write(f"{self._folder}/{name}", entry.text)
        self._parts.append(Part(name, entry.number, entry.number))

    def _merge(self, last: int) -> None:
        """Merges log files once the entry `last` completes 32, 1024, ... entries, which are final by then."""
        size = FANOUT
        while last and last % size == 0:
            parts = [part for part in self._parts if part.first > last - size and part.last <= last]
            if len(parts) > 1:
                merged = [entry for part in parts for entry in self._entries(part)]
                name = f"{merged[0].number}-{last}.{merged[-1].hash[:HASH_IN_NAME]}"
                self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in merged))
                for part in parts:
                    self._store.delete(f"{self._folder}/{part.name}")
                start = self._parts.index(parts[0])
                self._parts[start : start + len(parts)] = [Part(name, merged[0].number, last)]
            size *= FANOUT

    def _entries(self, part: Part) -> list[Entry]:
        text = self._store.read(f"{self._folder}/{part.name}") or ""
        return [entry for entry in entries(text) if part.first <= entry.number <= part.last]


def known_of(files: Iterable[File]) -> Known:
    """Size and modification time of files, by their paths."""
    return {file.path: (file.size, file.modified) for file in files}


def oldest_first(files: Known) -> list[File]:
    """The files of a listing, by modification time, then by path.

    Examples:
        >>> [file.path for file in oldest_first({"b": (1, 5), "a": (1, 5), "c": (1, 2)})]
        ['c', 'a', 'b']
    """
    return sorted((File(path, *stat) for path, stat in files.items()), key=lambda file: (file.modified, file.path))
