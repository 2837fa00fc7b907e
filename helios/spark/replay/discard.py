"""Discards a batch that failed its audit, through Iceberg's Java API: for tables that PyIceberg cannot write."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.errors import RunError
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.sinks.audit import audit_branch
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, parse_record
from helios.table.quarantine import DiscardedBatch


def commit_discard(spark: SparkSession, name: TableName, discarded: DiscardedBatch, record: Record) -> None:
    """Tags the batch's snapshot, removes the audit branch and writes the pipeline's record, in one commit.

    Args:
        record: The pipeline's record, in which the batch counts as discarded.

    Raises:
        RunError: The table was changed meanwhile, or the commit failed.
    """
    changed_error = RunError(
        f"{name.text} was changed by somebody else meanwhile; nothing was discarded.",
        fix="check the table, and repeat the command.",
    )
    table, branch = load_table(spark, name), audit_branch(discarded.pipeline)
    if table is None:
        raise changed_error
    key = Ledger(table, discarded.pipeline, record.checkpoint, record.steps).key
    ref, text = table.refs().get(branch), table.properties().get(key)
    current = parse_record(text, key, name.text) if text is not None else None
    if (
        ref is None
        or int(ref.snapshotId()) != discarded.snapshot
        or current is None
        or current.batch >= discarded.batch
    ):
        raise changed_error
    transaction = table.newTransaction()
    try:
        # Iceberg commits changes of branches and tags only if the table still has the metadata that they are based on.
        transaction.manageSnapshots().createTag(discarded.tag, discarded.snapshot).removeBranch(branch).commit()
        transaction.updateProperties().set(key, record.as_json()).commit()
        transaction.commitTransaction()
    except Py4JJavaError as error:
        if java_class(error) in CONFLICTS:
            raise changed_error from error
        raise RunError(f"{name.text}: discarding batch {discarded.batch} failed: {java_message(error)}") from error
