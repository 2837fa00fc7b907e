"""How far a folder is read: the position of a `Files.source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from helios.sources.common.file import File
from helios.sources.common.position import SourcePosition

SHOWN = 3
"""So many files are named for people."""

INLINE = 8_000
"""The most bytes of file names in a position: it goes into every snapshot's summary."""


@dataclass(frozen=True, kw_only=True)
class FolderPosition(SourcePosition):
    """How far a folder is read: up to an entry of its log.

    Attributes:
        log: The folder of the log.
        entry: The number of the entry; 0 before the first one.
        files: How many files the entry has.
        bytes: Their sizes together.
        hash: The hash of the entry, and by it of all entries before.
        read: How many files all entries up to here have.
        names: The files of the entry, if their names are short.
    """

    log: str
    entry: int = 0
    files: int = 0
    bytes: int = 0
    hash: str = ""
    read: int = 0
    names: tuple[File, ...] = ()

    def text(self, before: SourcePosition | None) -> str:
        """The files of the entry, for people.

        Examples:
            >>> names = (File("file:/in/a.csv", 1, 2), File("file:/in/b.csv", 1, 2))
            >>> FolderPosition(log="/c", files=2, names=names).text(None)
            '2 files: a.csv, b.csv'
        """
        names = ", ".join(file.path.rpartition("/")[2] for file in self.names[:SHOWN])
        more = ", ..." if len(self.names) > SHOWN else ""
        return f"{self.files:,} file{'s' * (self.files != 1)}{f': {names}{more}' if names else ''}"

    def naming(self, files: Sequence[File]) -> Self:
        """The place with the names of its files, if they are short enough."""
        short = sum(len(file.path.encode()) + 32 for file in files) < INLINE
        return replace(self, names=tuple(files) if short else ())

    def as_json(self) -> dict[str, Any]:
        """The place as Spark's log of offsets and the snapshot summary keep it.

        Examples:
            >>> FolderPosition(log="/c/helios/files/0", entry=2, files=1, bytes=5, hash="ab", read=9).as_json()
            {'log': '/c/helios/files/0', 'entry': 2, 'files': 1, 'bytes': 5, 'hash': 'ab', 'read': 9}
        """
        kept = {
            "log": self.log,
            "entry": self.entry,
            "files": self.files,
            "bytes": self.bytes,
            "hash": self.hash,
            "read": self.read,
        }
        return kept | ({"names": [[f.path, f.size, f.modified] for f in self.names]} if self.names else {})

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """The place of a position.

        Raises:
            KeyError: It is no position of a folder.
        """
        names = tuple(File(str(path), int(size), int(at)) for path, size, at in value.get("names", ()))
        return cls(
            log=str(value["log"]),
            entry=int(value["entry"]),
            files=int(value["files"]),
            bytes=int(value["bytes"]),
            hash=str(value["hash"]),
            read=int(value["read"]),
            names=names,
        )

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The place from JSON of any shape; None if it is not a place.

        Examples:
            >>> FolderPosition.of({"snapshot_id": 7}), FolderPosition.of(7)
            (None, None)
        """
        if isinstance(value, Mapping) and "log" in value and "entry" in value:
            return cls.parse(value)
        return None
