"""Repairs a slice in one commit, after a check of all commits that other writers made since its rows were computed."""

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
from helios.spark.backfill.live import ConflictWatcher, LivePipeline, LivePosition
from helios.spark.backfill.recompute import Positions, Recompute
from helios.spark.backfill.rejects import Rejects
from helios.spark.backfill.result import Repaired
from helios.spark.backfill.slices import Slice
from helios.spark.backfill.writers import TargetRows
from helios.spark.iceberg import freshness
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.callbacks import callback_scope
from helios.spark.jvm.errors import java_message
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.modes import refuse_unordered_partitions
from helios.spark.sinks.options import CommitOptions, Conflict
from helios.table.commits import INSTEAD, SLICE
from helios.table.positions import Batch

TRIES = 20
"""The maximum number of attempts at one slice while other writers commit into it."""
ADVICE_AFTER = 3
"""After this number of failed attempts, a note tells the user what to do."""
SHORTEST, LONGEST = 0.05, 2.0
"""Seconds between two attempts; each pause is twice as long as the one before."""
SLOWER = "stop the pipeline for a moment, or give its source a larger poll="
COMMIT_RETRY = Retry(retries=6, backoff=SHORTEST)
"""How often a commit is retried if its rows need not be written again."""
SNAPSHOT_ISOLATION = {"write.delete.isolation-level": "snapshot"}
"""Turns off Iceberg's check of added files, which compares only column bounds: Helios checks the rows itself."""
PARTLY = "some, but not all, rows match"
"""Iceberg's error for a filter that selects only some rows of a file."""
MAX_UNPERSISTED = 25
"""If there are more new batches, or spans of new rows, their rows are stored together with the computed rows."""


class SliceRepairer(Protocol):
    """Repairs the slices of a backfill of the target `table`."""

    @property
    def table(self) -> str: ...

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        """Replaces the rows of a slice in one commit; returns a `Conflict` if another writer has committed into it."""


