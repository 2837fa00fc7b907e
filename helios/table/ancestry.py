"""Decides whether a branch contains a batch: by its ancestors, and by earlier metadata if snapshots have expired.

Iceberg's expiry removes snapshots from the current metadata, but keeps the earlier metadata files that the metadata log
names. The file that committed a snapshot still names its parent. Only equal ids prove that a batch is present. Sequence
numbers can prove that it is gone: an ancestor has a lower sequence number than its descendants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

MAX_FILES = 200
"""The maximum number of earlier metadata files that one search reads."""


@dataclass(frozen=True)
class Node:
    """A snapshot in its table's history.

    Attributes:
        parent: Its parent's id; None for the first snapshot, or if PyIceberg's expiry removed the parent id.
        sequence: Its sequence number; 0 in tables of format v1.
        at: The time of its commit, in milliseconds since 1970.
    """

    id: int
    parent: int | None
    sequence: int
    at: int


@dataclass(frozen=True, kw_only=True)
class Landing:
    """A committed batch, as a record or a checkpoint remembers it.

    Attributes:
        batch: The number of the batch; -1 for the state with which a new checkpoint began.
        sequence: A lower bound of the sequence number of `snapshot`; 0 if unknown.
        head: A later head of the branch that was proven to descend from `snapshot`.
    """

    batch: int
    snapshot: int
    sequence: int = 0
    head: int | None = None


class Presence(Enum):
    """The presence of a batch in a branch."""

    PRESENT = "present"
    GONE = "gone"
    UNKNOWN = "unknown"


class Version(Protocol):
    """The metadata of a table as of one commit."""

    def node(self, snapshot: int) -> Node | None:
        """The snapshot with an id; None if it is not retained."""

    def earlier(self) -> Sequence[tuple[int, str]]:
        """The time and location of earlier metadata files, oldest first."""


Read: TypeAlias = Callable[[str], "Version | None"]
"""Reads an earlier metadata file; None if it was deleted."""


def presence(head: int | None, landing: Landing, now: Version, read: Read) -> Presence:
    """Decides whether a branch contains a batch.

    Args:
        head: The newest snapshot of the branch; None for an empty one.
    """
    files = EarlierVersions(read)
    proofs = {landing.snapshot, landing.head} - {None}  # an ancestor among these proves that the branch has the batch
    version, node = now, now.node(head) if head is not None else None
    while node is not None:
        if node.id in proofs or node.parent in proofs:
            return Presence.PRESENT
        # Without sequence numbers (format v1) the walk goes on to the end.
        if landing.sequence and node.sequence <= landing.sequence:
            return Presence.GONE
        parent = version.node(node.parent) if node.parent is not None else None
        if parent is None:
            if node.parent is not None and landing.sequence and node.sequence == landing.sequence + 1:
                return Presence.GONE  # the parent is not the batch, and not newer than the batch
            committed = files.committed(node, version)
            if committed is None:
                return Presence.UNKNOWN
            node, version = committed
            if node.parent is None:
                return Presence.GONE
            if node.parent in proofs:
                return Presence.PRESENT
            parent = version.node(node.parent)
            if parent is None:
                return Presence.UNKNOWN
        node = parent
    return Presence.GONE


class EarlierVersions:
    """The earlier metadata files of a table. One instance reads at most `MAX_FILES` files."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._reads_left = MAX_FILES
        self._cache: dict[str, Version | None] = {}

    def committed(self, node: Node, version: Version) -> tuple[Node, Version] | None:
        """Looks up a snapshot in the file that committed it, or in a later file that still retains its parent.

        Args:
            version: The metadata whose log is searched first; if that log does not reach back far enough, the log of
                its oldest file is searched next.

        Returns:
            The snapshot, and the metadata of that file; None if no such file can be read.
        """
        while log := version.earlier():
            files = [file for _, file in log]
            committed = self._search(node, files, _first_file_not_before(log, node.at))
            if committed is not None:
                return committed
            oldest = self._version(files[0])
            if oldest is None or oldest.node(node.id) is None:
                return None
            version = oldest
        return None

    def _search(self, node: Node, files: Sequence[str], begin: int) -> tuple[Node, Version] | None:
        """Searches a log, from the file `begin` of a snapshot's commit time: first newer files, then older ones."""
        index, version = begin, self._version(files[begin])
        while version is None or version.node(node.id) is None:  # the file was deleted, or the clocks differ
            index += 1
            if index == len(files) or not self._reads_left:
                return None
            version = self._version(files[index])
        committed: tuple[Node, Version] | None = None
        while True:
            if version is None:
                committed = None
            else:
                earlier = version.node(node.id)
                if earlier is None:
                    return committed  # from the next newer file, which committed the snapshot
                committed = earlier, version
                if earlier.parent is not None and version.node(earlier.parent) is not None:
                    return committed
            index -= 1
            if index < 0 and version is not None and not version.earlier():
                return committed  # from the table's first metadata file
            if index < 0 or not self._reads_left:
                return None
            version = self._version(files[index])

    def _version(self, file: str) -> Version | None:
        if file not in self._cache:
            if not self._reads_left:
                return None
            self._reads_left -= 1
            last_three = dict([*self._cache.items()][-3:])  # each may be megabytes: more would fill the memory
            self._cache = last_three | {file: self._read(file)}
        return self._cache[file]


def _first_file_not_before(log: Sequence[tuple[int, str]], at: int) -> int:
    """The index of the first file of a log that is not older than a time; the last index if all are older."""
    return next((index for index, (time, _) in enumerate(log) if time >= at), len(log) - 1)
