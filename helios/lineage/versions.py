"""The versions of rows through the history of a table: which commit wrote each, which moved it, which removed it.

The retained snapshots of main are looked at from the oldest to the newest, each with the rows that fulfil a condition.
What a snapshot has and the one before lacks was written by its commit, or moved by it: in format v3 a row that is moved
keeps its id and its sequence number, in format v2 a compaction moves rows as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helios.lineage.manifests import Entry, Files, Manifests
from helios.lineage.rows import Place, Row, Rows
from helios.table.commits import Commit, erases

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

MOST_COMMITS = 1000
"""Commits of which the history is looked at, the newest ones."""
MOST_FILES = 2000
"""Data files that are opened for it."""
REPLACE, APPEND = "replace", "append"


@dataclass(frozen=True)
class Origin:
    """Which commit wrote a row.

    Attributes:
        snapshots: The snapshot; several where equal rows of theirs were moved together; none where it is not known.
        unknown: Why it is not known; None where it is.
    """

    snapshots: tuple[int, ...] = ()
    unknown: str | None = None


@dataclass(eq=False)
class Version:
    """A row from the commit that wrote it to the one that removed it.

    Attributes:
        row: The row, where it lay last.
        origin: Which commit wrote it.
        moved: The snapshots that moved it into another file, oldest first.
        again: Those of them that may have written the same values once more.
        ended: The snapshot that removed it; None while it is there.
    """

    row: Row
    origin: Origin
    moved: list[int] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    ended: int | None = None


@dataclass(frozen=True)
class Node:
    """A snapshot as far as it tells of rows.

    Attributes:
        id: Its id.
        sequence: Its sequence number; 0 in format v1.
        operation: append, overwrite, delete or replace.
        drops_files: Whether it removed data files.
        traces: Whether it is of format v3, whose rows have a lineage.
        erases: Whether all rows that it has are of its batch: an overwrite of Helios.
        first: Whether it is the table's first.
    """

    id: int
    sequence: int
    operation: str
    drops_files: bool
    traces: bool
    erases: bool
    first: bool


def node_of(metadata: TableMetadata, snapshot: int, commit: Commit | None) -> Node:
    """A snapshot of some metadata, with its commit where that is of main."""
    raw = metadata.snapshot_by_id(snapshot)
    assert raw is not None  # callers ask for those that are there
    summary = raw.summary.additional_properties if raw.summary is not None else {}
    sequence = raw.sequence_number or 0
    return Node(
        id=snapshot,
        sequence=sequence,
        operation=raw.summary.operation.value if raw.summary is not None else "",
        drops_files=summary.get("deleted-data-files", "0") != "0",
        traces=getattr(raw, "first_row_id", None) is not None,
        erases=commit is not None and erases(commit.plan),
        first=raw.parent_snapshot_id is None and sequence <= 1,
    )


class Walk:
    """The versions of the rows that fulfil a condition.

    Args:
        known: The retained snapshots, by id.
        main: Those of main, oldest first.
        manifests: Their files.
        rows: The rows of these.
        past: Looks up a snapshot that has expired, by its sequence number; None where nothing tells of it.
    """

    def __init__(
        self,
        known: Mapping[int, Node],
        main: Sequence[int],
        manifests: Manifests,
        rows: Rows,
        past: Callable[[int], Node | None],
    ) -> None:
        self._known, self._rows, self._past = known, rows, past
        self._by_sequence = {node.sequence: node for node in known.values() if node.sequence}
        self._files = list(self._bounded(main, manifests))
        self.start = known[self._files[0][0]] if self._files else None
        self.cut = len(self._files) < len(main)
        self.versions: list[Version] = []
        self.state: dict[Place, Version] = {}
        for index, (snapshot, files) in enumerate(self._files):
            if index == 0:
                self._begin(known[snapshot], files)
            else:
                self._step(known[snapshot], rows.live(files))

    def _bounded(self, main: Sequence[int], manifests: Manifests) -> Iterable[tuple[int, Files]]:
        """The snapshots that are looked at, oldest first, with their files."""
        opened: set[str] = set()
        looked: list[tuple[int, Files]] = []
        for snapshot in [*reversed(main)][:MOST_COMMITS]:
            files = manifests.files(snapshot)
            opened |= files.data.keys()
            if looked and len(opened) > MOST_FILES:
                break
            looked.append((snapshot, files))
        return reversed(looked)

    @property
    def why(self) -> str:
        """Why nothing is known of before the first snapshot that is looked at."""
        return "not looked at" if self.cut else "expired"

    # the first snapshot

    def _begin(self, node: Node, files: Files) -> None:
        for place, row in self._rows.live(files).items():
            entry = files.data[place.file]
            self.state[place] = Version(row, self._by_lineage(row) or self._by_file(entry))
        self.versions += self.state.values()

    def _by_lineage(self, row: Row) -> Origin | None:
        """The commit that wrote a row last, by its sequence number; None for a row without one."""
        if row.updated is None:
            return None
        node = self._by_sequence.get(row.updated) or self._past(row.updated)
        if node is None:
            return Origin(unknown=f"the commit of sequence number {row.updated} has expired")
        if not node.traces or node.operation == REPLACE:
            # Its number is that of the files that were moved, as before format v3, or that of the move.
            return Origin(unknown="it was moved without its row lineage, as it was before format v3")
        return Origin((node.id,))

    def _by_file(self, entry: Entry) -> Origin:
        """The commit that added the file of a row."""
        node = self._known.get(entry.snapshot) or (self._past(entry.file_sequence) if entry.file_sequence else None)
        if node is None:
            return Origin(unknown=f"snapshot {entry.snapshot}, which added its file, has expired")
        if node.operation == APPEND or not node.drops_files or node.erases or node.first:
            return Origin((node.id,))
        return Origin(unknown=f"snapshot {node.id} moved it into another file, and the files before are {self.why}")

    # each later one

    def _step(self, node: Node, live: Mapping[Place, Row]) -> None:
        gone = [version for place, version in self.state.items() if place not in live]
        came = [row for place, row in live.items() if place not in self.state]
        here = {place: version for place, version in self.state.items() if place in live}
        left = self._moved_by_lineage(node, came, gone, here)
        left = self._moved_by_content(node, left, gone, here)
        for row in left:
            here[row.place] = Version(row, self._written(node, row))
            self.versions.append(here[row.place])
        for version in gone:
            version.ended = node.id
        self.state = here

    def _written(self, node: Node, row: Row) -> Origin:
        """The commit of a row that was not there before."""
        if row.updated is not None and row.updated != node.sequence:
            return self._by_lineage(row) or Origin((node.id,))
        if node.operation == REPLACE:
            return Origin(unknown=f"snapshot {node.id} moved it, and no file before has it")
        return Origin((node.id,))

    def _moved_by_lineage(
        self, node: Node, came: list[Row], gone: list[Version], here: dict[Place, Version]
    ) -> list[Row]:
        """Takes those that were moved out of what is gone; returns the rows that were not there before."""
        left = []
        traced = {(v.row.id, v.row.updated): v for v in gone if v.row.updated is not None}
        for row in came:
            version = traced.pop((row.id, row.updated), None) if row.updated is not None else None
            if version is None:
                left.append(row)
                continue
            gone.remove(version)
            version.moved.append(node.id)
            version.row = row
            here[row.place] = version
        return left

    def _moved_by_content(
        self, node: Node, came: list[Row], gone: list[Version], here: dict[Place, Version]
    ) -> list[Row]:
        """The same for rows without a lineage, by their values."""
        if not came or node.erases or not node.drops_files:
            return came
        moved = node.operation == REPLACE
        dropped = [v for v in gone if v.row.updated is None or moved]
        equal: dict[str, list[Version]] = {}
        for version in dropped:
            equal.setdefault(version.row.content, []).append(version)
        wanted = Counter(row.content for row in came)
        # Equal rows of several commits cannot be told apart any more.
        joined = {content: _joined(versions, node, wanted[content]) for content, versions in equal.items()}
        left = []
        for row in came:
            versions = equal.get(row.content) or []
            if not versions or (row.updated is not None and not moved):
                left.append(row)
                continue
            version = versions.pop()
            gone.remove(version)
            version.row, version.origin = row, joined[row.content]
            version.moved.append(node.id)
            if not moved:
                version.again.append(node.id)
            here[row.place] = version
        return left


def _joined(versions: Sequence[Version], node: Node, wanted: int) -> Origin:
    """The origin of equal rows that were moved together."""
    origins = {version.origin for version in versions}
    more = {node.id} if wanted > len(versions) and node.operation != REPLACE else set[int]()
    if len(origins) == 1 and not more:
        return versions[0].origin
    unknown = next((origin.unknown for origin in origins if origin.unknown), None)
    if unknown is not None:
        return Origin(unknown=f"equal rows were moved together, and of one of them {unknown}")
    return Origin(tuple(sorted({id for origin in origins for id in origin.snapshots} | more)))
