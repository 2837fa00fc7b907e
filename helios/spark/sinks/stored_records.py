"""Reads the records that a table has: in its properties, and in the stamps of its snapshots."""

from __future__ import annotations

import json

from helios.spark.iceberg.history import History
from helios.spark.jvm.classes import listed
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.table.ledger import Record, records
from helios.table.refs import LEDGER


def known_records(table: JavaTable) -> dict[str, Record]:
    """The ledger records in the properties of a table, by pipeline."""
    properties = table.properties()
    keys = (str(key) for key in listed(properties.keySet()) if str(key).startswith(LEDGER))
    return records({key: properties.get(key) or "" for key in keys}, table.name())


def record_from_stamps(table: JavaTable, head: JavaSnapshot | None, pipeline: str, branch: str | None) -> Record | None:
    """The record of a pipeline from the stamps of its newest stamped snapshot; None if there is none.

    Args:
        head: The newest snapshot of the branch; None for an empty branch.
        branch: The branch; None for main.
    """
    if any(pipeline in record.formerly and record.branch == branch for record in known_records(table).values()):
        return None  # the pipeline with these stamps has another name now
    for snapshot in History(table, head):
        summary = snapshot.summary()
        batch = summary.get("helios.batch")
        if summary.get("helios.pipeline") == pipeline and batch is not None:
            return Record(
                checkpoint=summary.get("helios.checkpoint") or "",
                batch=int(batch),
                position=json.loads(summary.get("helios.position") or "null"),
                snapshot=snapshot.snapshotId(),
                sequence=snapshot.sequenceNumber(),
                steps=summary.get("helios.steps") or "",
                branch=branch,
            )
    return None