def repair_slice(
    repair: SliceRepairer,
    number: int,
    slice: Slice,
    note: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Repaired | None:
    """Replaces the rows of a slice in one commit, and tries again if another writer has committed into it.

    Args:
        note: Called with a line after each attempt without success.
        stopping: Returns True to end without another attempt.

    Returns:
        The repaired slice; None if `stopping` ended the repair before.

    Raises:
        HeliosError: The slice cannot be repaired; its rows were not replaced.
    """
    why = ""
    for again in range(TRIES):
        with callback_scope():
            result = repair.attempt(number, slice)
        if isinstance(result, Repaired):
            return replace(result, again=again)
        why = f": {java_message(result.error)}" if result.error is not None else ""
        if stopping():
            return None
        if again + 1 < TRIES:
            note(f"{slice.name}: new rows arrived while it was being repaired; starting attempt {again + 2}")
        if again + 1 == ADVICE_AFTER:
            note(f"{slice.name}: new rows arrive faster than it can be repaired: {SLOWER}")
        time.sleep(min(LONGEST, SHORTEST * 2**again))
    raise RunError(
        f"{slice.name} of {repair.table} was attempted {TRIES} times, and each time another writer committed into it"
        f"{why}; its rows were not replaced.",
        fix=f"{SLOWER}, and start the backfill again: it resumes with this slice.",
    )


@dataclass(frozen=True)
class ComputedRows:
    """The rows that the current script produces up to a position.

    Attributes:
        rows: The rows that meet the filter of the backfill, as the target stores them.
        live_position: The position up to which they are computed.
    """

    rows: DataFrame
    live_position: LivePosition


@dataclass(kw_only=True)
class FilterRepair:
    """Repairs the slices of a filter, for a mode that only adds rows.

    Attributes:
        ledger: The ledger of the backfill.
        live: The pipeline, which may be running.
        recompute: Recomputes rows with the current script.
        rejects: Compares rejected rows with the pipeline's quarantine.
        target: The rows of the target, and their writers.
        computed: The rows that are already computed.
        edges: Raises if the changed script could move a row into or out of the filter or a slice.
        where: The filter of the backfill.
        from_name: The table or folder of `--from`, which is read instead of the source; None to read the source.
        verify: Raises if another process has taken over the backfill.
    """

    plan: Plan
    spark: SparkSession
    ledger: Ledger
    live: LivePipeline
    recompute: Recompute
    rejects: Rejects
    target: TargetRows
    computed: ComputedRows
    edges: Edges
    where: str
    from_name: str | None
    verify: Callable[[], None]

    @property
    def table(self) -> str:
        return self.plan.write.table.text

    def attempt(self, number: int, slice: Slice) -> Repaired | Conflict:
        self.verify()
        committed = self.live.committed()  # read before the target is refreshed, so that the target has these batches
        self.ledger.find(Batch(number, (), maybe_written=True))  # refreshes the target, and sets `seen`
        live_position = self.live.position(self.ledger.table, committed)
        self.edges.refuse_newer(live_position)
        head = self.ledger.head_at_look_up
        self.target.refuse_foreign(slice, head)
        present = self.target.rows(slice.condition, head)
        before = present.count() if present is not None else 0
        rows = self._rows(live_position).where(slice.condition)
        options = self._options(slice)
        batch = Batch(number, live_position.spans, maybe_written=True)
        commit = self.ledger.try_commit(
            self.spark, self._write(slice, rows, live_position), batch, options, CommitRetries(COMMIT_RETRY)
        )
        if isinstance(commit, Conflict):
            return commit
        freshness.verify(self.plan.write.table, self.ledger.table)
        if commit is None:
            return Repaired(slice=slice.name, before=before, after=0)
        return Repaired(slice=slice.name, before=before, after=commit.rows, snapshot=commit.snapshot)

    def _options(self, slice: Slice) -> CommitOptions:
        options = SinkContext(plan=self.plan, spark=self.spark, checkpoint=self.live.checkpoint).options()
        read_instead = {INSTEAD: self.from_name} if self.from_name is not None else {}
        return replace(
            options,
            stamps={**options.stamps, SLICE: slice.condition, **read_instead},
            properties={**options.properties, **SNAPSHOT_ISOLATION},
            verify=self.verify,
        )

    # the rows

    def _rows(self, live_position: LivePosition) -> DataFrame:
        """The rows of the backfill up to a position: the computed ones, and those that the pipeline has read since."""
        new = self._new_rows(self.computed.live_position, live_position.ends, check_rejects=True)
        if new is None:
            return self.computed.rows
        rows = self.computed.rows.unionByName(new)
        if live_position.batch - self.computed.live_position.batch > MAX_UNPERSISTED:
            persisted = new.persist(StorageLevel.DISK_ONLY)
            rows = self.computed.rows.unionByName(persisted)
            self.computed = ComputedRows(rows, live_position)
        return rows

    def _new_rows(self, live_position: LivePosition, to: Positions, *, check_rejects: bool = False) -> DataFrame | None:
        """The rows between two positions; None for no input.

        With `check_rejects`, raises an error if the script rejects rows that the quarantine does not have.
        """
        built = self.recompute.rows(live_position.ends, to) if live_position.ends != to else None
        if built is None:
            return None
        if check_rejects:
            self.rejects.refuse_new(built.rejected)
        align = SchemaAligner(self.spark, self.plan, self.plan.write.table, self.ledger.table)
        return align(built.df, ()).where(self.where)

    # the commit

    def _write(self, slice: Slice, rows: DataFrame, live_position: LivePosition) -> Callable[[Transaction], None]:
        condition, write = slice.condition, self.plan.write

        def produces_rows(to: Positions) -> bool:
            new = self._new_rows(live_position, to)
            return new is not None and not new.where(condition).isEmpty()

        table, names = self.ledger.table, write.pipeline_names
        watcher = ConflictWatcher(
            self.spark, table, write.table.sql, slice, pipelines=names, produces_rows=produces_rows
        )

        def replace_rows(pending: Transaction) -> None:
            refuse_unordered_partitions(pending, condition, write.table.text, self.plan.declared.sink.origin)
            pending.watch.conflict_reason = watcher.conflict
            try:
                pending.overwrite(rows, condition, {})
            except (Py4JJavaError, AnalysisException) as error:
                if isinstance(error, Py4JJavaError) and PARTLY not in java_message(error):
                    raise
                # The filter selects only a part of a file, or Iceberg cannot convert it.
                pending.begin()
                pending.delete(condition)
                pending.append(rows)

        return replace_rows
