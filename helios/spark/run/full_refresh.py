"""A full refresh: the target is emptied in one commit, and filled from where its pipeline first began."""

from __future__ import annotations

from dataclasses import replace

from helios.errors import InputError
from helios.plan.nodes import VERSION, Plan
from helios.spark.iceberg import commit
from helios.spark.iceberg.validators import HeadValidator
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.files import JavaExpression
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, Starts
from helios.table.refs import MAIN


def first_start(plan: Plan, old: Record | None) -> Starts | None:
    """Where a target is filled from again; None where the declared start says it at any time.

    Args:
        plan: The pipeline.
        old: Its record in the target.

    Raises:
        InputError: The pipeline begins behind all that is there, and where that was is not known: nothing would be
            filled in.
    """
    followed = [read for read in plan.reads if read.source.streaming]
    latest = next((read for read in followed if read.source.beginning == "latest"), None)
    if old is None or latest is None:
        return None
    if old.start is not None and len(old.start) == len(followed):
        return old.start
    raise InputError(
        f"--full-refresh would empty {plan.write.table.text} and fill in nothing: {latest.name} is read with "
        'start="latest", and its first start is not recorded.',
        where=latest.source.origin,
        fix='say where it begins, such as start="earliest" or a snapshot\'s id, for the refill.',
    )


def empty(ledger: Ledger, start: Starts | None) -> None:
    """Deletes all rows and the record, in one commit, and claims the table for the ledger's checkpoint.

    The caller has checked the table's history: a commit since then makes this one fail.

    Args:
        ledger: The record of the new checkpoint.
        start: Where the sources are first read from, as the new record keeps it.
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
    begun = Record(checkpoint=ledger.checkpoint, snapshot=id, sequence=sequence, steps=ledger.steps, start=start)
    transaction.updateProperties().set(ledger.key, replace(begun, branch=ledger.branch).as_json()).commit()
    commit.commit(table, transaction, operations)


def _always_true() -> JavaExpression:
    expression: JavaExpression = classes().org.apache.iceberg.expressions.Expressions.alwaysTrue()
    return expression
