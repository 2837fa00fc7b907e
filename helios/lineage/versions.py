"""Finds the versions of rows in the history of a table: the commits that wrote, moved and removed each version.

The rows that match a condition are compared from snapshot to snapshot, from the oldest retained snapshot of main to
the newest. If a snapshot has a row at a new place, its commit has written or moved the row. In format v3, a moved row
keeps its id and its sequence number. In format v2, a moved row is found by its values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helios.lineage.manifests import Entry, Files, Manifests
from helios.lineage.rows import Place, Row, Rows
from helios.table.commits import Commit, overwrites
from helios.table.first_snapshot import is_first

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

MAX_COMMITS = 1000
"""The maximum number of commits that are read: the newest ones."""
MAX_FILES = 2000
"""The maximum number of data files that are read."""
REPLACE, APPEND = "replace", "append"


@dataclass(frozen=True)
class Origin:
    """The commit that wrote a row.

    Attributes:
        snapshots: The commit's snapshot; several if equal rows of several commits were moved together; empty if the
            commit is unknown.
        unknown: The reason why the commit is unknown; None if it is known.
    """

    snapshots: tuple[int, ...] = ()
    unknown: str | None = None


@dataclass(eq=False)
class Version:
    """A row, from the commit that wrote it to the commit that removed it.

    Attributes:
        row: The row at its last place.
        origin: The commit that wrote the row.
        moved: The snapshots that moved the row into another file, oldest first.
        maybe_rewritten: The snapshots in `moved` that may instead have removed the row and written equal values again.
        removed: The snapshot that removed the row; None if the table still has the row.
    """

    row: Row
    origin: Origin
    moved: list[int] = field(default_factory=list)
    maybe_rewritten: list[int] = field(default_factory=list)
    removed: int | None = None


@dataclass(frozen=True)
class SnapshotNode:
    """A snapshot, with the properties that determine the origin of its rows.

    Attributes:
        sequence: The sequence number; 0 in format v1.
        operation: append, overwrite, delete or replace.
        drops_files: Whether the snapshot removed data files.
        has_lineage: Whether the snapshot was written in format v3, in which rows have a lineage.
        moves_no_rows: Whether the commit is an overwrite by Helios: no row in its new files comes from an older file.
        is_first: Whether this is the first snapshot of the table.
    """

    id: int
    sequence: int
    operation: str
    drops_files: bool
    has_lineage: bool
    moves_no_rows: bool
    is_first: bool


def snapshot_node(metadata: TableMetadata, snapshot: int, commit: Commit | None) -> SnapshotNode:
    """Makes a node from a table's metadata; `commit` is the commit of the snapshot, None if it is not on main."""
    raw = metadata.snapshot_by_id(snapshot)
    assert raw is not None  # callers ask for snapshots that the metadata has
    summary = raw.summary.additional_properties if raw.summary is not None else {}
    sequence = raw.sequence_number or 0
    return SnapshotNode(
        id=snapshot,
        sequence=sequence,
        operation=raw.summary.operation.value if raw.summary is not None else "",
        drops_files=summary.get("deleted-data-files", "0") != "0",
        has_lineage=getattr(raw, "first_row_id", None) is not None,
        moves_no_rows=commit is not None and overwrites(commit.plan),
        is_first=raw.parent_snapshot_id is None and is_first(sequence, summary.get),
    )


