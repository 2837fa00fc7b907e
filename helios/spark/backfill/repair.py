"""The repair of one slice: one commit, validated against every commit since its rows were computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from helios.errors import RunError
from helios.model.retry import CommitRetries, Retry
from helios.plan.nodes import Plan
from helios.spark.backfill.edges import Edges
from helios.spark.backfill.live import LivePipeline, Standing, Watcher
from helios.spark.backfill.recompute import Ends, Recompute
from helios.spark.backfill.rejects import Rejects
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
from helios.spark.backfill.writers import Target
from helios.spark.iceberg import freshness
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.callbacks import callback_scope
from helios.spark.jvm.errors import java_message
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.modes import refuse_unordered
from helios.spark.sinks.options import CommitOptions, Conflict
from helios.table.commits import INSTEAD, SLICE
from helios.table.positions import Batch

TRIES = 20
"""The maximum number of attempts at one slice while other writers commit into it."""
MANY_TRIES = 3
"""After so many lost attempts, a note gives advice."""
SHORTEST, LONGEST = 0.05, 2.0
"""Seconds between two attempts; each pause is twice as long as the one before."""
SLOWER = "stop the pipeline for a moment, or give its source a larger poll="
COMMITS = Retry(retries=6, backoff=SHORTEST)
"""How often a commit is retried if its rows need not be written again."""
SNAPSHOT_ISOLATION = {"write.delete.isolation-level": "snapshot"}
"""Helios compares the commits of other writers row by row; Iceberg would compare only the bounds of their files."""
PARTLY = "some, but not all, rows match"
"""Iceberg's error for a filter that selects only some rows of a file."""
MANY = 25
"""Once more batches than this have followed the base, their rows are persisted as a part of it."""


class SliceRepairer(Protocol):
    """Repairs the slices of a backfill.

    Attributes:
        table: The name of the target.
    """

    @property
    def table(self) -> str: ...

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        """Replaces the rows of a slice in one commit, unless another writer commits into it meanwhile."""


