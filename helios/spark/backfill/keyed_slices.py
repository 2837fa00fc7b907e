"""The repair of the rows of an upsert that a filter names: their keys get what the script makes of all batches.

The source is read once, from the pipeline's first start on. Each key whose row meets the filter, now or by the script
as it is, gets its newest row, or is deleted where the script gives none. So a row that moves over an edge of the filter
or of a slice is there once.

A batch of an ordered upsert that began before a slice was repaired may have dropped rows that were late beside the
wrong ones, and this leaves no trace in the target. So the last slice, `MEANWHILE`, waits for that batch, and upserts
the rows that came since the first slice into the keys that were repaired.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.errors import InputError, LeaseError, NotFound
from helios.plan.backfills import Cut
from helios.spark.backfill.keyed_repair import Changes, KeyedRepair
from helios.spark.backfill.keyed_rows import BATCH, BEFORE, TIED, latest, marked
from helios.spark.backfill.live import Standing
from helios.spark.backfill.notes import Notes
from helios.spark.backfill.repair import MANY
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import MEANWHILE, Slice, slice_of, slices_of
from helios.spark.backfill.writers import Target
from helios.spark.checkpoint.upsert_state import DELETED
from helios.spark.iceberg import tables
from helios.spark.iceberg.history import History
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot
from helios.spark.sinks import merge
from helios.spark.sinks.options import Conflict
from helios.table.commits import SLICE
from helios.table.refs import BACKFILL, REPLAY

LOOK_AGAIN = 0.5
"""Seconds between two looks at a batch that is under way."""
LEAVE_OUT = (
    "leave those keys out with --where (`helios why` shows whose they are), or refill the target with "
    "`helios run --full-refresh`."
)


@dataclass(kw_only=True)
class RepairKeys(KeyedRepair):
    """Repairs the keys of a filter, slice by slice.

    Attributes:
        where: The filter.
        cut: How it is cut into slices; None for one slice.
        writers: The rows of the target, and who wrote them.
        notes: The notes of the backfill, and of the one before it.
        note: Called with a line about what is waited for.
        stopping: Whether the backfill ends after the running slice.
        parts: The newest row of each key of what the script gives: up to where the backfill began, and of what the
            pipeline has read since, part after part.
        read_to: Where the last part ends; None before anything is read.
    """

    where: str
    cut: Cut | None
    writers: Target
    notes: Notes
    note: Callable[[str], None]
    stopping: Callable[[], bool]
    parts: list[DataFrame] = field(default_factory=list)
    read_to: Standing | None = None

    def begin(self, stack: ExitStack) -> Callable[[], None]:
        """Reads the source. A pipeline with deletes and no order is kept from running.

        Raises:
            LeaseError: Such a pipeline is running.
            NotFound: The pipeline has read nothing.
        """
        verify: Callable[[], None] = lambda: None  # noqa: E731
        if self.mode.delete_when is not None:
            verify = self.stopped(stack, "its deletes of missing keys")
        self.rows.refuse_columns()
        committed = self.live.committed()  # before the table, which then has these batches
        self.target.refresh()
        at = self.live.standing(self.target, committed)
        self.refuse_memory(self.where, at)
        self.rows.evolve()
        rows = self.rows.read(None, at.ends, BEFORE)
        if rows is None:
            raise NotFound(
                f"{self.plan.pipeline} has read nothing yet: there is nothing to repair.", where=self.plan.origin
            )
        self.parts[:] = [self.kept(rows)]
        self.read_to = at
        self.scope(self.parts[0].where(~F.col(TIED)))  # which refuses a row without a key
        return verify

    @property
    def slices(self) -> list[Slice]:
        return [*self._cut(), *([self._meanwhile()] if self.mode.order_by is not None else [])]

    def _meanwhile(self) -> Slice:
        """The last slice, since the head, or since that of a backfill that was stopped before its own last slice."""
        stopped = self.notes.load()
        for slice in stopped.slices if stopped is not None else ():
            if slice.name == MEANWHILE:
                return slice
        head = self._head()
        return Slice(MEANWHILE, f"since {head.snapshotId() if head is not None else None}")

    def _cut(self) -> list[Slice]:
        if self.cut is None:  # which needs no values
            return [slice_of(self.where, None, None)]
        [rows] = self.parts
        given = rows.where(~F.col(DELETED)).where(self.where)
        before = self.writers.rows(self.where, self._head())
        counts = slices_of(self.where, self.cut, before if before is not None else given.limit(0), given)
        return [one.slice for one in counts]

    def _head(self) -> JavaSnapshot | None:
        return tables.head(self.target, self.plan.write.sink.branch_name)

    def preview(self) -> tuple[list[Repaired], int | None]:
        """The slices as they would be repaired now; the bytes are not known, since keys are looked up in all files."""
        found: list[Repaired] = []
        with ExitStack() as stack:
            self.begin(stack)
            assert self.read_to is not None
            for slice in self._cut():
                changes = self._changes(slice, self._head(), self.read_to)
                found.append(Repaired(slice=slice.name, before=changes.before, after=changes.after))
        return found, None

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        with ExitStack() as stack:
            if slice.name == MEANWHILE:
                stopped = self._settled(stack)
                if stopped is None:
                    return Conflict(None, 0)

                def verify() -> None:
                    self.verify()
                    stopped()

                def missed(at: Standing) -> Changes | None:
                    return self._missed(slice, at)

                return replace(self, verify=verify).committed(number, slice, SLICE, missed)

            def found(at: Standing) -> Changes:
                return self._changes(slice, self.seen, at)

            return self.committed(number, slice, SLICE, found)

    # a slice

    def _changes(self, slice: Slice, head: JavaSnapshot | None, at: Standing) -> Changes:
        parts, keys = self._read_on(at), [quoted(key) for key in self.mode.keys]
        named = [part.where(~F.col(DELETED)).where(slice.condition) for part in parts]
        there = self.writers.rows(slice.condition, head)
        if there is not None:
            self._refuse_keyless(slice, there)
            named.append(there)
        touched = reduce(DataFrame.unionByName, [rows.select(*keys) for rows in named]).distinct()
        scope = self.scope(self.kept(touched))
        for one in self.of_others(self.writers.others(head), scope):
            raise self.error(slice.name, _changed_by(one), LEAVE_OUT)
        given = reduce(DataFrame.unionByName, [scope.narrow(part) for part in parts])
        wanted = self.kept(latest(given, self.mode.keys))
        self._refuse_ties(slice, wanted)
        now = self.kept(self.states.at(head, scope))
        self.refuse_twice(slice.name, now)
        return self.between(now, wanted.where(~F.col(DELETED)))

    def _read_on(self, at: Standing) -> list[DataFrame]:
        """The newest rows of keys up to a position, of which those of the last part are the newest of all."""
        parts, read_to = self.parts, self.read_to
        assert read_to is not None
        new = None
        if read_to.ends != at.ends:
            new = self.rows.read(read_to.ends, at.ends, BEFORE + len(parts))
        if new is not None:
            parts.append(self.kept(new))
        if len(parts) > MANY:
            rows = latest(reduce(DataFrame.unionByName, parts), self.mode.keys)
            parts[:] = [self.kept(rows.withColumn(BATCH, F.lit(BEFORE)))]
        self.read_to = at
        return parts

    def _refuse_ties(self, slice: Slice, rows: DataFrame) -> None:
        tied = rows.where(TIED).select(*map(quoted, self.mode.keys)).head()
        if tied is None:
            return
        order = f"the same {self.mode.order_by}" if self.mode.order_by is not None else "no order"
        raise self.error(
            slice.name,
            f"the source has several rows of {merge.shown(tied.asDict())} with {order}, and does not tell in which "
            "order they came",
            "name the commits, as `helios history` shows them, with --commits A..B, or refill the target with "
            "`helios run --full-refresh`.",
        )

    def _refuse_keyless(self, slice: Slice, rows: DataFrame) -> None:
        without = " OR ".join(f"{quoted(key)} IS NULL" for key in self.mode.keys)
        if not rows.where(without).isEmpty():
            raise self.error(
                slice.name,
                f"it holds rows without a key ({without}), which another writer has added",
                f'leave them out: --where "({self.where}) AND NOT ({without})".',
            )

    # the rows that came meanwhile

    def _settled(self, stack: ExitStack) -> Callable[[], None] | None:
        """Waits for the end of a batch that is under way; if its process has died, keeps the pipeline from running.

        Returns:
            Raises a `LeaseError` if the pipeline runs all the same; None if the backfill is stopped meanwhile.
        """
        planned = max(self.live.checkpoint.batches("offsets"), default=-1)
        told = False
        while self.live.committed() < planned:
            self.verify()
            try:
                return self.stopped(stack, "its late rows")
            except LeaseError:
                if self.stopping():
                    return None
                if not told:
                    self.note(f"waits for batch {planned} of {self.plan.pipeline}, which may have dropped late rows")
                told = True
                time.sleep(LOOK_AGAIN)
        return lambda: None

    def _missed(self, slice: Slice, at: Standing) -> Changes | None:
        """The rows since the first slice that are newer than the repaired rows of their keys."""
        own = list(self._own_commits(slice))
        if not own:
            return None
        entries = json.loads(own[-1].summary().get("helios.position") or "{}").get("sources") or ()
        rows = self.rows.read(tuple(entry.get("place") for entry in entries), at.ends, BEFORE + 1)
        if rows is None:
            return None
        changed = reduce(DataFrame.unionByName, map(self.states.changed_by, own))
        repaired = self.kept(changed.distinct())
        wanted = self.kept(self.scope(repaired).narrow(rows))
        self._refuse_ties(slice, wanted)
        now = self.kept(self.states.at(self.seen, self.scope(wanted)))
        known = marked(now, self.mode, BEFORE).withColumn(TIED, F.lit(False))
        return self.between(now, latest(known.unionByName(wanted), self.mode.keys).where(~F.col(DELETED)))

    def _own_commits(self, slice: Slice) -> Iterator[JavaSnapshot]:
        """The commits of the pipeline's backfills since this one began, newest first.

        Raises:
            InputError: Some of them may have expired. The backfill then begins anew.
        """
        own = {f"{name}{BACKFILL}" for name in self.names}
        history, began = History(self.target, self.seen), slice.condition.rpartition(" ")[2]
        for snapshot in history:
            if str(snapshot.snapshotId()) == began:
                return
            if snapshot.summary().get("helios.pipeline") in own:
                yield snapshot
        if history.expired is not None:
            self.notes.end()
            raise InputError(
                f"commits of this backfill of {self.table} may have expired, so that the keys it has repaired are not "
                "known, and late rows of a batch beside it may be missing; its slices are repaired.",
                where=self.plan.origin,
                fix="start it again: it begins anew. Keep snapshots longer than a backfill takes.",
            )

    @property
    def seen(self) -> JavaSnapshot | None:
        """The state on which the ledger commits."""
        assert self.ledger is not None
        return self.ledger.seen


def _changed_by(snapshot: JavaSnapshot) -> str:
    writer = str(snapshot.summary().get("helios.pipeline") or "another writer")
    if writer.endswith(REPLAY):
        return f"snapshot {snapshot.snapshotId()} has replayed rejected rows of its keys behind later batches"
    return f"snapshot {snapshot.snapshotId()}, of {writer}, has changed some of its keys"
