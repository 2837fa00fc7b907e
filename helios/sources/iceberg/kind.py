"""The source kind of `Iceberg.source`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.sources.common.kind import SourceKind
from helios.sources.iceberg.checks import problems
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.describe import describe
from helios.sources.iceberg.offsets import IcebergOffset

if TYPE_CHECKING:
    from helios.plan.nodes import Plan, ReadPlan


def _backlog(plan: Plan, index: int) -> ReadPlan | None:
    read = plan.reads[index]
    if read.table is None or read.uuid is None:
        return None
    # Imported late, since a table that does not exist yet does not need the modules for snapshots and checkpoints.
    from helios.sources.iceberg.backlog import with_backlog

    return with_backlog(plan, index, read.table.catalog.load(read.table.name_in_catalog))


ICEBERG = SourceKind(
    declared=IcebergSource,
    reader="helios.sources.iceberg.spark.reader:IcebergReader",
    position=IcebergOffset,
    describe=describe,
    problems=problems,
    lag="helios.sources.iceberg.lag:lag",
    backlog=_backlog,
    lookup="helios.sources.iceberg.lookup:lookup",
    failures="helios.sources.iceberg.spark.failures:failure",
    read_reason="stateless over Iceberg: each batch reads its snapshots as a columnar batch",
)
