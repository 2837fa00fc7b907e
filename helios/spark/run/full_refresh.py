"""A full refresh: empties the target in one commit, and refills it from the pipeline's first start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from pyspark.sql import SparkSession

from helios.errors import CheckpointError, InputError
from helios.model.retry import CommitRetries, Retry
from helios.plan.nodes import VERSION, Plan, ReadPlan
from helios.sources.kinds import position_of
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import commit, tables
from helios.spark.iceberg.history import History
from helios.spark.iceberg.validators import HeadValidator
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.rollbacks import records_before_replays
from helios.table.ledger import Record, Starts
from helios.table.refs import LEDGER, MAIN

Start: TypeAlias = "Mapping[str, object]"


def first_start(spark: SparkSession, plan: Plan, old: Record | None, checkpoint: Checkpoint) -> Starts | None:
    """The recorded positions of the pipeline's first start, where a refill must start, too.

    None if no source starts at its latest row, or if the pipeline has not started yet.

    Args:
        old: The pipeline's record in the target; None if it has no record.
        checkpoint: The pipeline's checkpoint, in which the first start is stored, too.

    Raises:
        InputError: The pipeline starts at the latest row, and cannot be read from its first start again: the start is
            not recorded, was recorded for another table, or has expired.
    """
    followed = [read for read in plan.reads if read.source.streaming]
    latest = next((read for read in followed if read.source.declared_start == "latest"), None)
    if latest is None:
        return None
    starts: Starts = (old.start if old is not None else None) or _start_in_checkpoint(checkpoint)
    why = "its first start is not recorded" if old is not None and not starts else ""
    if starts and len(starts) != len(followed):
        why = "its first start was recorded for other sources"
    for read, start in zip(followed, starts, strict=False):
        why = why or _unreadable_reason(spark, read, start)
    if why:
        raise InputError(
            f"--full-refresh would empty {plan.write.table.text}, and could not fill it: {latest.name} is read with "
            f'start="latest", and {why}; nothing was deleted.',
            where=latest.source.origin,
            fix='for the refill, declare another start, such as start="earliest" or a snapshot id.',
        )
    return starts or None


def _start_in_checkpoint(checkpoint: Checkpoint) -> Starts:
    try:
        starts: Starts | None = checkpoint.start()
    except CheckpointError:
        return ()  # a damaged checkpoint does not matter, because the refresh clears it
    return starts or ()


def _unreadable_reason(spark: SparkSession, read: ReadPlan, start: Start) -> str:
    """Why a table cannot be read from its first start; an empty text if it can, or if it is not a table."""
    table = tables.load_table(spark, read.table) if read.table is not None else None
    recognized = position_of(start.get("place")) if table is not None else None
    if table is None or recognized is None:
        return ""
    _kind, position = recognized
    if start.get("uuid") not in (None, str(table.uuid())):
        return "its first start was recorded for another table"
    history = History(table, tables.head(table, read.branch))
    retained = {int(snapshot.snapshotId()) for snapshot in history}
    if position.snapshot is None:  # the first start found an empty table
        kept = not history.is_cut
    else:  # `expired` is the newest expired snapshot: if it is the start, all snapshots after the start are retained
        kept = position.snapshot in retained or history.expired == position.snapshot
    return "" if kept else "snapshots after its first start have expired"


def empty_target(ledger: Ledger, claim: Record, pipelines: Iterable[str], retry: Retry) -> None:
    """Deletes all rows and replaces the pipeline's record by the claim of the ledger's checkpoint, in one commit.

    The caller has checked the table's history: a commit of another writer since then makes this commit fail.

    Args:
        ledger: The pipeline's ledger in the target, for the new checkpoint.
        claim: The new record, still without the snapshot of the delete.
        pipelines: The present and former names of the pipeline; the records under former names are removed.
    """
    table, head = ledger.table, ledger.head()
    operations, transaction = commit.begin(table)
    delete = transaction.newDelete().deleteFromRowFilter(_always_true())
    if ledger.branch:
        delete.toBranch(ledger.branch)
    delete.validateWith(HeadValidator(head.snapshotId() if head is not None else None))
    delete.set("helios.v", str(VERSION)).set("helios.pipeline", ledger.pipeline).commit()
    emptied = transaction.table().snapshot(ledger.branch or MAIN)
    assert emptied is not None
    # The record names the snapshot of the delete, so that a rollback of the delete is detected.
    id, sequence = int(emptied.snapshotId()), int(emptied.sequenceNumber())
    record = replace(claim, snapshot=id, sequence=sequence, branch=ledger.branch)
    update = transaction.updateProperties().set(ledger.key, record.as_json())
    for name in pipelines:
        update = update.remove(LEDGER + name) if name != ledger.pipeline else update
    for key, text in records_before_replays(table, pipelines).items():  # the replayed rows are gone, too
        update = update.set(key, text)
    update.commit()
    commit.commit(table, transaction, operations, CommitRetries(retry))


def _always_true() -> JavaExpression:
    expression: JavaExpression = classes().org.apache.iceberg.expressions.Expressions.alwaysTrue()
    return expression