def repair_slice(
    slices: SliceRepairer,
    number: int,
    slice: Slice,
    note: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Repaired | None:
    """Replaces the rows of a slice in one commit, and retries when another writer commits into it meanwhile.

    Args:
        slices: Repairs the slices.
        number: The number of the slice.
        slice: The slice.
        note: Called with a line after each lost attempt.
        stopping: Returns True to end without another attempt.

    Returns:
        The repaired slice; None if it was stopped before.

    Raises:
        HeliosError: The slice cannot be repaired; nothing of it was written.
    """
    why = ""
    for again in range(TRIES):
        with callback_scope():
            done = slices.attempt(number, slice)
        if isinstance(done, Repaired):
            return replace(done, again=again)
        why = f": {java_message(done.error)}" if done.error is not None else ""
        if stopping():
            return None
        if again + 1 < TRIES:
            note(f"{slice.name}: rows came for it, done again ({nth(again + 2)} time)")
        if again + 1 == MANY_TRIES:
            note(f"{slice.name}: rows come for it faster than it is done: {SLOWER}")
        time.sleep(min(LONGEST, SHORTEST * 2**again))
    raise RunError(
        f"{slice.name} of {slices.table} was done {TRIES} times, and each time somebody committed into it{why}; "
        "nothing of it was written.",
        fix=f"{SLOWER}, and start the backfill again: it goes on with this slice.",
    )


def nth(number: int) -> str:
    """An ordinal number.

    Examples:
        >>> [nth(number) for number in (1, 2, 3, 4, 11, 22)]
        ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    end = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{end}"


@dataclass(frozen=True)
class Base:
    """The rows that the current script produces up to a position.

    Attributes:
        rows: The rows of the whole backfill, as the target stores them.
        standing: How far the pipeline had come.
    """

    rows: DataFrame
    standing: Standing


@dataclass(kw_only=True)
class Repair:
    """Repairs the slices of a filter.

    Attributes:
        plan: The pipeline.
        spark: The session.
        ledger: The record of the backfill.
        live: The pipeline that may be running.
        recompute: Recomputes rows with the current script.
        rejects: The quarantine of the pipeline.
        target: The rows of the target.
        base: The rows that are already computed.
        edges: The edges of the filter and of its slices.
        where: The filter of the backfill.
        instead: What is read in place of the source, as `--from` names it; None for the source.
        verify: Raises when another process has taken the backfill over.
    """

    plan: Plan
    spark: SparkSession
    ledger: Ledger
    live: LivePipeline
    recompute: Recompute
    rejects: Rejects
    target: Target
    base: Base
    edges: Edges
    where: str
    instead: str | None
    verify: Callable[[], None]

    @property
    def table(self) -> str:
        return self.plan.write.table.text

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        self.verify()
        committed = self.live.committed()  # read before the target, which then has these batches
        self.ledger.find(Batch(number, (), replayed=True))
        standing = self.live.standing(self.ledger.table, committed)
        self.edges.refuse_newer(standing)
        head = self.ledger.seen
        self.target.refuse_others(slice, head)
        before = self.target.rows(slice.condition, head)
        held = before.count() if before is not None else 0
        rows = self._rows(standing).where(slice.condition)
        options = self._options(slice)
        batch = Batch(number, standing.spans, replayed=True)
        commit = self.ledger.try_commit(
            self.spark, self._write(slice, rows, standing), batch, options, CommitRetries(COMMITS)
        )
        if isinstance(commit, Conflict):
            return commit
        freshness.verify(self.plan.write.table, self.ledger.table)
        if commit is None:
            return Repaired(slice=slice.name, before=held, after=0)
        return Repaired(slice=slice.name, before=held, after=commit.rows, snapshot=commit.snapshot)

    def _options(self, slice: Slice) -> CommitOptions:
        options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint).options()
        instead = {INSTEAD: self.instead} if self.instead is not None else {}
        return replace(
            options,
            stamps={**options.stamps, SLICE: slice.condition, **instead},
            properties={**options.properties, **SNAPSHOT_ISOLATION},
            verify=self.verify,
        )

    # the rows

    def _rows(self, standing: Standing) -> DataFrame:
        """The rows of the backfill up to a position: those of the base, and those that the pipeline has read since."""
        new = self._since(self.base.standing, standing.ends, judged=True)
        if new is None:
            return self.base.rows
        rows = self.base.rows.unionByName(new)
        if standing.batch - self.base.standing.batch > MANY:
            persisted = new.persist(StorageLevel.DISK_ONLY)
            rows = self.base.rows.unionByName(persisted)
            self.base = Base(rows, standing)
        return rows

    def _since(self, standing: Standing, ends: Ends, *, judged: bool = False) -> DataFrame | None:
        """The rows between two positions; `judged` refuses rejected rows that the quarantine does not have."""
        built = self.recompute.rows(standing.ends, ends) if standing.ends != ends else None
        if built is None:
            return None
        if judged:
            self.rejects.refuse_new(built.rejected)
        fit = SchemaAligner(self.spark, self.plan, self.plan.write.table, self.ledger.table)
        return fit(built.df, ()).where(self.where)

    # the commit

    def _write(self, slice: Slice, rows: DataFrame, standing: Standing) -> Callable[[Transaction], None]:
        condition, write = slice.condition, self.plan.write

        def gives(ends: Ends) -> bool:
            new = self._since(standing, ends)
            return new is not None and not new.where(condition).isEmpty()

        watcher = Watcher(self.spark, self.ledger.table, write.table.sql, slice, pipelines=write.pipelines, gives=gives)

        def replace_rows(pending: Transaction) -> None:
            refuse_unordered(pending, condition, write.table.text, self.plan.declared.sink.origin)
            pending.watch.conflict = watcher.conflict
            try:
                pending.overwrite(rows, condition, {})
            except (Py4JJavaError, AnalysisException) as error:
                if isinstance(error, Py4JJavaError) and PARTLY not in java_message(error):
                    raise
                # The filter selects a part of a file, or Iceberg cannot convert it: delete the rows, then append.
                pending.begin()
                pending.delete(condition)
                pending.append(rows)

        return replace_rows
