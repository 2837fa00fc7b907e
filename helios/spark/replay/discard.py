"""Setting an audited batch aside through Iceberg's Java API, for tables whose metadata PyIceberg cannot write."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.errors import RunError
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.errors import CONFLICTS, java_class, java_message
from helios.spark.sinks.audit import audit_branch
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import Record, parse
from helios.table.quarantine import Aside


def commit(spark: SparkSession, name: TableName, aside: Aside, record: Record) -> None:
    """Tags the batch's snapshot, removes its branch and writes the pipeline's record, in one commit.

    Args:
        spark: A session with the table's catalog.
        name: The table.
        aside: What was planned.
        record: The record that it writes.

    Raises:
        RunError: The table was changed meanwhile, or the commit failed.
    """
    moved = RunError(
        f"{name.text} was changed by somebody else meanwhile; nothing was done.", fix="look again, and repeat it."
    )
    table, branch = load_table(spark, name), audit_branch(aside.pipeline)
    if table is None:
        raise moved
    key = Ledger(table, aside.pipeline, record.checkpoint, record.steps).key
    ref, text = table.refs().get(branch), table.properties().get(key)
    before = parse(text, key, name.text) if text is not None else None
    if ref is None or int(ref.snapshotId()) != aside.snapshot or before is None or before.batch >= aside.batch:
        raise moved
    transaction = table.newTransaction()
    try:
        # Iceberg never applies a change of references to other metadata than it was made from.
        transaction.manageSnapshots().createTag(aside.tag, aside.snapshot).removeBranch(branch).commit()
        transaction.updateProperties().set(key, record.as_json()).commit()
        transaction.commitTransaction()
    except Py4JJavaError as error:
        if java_class(error) in CONFLICTS:
            raise moved from error
        raise RunError(f"{name.text}: setting batch {aside.batch} aside failed: {java_message(error)}") from error
