"""A start without a checkpoint, and the checks of `--new-checkpoint` against the position in the target's record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.columns import CHANGE_COLUMNS
from helios.plan.nodes import Plan, ReadPlan
from helios.plan.notes import lost_checkpoint
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.table.ledger import Record


def resumes_after_publication(checkpoint: Checkpoint, record: Record | None) -> bool:
    """True if a pipeline starts for the first time after its branch was published.

    It then resumes at the position in the target's record, which the publication copied from the branch.
    """
    if record is None or record.published is None:
        return False
    identity = checkpoint.identity()
    return identity is None or identity.id != record.checkpoint


def refuse_lost(plan: Plan, table: TableName, record: Record | None) -> None:
    """Refuses to start without a checkpoint if the table's record shows that the pipeline has started before.

    The table may then hold rows of the pipeline, and a new start could begin at other positions than the recorded ones.

    Raises:
        CheckpointError: The record has a position or starting positions, and is not a copy from a published branch.
    """
    lost = lost_checkpoint(plan, table.text, record) if record is not None else None
    if lost is not None:
        raise lost


def refuse_lost_order(plan: Plan, not_stored: Sequence[str], state: UpsertState) -> None:
    """Refuses an upsert whose order is neither in the table nor in the upsert state: a late, older row would win.

    Args:
        plan: The pipeline, which has written the table.
        not_stored: The columns of the rows that the table does not store.

    Raises:
        InputError: The column of the order is not stored, and the upsert state has no order.
    """
    order = plan.write.mode.order_by
    lost_columns = {name.lower() for name in not_stored} - set(CHANGE_COLUMNS)
    if order is None or order.lower() not in lost_columns or state.terms is not None:
        return
    raise InputError(
        f"{plan.write.table.text} no longer has the column {order}, which tells late rows from newer ones: it was "
        "renamed or dropped.",
        where=plan.declared.sink.origin,
        fix="rename it back, or use its new name in a step and in order_by; if it was dropped, refill the "
        "target with `helios run --full-refresh`.",
    )


def refuse_new_checkpoint(
    plan: Plan, followed: Sequence[ReadPlan], entries: Sequence[Mapping[str, Any]], *, holds_rows: bool
) -> None:
    """Raises `InputError` if followed sources cannot resume at the recorded position, or if no position is recorded.

    Args:
        entries: The entries of the recorded position; none if nothing is recorded.
        holds_rows: Whether the target holds rows. If it does not, the position may be missing.
    """
    if followed and not entries and holds_rows:
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: {plan.write.table.text} holds rows, but no "
            "recorded position of this pipeline.",
            where=plan.origin,
            fix="restore the checkpoint, refill the target with `helios run --full-refresh`, or run under a new "
            "name into a new table.",
        )
    # Batches of a stateful pipeline, and batches that read their sources once, record no position of a reader.
    if followed and any("place" not in entry for entry in entries):
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: its last batch was stateful, or read its sources once, "
            "and recorded no position to resume at.",
            where=plan.origin,
            fix="put the script back and restore its checkpoint, or run under a new name into a new target.",
        )
    other_sources = len(entries) != len(followed) or any(
        entry["source"] != read.name and (read.uuid is None or entry.get("uuid") != read.uuid)
        for entry, read in zip(entries, followed, strict=False)
    )
    if entries and followed and other_sources:
        raise InputError(
            f"--new-checkpoint cannot resume {plan.pipeline}: its last batch read "
            f"{', '.join(entry['source'] for entry in entries)}; the pipeline now follows "
            f"{', '.join(read.name for read in followed)}.",
            where=plan.origin,
            fix="put the sources back, or run under a new name into a new target.",
        )
