"""The repair of commits of an upsert: their keys get what the script makes of all that came since.

All of the commits are one slice. Of each key that they changed, or that the script gives of their batches, the state
before them is taken, and their batches and all later ones are read once more on top of it. So a key that the mended
script no longer gives is put back, and a row that came later stays. What the pipeline has no way to see again (deletes
that it remembers, rows of other writers, rows that were late in a batch that is under way) is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from helios.errors import InputError
from helios.spark.backfill.batches import REFILL, PastBatches, past_batches
from helios.spark.backfill.keyed_repair import Changes, KeyedRepair
from helios.spark.backfill.keyed_rows import BEFORE, marked, newest
from helios.spark.backfill.live import Standing
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

MOST_BATCHES = 300
"""The most batches that are read once more: each is a part of one query."""


@dataclass(kw_only=True)
class RedoUpserts(KeyedRepair):
    """Repairs commits of an upsert, all in one.

    Attributes:
        asked: The commits, oldest first.
    """

    asked: Sequence[Commit]

    @property
    def slices(self) -> list[Slice]:
        """The commits as one slice, whose condition is the first and the last snapshot."""
        first, last = self.asked[0], self.asked[-1]
        name = f"batch {first.batch} (snapshot {first.snapshot})"
        if first is not last:
            name = f"batches {first.batch} to {last.batch} ({len(self.asked)} commits)"
        return [Slice(name, f"{first.snapshot}..{last.snapshot}")]

    def begin(self, stack: ExitStack) -> Callable[[], None]:
        """Keeps the pipeline from running where a batch beside the repair may have rows that leave no trace."""
        if self.mode.order_by is None and self.mode.delete_when is None:
            return lambda: None
        return self.stopped(stack, "its late rows and its deletes of missing keys")

    def preview(self) -> tuple[list[Repaired], int | None]:
        """The slice as it would be repaired now; the bytes are not known, since keys are looked up in all files."""
        committed = self.live.committed()  # before the table, which then has these batches
        self.target.refresh()
        at = self.live.standing(self.target, committed)
        head = tables.head(self.target, self.plan.write.sink.branch_name)
        found = self._changes(head, at)
        return [Repaired(slice=self.slices[0].name, before=found.before, after=found.after)], None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        def found(at: Standing) -> Changes:
            assert self.ledger is not None
            return self._changes(self.ledger.seen, at)

        return self.committed(number, slice, REDONE, found)

    # what is to be changed

    def _changes(self, head: JavaSnapshot | None, at: Standing) -> Changes:
        self.rows.refuse_columns()
        self.refuse_memory(self.slices[0].name, at)
        keys, states = self.mode.keys, self.states
        past = past_batches(
            self.plan, self.live.checkpoint, sorted(self.names), (self.asked[0].snapshot, self.asked[-1].snapshot), at
        )
        self._refuse_batches(past)
        begin = self._begin(past)
        others, repairs = self._others(past, begin, head)
        self.rows.evolve()
        asked = self.rows.of(past, [one for one in past.batches if one.owner <= past.last])
        touched = self._changed(past, repairs, whole=not others)
        if asked is not None:
            asked = self.kept(asked)
            touched = touched.unionByName(asked.select(*map(quoted, keys))).distinct()
        scope = self.scope(self.kept(touched))
        self._refuse_others(others, scope)
        parts = [marked(states.at(begin, scope), self.mode, BEFORE), *([asked] if asked is not None else [])]
        later = self.rows.of(past, [one for one in past.batches if one.owner > past.last])
        parts += [scope.narrow(later)] if later is not None else []
        now = self.kept(states.at(head, scope))
        for rows in (parts[0], now):
            self.refuse_twice(self.slices[0].name, rows)
        return self.between(now, newest(reduce(DataFrame.unionByName, parts), keys))

    def _changed(self, past: PastBatches, repairs: Sequence[JavaSnapshot], *, whole: bool) -> DataFrame:
        """The keys that the commits changed, or earlier repairs of them, maybe by a script that was wrong, too.

        Args:
            past: The batches.
            repairs: The snapshots of the earlier repairs.
            whole: Whether no other writer has committed since, so that two states tell what all of the commits changed.
        """
        made = past.made[past.first : past.last + 1]
        ends = [(made[0], made[-1])] if whole else [(one, one) for one in made]
        pairs = [(first.parent, last.snapshots[-1]) for first, last in ends]
        pairs += [(one.parentId(), int(one.snapshotId())) for one in repairs]
        parts: list[DataFrame] = []
        for parent, snapshot in pairs:
            after = self.target.snapshot(snapshot)
            assert after is not None  # all snapshots since the first commit are in the history
            before = self.target.snapshot(int(parent)) if parent is not None else None
            parts.append(self.states.changed_keys(before, after))
        return reduce(DataFrame.unionByName, parts).distinct()

    # what is refused

    def _error(self, why: str, fix: str = REFILL) -> InputError:
        return self.error(self.slices[0].name, why, fix)

    def _refuse_batches(self, past: PastBatches) -> None:
        if len(past.batches) > MOST_BATCHES:
            raise self._error(
                f"{len(past.batches):,} batches have come since, and at most {MOST_BATCHES} are read once more"
            )
        if not past.whole:
            raise self._error("the checkpoint has forgotten where batches ended that wrote nothing")

    def _begin(self, past: PastBatches) -> JavaSnapshot | None:
        """The state before the commits."""
        first = past.made[past.first]
        begin = self.target.snapshot(first.parent) if first.parent is not None else None
        if not first.base or (first.parent is not None and begin is None):
            raise self._error(
                f"snapshot {first.parent}, the state before it, has expired",
                "keep snapshots longer to repair commits; refill the target with `helios run --full-refresh`.",
            )
        return begin

    def _others(
        self, past: PastBatches, begin: JavaSnapshot | None, head: JavaSnapshot | None
    ) -> tuple[list[JavaSnapshot], list[JavaSnapshot]]:
        """The commits of other writers since a state, and the earlier repairs of the commits that are asked for."""
        others: list[JavaSnapshot] = []
        repairs: list[JavaSnapshot] = []
        for one in self._since(begin, head):
            writer = str(one.summary().get("helios.pipeline"))
            if writer in self.names:
                continue
            if writer.removesuffix(REPLAY) in self.names:
                raise self._error(f"snapshot {one.snapshotId()} has replayed rows of the quarantine since")
            redone = one.summary().get(REDONE)
            if writer.removesuffix(BACKFILL) not in self.names:
                others.append(one)
            elif redone is None:
                raise self._error(
                    f"snapshot {one.snapshotId()} has repaired rows by a filter since, and the state before the "
                    "commits has their wrong rows",
                    f"repair by a filter, too, with --where, or {REFILL}",
                )
            elif self._repairs_asked(past, str(redone)):
                repairs.append(one)
        return others, repairs

    def _since(self, begin: JavaSnapshot | None, head: JavaSnapshot | None) -> Iterator[JavaSnapshot]:
        for one in History(self.target, head):
            if begin is not None and one.snapshotId() == begin.snapshotId():
                return
            if changes_rows(one):
                yield one
        if begin is not None:
            raise self._error("the state before it is not one of the table's history any more")

    def _repairs_asked(self, past: PastBatches, redone: str) -> bool:
        """True if commits that are asked for were repaired by an earlier backfill.

        Raises:
            InputError: It has repaired commits before them: the state before them is not repaired.
        """
        first = redone.partition("..")[0]
        index = {str(snapshot): place for place, one in enumerate(past.made) for snapshot in one.snapshots}
        if first in index and index[first] >= past.first:
            return index[first] <= past.last
        last = past.made[past.last].snapshots[-1]
        raise self._error(
            f"earlier commits, {redone}, were repaired since, and the state before it has their wrong rows",
            f"repair them together: --commits {first}..{last}." if first in index else REFILL,
        )

    def _refuse_others(self, others: Sequence[JavaSnapshot], scope: MergeScope) -> None:
        for one in self.of_others(others, scope):
            writer = one.summary().get("helios.pipeline")
            raise self._error(
                f"snapshot {one.snapshotId()}, of {writer or 'another writer'}, has changed the same keys since",
                "repair later commits, or refill the target with `helios run --full-refresh`.",
            )
