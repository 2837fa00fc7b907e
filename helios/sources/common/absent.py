"""Data of sources that is not there."""

from __future__ import annotations

from collections.abc import Iterable

from helios.errors import HeliosError
from helios.plan.nodes import Plan
from helios.sources.kinds import kind_of


def absent(plans: Iterable[Plan]) -> list[HeliosError]:
    """A problem for each source of the pipelines whose data is not there."""
    sources = {read.source.origin: read.source for plan in plans for read in plan.reads}.values()
    return [problem for source in sources if (problem := kind_of(source).absent(source)) is not None]
