"""Checks a pipeline's target and quarantine before a replay."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from helios.errors import InputError
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import tables
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.replay.notes import State
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.quarantine import REPLAY_FIX, QuarantineSink
from helios.spark.sinks.quarantined import batch_condition
from helios.spark.sinks.records import newest_record
from helios.spark.sinks.rollbacks import rename_replay
from helios.table.refs import REPLAY


class ReplayChecks:
    """The checks before a replay."""

    def __init__(self, plan: Plan, spark: SparkSession, checkpoint: Checkpoint, quarantine: JavaTable) -> None:
        identity = checkpoint.identity()
        self._id = identity.id if identity is not None else ""
        self._context = SinkContext(plan=plan, spark=spark, checkpoint=checkpoint, checkpoint_id=self._id)
        self._quarantine = quarantine
        write = plan.write
        self._target = tables.load_table(spark, write.table) if not write.sink.many_tables else None

    def refuse_rolled_back(self) -> None:
        """Refuses a target or a quarantine that was rolled back, as a run does, before anything is written.

        Raises:
            LedgerError: One of them was rolled back.
        """
        context, write = self._context, self._context.plan.write
        assert write.quarantine is not None
        rollback_fix = QuarantineSink(context, write.quarantine).rollback_fix
        guard = context.guard(self._quarantine, write.quarantine, rollback_fix=rollback_fix, replay_fix=REPLAY_FIX)
        ledger = Ledger(self._quarantine, context.plan.pipeline, self._id, "", guard=guard)
        record = ledger.load()
        # The record of a former checkpoint does not count: rollbacks before the new checkpoint were accepted.
        ledger.refuse_rollback(record if record is not None and record.checkpoint == self._id else None)
        if self._target is not None:
            target_ledger = context.ledger(self._target, write.sink.branch_name, write.table)
            target_ledger.refuse_rollback(target_ledger.load())

    def interrupted(self, state: State | None) -> State | None:
        """The interrupted replay that must be finished first; None if there is none.

        If the pipeline was renamed since, a replay into a single table is renamed, too. A replay does not count if its
        quarantine is gone and another table has the same name.

        Raises:
            InputError: The script now names another quarantine than that from which the replay took its rows.
        """
        if state is None:
            return None
        plan = self._context.plan
        former, current = state.position["sources"][0], plan.write.quarantine
        assert current is not None
        if former["uuid"] != str(self._quarantine.uuid()):
            if former["source"] == current.text:
                return None
            raise InputError(
                f"a replay of {plan.pipeline} from {former['source']} died before its end, and .quarantine() now names "
                f"{current.text}; nothing was replayed.",
                where=plan.declared.sink.origin,
                fix=f"put .quarantine() back to {former['source']} and replay; then name {current.text} again.",
            )
        pipeline = plan.pipeline + REPLAY
        if state.pipeline == pipeline or plan.write.sink.many_tables:
            return state
        for table in (self._quarantine, self._target):
            rename_replay(table, state.pipeline.removesuffix(REPLAY), plan.pipeline)
        return replace(state, pipeline=pipeline)

    def unfinished_batch_condition(self) -> str | None:
        """The SQL condition for the rejected rows of a batch that the target lacks; None if it has all batches.

        These rows are not replayed: the next run repeats the batch, and rejects the rows again.
        """
        plan = self._context.plan
        last = newest_record(self._quarantine, plan.write.pipeline_names) if plan.streaming else None
        if last is None or last.batch < 0 or last.checkpoint != self._id:
            return None
        if last.batch in self._context.checkpoint.batches("commits"):
            return None
        branch = plan.write.sink.branch_name
        record = newest_record(self._target, plan.write.pipeline_names, branch) if self._target is not None else None
        landed = record is not None and record.checkpoint == self._id and record.batch >= last.batch
        return None if landed else batch_condition(last)
