"""The backlog of the next run, determined without a JVM."""

from __future__ import annotations

from dataclasses import replace

from helios.plan.nodes import Plan
from helios.sources.kinds import source_kind


def looked_ahead(plan: Plan) -> Plan:
    """The plan, with the backlog and the scan of each of its tables.

    Raises:
        RunError: A table cannot be read.
    """
    reads = [source_kind(read.source).backlog(plan, index) or read for index, read in enumerate(plan.reads)]
    return replace(plan, reads=tuple(reads))
