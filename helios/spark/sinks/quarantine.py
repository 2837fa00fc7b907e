"""The quarantine sink: a table of bad input, late rows, failed expectations, and rows with an invalid key or route."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import CheckpointError, LedgerError
from helios.plan.nodes import ReadPath
from helios.plan.properties import METADATA_FILES
from helios.spark.checkpoint.landings import Landings
from helios.spark.iceberg import tables
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.sql import literal
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.appended import AppendLedger, keeps_inputs
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.lost_batches import lost_batches
from helios.spark.sinks.options import Commit, CommitOptions
from helios.spark.sinks.protocol import Absent, Found, Outcome, Sink, Staged
from helios.spark.sinks.quarantined import ROLLED_BACK, batch_condition, detach_rows, positions_condition
from helios.spark.sinks.records import newest_record
from helios.spark.sinks.rollbacks import forget_replay
from helios.spark.steps.build import Built
from helios.table.appended import Verdict
from helios.table.ledger import Record
from helios.table.positions import Batch, Position, Span, parse_position, same_position
from helios.table.refs import LEDGER

NAMES = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
COLUMNS = "pipeline string, batch bigint, step string, reason string, position string, payload string, at timestamp"
"""The columns of a quarantine.

`payload` is the row as JSON. `position` is the source position of its batch. `step` is the text of the step that
rejected the row, or the source's option, such as `.on_bad_row`; it is empty for an invalid key or route.
"""

USE_OTHER_TABLE = "give .quarantine() a table of another name"
REPLAY_FIX = f"{USE_OTHER_TABLE}; the rows in the former table are then not replayed any more"
"""The fix if a rollback of the quarantine has undone a replay: another replay would write its rows a second time."""

SNAPSHOT_ISOLATION = {f"write.{command}.isolation-level": "snapshot" for command in ("merge", "delete")}
"""The properties for commits. Each pipeline deletes only its own rows, so rows that others add do not conflict."""


class QuarantineSink(Sink):
    """The quarantine table of a pipeline, written exactly once per batch like any target.

    Attributes:
        has_rejects: Whether the last `write` found, wrote or replaced rejected rows of its batch.
    """

    transactional = True

    def __init__(self, context: SinkContext, name: TableName) -> None:
        self._plan = context.plan
        self._name = name
        self._spark = context.spark
        self._context = context
        self._checkpoint = context.checkpoint
        self._ledger: StepsLedger | None = None
        self.has_rejects = False
        self._last_position: Any = None  # the position of the last written batch
        self._last_rows = 0  # the number of rejected rows of that batch

    @classmethod
    def of(cls, context: SinkContext) -> QuarantineSink | None:
        """The pipeline's quarantine; None if it declares none."""
        name = context.plan.write.quarantine
        return cls(context, name) if name is not None else None

    # writing

    def write(self, batch: Batch, rejected: Sequence[DataFrame]) -> int:
        """Writes the rejected rows of a batch once; returns how many of them were not reported before.

        Rows that an earlier script rejected from the same batch are replaced: the target does not have the batch yet.

        Args:
            rejected: The rows, as `payload`, `reason` and `step`.
        """
        self.has_rejects = False
        if not rejected and (not batch.maybe_written or tables.load_table(self._spark, self._name) is None):
            return 0
        batch = self._numbered(batch)
        if isinstance(self.find(batch), Found):
            self.has_rejects = True
            return 0
        empty = self._spark.createDataFrame([], "payload string, reason string, step string")
        with self.stage(batch, Built(reduce(DataFrame.unionByName, rejected or [empty]))) as staged:
            commit = self.commit(staged) if staged.write is not None else None
            self.has_rejects = staged.write is not None
        rows = commit.rows if commit is not None and staged.adds_rows and not commit.already_committed else 0
        # Rows that were reported before the batch was reopened are not reported again.
        reported = self._last_rows if self._last_position == batch.position else 0
        self._last_position, self._last_rows = batch.position, rows
        return max(0, rows - reported)

    def _numbered(self, batch: Batch) -> Batch:
        """A batch with its number in this table, marked as possibly written already."""
        number = batch.number if self._plan.streaming else self.number(batch.spans)
        return replace(batch, number=number, maybe_written=True)

    def reopen(self, batch: Batch) -> None:
        """Makes the next `write` replace the rows of a batch, as if other steps had rejected them."""
        ledger, record = self._open(), self.last()
        if record is not None:
            ledger.reopen(batch, record)

    def number(self, spans: Sequence[Span]) -> int:
        """The number of a batch pipeline's next batch, by this table's own record."""
        return self._open().number(spans)

    def last(self) -> Record | None:
        return self._open().load()

    def find(self, batch: Batch) -> Outcome:
        commit = self._open().find(batch)
        return Found(commit) if commit is not None else Absent()

    @contextmanager
    def stage(self, batch: Batch, rows: Built) -> Iterator[Staged]:
        """Stages rejected rows; `write` is None if there is nothing to write or replace."""
        written = rows.df.withColumns(
            {
                "pipeline": F.lit(self._plan.pipeline),
                "batch": F.lit(batch.number).cast("bigint"),
                "position": F.lit(json.dumps(batch.position)),
                "at": F.current_timestamp(),
            }
        )
        written = written.select(*NAMES).persist()
        try:
            has_rows = not written.isEmpty()
            replaced_condition = self._replaced_condition(batch)

            def write(pending: Transaction) -> None:
                if replaced_condition is not None:
                    pending.delete(replaced_condition)
                if has_rows:
                    pending.append(written)

            has_changes = has_rows or replaced_condition is not None
            yield Staged(batch, Built(written), write if has_changes else None, adds_rows=has_rows)
        finally:
            written.unpersist()

    def commit(self, staged: Staged) -> Commit | None:
        assert staged.write is not None
        options = CommitOptions(
            verify=self._context.verify, retry=self._plan.write.sink.retry_policy, properties=SNAPSHOT_ISOLATION
        )
        return self._open().commit(staged.rows.session, staged.write, staged.batch, options)

    def _replaced_condition(self, batch: Batch) -> str | None:
        """The SQL condition for rows that an earlier script has rejected from a batch; None if there are none."""
        return self._open().replaced_condition(batch, self)

    def same_inputs_condition(self, batch: Batch) -> str | None:
        """The SQL condition for the pipeline's rows from the same inputs as a batch; None if there are none."""
        texts = self._positions(lambda position: same_position(position, batch))
        return f"{self._own_rows_condition()} AND {positions_condition(texts)}" if texts else None

    def _positions(self, accepts: Callable[[Position | None], bool]) -> list[str]:
        """The positions for which `accepts` is true, of the pipeline's rows, as the texts in the table."""
        own_rows = self._spark.table(self._name.sql).where(self._own_rows_condition())
        positions = own_rows.select("position").distinct().collect()
        return [text for (text,) in positions if accepts(parse_position(text))]

    def _own_rows_condition(self, suffix: str = "") -> str:
        """The SQL condition for the rows under the present and former names of the pipeline, each with the suffix."""
        names = ", ".join(literal(name + suffix) for name in (self._plan.pipeline, self._plan.was) if name)
        return f"pipeline IN ({names})"

    def record_condition(self, record: Record) -> str:
        """The SQL condition for the pipeline's rows of a record's batch."""
        return f"{self._own_rows_condition()} AND {batch_condition(record)}"

    # full refresh and new checkpoint

    def delete_own_rows(self, checkpoint: str) -> None:
        """Deletes all rows of the pipeline, for a full refresh under a new checkpoint."""
        table = tables.load_table(self._spark, self._name)
        if table is not None:
            self._delete(f"{self._own_rows_condition()} OR {self._own_rows_condition(ROLLED_BACK)}")
            forget_replay(table, self._plan.write.pipeline_names)
            claim = Record(checkpoint=checkpoint, steps=self._plan.fingerprint)
            Ledger(table, self._plan.pipeline, checkpoint, "").claim(claim, forget=self._plan.was)

    def refuse_without_replay(self) -> None:
        """Raises if the table was rolled back to before a replay: it then has the replayed rows again."""
        table = tables.load_table(self._spark, self._name)
        if table is not None:
            guard = self._context.guard(table, self._name, replay_fix=REPLAY_FIX)
            guard.refuse(None, table.currentSnapshot())

    def rewind(self, to: Record | None, target: JavaTable | None) -> None:
        """Prepares the table for a new checkpoint: no replay may write a row that the checkpoint will read again.

        If the target lacks the last batch, the rows of this batch are deleted: the batch is read again under another
        number. Rows of batches that a rollback has removed from the target stay, because a repair of the target may
        bring these batches back. But their pipeline name gets a suffix, so that they no longer belong to the pipeline.

        Args:
            to: The target's record of the pipeline.
        """
        table = tables.load_table(self._spark, self._name)
        if table is None or not self._plan.streaming:
            return
        record = newest_record(table, self._plan.write.pipeline_names)
        if record is not None and record.position is not None and to is not None:
            target_lacks_batch = record.checkpoint == to.checkpoint and record.batch > to.batch
            if target_lacks_batch:
                self._delete(self.record_condition(record))
        lost = lost_batches(target, self._plan.write) if target is not None else None
        if lost is not None:
            texts = self._positions(lambda position: position in lost.positions)
            detach_rows(self._spark, self._name, self._own_rows_condition(), texts, lost.first_commit_ms)

    def withdraw(self, batch: Batch) -> None:
        """Deletes the rows of a batch that the target lacks, because the batch runs again with another quarantine."""
        table = tables.load_table(self._spark, self._name)
        record = newest_record(table, self._plan.write.pipeline_names) if table is not None else None
        if table is None or record is None or record.checkpoint != self._checkpoint_id or record.batch != batch.number:
            return
        # The record is changed first: a later script that names this table again must not find the batch as written.
        ledger = Ledger(table, self._plan.pipeline, self._checkpoint_id, "")
        ledger.claim(replace(record, steps=""), forget=self._plan.was)
        self._delete(self.record_condition(record))

    def _delete(self, condition: str) -> None:
        # The delete is idempotent, so it needs no record.
        self._spark.sql(f"DELETE FROM {self._name.sql} WHERE {condition}")

    # the table

    def verify(self) -> None:
        """Checks the table when a run starts, before a batch rejects rows.

        Raises:
            LedgerError: The table has lost rows of this checkpoint: it was rolled back or is gone.
        """
        table = tables.load_table(self._spark, self._name)
        if table is None:
            self.refuse_gone()
            return
        ledger = self._ledger_of(table)
        record = ledger.load()
        if record is None or record.checkpoint == ledger.checkpoint:
            ledger.refuse_rollback(record)

    def refuse_gone(self) -> None:
        """Raises if this checkpoint has written rows to the table, which is missing."""
        known = self._checkpoint.identity() is not None
        if known and Landings(self._checkpoint, self._checkpoint_id, self._name.text).last() is not None:
            raise LedgerError(
                f"{self._name.text} is gone, with the rows that {self._plan.pipeline} has set aside in it; nothing was "
                "written.",
                where=self._plan.declared.sink.origin,
                fix=f"restore the table, or {self.rollback_fix}.",
            )

    @cached_property
    def _checkpoint_id(self) -> str:
        identity = self._checkpoint.identity()
        assert identity is not None
        return identity.id

    @property
    def rollback_fix(self) -> str:
        """The fix for a table that has lost rows for good."""
        plan = self._plan
        resumable = plan.path is not ReadPath.STATEFUL and not plan.write.sink.many_tables
        return USE_OTHER_TABLE + (", or keep its name and run `helios run --new-checkpoint`" if resumable else "")

    def _ledger_of(self, table: JavaTable) -> StepsLedger:
        context = replace(self._context, checkpoint_id=self._checkpoint_id)
        guard = context.guard(table, self._name, rollback_fix=self.rollback_fix, replay_fix=REPLAY_FIX)
        if not self._plan.streaming:
            return InputsLedger(context, table, self._name, None, guard=guard)
        return StepsLedger(table, self._plan.pipeline, self._checkpoint_id, self._plan.fingerprint, guard=guard)

    def _open(self) -> StepsLedger:
        if self._ledger is None:
            claim = Record(checkpoint=self._checkpoint_id, steps=self._plan.fingerprint)
            table = tables.load_table(self._spark, self._name)
            if table is None:
                self.refuse_gone()
                key = LEDGER + self._plan.pipeline
                schema = self._spark.createDataFrame([], COLUMNS).schema
                metadata_files = METADATA_FILES if self._plan.streaming else {}
                properties = {"format-version": "2", **metadata_files, key: claim.as_json()}
                table = tables.create_table(self._spark, self._name, schema, properties)
            missing = {"payload", "reason", "position", "batch"} - set(tables.spark_schema(self._spark, table).names)
            if missing:
                raise CheckpointError(
                    f"{self._name.text} is not a quarantine table: it lacks {', '.join(sorted(missing))}.",
                    where=self._plan.declared.sink.origin,
                    fix="give .quarantine() the name of a new table, which is then created.",
                )
            ledger = self._ledger_of(table)
            record = ledger.load()
            if record is None or record.checkpoint != ledger.checkpoint:
                known = newest_record(table, self._plan.write.pipeline_names)
                continued = ledger.continued(known) if known is not None else None
                ledger.claim(continued or claim, forget=self._plan.was)
            self._ledger = ledger
        return self._ledger


