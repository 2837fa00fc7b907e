"""`FolderPosition`, the position of a `Files.source`: how far a folder has been read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from helios.sources.common.file import File
from helios.sources.common.position import SourcePosition

MAX_NAMES_IN_TEXT = 3
"""The maximum number of file names in the text of a position."""

MAX_NAME_BYTES = 8_000
"""From this size on, a position leaves its files out. The limit is low, since snapshot summaries store positions."""

STAT_BYTES = 32
"""The approximate bytes of a file's size and modification time in a position, in addition to its path."""


@dataclass(frozen=True, kw_only=True)
class FolderPosition(SourcePosition):
    """How far a folder has been read: up to an entry of its log, which has the files of one batch.

    Attributes:
        log: The folder of the log.
        entry: The number of the entry; 0 before the first one.
        files: The number of files of the entry.
        bytes: The total size of these files.
        hash: The hash of the entry, which also covers all earlier entries.
        read: The total number of files of the entry and all earlier entries.
        names: The files of the entry; empty if they would take `MAX_NAME_BYTES` or more.
    """

    log: str
    entry: int = 0
    files: int = 0
    bytes: int = 0
    hash: str = ""
    read: int = 0
    names: tuple[File, ...] = ()

    @property
    def is_beginning(self) -> bool:
        """True for the position before the first entry of the log."""
        return self.entry == 0

    def text(self, before: SourcePosition | None) -> str:
        """The files of the entry, for people.

        Examples:
            >>> names = (File("file:/in/a.csv", 1, 2), File("file:/in/b.csv", 1, 2))
            >>> FolderPosition(log="/c", files=2, names=names).text(None)
            '2 files: a.csv, b.csv'
        """
        count = "1 file" if self.files == 1 else f"{self.files:,} files"
        if not self.names:
            return count
        names = ", ".join(file.path.rpartition("/")[2] for file in self.names[:MAX_NAMES_IN_TEXT])
        return f"{count}: {names}{', ...' if len(self.names) > MAX_NAMES_IN_TEXT else ''}"

    def with_names(self, files: Sequence[File]) -> Self:
        """The position with the files of its entry, unless the files take too many bytes."""
        short = sum(len(file.path.encode()) + STAT_BYTES for file in files) < MAX_NAME_BYTES
        return replace(self, names=tuple(files) if short else ())

    def as_json(self) -> dict[str, Any]:
        """The position as Spark's offset log and the snapshot summary store it.

        Examples:
            >>> FolderPosition(log="/c/helios/files/0", entry=2, files=1, bytes=5, hash="ab", read=9).as_json()
            {'log': '/c/helios/files/0', 'entry': 2, 'files': 1, 'bytes': 5, 'hash': 'ab', 'read': 9}
        """
        values: dict[str, Any] = {
            "log": self.log,
            "entry": self.entry,
            "files": self.files,
            "bytes": self.bytes,
            "hash": self.hash,
            "read": self.read,
        }
        if self.names:
            values["names"] = [[file.path, file.size, file.modified] for file in self.names]
        return values

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Self:
        """Parses the JSON of a position.

        Raises:
            KeyError: The value is not a position of a folder.
        """
        names = tuple(File(str(path), int(size), int(modified)) for path, size, modified in value.get("names", ()))
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
        """Parses a JSON value of any shape; returns None if it is not a position of a folder.

        Examples:
            >>> FolderPosition.of({"snapshot_id": 7}), FolderPosition.of(7)
            (None, None)
        """
        if isinstance(value, Mapping) and "log" in value and "entry" in value:
            return cls.parse(value)
        return None
