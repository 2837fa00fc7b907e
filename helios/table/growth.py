"""Measures how fast the history of a table grows, and suggests the call in a script that limits it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyiceberg.table

MANY = 1000
"""A history of this many snapshots is reported: each commit then writes one or two megabytes of metadata."""

REMEDY = '.maintain(expire="5d")'
DAY = 86400.0
"""Seconds in a day."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The history of a table.

    Attributes:
        snapshots: The number of snapshots in its metadata.
        seconds: The time between the oldest and the newest of them.
        bytes: The size of the metadata file, which every commit writes again; None if unknown.
    """

    snapshots: int
    seconds: float
    bytes: int | None = None

    @property
    def commits_a_day(self) -> int:
        """The average number of commits a day, rounded.

        Examples:
            >>> Growth(snapshots=1441, seconds=86_400).commits_a_day
            1440
        """
        return round((self.snapshots - 1) * DAY / self.seconds) if self.seconds else 0

    def advice(self) -> str | None:
        """The cost of the history, and the call that limits it; None for a short history.

        Examples:
            >>> Growth(snapshots=999, seconds=3600).advice()
            >>> print(Growth(snapshots=1201, seconds=0, bytes=1 << 20).advice())
            1,201 snapshots; each commit writes 1.0 MB of metadata: .maintain(expire="5d") bounds that
        """
        if self.snapshots < MANY:
            return None
        size = f"{self.bytes / (1 << 20):.1f} MB of metadata" if self.bytes else "metadata with all of them"
        commits = f", about {self.commits_a_day:,} commits a day" if self.commits_a_day else ""
        return f"{self.snapshots:,} snapshots{commits}; each commit writes {size}: {REMEDY} bounds that"


def growth(table: pyiceberg.table.Table) -> Growth:
    """Measures the history of a loaded table. Reads the size of its metadata file only if the history is long."""
    times = [snapshot.timestamp_ms for snapshot in table.metadata.snapshots]
    many = len(times) >= MANY
    size = len(table.io.new_input(table.metadata_location)) if many and table.metadata_location else None
    seconds = (max(times) - min(times)) / 1000 if times else 0.0
    return Growth(snapshots=len(times), seconds=seconds, bytes=size)
