"""Adds to a plan what the next run reads: the backlog and the scan of each source. Needs no JVM."""

from __future__ import annotations

from dataclasses import replace

from helios.plan.nodes import Plan
from helios.sources.kinds import source_kind


def with_backlogs(plan: Plan) -> Plan:
    """The plan with the backlog and the scan of each source, as far as its kind can determine them.

    Raises:
        RunError: A table cannot be read.
    """
    reads = [source_kind(read.source).backlog(plan, index) or read for index, read in enumerate(plan.reads)]
    return replace(plan, reads=tuple(reads))
