"""The walk from a head to a batch, through a table's metadata and its earlier files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from helios.table.ancestry import MAX_FILES, Landing, Node, Presence, presence

pytestmark = pytest.mark.promise("replay")

GONE, PRESENT, UNKNOWN = Presence.GONE, Presence.PRESENT, Presence.UNKNOWN


@dataclass
class Metadata:
    nodes: Mapping[int, Node]
    log: tuple[tuple[int, str], ...]

    def node(self, snapshot: int) -> Node | None:
        return self.nodes.get(snapshot)

    def earlier(self) -> Sequence[tuple[int, str]]:
        return self.log


@dataclass
class Table:
    """A table whose every commit leaves a metadata file; snapshots are numbered by their sequence."""

    nodes: dict[int, Node] = field(default_factory=dict)
    head: int | None = None
    clock: int = 0
    last: int = 0
    files: dict[str, Metadata] = field(default_factory=dict)
    log: tuple[tuple[int, str], ...] = ()
    longest: int = 1000
    sequences: bool = True
    read: list[str] = field(default_factory=list)

    def _write(self) -> None:
        self.clock += 10
        name = f"v{len(self.files)}"
        self.files[name] = Metadata(dict(self.nodes), self.log)
        self.log = (*self.log, (self.clock, name))[-self.longest :]

    def commit(self, *, orphan: bool = False) -> int:
        self.last += 1
        parent = None if orphan else self.head
        self.nodes[self.last] = Node(self.last, parent, self.last if self.sequences else 0, self.clock + 10)
        self.head = self.last
        self._write()
        return self.last

    def roll_back(self, to: int) -> None:
        self.head = to
        self._write()

    def expire(self, *keep: int, cut: bool = False) -> None:
        kept = {self.head, *keep}
        self.nodes = {id: node for id, node in self.nodes.items() if id in kept}
        if cut:  # as PyIceberg does
            self.nodes = {
                id: Node(id, node.parent if node.parent in kept else None, node.sequence, node.at)
                for id, node in self.nodes.items()
            }
        self._write()

    def holds(self, batch: int, head: int | None = None, sequence: int | None = None) -> Presence:
        landing = Landing(batch=0, snapshot=batch, sequence=batch if sequence is None else sequence, head=head)
        return presence(self.head, landing, Metadata(self.nodes, self.log[:-1]), self._read)

    def _read(self, file: str) -> Metadata | None:
        self.read.append(file)
        return self.files.get(file)


@pytest.fixture(params=[True, False], ids=["v2", "v1"])
def table(request: pytest.FixtureRequest) -> Table:
    """A table with a commit of another writer, and the batch as its second."""
    made = Table(sequences=request.param)
    made.commit()
    made.commit()
    return made


def holds(table: Table, **known: int) -> Presence:
    return table.holds(2, sequence=None if table.sequences else 0, **known)


def test_the_head_and_a_retained_ancestor(table: Table) -> None:
    assert holds(table) is PRESENT
    table.commit()
    table.commit()
    assert holds(table) is PRESENT
    assert table.read == []


def test_a_parent_that_has_expired_alone(table: Table) -> None:
    table.commit()
    table.expire()
    assert holds(table) is PRESENT
    assert table.read == []


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("commits", [1, 2, 5, 30])
def test_commits_that_have_expired_one_after_the_other(table: Table, commits: int, cut: bool) -> None:
    for _ in range(commits):
        table.commit()
        table.expire(cut=cut)
    assert holds(table) is PRESENT
    table.files.clear()
    assert holds(table) is (UNKNOWN if cut or commits > 1 else PRESENT)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("commits", [0, 1, 2, 5])
def test_a_rollback_is_found_behind_commits_and_expiry(table: Table, commits: int, cut: bool) -> None:
    table.roll_back(1)
    for _ in range(commits):
        table.commit()
    table.expire(cut=cut)
    assert holds(table) is GONE
    table.files.clear()
    assert holds(table) is not PRESENT


def test_a_replaced_table_has_no_parent(table: Table) -> None:
    table.commit(orphan=True)
    table.commit()
    assert holds(table) is GONE
    table.expire()
    assert holds(table) is GONE


def test_a_batch_of_v1_whose_table_was_upgraded_and_expired_by_pyiceberg() -> None:
    table = Table(sequences=False)
    table.commit()
    table.commit()  # the batch
    table.sequences = True
    first = table.commit()
    table.nodes[first] = replace(table.nodes[first], sequence=1)  # v2 counts from the upgrade on
    table._write()
    table.expire(cut=True)
    assert table.nodes[first].parent is None
    assert table.holds(2, sequence=0) is PRESENT
    table.files.clear()
    assert table.holds(2, sequence=0) is UNKNOWN


def test_an_empty_branch(table: Table) -> None:
    table.head = None
    assert holds(table) is GONE


def test_a_proven_head(table: Table) -> None:
    proven = table.commit()
    table.commit()
    table.expire()
    table.files.clear()
    assert holds(table) is UNKNOWN
    assert holds(table, head=proven) is PRESENT


def test_a_log_that_is_too_short_goes_on_in_its_oldest_file() -> None:
    table = Table(longest=3)
    table.commit()
    table.commit()
    for _ in range(10):
        table.commit()
        table.expire()
    assert table.holds(2) is PRESENT
    other = Table(longest=3)
    other.commit()
    other.commit()
    other.roll_back(1)
    for _ in range(10):
        other.commit()
        other.expire()
    assert other.holds(2) is GONE


def test_one_snapshot_behind_the_batch_needs_no_earlier_file() -> None:
    table = Table()
    table.commit()
    table.commit()
    table.roll_back(1)
    table.commit()
    table.expire()
    table.files.clear()
    assert table.holds(2) is GONE


def test_a_lower_bound_of_the_sequence_is_enough() -> None:
    table = Table()
    for _ in range(5):
        table.commit()
    assert table.holds(5, sequence=2) is PRESENT
    table.commit()
    table.expire()
    assert table.holds(5, sequence=2) is PRESENT
    table.commit()
    table.expire()
    assert table.holds(5, sequence=2) is PRESENT
    assert table.holds(4, sequence=2) is PRESENT


def test_clocks_that_differ() -> None:
    table = Table()
    table.commit()
    table.commit()
    for skew in (-35, 35, 0):
        table.commit()
        node = table.nodes[table.last]
        table.nodes[table.last] = Node(node.id, node.parent, node.sequence, node.at + skew)
        table.files[table.log[-1][1]] = Metadata(dict(table.nodes), table.log[:-1])
        table.commit()
        table.expire()
    assert table.holds(2) is PRESENT


def test_the_search_is_bounded() -> None:
    table = Table()
    table.commit()
    table.commit()
    for _ in range(2 * MAX_FILES):
        table.commit()
        table.expire()
    assert table.holds(2) is UNKNOWN
    assert len(table.read) == MAX_FILES
