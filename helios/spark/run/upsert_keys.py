"""Finds the folder of a pipeline's upsert state, and moves the state to a new checkpoint."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from helios.catalog.conf import keys_folder
from helios.spark.checkpoint.upsert_state import UpsertState
from helios.spark.sinks.context import SinkContext
from helios.table.ledger import Record


def keys_folder_of(context: SinkContext, checkpoint: str, record: Record | None) -> str | None:
    """The folder of the upsert state of a pipeline; None if the state is in the checkpoint, or the pipeline has none.

    A pipeline that began with the state in its checkpoint keeps it there until it gets a new checkpoint.

    Args:
        checkpoint: The id of the pipeline's checkpoint.
        record: The pipeline's record in the target; None if it has no record.
    """
    write = context.plan.write
    if not write.sink.target_kind.one_table or write.mode.upsert is None:
        return None
    continues = record is not None and record.checkpoint == checkpoint
    if record is not None and continues and (record.keys is not None or upsert_state(context, record).has_keys):
        return record.keys
    return keys_folder(write.table.catalog, context.plan.checkpoint, checkpoint)


def upsert_state(context: SinkContext, record: Record | None) -> UpsertState:
    """The upsert state of a pipeline, in the folder that its record names."""
    return _state(context, record.keys if record is not None else None)


def take_over(context: SinkContext, checkpoint: str, record: Record | None) -> None:
    """Copies the upsert state of the former checkpoint to a new one; `drop_former` deletes the former state later.

    Args:
        checkpoint: The id of the new checkpoint.
        record: The pipeline's record in the target; None if it has no record.
    """
    folder = keys_folder_of(context, checkpoint, None)
    former, state = upsert_state(context, record), _state(context, folder)
    if record is not None and not former.has_keys:
        # A record that was read from the stamps of a snapshot does not name the folder.
        former = _state(context, keys_folder_of(context, record.checkpoint, None))
    if former.path("") == state.path(""):
        return  # the new checkpoint has the same location: the state within it stays where it is
    if folder is None:
        state.files.delete(state.folder)
    state.take_over(context.spark, former, record.batch if record is not None else -1)


def drop_former(
    context: SinkContext, replaced: Record | None, record: Record | None, records: Collection[Record]
) -> None:
    """Deletes the upsert state of a former checkpoint, once the record names the folder of the new one.

    Args:
        context: The pipeline, under its new checkpoint.
        replaced: The pipeline's record until now; None if it had no record.
        record: Its current record. If another checkpoint is named there, another driver has taken over, and nothing is
            deleted.
        records: All records of the target. The pipeline of a published branch may still use the former state.
    """
    if replaced is None or record is None or record.checkpoint != context.checkpoint_id:
        return
    if replaced.keys is not None and any(other.keys == replaced.keys for other in records):
        return
    former, state = upsert_state(context, replaced), _state(context, context.keys_folder)
    if replaced.checkpoint != context.checkpoint_id and former.path("") != state.path("") and former.has_keys:
        state.discard_former(former)


def _state(context: SinkContext, folder: str | None) -> UpsertState:
    return replace(context, keys_folder=folder).upsert_state(
        context.plan.write.table, context.plan.write.sink.branch_name
    )