class Walk:
    """The versions of the rows that match a condition, found by walking through the history.

    Args:
        known: The retained snapshots, by id.
        main: The retained snapshots of main, oldest first.
        look_up_expired: Looks up an expired snapshot by its sequence number; None if no metadata file has it.

    Attributes:
        start: The oldest snapshot that was read; None if there is none.
        cut: Whether older snapshots of main were not read because of the limits.
        versions: All versions, oldest first.
        current: The versions that the newest snapshot has, by place.
    """

    def __init__(
        self,
        known: Mapping[int, SnapshotNode],
        main: Sequence[int],
        manifests: Manifests,
        rows: Rows,
        look_up_expired: Callable[[int], SnapshotNode | None],
    ) -> None:
        self._known, self._rows, self._expired = known, rows, look_up_expired
        self._by_sequence = {node.sequence: node for node in known.values() if node.sequence}
        history = list(self._newest(main, manifests))
        self.start = known[history[0][0]] if history else None
        self.cut = len(history) < len(main)
        self.versions: list[Version] = []
        self.current: dict[Place, Version] = {}
        for index, (snapshot, files) in enumerate(history):
            if index == 0:
                self._begin(files)
            else:
                self._step(known[snapshot], rows.live(files))

    def _newest(self, main: Sequence[int], manifests: Manifests) -> Iterable[tuple[int, Files]]:
        """The newest snapshots within the limits, oldest first, with their files."""
        paths: set[str] = set()
        newest: list[tuple[int, Files]] = []
        for snapshot in [*reversed(main)][:MAX_COMMITS]:
            files = manifests.files(snapshot)
            paths |= files.data.keys()
            if newest and len(paths) > MAX_FILES:
                break
            newest.append((snapshot, files))
        return reversed(newest)

    @property
    def before_start(self) -> str:
        """The reason why the history before `start` is unknown."""
        return "not looked at" if self.cut else "expired"

    # the first snapshot

    def _begin(self, files: Files) -> None:
        for place, row in self._rows.live(files).items():
            entry = files.data[place.file]
            self.current[place] = Version(row, self._origin_by_lineage(row) or self._origin_by_file(entry))
        self.versions += self.current.values()

    def _origin_by_lineage(self, row: Row) -> Origin | None:
        """The commit that last wrote a row, by the row's sequence number; None for a row without one."""
        if row.updated is None:
            return None
        node = self._by_sequence.get(row.updated) or self._expired(row.updated)
        if node is None:
            return Origin(unknown=f"the commit of sequence number {row.updated} has expired")
        if not node.has_lineage or node.operation == REPLACE:
            # The number is that of a file from before format v3 or of a compaction, not that of the row's own commit.
            return Origin(unknown="the row may have been moved without its lineage, which formats v1 and v2 lack")
        return Origin((node.id,))

    def _origin_by_file(self, entry: Entry) -> Origin:
        """The commit that added the file of a row; unknown if the commit may have moved the row into the file."""
        node = self._known.get(entry.snapshot) or (self._expired(entry.file_sequence) if entry.file_sequence else None)
        if node is None:
            return Origin(unknown=f"snapshot {entry.snapshot}, which added the row's file, has expired")
        if node.operation == APPEND or not node.drops_files or node.moves_no_rows or node.is_first:
            return Origin((node.id,))
        earlier = f"earlier files are {self.before_start}"
        moved = "moved" if node.operation == REPLACE else "may have moved"
        return Origin(unknown=f"snapshot {node.id} {moved} the row into another file, and {earlier}")

    # each later snapshot

    def _step(self, node: SnapshotNode, live: Mapping[Place, Row]) -> None:
        """Compares the rows of a snapshot with those of the snapshot before it."""
        gone = [version for place, version in self.current.items() if place not in live]
        new = [row for place, row in live.items() if place not in self.current]
        current = {place: version for place, version in self.current.items() if place in live}
        written = self._match_by_lineage(node, new, gone, current)
        written = self._match_by_content(node, written, gone, current)
        for row in written:
            current[row.place] = Version(row, self._written_by(node, row))
            self.versions.append(current[row.place])
        for version in gone:
            version.removed = node.id
        self.current = current

    def _written_by(self, node: SnapshotNode, row: Row) -> Origin:
        """The commit of a row that the snapshot before `node` does not have."""
        if row.updated is not None and row.updated != node.sequence:
            return self._origin_by_lineage(row) or Origin((node.id,))
        if node.operation == REPLACE:
            return Origin(unknown=f"snapshot {node.id} moved the row, and no earlier file has it")
        return Origin((node.id,))

    def _match_by_lineage(
        self, node: SnapshotNode, new: list[Row], gone: list[Version], current: dict[Place, Version]
    ) -> list[Row]:
        """Moves versions from `gone` to `current` if a new row has the same lineage. Returns the unmatched new rows."""
        unmatched = []
        by_lineage = {
            (version.row.id, version.row.updated): version for version in gone if version.row.updated is not None
        }
        for row in new:
            version = by_lineage.pop((row.id, row.updated), None) if row.updated is not None else None
            if version is None:
                unmatched.append(row)
                continue
            gone.remove(version)
            version.moved.append(node.id)
            version.row = row
            current[row.place] = version
        return unmatched

    def _match_by_content(
        self, node: SnapshotNode, new: list[Row], gone: list[Version], current: dict[Place, Version]
    ) -> list[Row]:
        """Moves versions from `gone` to `current` if a new row has the same values. Returns the unmatched new rows.

        Rows with a lineage are matched only in a compaction.
        """
        if not new or node.moves_no_rows or not node.drops_files:
            return new
        only_moves = node.operation == REPLACE
        by_content: dict[str, list[Version]] = {}
        for version in gone:
            if version.row.updated is None or only_moves:
                by_content.setdefault(version.row.content, []).append(version)
        counts = Counter(row.content for row in new)
        # After the move, equal rows of several commits can no longer be distinguished.
        origins = {content: _shared_origin(versions, node, counts[content]) for content, versions in by_content.items()}
        unmatched = []
        for row in new:
            versions = by_content.get(row.content) or []
            if not versions or (row.updated is not None and not only_moves):
                unmatched.append(row)
                continue
            version = versions.pop()
            gone.remove(version)
            version.row, version.origin = row, origins[row.content]
            version.moved.append(node.id)
            if not only_moves:
                version.maybe_rewritten.append(node.id)
            current[row.place] = version
        return unmatched


def _shared_origin(versions: Sequence[Version], node: SnapshotNode, count: int) -> Origin:
    """The origin of equal rows that were moved together.

    `versions` are these rows before the move, and `count` is their number after it, which is higher if the snapshot
    has also written equal rows.
    """
    origins = {version.origin for version in versions}
    also_written = count > len(versions) and node.operation != REPLACE
    if len(origins) == 1 and not also_written:
        return versions[0].origin
    unknown = next((origin.unknown for origin in origins if origin.unknown), None)
    if unknown is not None:
        return Origin(unknown=f"equal rows were moved together, and the commit of one of them is unknown: {unknown}")
    snapshots = {id for origin in origins for id in origin.snapshots}
    return Origin(tuple(sorted(snapshots | {node.id} if also_written else snapshots)))
