"""Checkpoints of pipelines and of targets that were renamed: what is kept under the old name goes along."""

from __future__ import annotations

from dataclasses import replace

from helios.spark.checkpoint.files import Checkpoint, Identity
from helios.spark.checkpoint.lease import Lease
from helios.spark.sinks.context import SinkContext


def move_checkpoint(old: Checkpoint, new: Checkpoint) -> None:
    """Moves a checkpoint to another place.

    Raises:
        LeaseError: A driver is alive on it.
    """
    lease = Lease(old)
    lease.acquire()
    lease.release()
    old.move(new)


def retarget(context: SinkContext, identity: Identity) -> Identity:
    """Renames what a checkpoint keeps by the name of its target, and returns its identity with the new one.

    Raises:
        LeaseError: A driver is alive on it.
        CheckpointError: Something is kept under the new name already.
    """
    plan = context.plan
    branch = plan.write.sink.branch_name
    at, lease = f"@{branch}" if branch else "", Lease(context.checkpoint)
    lease.acquire()
    try:
        context.checkpoint.rename_target(identity.target + at, plan.write.table.text + at)
        identity = replace(identity, target=plan.write.table.text)
        context.checkpoint.create(identity)
    finally:
        lease.release()
    return identity
