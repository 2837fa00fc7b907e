"""Which snapshot of a table was current when, as far as its log and its snapshots tell."""

from __future__ import annotations

from typing import Any

import pytest

from helios.table.commit_times import CommitTimes, commit_times

pytestmark = pytest.mark.promise("joins-as-of")


def snapshot(id: int, parent: int | None = None, number: int | None = None, **summary: str) -> dict[str, Any]:
    found: dict[str, Any] = {"snapshot-id": id, "summary": {"operation": "append", **summary}}
    found |= {"parent-snapshot-id": parent} if parent is not None else {}
    return found | {"sequence-number": id if number is None else number}


def times(snapshots: list[dict[str, Any]], log: list[tuple[int, int]], pin: int | None) -> CommitTimes:
    entries = [{"timestamp-ms": at, "snapshot-id": id} for at, id in log]
    return commit_times({"snapshots": snapshots, "snapshot-log": entries}, "a.t", pin)


def states(*arguments: Any) -> tuple[list[tuple[int, int]], bool]:
    found = times(*arguments)
    return [(at // 1000, id) for at, id in zip(found.starts, found.snapshots, strict=True)], found.complete


FIRST = [snapshot(1), snapshot(2, 1), snapshot(3, 2)]
LOG = [(10, 1), (20, 2), (30, 3)]


def test_a_history_ends_at_the_pin() -> None:
    assert states(FIRST, LOG, 3) == ([(10, 1), (20, 2), (30, 3)], True)
    assert states(FIRST, LOG, 2) == ([(10, 1), (20, 2)], True)
    assert states([], [], None) == ([], True)
    assert states(FIRST, LOG, 99) == ([], False)


def test_what_was_rolled_back_was_there_until_then() -> None:
    log = [*LOG, (40, 2), (50, 4)]
    assert states([*FIRST, snapshot(4, 2)], log, 4) == ([(10, 1), (20, 2), (30, 3), (40, 2), (50, 4)], True)


def test_a_rewrite_changes_no_row() -> None:
    known = [snapshot(1), snapshot(2, 1, operation="replace"), snapshot(3, 2, operation="replace"), snapshot(4, 3)]
    assert states(known, [*LOG, (40, 4)], 4) == ([(10, 3), (40, 4)], True)
    assert states(known, LOG, 3) == ([(10, 3)], True)
    # Right after a rollback a rewrite is of another state than the one before it.
    known = [snapshot(1), snapshot(2, 1), snapshot(3, 1, operation="replace")]
    assert states(known, [(10, 1), (20, 2), (30, 3)], 3) == ([(10, 1), (20, 2), (30, 3)], True)


def test_where_clocks_differ_the_later_commit_counts_from_its_own_time() -> None:
    assert states(FIRST, [(10, 1), (40, 2), (30, 3)], 3) == ([(10, 1), (30, 3)], True)
    assert states(FIRST, [(10, 1), (10, 2), (30, 3)], 3) == ([(10, 2), (30, 3)], True)


@pytest.mark.parametrize(
    ("known", "log"),
    [
        (FIRST[1:], LOG[1:]),  # as Iceberg expires
        ([snapshot(2), snapshot(3, 2)], LOG[1:]),  # as PyIceberg does, which forgets the parent
        ([snapshot(1), snapshot(2, 7, 3), snapshot(3, 2, 4)], LOG),  # one in between is gone, and from the log too
        ([snapshot(1), snapshot(2, None, 3), snapshot(3, 2, 4)], LOG),
        (FIRST[1:], LOG),
    ],
    ids=["iceberg", "pyiceberg", "between", "parent", "log"],
)
def test_a_history_begins_behind_its_last_gap(known: Any, log: Any) -> None:
    assert states(known, log, 3) == ([(20, 2), (30, 3)], False)


def test_a_branch_that_became_main_does_not_hide_the_beginning() -> None:
    # The first batch of an audited table goes to a branch, behind an empty snapshot.
    assert states([snapshot(1), snapshot(2, 1), snapshot(3, 2)], LOG[1:], 3) == ([(20, 2), (30, 3)], True)
    # Two commits on a branch, and one step of main.
    known = [snapshot(1), snapshot(2, 1), snapshot(3, 2), snapshot(4, 3)]
    assert states(known, [(10, 1), (40, 4)], 4) == ([(10, 1), (40, 4)], True)


def test_format_v1_has_no_sequence_numbers() -> None:
    whole = {"total-data-files": "3", "added-data-files": "3"}
    part = {"total-data-files": "4", "added-data-files": "1"}
    assert states([snapshot(1, None, 0, **whole)], [(10, 1)], 1) == ([(10, 1)], True)
    assert states([snapshot(2, None, 0, **part)], [(20, 2)], 2) == ([(20, 2)], False)
