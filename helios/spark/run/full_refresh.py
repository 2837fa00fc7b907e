"""A full refresh: the target is emptied in one commit, and refilled from its pipeline's first start."""

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
from helios.spark.sinks.rollbacks import forget_replay
from helios.table.ledger import Record, Starts
from helios.table.refs import LEDGER, MAIN

Start: TypeAlias = "Mapping[str, object]"


def first_start(spark: SparkSession, plan: Plan, old: Record | None, checkpoint: Checkpoint) -> Starts | None:
    """The first position for a refill; None if the declared start always gives it.

    Args:
        spark: The session.
        plan: The pipeline.
        old: Its record in the target; None where there is none.
        checkpoint: Its checkpoint, which knows the start too.

    Raises:
        InputError: The pipeline begins behind all that is there, and cannot be filled from where it began: that is not
            known, of another table, or has expired.
    """
    followed = [read for read in plan.reads if read.source.streaming]
    latest = next((read for read in followed if read.source.beginning == "latest"), None)
    if latest is None:
        return None
    starts: Starts = (old.start if old is not None else None) or _known(checkpoint)
    why = "its first start is not recorded" if old is not None and not starts else ""
    if starts and len(starts) != len(followed):
        why = "its first start is that of other sources"
    for read, start in zip(followed, starts, strict=False):
        why = why or _unreadable(spark, read, start)
    if why:
        raise InputError(
            f"--full-refresh would empty {plan.write.table.text}, and could not fill it: {latest.name} is read with "
            f'start="latest", and {why}; nothing was deleted.',
            where=latest.source.origin,
            fix='say where it begins, such as start="earliest" or a snapshot\'s id, for the refill.',
        )
    return starts or None


def _known(checkpoint: Checkpoint) -> Starts:
    try:
        starts: Starts | None = checkpoint.start()
    except CheckpointError:
        return ()  # damaged: it is cleared
    return starts or ()


def _unreadable(spark: SparkSession, read: ReadPlan, start: Start) -> str:
    """Why a table cannot be read from its first start; empty if it can, and for other sources."""
    table = tables.load_table(spark, read.table) if read.table is not None else None
    begun = position_of(start.get("place")) if table is not None else None
    if table is None or begun is None:
        return ""
    place = begun[1]
    if start.get("uuid") not in (None, str(table.uuid())):
        return "its first start is that of another table"
    history = History(table, tables.head(table, read.branch))
    there = place.snapshot is None or any(int(snapshot.snapshotId()) == place.snapshot for snapshot in history)
    return "" if there or history.expired == place.snapshot else "snapshots after its first start have expired"


def empty(ledger: Ledger, claim: Record, pipelines: Iterable[str], retry: Retry) -> None:
    """Deletes all rows and the record, in one commit, and claims the table for the ledger's checkpoint.

    The caller has checked the table's history: a commit since then makes this one fail.

    Args:
        ledger: The record of the new checkpoint.
        claim: The new record, but for the snapshot that deletes.
        pipelines: The names of the pipeline: the records of its former ones go.
        retry: How often the commit is tried again.
    """
    table, head = ledger.table, ledger.head()
    operations, transaction = commit.begin(table)
    delete = transaction.newDelete().deleteFromRowFilter(_always_true())
    if ledger.branch:
        delete.toBranch(ledger.branch)
    delete.validateWith(HeadValidator(head.snapshotId() if head is not None else None))
    delete.set("helios.v", str(VERSION)).set("helios.pipeline", ledger.pipeline).commit()
    made = transaction.table().snapshot(ledger.branch or MAIN)
    assert made is not None
    id, sequence = int(made.snapshotId()), int(made.sequenceNumber())  # a rollback behind it brings the rows back
    begun = replace(claim, snapshot=id, sequence=sequence)
    update = transaction.updateProperties().set(ledger.key, replace(begun, branch=ledger.branch).as_json())
    for name in pipelines:
        update = update.remove(LEDGER + name) if name != ledger.pipeline else update
    update.commit()
    commit.commit(table, transaction, operations, CommitRetries(retry))
    forget_replay(table, pipelines)


def _always_true() -> JavaExpression:
    expression: JavaExpression = classes().org.apache.iceberg.expressions.Expressions.alwaysTrue()
    return expression
