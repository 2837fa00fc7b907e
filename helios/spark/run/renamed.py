"""Moves the files and records of a renamed pipeline or target to the new name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint, Identity
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg.tables import load_table
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.audit import rename_audit
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.quarantined import rename_rows
from helios.spark.sinks.rollbacks import rename_replay


def move_checkpoint(old: Checkpoint, new: Checkpoint) -> None:
    """Moves a checkpoint to another location.

    Raises:
        LeaseError: A driver is alive on the old checkpoint.
    """
    lease = Lease(old)
    lease.acquire()
    lease.release()
    old.move(new)


def rename_target_files(context: SinkContext, identity: Identity) -> Identity:
    """After a rename of the target: renames the checkpoint's files that are named after the target.

    The new name is also stored in the checkpoint's identity.

    Returns:
        The checkpoint's identity with the target's new name.

    Raises:
        LeaseError: A driver is alive on the checkpoint.
        CheckpointError: The checkpoint has files under both names.
    """
    plan = context.plan
    branch = plan.write.sink.branch_name
    suffix = f"@{branch}" if branch else ""
    lease = Lease(context.checkpoint)
    lease.acquire()
    try:
        context.checkpoint.rename_target(identity.target + suffix, plan.write.table.text + suffix)
        identity = replace(identity, target=plan.write.table.text)
        context.checkpoint.create(identity)
    finally:
        lease.release()
    return identity


def rename_in_tables(
    spark: SparkSession, plan: Plan, table: JavaTable, was: str, former_quarantines: Sequence[TableName] = ()
) -> None:
    """Renames a pipeline in its tables: in the records of replays, in its audit branch, and in its rejected rows.

    Args:
        was: The pipeline's former name.
        former_quarantines: The quarantine tables that earlier versions of the script named.
    """
    current = plan.write.quarantine
    rejected = [*([current] if current is not None else []), *former_quarantines]
    for each in (table, *(load_table(spark, name) for name in rejected)):
        rename_replay(each, was, plan.pipeline)
    rename_audit(table, was, plan.pipeline)
    for name in rejected:
        rename_rows(spark, name, was, plan.pipeline)
