"""Which batches a rehearsal reads once more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from helios.table.commits import Commit
from helios.table.rehearsal import CommittedBatch, OffsetLog, ends_of, reruns

pytestmark = pytest.mark.promise("rehearsals")


def at(place: int) -> dict[str, Any]:
    return {"sources": [{"source": "a.s", "place": {"n": place}}]}


def made(batch: int, end: int, before: int | None = None, follows: int = -1, checkpoint: str = "c") -> CommittedBatch:
    commit = Commit(snapshot=batch, committed=datetime(2026, 1, 1, tzinfo=UTC), operation="append", added=1, removed=0)
    return CommittedBatch(
        snapshots=(batch,),
        parent=None,
        parent_is_known=True,
        committed=commit.committed,
        batch=batch,
        checkpoint=checkpoint,
        position=at(end),
        before=at(before) if before is not None else None,
        previous_batch=follows,
        rows=1,
        commit=commit,
    )


def log(**ends: int) -> OffsetLog:
    known = {int(number[1:]): {"a.s": {"n": end}} for number, end in ends.items()}
    return OffsetLog(checkpoint="c", ends=known, last_committed=max(known, default=-1), starts={"a.s": {"n": 0}})


def spans(made: list[CommittedBatch], log: OffsetLog | None) -> list[tuple[int, int, int]]:
    found, _ = reruns(made, log)
    return [(one.commit_index, one.starts["a.s"]["n"], one.ends["a.s"]["n"]) for one in found]


def test_batches_that_wrote_nothing_are_read_with_the_commit_after_them() -> None:
    commits = [made(1, 20), made(3, 40, before=20, follows=1)]
    assert spans(commits, log(b0=10, b1=20, b2=30, b3=40)) == [(0, 0, 10), (0, 10, 20), (1, 20, 30), (1, 30, 40)]
    assert spans(commits, log(b2=30, b3=40, b4=50, b5=60))[-2:] == [(2, 40, 50), (2, 50, 60)], "behind the last commit"


def test_what_the_log_has_forgotten_is_read_as_one_batch() -> None:
    assert spans([made(3, 40, before=20, follows=1)], None) == [(0, 20, 40)]
    assert spans([made(3, 40, before=20, follows=1, checkpoint="former")], log(b2=30, b3=40)) == [(0, 20, 40)]


def test_a_first_batch_begins_where_the_checkpoint_says() -> None:
    assert spans([made(0, 10)], log(b0=10)) == [(0, 0, 10)]
    found, problems = reruns([made(5, 60), made(6, 70, before=60, follows=5)], log(b4=50, b5=60, b6=70))
    assert problems == {0: "its input begins at the end of a commit that has expired"}
    assert [one.commit_index for one in found] == [1]


def test_a_new_checkpoint_begins_where_it_says_and_not_at_the_commit_before_it() -> None:
    """The rows between them were rolled back: the table shall not have them."""
    commits = [made(0, 10, checkpoint="former"), made(0, 40, before=10), made(1, 50, before=40, follows=0)]
    begins = OffsetLog(
        checkpoint="c", ends={0: {"a.s": {"n": 40}}, 1: {"a.s": {"n": 50}}}, last_committed=1, starts={"a.s": {"n": 30}}
    )
    found, _ = reruns(commits[1:], begins)
    assert [(one.starts["a.s"]["n"], one.ends["a.s"]["n"]) for one in found] == [(30, 40), (40, 50)]
    late = [made(0, 10, checkpoint="former"), made(2, 40, before=10)]
    forgotten = replace(begins, ends={2: {"a.s": {"n": 40}}}, last_committed=2)
    assert [(one.starts["a.s"]["n"], one.ends["a.s"]["n"]) for one in reruns(late[1:], forgotten)[0]] == [(30, 40)]


def test_a_source_without_data_yet_stays_where_it_is() -> None:
    two = {"sources": [{"source": "a.s", "place": {"n": 5}}, {"source": "a.r", "place": None}]}
    assert ends_of(two) == {"a.s": {"n": 5}}
