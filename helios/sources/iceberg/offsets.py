"""Offsets in the history of an Iceberg table, and the snapshot range between two of them; no JVM is needed.

A reader of a followed table reads a sequence of units: first the state that it begins with, then the files of each
append. An offset names the unit that was read last, and counts the files of this unit that were read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from helios.sources.common.position import SourcePosition

TOUCHED_FILES = ("added-data-files", "deleted-data-files", "added-delete-files")
"""The counts of files that a commit touched, in its snapshot summary; an append has only the first count."""

NO_SNAPSHOT = -1
"""The snapshot id of an offset in a table without snapshots."""


@dataclass(frozen=True, kw_only=True)
class IcebergOffset(SourcePosition):
    """How far a reader has read a table.

    Attributes:
        snapshot: The last snapshot that was read, at least in part; None in a table without snapshots.
        files: How many files of the last unit were read; None if all of them were read.
        state: Whether the last unit is the state at the snapshot, rather than the files that the snapshot added.
        after: The snapshot before the last unit, if that is an append that was partly read.
        rows: The next unassigned row id at the snapshot, not a number of rows; None before format v3.
        live: The number of rows in the table at the snapshot; None if unknown.
        sequence: The sequence number of the snapshot, to find rows that later commits changed; None before format v3.
            In a table without snapshots, the last sequence number that the table has assigned.
        since: For a state that is read again, the first row id that is read; None if all rows are read.

    Examples:
        >>> IcebergOffset.parse({"snapshot_id": 7, "files": 2, "state": True})
        IcebergOffset(snapshot=7, files=2, state=True, after=None, rows=None, live=None, sequence=None, since=None)
        >>> IcebergOffset().as_json()
        {'snapshot_id': -1}
    """

    snapshot: int | None = None
    files: int | None = None
    state: bool = False
    after: int | None = None
    rows: int | None = None
    live: int | None = None
    sequence: int | None = None
    since: int | None = None

    @property
    def partial(self) -> bool:
        """True if the last unit was read only in part."""
        return self.files is not None

    @property
    def is_beginning(self) -> bool:
        """True in a table without snapshots, and before the first file of a state."""
        return self.snapshot is None or (self.state and self.files == 0)

    @property
    def is_rebootstrapped(self) -> bool:
        """True for a state that is read again only for its new rows."""
        return self.state and self.since is not None

    def text(self, before: SourcePosition | None) -> str:
        """The text about the snapshots between two offsets.

        Examples:
            >>> end = IcebergOffset(snapshot=7)
            >>> end.text(IcebergOffset(snapshot=5)), IcebergOffset(snapshot=7, state=True).text(None)
            ('after snapshot 5 to 7', 'the state of snapshot 7')
        """
        files = f", {self.files} files of it" if self.files else ""
        if self.snapshot is None:
            return "an empty table"
        if self.state:
            return f"the state of snapshot {self.snapshot}{files}"
        begin = before.snapshot if before is not None else None
        return (
            f"after snapshot {begin} to {self.snapshot}{files}" if begin else f"up to snapshot {self.snapshot}{files}"
        )

    def as_json(self) -> dict[str, Any]:
        """The offset as Spark's offset log keeps it; Iceberg's own streaming offset has a `snapshot_id`, too."""
        fields = {k: v for k, v in asdict(self).items() if k != "snapshot" and v is not None and v is not False}
        return {"snapshot_id": NO_SNAPSHOT if self.snapshot is None else self.snapshot, **fields}

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Self:
        """An offset from the JSON of an offset log.

        Raises:
            KeyError: The entry names no snapshot.
            TypeError: The entry is not a JSON object, or the snapshot is not a number.
            ValueError: The snapshot is not a number.
        """
        names = ("files", "state", "after", "rows", "live", "sequence", "since")
        known = {key: entry[key] for key in names if key in entry}
        snapshot = int(entry["snapshot_id"])
        return cls(snapshot=None if snapshot == NO_SNAPSHOT else snapshot, **known)

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The offset in a JSON value: an object with a snapshot id, or the id alone; None for any other value.

        Examples:
            >>> IcebergOffset.of(7) == IcebergOffset.of({"snapshot_id": 7}) == IcebergOffset(snapshot=7)
            True
            >>> IcebergOffset.of({"n": 3})
        """
        if isinstance(value, Mapping) and isinstance(value.get("snapshot_id"), int):
            return cls.parse(value)
        return cls.parse({"snapshot_id": value}) if isinstance(value, int) else None


@dataclass(frozen=True, kw_only=True)
class SnapshotRange:
    """The input of one batch: the state at `state`, then the commits in `(after, to]`.

    Attributes:
        state: The snapshot whose state is read first; None if no state is read.
        after: The last snapshot that earlier batches have read; None if there is none.
        to: The last snapshot that is read; None if nothing is read.
        skipped: How many files of the first unit were read by earlier batches.
        taken: How many files of the last unit were read by this batch and earlier batches; None if all of them.
        since: The first row id of the state that is read; None if all rows of the state are read.
    """

    state: int | None = None
    after: int | None = None
    to: int | None = None
    skipped: int = 0
    taken: int | None = None
    since: int | None = None

    @property
    def has_whole_units(self) -> bool:
        """True if the range consists of whole units."""
        return not self.skipped and self.taken is None

    @property
    def reads_whole_state(self) -> bool:
        """True if the range begins with a state, and includes all files of the state."""
        return self.state is not None and not self.skipped and (self.taken is None or self.to != self.state)

    def as_json(self) -> dict[str, Any]:
        """The range as the ledger keeps it."""
        parts = {} if self.has_whole_units else {"skipped": self.skipped, "taken": self.taken}
        since = {} if self.since is None else {"since": self.since}
        return {"state": self.state, "after": self.after, "to": self.to, **parts, **since}


def range_between(before: IcebergOffset, end: IcebergOffset) -> SnapshotRange:
    """The snapshot range between two offsets.

    Examples:
        >>> range_between(IcebergOffset(snapshot=1), IcebergOffset(snapshot=3)).as_json()
        {'state': None, 'after': 1, 'to': 3}
    """
    if end.snapshot is None or end == before:
        return SnapshotRange()
    if end.state and not (before.state and before.partial and before.snapshot == end.snapshot):
        # The state is read again, since commits between the offsets have expired.
        return SnapshotRange(state=end.snapshot, after=end.snapshot, to=end.snapshot, taken=end.files, since=end.since)
    if before.partial and before.state:
        return SnapshotRange(
            state=before.snapshot,
            after=before.snapshot,
            to=end.snapshot,
            skipped=before.files or 0,
            taken=end.files,
            since=before.since,
        )
    after = before.after if before.partial else before.snapshot
    return SnapshotRange(after=after, to=end.snapshot, skipped=before.files or 0, taken=end.files)
