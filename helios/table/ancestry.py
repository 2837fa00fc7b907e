"""The presence of a batch in a branch: by its ancestors, and by earlier metadata where snapshots have expired.

Iceberg's expiry removes snapshots from the table's metadata, but not the earlier metadata files, which the table's
metadata log names: the one that a snapshot was committed with still has its parent. Ids alone prove that a batch is
there. Sequence numbers only prove that it is not: no ancestor of a snapshot has a higher one than itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

MOST_FILES = 200
"""Earlier metadata files that one search reads at most."""


@dataclass(frozen=True)
class Node:
    """A snapshot in its table's history.

    Attributes:
        id: Its id.
        parent: Its parent's id; None for a first one, and where PyIceberg's expiry removed the parent.
        sequence: Its sequence number; 0 in tables of format v1.
        at: The time of its commit, in milliseconds since 1970.
    """

    id: int
    parent: int | None
    sequence: int
    at: int


@dataclass(frozen=True, kw_only=True)
class Landing:
    """A batch that was committed.

    Attributes:
        batch: Its number; -1 for the state that a new checkpoint began with.
        snapshot: Its snapshot.
        sequence: A lower bound of that snapshot's sequence number; 0 where it is unknown.
        head: A later head of the branch that was proven to descend from it.
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
        """A retained snapshot."""

    def earlier(self) -> Sequence[tuple[int, str]]:
        """The time and location of earlier metadata files, oldest first."""


Read: TypeAlias = Callable[[str], "Version | None"]
"""Reads an earlier metadata file; None where it was deleted."""


def presence(head: int | None, landing: Landing, now: Version, read: Read) -> Presence:
    """The presence of a batch in a branch.

    Args:
        head: The newest snapshot of the branch; None for an empty one.
        landing: The batch.
        now: The table's metadata.
        read: Reads its earlier metadata files.
    """
    files = EarlierVersions(read)
    known = {landing.snapshot, landing.head} - {None}
    version, one = now, now.node(head) if head is not None else None
    while one is not None:
        if one.id in known or one.parent in known:
            return Presence.PRESENT
        # Without sequence numbers (format v1) the walk goes on to the end.
        if (landing.sequence and one.sequence <= landing.sequence) or (one.parent is None and one.sequence == 1):
            return Presence.GONE
        parent = version.node(one.parent) if one.parent is not None else None
        if parent is None:
            if one.parent is not None and landing.sequence and one.sequence == landing.sequence + 1:
                return Presence.GONE  # its parent is another snapshot than the batch, and no newer one
            place = files.committed(one, version)
            if place is None:
                return Presence.UNKNOWN
            one, version = place
            if one.parent is None or one.parent in known:
                return Presence.GONE if one.parent is None else Presence.PRESENT
            parent = version.node(one.parent)
            if parent is None:
                return Presence.UNKNOWN
        one = parent
    return Presence.GONE


class EarlierVersions:
    """The earlier metadata files of a table, of which one search reads a bounded number.

    Args:
        read: Reads one; None where it was deleted.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._left = MOST_FILES
        self._last: dict[str, Version | None] = {}

    def committed(self, node: Node, version: Version) -> tuple[Node, Version] | None:
        """A snapshot as it was when its parent was still retained, with the metadata of then; None if none is found.

        Args:
            one: The snapshot.
            version: The metadata whose log is searched; where that is too short, the log of the oldest file in it.
        """
        while log := version.earlier():
            place = self._within(node, [file for _, file in log], _begin(log, node.at))
            if place is not None:
                return place
            oldest = self._version(log[0][1])
            if oldest is None or oldest.node(node.id) is None:
                return None
            version = oldest
        return None

    def _within(self, one: Node, files: Sequence[str], begin: int) -> tuple[Node, Version] | None:
        """Searches a log from the file at which a snapshot was committed, by its time, first newer, then older."""
        index, version = begin, self._version(files[begin])
        while version is None or version.node(one.id) is None:  # it was deleted, or the clocks differ
            index += 1
            if index == len(files) or not self._left:
                return None
            version = self._version(files[index])
        place: tuple[Node, Version] | None = None
        while True:
            node = version.node(one.id) if version is not None else None
            if version is not None and node is None:
                return place  # the one after it is that of the commit
            place = (node, version) if node is not None and version is not None else None
            if place is not None and place[0].parent is not None and place[1].node(place[0].parent) is not None:
                return place
            index -= 1
            if index < 0 and version is not None and not version.earlier():
                return place  # the table's first metadata
            if index < 0 or not self._left:
                return None
            version = self._version(files[index])

    def _version(self, file: str) -> Version | None:
        if file not in self._last:
            if not self._left:
                return None
            self._left -= 1
            read = self._read(file)
            self._last = dict([*self._last.items()][-3:]) | {file: read}  # each may be megabytes
        return self._last[file]


def _begin(log: Sequence[tuple[int, str]], at: int) -> int:
    return next((index for index, (time, _) in enumerate(log) if time >= at), len(log) - 1)
