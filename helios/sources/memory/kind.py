"""Rows in memory as a kind of source."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import from_rows
from helios.sources.common.describe import declared_columns
from helios.sources.common.kind import SourceKind
from helios.sources.memory.declare import MemorySource


def _describe(source: MemorySource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    return ReadPlan(source=source, schema=declared_columns(source) or from_rows(source.columns, source.rows)), []


MEMORY = SourceKind(
    declared=MemorySource,
    reader="helios.sources.memory.spark.reader:MemoryReader",
    describe=_describe,
    feed="helios.testing.feeds:MemoryFeed",
)
