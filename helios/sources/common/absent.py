"""Sources whose data does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from helios.errors import HeliosError
from helios.plan.nodes import Plan
from helios.sources.kinds import source_kind


def absent(plans: Iterable[Plan]) -> list[HeliosError]:
    """A problem for each source of the pipelines whose data does not exist."""
    sources = {(str(s.origin), s.label()): s for plan in plans for s in (read.source for read in plan.reads)}.values()
    return [problem for source in sources if (problem := source_kind(source).absent(source)) is not None]
