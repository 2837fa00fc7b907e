"""Repairs commits of an upsert.

All of the commits are one slice. The repair concerns each key that the commits changed, or for which the current script
computes a row from their batches. It starts from the rows that these keys had before the commits, and applies the rows
that the current script computes from the batches of the commits and from all later batches. So a key for which the
script no longer computes a row gets its former row back, and a row of a later batch is kept.

A repair is refused if it would need something that cannot be read again: deletes that the pipeline remembers, rows of
other writers, or late rows that a running batch has dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from helios.errors import InputError
from helios.spark.backfill.batches import REFILL, PastBatches, past_batches
from helios.spark.backfill.keyed_repair import Changes, UpsertRepair
from helios.spark.backfill.keyed_rows import BEFORE_BATCHES, latest_stored, stored_rows
from helios.spark.backfill.live import LivePosition
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
from helios.spark.iceberg import tables
from helios.spark.iceberg.history import History
from helios.spark.iceberg.merge_scope import MergeScope
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.sinks.options import Conflict
from helios.table.commits import REDONE, Commit
from helios.table.refs import BACKFILL, REPLAY

MAX_BATCHES = 300
"""The maximum number of batches that are read again: each makes the query larger."""


@dataclass(kw_only=True)
class UpsertCommitRepair(UpsertRepair):
    """Repairs commits of an upsert, all in one commit.

    Attributes:
        requested: The commits to repair, oldest first.
    """

    requested: Sequence[Commit]

    @property
    def slices(self) -> list[Slice]:
        """The commits as one slice, whose condition is the first and the last snapshot."""
        first, last = self.requested[0], self.requested[-1]
        name = f"batch {first.batch} (snapshot {first.snapshot})"
        if first is not last:
            name = f"batches {first.batch} to {last.batch} ({len(self.requested)} commits)"
        return [Slice(name, f"{first.snapshot}..{last.snapshot}")]

    def begin(self, stack: ExitStack) -> Callable[[], None]:
        """Keeps the pipeline from running if its mode has an order or deletes.

        Such a pipeline may drop late rows, or ignore deletes of missing keys, and the target does not show this.
        """
        if self.mode.order_by is None and self.mode.delete_when is None:
            return lambda: None
        return self.keep_stopped(stack, "its late rows and its deletes of missing keys")

    def preview(self) -> tuple[list[Repaired], int | None]:
        """Counts the changes of the slice. The size of the files is None: a repair looks up keys in all files."""
        committed = self.live.committed()  # read before the target is refreshed, so that the target has these batches
        self.target.refresh()
        live_position = self.live.position(self.target, committed)
        head = tables.head(self.target, self.plan.write.sink.branch_name)
        changes = self._changes(head, live_position)
        return [Repaired(slice=self.slices[0].name, before=changes.before, after=changes.after)], None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        def changes(live_position: LivePosition) -> Changes:
            assert self.ledger is not None
            return self._changes(self.ledger.head_at_look_up, live_position)

        return self.commit_changes(number, slice, REDONE, changes)

    # the changes

    def _changes(self, head: JavaSnapshot | None, live_position: LivePosition) -> Changes:
        self.rows.refuse_columns()
        self.refuse_remembered_keys(self.slices[0].name, live_position)
        keys, snapshots = self.mode.keys, self.snapshots
        ends = (self.requested[0].snapshot, self.requested[-1].snapshot)
        past = past_batches(self.plan, self.live.checkpoint, sorted(self.names), ends, live_position)
        self._refuse_batches(past)
        state_before = self._state_before(past)
        others, repairs = self._other_commits_and_repairs(past, state_before, head)
        self.rows.evolve()
        rows_of_commits = self.rows.of_batches(past, [each for each in past.batches if each.commit_index <= past.last])
        changed_keys = self._changed_keys(past, repairs, no_other_commits=not others)
        if rows_of_commits is not None:
            rows_of_commits = self.computed_once(rows_of_commits)
            changed_keys = changed_keys.unionByName(rows_of_commits.select(*map(quoted, keys))).distinct()
        scope = self.scope_of(self.computed_once(changed_keys))
        self._refuse_others(others, scope)
        rows_before = stored_rows(snapshots.at(state_before, scope), self.mode, BEFORE_BATCHES)
        later_rows = self.rows.of_batches(past, [each for each in past.batches if each.commit_index > past.last])
        parts = [
            rows_before,
            *([rows_of_commits] if rows_of_commits is not None else []),
            *([scope.narrow(later_rows)] if later_rows is not None else []),
        ]
        present = self.computed_once(snapshots.at(head, scope))
        for rows in (rows_before, present):
            self.refuse_duplicate_keys(self.slices[0].name, rows)
        return self.changes_between(present, latest_stored(reduce(DataFrame.unionByName, parts), keys))

    def _changed_keys(self, past: PastBatches, repairs: Sequence[JavaSnapshot], *, no_other_commits: bool) -> DataFrame:
        """The keys that the commits changed, and those that earlier repairs of these commits changed.

        Earlier repairs count because their script may have been wrong, too.

        Args:
            no_other_commits: Whether no other writer has committed since. The state before the first commit is then
                compared with the state after the last one. Otherwise each commit is compared with its parent.
        """
        commits = past.commits[past.first : past.last + 1]
        ranges = [(commits[0], commits[-1])] if no_other_commits else [(commit, commit) for commit in commits]
        pairs = [(first.parent, last.snapshots[-1]) for first, last in ranges]
        pairs += [(repair.parentId(), int(repair.snapshotId())) for repair in repairs]
        parts: list[DataFrame] = []
        for parent, snapshot in pairs:
            after = self.target.snapshot(snapshot)
            assert after is not None  # all snapshots since the first commit are in the history
            before = self.target.snapshot(int(parent)) if parent is not None else None
            parts.append(self.snapshots.changed_keys(before, after))
        return reduce(DataFrame.unionByName, parts).distinct()

    # checks

    def _error(self, why: str, fix: str = REFILL) -> InputError:
        return self.error(self.slices[0].name, why, fix)

    def _refuse_batches(self, past: PastBatches) -> None:
        if len(past.batches) > MAX_BATCHES:
            raise self._error(f"{len(past.batches):,} batches would be read again, and at most {MAX_BATCHES} can be")
        if not past.is_complete:
            raise self._error("the checkpoint no longer has the positions at which some batches without rows ended")

    def _state_before(self, past: PastBatches) -> JavaSnapshot | None:
        """The snapshot before the first commit; None if that commit is the first of the table."""
        first = past.commits[past.first]
        snapshot = self.target.snapshot(first.parent) if first.parent is not None else None
        if not first.parent_is_known or (first.parent is not None and snapshot is None):
            raise self._error(
                "the snapshot before the first commit has expired",
                "keep snapshots longer to repair commits; refill the target with `helios run --full-refresh`.",
            )
        return snapshot

    def _other_commits_and_repairs(
        self, past: PastBatches, state_before: JavaSnapshot | None, head: JavaSnapshot | None
    ) -> tuple[list[JavaSnapshot], list[JavaSnapshot]]:
        """The later commits of other writers, and the earlier repairs of the commits to repair.

        Raises:
            InputError: Later commits make the repair impossible, such as replays.
        """
        others: list[JavaSnapshot] = []
        repairs: list[JavaSnapshot] = []
        for commit in self._commits_since(state_before, head):
            writer = str(commit.summary().get("helios.pipeline"))
            if writer in self.names:
                continue
            if writer.removesuffix(REPLAY) in self.names:
                raise self._error(f"snapshot {commit.snapshotId()} has replayed rows of the quarantine since")
            redone = commit.summary().get(REDONE)
            if writer.removesuffix(BACKFILL) not in self.names:
                others.append(commit)
            elif redone is None:
                raise self._error(
                    f"snapshot {commit.snapshotId()} has repaired rows by a filter since, and the snapshot before "
                    "the first commit still has them as they were",
                    f"repair by a filter, too, with --where, or {REFILL}",
                )
            elif self._repairs_requested(past, str(redone)):
                repairs.append(commit)
        return others, repairs

    def _commits_since(self, state_before: JavaSnapshot | None, head: JavaSnapshot | None) -> Iterator[JavaSnapshot]:
        for snapshot in History(self.target, head):
            if state_before is not None and snapshot.snapshotId() == state_before.snapshotId():
                return
            if changes_rows(snapshot):
                yield snapshot
        if state_before is not None:
            raise self._error("the snapshot before the first commit is no longer part of the table's history")

    def _repairs_requested(self, past: PastBatches, redone: str) -> bool:
        """True if an earlier repair repaired some of the commits that are now to be repaired.

        Args:
            redone: The commits of the earlier repair, as its snapshot names them.

        Raises:
            InputError: Commits before the requested ones were repaired, so the state before these still has wrong rows.
        """
        first = redone.partition("..")[0]
        index_of = {str(id): index for index, commit in enumerate(past.commits) for id in commit.snapshots}
        if first in index_of and index_of[first] >= past.first:
            return index_of[first] <= past.last
        last = past.commits[past.last].snapshots[-1]
        raise self._error(
            "the snapshot before the first commit still has the wrong rows of earlier commits, "
            f"{redone}, which were repaired since",
            f"repair them together: --commits {first}..{last}." if first in index_of else REFILL,
        )

    def _refuse_others(self, others: Sequence[JavaSnapshot], scope: MergeScope) -> None:
        for commit in self.commits_in_scope(others, scope):
            writer = commit.summary().get("helios.pipeline")
            raise self._error(
                f"snapshot {commit.snapshotId()}, of {writer or 'another writer'}, has changed the same keys since",
                "repair later commits, or refill the target with `helios run --full-refresh`.",
            )
