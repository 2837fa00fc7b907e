"""Finds out what happened to an audited batch between two runs: a user may have published or discarded it."""

from __future__ import annotations

from helios.errors import LedgerError
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.upsert_keys import upsert_state
from helios.spark.sinks.appended import AppendLedger, keeps_inputs
from helios.spark.sinks.applied_batches import with_applied_batches
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.table.refs import LEDGER


def settle_audited(context: SinkContext, table: JavaTable, checkpoint: str | None, *, resumes: bool) -> None:
    """Updates the record of a pipeline, and its upsert state, if its last audited batch was published or discarded.

    The table is checked even if the script declares no audit any more.

    Args:
        table: The target.
        checkpoint: The id of the existing checkpoint; None if a new one begins.
        resumes: Whether a new checkpoint continues after the batches in the target.

    Raises:
        LedgerError: A batch was brought back by hand. This checkpoint would write it again, or the keys of deleted rows
            as of that batch are gone.
    """
    plan, branch, properties = context.plan, context.plan.write.sink.branch_name, table.properties()
    keys = (LEDGER + name for name in plan.write.pipeline_names)
    key = next((key for key in keys if properties.get(key) is not None), None)
    if key is None:
        return  # there is no record, or it is lost: the ledger then reads the stamps of the snapshots
    ledger = Ledger(table, plan.pipeline, "", "", branch)
    if keeps_inputs(plan):
        ledger = AppendLedger(context, table, plan.write.table, branch)
    ledger.key = key
    record = ledger.load()
    if record is None or (checkpoint is not None and record.checkpoint != checkpoint):
        return  # another driver owns the table: the ledger refuses this one later
    updated = with_applied_batches(ledger, plan.write.pipeline_names, record, resumes=resumes)
    if updated != record:
        if updated.keys != record.keys and not upsert_state(context, updated).has_keys:
            raise LedgerError(
                f"{table.name()} holds batch {updated.batch} of {plan.pipeline}, which was brought back by hand, and "
                "the keys of deleted rows as of that batch are not stored any more: a late row could restore a deleted "
                "one; nothing was written.",
                where=plan.declared.sink.origin,
                fix="roll the table back to the snapshot before that batch, or refill it with `helios run "
                "--full-refresh`.",
            )
        ledger.claim(updated)
        record = updated
    if record.aside and plan.write.mode.upsert is not None:
        upsert_state(context, record).forget(record.batch)  # the batch was discarded: main has none of its rows
