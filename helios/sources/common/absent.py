"""Finds the sources whose data does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from helios.errors import HeliosError
from helios.plan.nodes import Plan
from helios.sources.kinds import source_kind


def absent_source_problems(plans: Iterable[Plan]) -> list[HeliosError]:
    """Returns one problem for each source of the plans whose data does not exist."""
    sources = {(str(read.source.origin), read.source.label()): read.source for plan in plans for read in plan.reads}
    problems = (source_kind(source).absent(source) for source in sources.values())
    return [problem for problem in problems if problem is not None]
