"""The log of a followed folder: which files each planned batch reads.

<checkpoint>/helios/files/<source>/
  7.1f0e9a3bc2d4          entry 7: a header, then a line for each file: its path, size and modification time
  1-32.9c1d22e07ab5       entries 1 to 32 in one file, as they were one after the other
  7.1f0e9a3bc2d4.skipped  the files of entry 7 that were gone when it was read
  7.1f0e9a3bc2d4.unread   those that could not be read, and were set aside
  7.1f0e9a3bc2d4.failed   a run has failed on entry 7 before anything of it was written: its files may be repaired
  6.80cd5b1f77e9.forgotten  entry 6 and those before it are deleted: their files are gone and never come again

An entry is written before Spark's own log names its place. Its hash covers its files and the hash of the entry before,
so that a place proves every entry up to it: a log that was cut, torn or edited is refused. Names carry the hash, so
that an entry that was planned and given up, or written by a driver that had died, is never taken for another.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.files.folder_position import FolderPosition

FANOUT = 32
"""So many files of the log become one: a million entries are about a hundred files."""

NAME = re.compile(r"(\d+)(?:-(\d+))?\.([0-9a-f]{12})")
SKIPPED = ".skipped"
UNREAD = ".unread"
FORGOTTEN = ".forgotten"
FAILED = ".failed"

Known = dict[str, tuple[int, int]]
"""Size and modification time of every file that was read, by its path."""


class Store(Protocol):
    """Small text files under a folder; `helios.spark.checkpoint.small_files` has those of a checkpoint."""

    def read(self, name: str) -> str | None: ...

    def write(self, name: str, text: str) -> None: ...

    def delete(self, name: str) -> None: ...

    def names(self, folder: str) -> list[str]: ...


@dataclass(frozen=True)
class Entry:
    """The files of one batch.

    Attributes:
        number: Its number; 1 for the first batch.
        previous: The hash of the entry before.
        lines: Its files, each as a line.
        planned: When it was planned, in milliseconds since 1970.
    """

    number: int
    previous: str
    lines: tuple[str, ...]
    planned: int

    @classmethod
    def made(cls, number: int, previous: str, files: Sequence[File], planned: int) -> Entry:
        lines = [json.dumps([f.path, f.size, f.modified], ensure_ascii=False, separators=(",", ":")) for f in files]
        return cls(number, previous, tuple(lines), planned)

    @property
    def hash(self) -> str:
        return hashlib.sha256("\n".join((self.previous, str(self.number), *self.lines)).encode()).hexdigest()[:32]

    @property
    def files(self) -> list[File]:
        found: list[list[Any]] = json.loads(f"[{','.join(self.lines)}]")
        return [File(*fields) for fields in found]

    @property
    def text(self) -> str:
        head = {"v": 1, "entry": self.number, "files": len(self.lines), "previous": self.previous, "hash": self.hash}
        head["planned"] = self.planned
        return "".join(f"{line}\n" for line in (json.dumps(head), *self.lines))


@dataclass(frozen=True)
class Part:
    """A file of the log, with the entries `first` to `last`."""

    name: str
    first: int
    last: int


def entries(text: str) -> Iterator[Entry]:
    """The entries of a file of the log, up to where it is damaged."""
    lines = text.split("\n")
    at = 0
    while at < len(lines) and lines[at]:
        try:
            head = json.loads(lines[at])
            count, number = int(head["files"]), int(head["entry"])
            files = tuple(lines[at + 1 : at + 1 + count])
            entry = Entry(number, str(head["previous"]), files, int(head["planned"]))
            whole = len(entry.lines) == count and at + 1 + count < len(lines) and entry.hash == head["hash"]
        except (ValueError, KeyError, TypeError):
            return
        if not whole:
            return
        yield entry
        at += 1 + count


class FileLog:
    """The log of one followed folder.

    Args:
        store: The files of the checkpoint.
        root: The location of the checkpoint.
        number: The number of the source among the followed ones.
    """

    def __init__(self, store: Store, root: str, number: int) -> None:
        self._store = store
        self._folder = f"helios/files/{number}"
        self.location = f"{root}/{self._folder}"
        self._parts: list[Part] = []

    # reading

    def load(self, at: FolderPosition, elsewhere: FileLog | None = None) -> Known:
        """Every file that was read up to a place, as proven by the log, which continues there.

        Args:
            at: The place.
            elsewhere: The log of a checkpoint that this one replaces; its entries are copied.

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
        self._parts = [Part(name, parts[0].number, parts[-1].number) for name, parts in chain]
        return self._known(entry for _, part in chain for entry in part)

    def _copied(self, at: FolderPosition, other: FileLog) -> Known:
        known = other.load(at)
        whole = [entry for name, part in reversed(list(other._chain(at))) for entry in part]
        if whole[0].previous:
            self._note_forgotten(whole[0])
        name = f"{whole[0].number}-{at.entry}.{at.hash[:12]}"
        self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in whole))
        for entry in whole:
            if skipped := other.skipped(entry):
                self.skip(FolderPosition(log="", entry=entry.number, hash=entry.hash), sorted(skipped))
        if unread := other.unread():
            self.set_aside(at, {File(path, *stat): "" for path, stat in unread.items()})
        self._parts = [Part(name, whole[0].number, at.entry)]
        return known

    def files(self, after: int, at: FolderPosition) -> list[File]:
        """The files of the entries behind `after`, up to a place.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        kept: list[File] = []
        for entry in self._entries_behind(after, at):
            skipped = self.skipped(entry)
            kept += [file for file in entry.files if file.path not in skipped]
        return kept

    def planned(self, after: int, at: FolderPosition) -> dict[str, int]:
        """When each file of the entries behind `after`, up to a place, was planned, in milliseconds since 1970.

        Raises:
            CheckpointError: An entry is missing or damaged.
        """
        return {file.path: entry.planned for entry in self._entries_behind(after, at) for file in entry.files}

    def _entries_behind(self, after: int, at: FolderPosition) -> list[Entry]:
        behind: list[Entry] = []
        for _, some in self._chain(at):
            behind = [entry for entry in some if entry.number > after] + behind
            if some[0].number <= after + 1:
                break
        return behind

    def _chain(self, at: FolderPosition) -> Iterator[tuple[str, list[Entry]]]:
        """The files of the log up to a place, newest first, each with its entries up to there."""
        names = self._store.names(self._folder)
        number, digest = at.entry, at.hash
        while digest and not self._is_forgotten(names, number, digest):
            name, part = self._part(names, number, digest, at)
            yield name, part
            number, digest = part[0].number - 1, part[0].previous

    def _part(self, names: Iterable[str], number: int, digest: str, at: FolderPosition) -> tuple[str, list[Entry]]:
        """The file with the entry of a number and a hash, and its entries up to that one."""
        parsed = [(name, m) for name in names if (m := NAME.fullmatch(name)) is not None]
        around = [(name, m) for name, m in parsed if int(m[1]) <= number <= int(m[2] or m[1])]
        # The longest first: what it merged may still lie beside it. Of one length, the one that ends with the hash.
        around.sort(key=lambda one: (int(one[1][1]), not digest.startswith(one[1][3])))
        for name, _ in around:
            kept = [e for e in entries(self._store.read(f"{self._folder}/{name}") or "") if e.number <= number]
            if kept and kept[-1].number == number and kept[-1].hash == digest:
                return name, kept
        raise self._damaged(number, bool(around), at)

    def _damaged(self, number: int, there: bool, at: FolderPosition) -> CheckpointError:
        count = f", which has {at.files:,} files," if number == at.entry else ""
        return CheckpointError(
            f"the log of the files that were read, {self.location}, does not have its entry {number}{count} any more: "
            f"{'it was cut or changed' if there else 'its file is gone'}. Which files were read is unknown without it.",
            fix="restore the folder from a backup, refill the target with `helios run --full-refresh` while the files "
            "are there, or run under a new name into a new target.",
        )

    def _known(self, found: Iterable[Entry]) -> Known:
        known: Known = {}
        marked = any(name.endswith(SKIPPED) for name in self._store.names(self._folder))
        for entry in found:
            files: Known = {path: (size, at) for path, size, at in json.loads(f"[{','.join(entry.lines)}]")}
            for path in self.skipped(entry) if marked else ():
                files.pop(path, None)
            known |= files
        return known

    def skipped(self, entry: Entry) -> frozenset[str]:
        """The files of an entry that were gone when it was read."""
        text = self._store.read(f"{self._folder}/{entry.number}.{entry.hash[:12]}{SKIPPED}")
        return frozenset(json.loads(text)) if text else frozenset()

    # writing

    def append(self, after: FolderPosition, files: Sequence[File]) -> FolderPosition:
        """Writes the entry of a batch; it must be durable before Spark's log names it.

        Args:
            after: The place that the log was loaded at, or that `append` has given last.
            files: The files of the batch.
        """
        entry = Entry.made(after.entry + 1, after.hash, files, time.time_ns() // 1_000_000)
        self._write(entry)
        self._merge(after.entry)
        place = FolderPosition(
            log=self.location,
            entry=entry.number,
            files=len(files),
            bytes=sum(file.size for file in files),
            hash=entry.hash,
            read=after.read + len(files),
        )
        return place.naming(files)

    def skip(self, at: FolderPosition, paths: Sequence[str]) -> None:
        """Notes files of an entry that were gone: they are read if they come again."""
        name = f"{self._folder}/{at.entry}.{at.hash[:12]}{SKIPPED}"
        noted: list[str] = json.loads(self._store.read(name) or "[]")
        self._store.write(name, json.dumps(sorted({*noted, *paths}), ensure_ascii=False))

    def set_aside(self, at: FolderPosition, files: Mapping[File, str]) -> None:
        """Notes files of an entry that could not be read, and why: a repaired one is a new file."""
        noted = [[file.path, file.size, file.modified, cause] for file, cause in files.items()]
        self._store.write(f"{self._folder}/{at.entry}.{at.hash[:12]}{UNREAD}", json.dumps(noted, ensure_ascii=False))

    def fail(self, at: FolderPosition) -> None:
        """Notes that a run has failed on an entry, so that its files may change before it is read again."""
        self._store.write(f"{self._folder}/{at.entry}.{at.hash[:12]}{FAILED}", "{}")

    def has_failed(self, at: FolderPosition) -> bool:
        """True if a run has failed on an entry."""
        return self._store.read(f"{self._folder}/{at.entry}.{at.hash[:12]}{FAILED}") is not None

    def unread_of(self, at: FolderPosition) -> dict[File, str]:
        """The rejected files of an entry, with their causes; without files whose cause is unknown."""
        damaged = json.loads(self._store.read(f"{self._folder}/{at.entry}.{at.hash[:12]}{UNREAD}") or "[]")
        return {File(*file): cause for *file, cause in damaged if cause}

    def unread(self) -> Known:
        """The files that were set aside, as they were then."""
        names = [name for name in self._store.names(self._folder) if name.endswith(UNREAD)]
        names.sort(key=lambda name: int(name.partition(".")[0]))  # of a file that came twice, the later state
        damaged: list[list[Any]] = []
        for name in names:
            damaged += json.loads(self._store.read(f"{self._folder}/{name}") or "[]")
        return {path: (size, modified) for path, size, modified, _ in damaged}

    def forget(self, at: FolderPosition) -> None:
        """Deletes the entries before one, whose files are deleted for good: otherwise the log would grow for ever.

        Args:
            at: The place of that entry, which is kept, as are those that are in one file with it.
        """
        _, found = next(self._chain(at), ("", []))
        if not found or not found[0].previous:  # no entry yet, or none before
            return
        oldest = found[0]
        self._note_forgotten(oldest)  # first: it ends the chain, and a crash leaves files that nobody needs
        kept = f"{oldest.number - 1}.{oldest.previous[:12]}{FORGOTTEN}"
        for name in self._store.names(self._folder):
            last = name.partition(".")[0].rpartition("-")[2]
            if last.isdigit() and int(last) < oldest.number and name != kept:
                self._store.delete(f"{self._folder}/{name}")
        self._parts = [part for part in self._parts if part.last >= oldest.number]

    def _note_forgotten(self, oldest: Entry) -> None:
        """Notes that an entry is the oldest one that is kept."""
        name = f"{oldest.number - 1}.{oldest.previous[:12]}{FORGOTTEN}"
        self._store.write(f"{self._folder}/{name}", json.dumps({"v": 1, "hash": oldest.previous}))

    def _is_forgotten(self, names: Iterable[str], number: int, digest: str) -> bool:
        name = f"{number}.{digest[:12]}{FORGOTTEN}"
        return name in names and f'"{digest}"' in (self._store.read(f"{self._folder}/{name}") or "")

    def _write(self, entry: Entry) -> None:
        name = f"{entry.number}.{entry.hash[:12]}"
        self._store.write(f"{self._folder}/{name}", entry.text)
        self._parts.append(Part(name, entry.number, entry.number))

    def _merge(self, last: int) -> None:
        """Merges the files of the log that end with an entry, level by level; nothing before it is planned again."""
        size = FANOUT
        while last and last % size == 0:
            parts = [part for part in self._parts if part.first > last - size and part.last <= last]
            if len(parts) > 1:
                merged = [entry for part in parts for entry in self._entries(part)]
                name = f"{merged[0].number}-{last}.{merged[-1].hash[:12]}"
                self._store.write(f"{self._folder}/{name}", "".join(entry.text for entry in merged))
                for part in parts:
                    self._store.delete(f"{self._folder}/{part.name}")
                at = self._parts.index(parts[0])
                self._parts[at : at + len(parts)] = [Part(name, merged[0].number, last)]
            size *= FANOUT

    def _entries(self, part: Part) -> list[Entry]:
        text = self._store.read(f"{self._folder}/{part.name}") or ""
        return [entry for entry in entries(text) if part.first <= entry.number <= part.last]


def known_of(files: Iterable[File]) -> Known:
    """Size and modification time of files, by their paths."""
    return {file.path: (file.size, file.modified) for file in files}


def lines_of(files: Iterable[tuple[str, int, int]]) -> list[File]:
    """Files of a listing, oldest first.

    Examples:
        >>> [file.path for file in lines_of([("b", 1, 5), ("a", 1, 5), ("c", 1, 2)])]
        ['c', 'a', 'b']
    """
    return sorted((File(*fields) for fields in files), key=lambda file: (file.modified, file.path))