class StepsLedger(Ledger):
    """The ledger of a streaming pipeline's quarantine: a batch is found only if the current steps rejected its rows."""

    @override
    def find(self, batch: Batch) -> Commit | None:
        commit = super().find(batch)
        record = self.load() if commit is not None else None
        by_other_steps = record is not None and record.batch == batch.number and record.steps != self.steps
        return None if by_other_steps else commit

    def reopen(self, batch: Batch, record: Record) -> None:
        """Makes the next `find` treat a batch as written by other steps."""
        if record.batch == batch.number:
            self.claim(replace(record, steps=""))

    def replaced_condition(self, batch: Batch, rows: QuarantineSink) -> str | None:
        """The SQL condition for the rows that a batch replaces; None if there are none."""
        record = self.load()
        # `record_condition` also selects by position, because each checkpoint numbers its batches from 0.
        return rows.record_condition(record) if record is not None and record.batch == batch.number else None

    def continued(self, record: Record) -> Record | None:
        """The record with which this checkpoint continues an earlier record; None if it begins anew."""
        return record if record.checkpoint == self.checkpoint else None


class InputsLedger(AppendLedger, StepsLedger):
    """The ledger of a batch pipeline's quarantine: a batch is found if the current steps rejected rows of its inputs.

    The target is asked first: only a batch that the target lacks, or that is appended again, is looked up here.
    Identical inputs are recognized across checkpoints.
    """

    may_replace = False
    """True if other steps may have rejected rows from the inputs of the batch that was looked up last."""

    @property
    @override
    def repeats(self) -> bool:
        return super().repeats and keeps_inputs(self._plan)  # in other modes the target replaces its rows

    @override
    def number(self, spans: Sequence[Span]) -> int:
        record = self.load()
        return self.attempt_number(record.batch + 1 if record is not None else 0)

    @override
    def find(self, batch: Batch) -> Commit | None:
        commit = super().find(batch)
        verdict = self.judge(batch).verdict
        self.may_replace = not self.repeats and (verdict is Verdict.STEPS or not self.all_known)
        if commit is None and verdict is Verdict.SAME and not self.repeats:
            return Commit(snapshot=None, already_committed=True)
        return commit

    @override
    def reopen(self, batch: Batch, record: Record) -> None:
        if self.repeats:
            super().reopen(replace(batch, number=self.number(batch.spans)), record)
        else:
            self.claim(replace(record, steps="", appended=self.by_other_steps(batch, record)))

    @override
    def replaced_condition(self, batch: Batch, rows: QuarantineSink) -> str | None:
        if self.repeats:
            return super().replaced_condition(batch, rows)
        return rows.same_inputs_condition(batch) if self.may_replace else None

    @override
    def continued(self, record: Record) -> Record | None:
        if record.checkpoint != self.checkpoint:
            record = self.guard.for_new_checkpoint(self.without_rolled_back(record), self.head())
        return replace(record, checkpoint=self.checkpoint)
