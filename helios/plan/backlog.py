"""The backlog of the next run, determined without a JVM."""

from __future__ import annotations

from dataclasses import replace

from helios.plan.nodes import Plan


def looked_ahead(plan: Plan) -> Plan:
    """The plan with the backlog and the scan of each of its tables.

    Raises:
        RunError: A table cannot be read.
    """
    reads = list(plan.reads)
    for index, read in enumerate(reads):
        if read.table is not None and read.uuid is not None:
            # Only a table that is there pays for what reads snapshots and checkpoints.
            from helios.sources.iceberg.backlog import ahead

            reads[index] = ahead(plan, index, read.table.catalog.load(read.table.within))
    return replace(plan, reads=tuple(reads))
