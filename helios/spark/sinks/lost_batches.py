"""Finds the batches that a rollback has removed from a target."""

from __future__ import annotations

from dataclasses import dataclass

from helios.plan.nodes import WritePlan
from helios.spark.iceberg.ancestry import is_ancestor, presence_of
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of, newest_record
from helios.spark.sinks.rollbacks import landing_of
from helios.table.ancestry import Presence
from helios.table.positions import Position, parse_position


@dataclass(frozen=True)
class LostBatches:
    """The batches that a rollback has removed from a branch.

    Attributes:
        positions: The source positions of the lost batches whose snapshots have not expired.
        first_commit_ms: The time at which the first lost batch was committed, in milliseconds since 1970.
    """

    positions: tuple[Position, ...]
    first_commit_ms: int


def lost_batches(table: JavaTable, write: WritePlan) -> LostBatches | None:
    """The batches of a pipeline that a rollback has removed from its target; None if no lost batch is known."""
    branch = write.sink.branch_name
    head = Ledger(table, write.pipeline_names[0], "", "", branch).head()
    record = newest_record(table, write.pipeline_names, branch)
    landing = landing_of(record)
    names = names_of(table, write.pipeline_names, record)
    if landing is None or presence_of(table, head, landing) is not Presence.GONE:
        return None
    present: list[Position] = []
    lost: list[tuple[Position, int]] = []
    for snapshot in table.snapshots():
        stamps = snapshot.summary()
        position = parse_position(stamps.get("helios.position"))
        if position is None or stamps.get("helios.pipeline") not in names:
            continue
        if head is not None and is_ancestor(table, head, int(snapshot.snapshotId())):
            present.append(position)
        else:
            lost.append((position, int(snapshot.timestampMillis())))
    # A batch may have an audited and a published snapshot. It is lost only if both of them are lost.
    gone = [(position, at) for position, at in lost if position not in present]
    if not gone:
        return None
    return LostBatches(tuple(position for position, _ in gone), min(at for _, at in gone))
