"""What is refused before anything runs: each function returns the problems that it finds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, HeliosError, NotFound, near_miss
from helios.model.flow import Call, Flow, Pipeline, Step, flows
from helios.model.iceberg import IcebergSink
from helios.model.partition import PartitionField
from helios.model.steps import Aggregate, Join, Union, Watermark
from helios.plan.plan import Plan
from helios.plan.schema import Schema

if TYPE_CHECKING:
    from pyiceberg.table import Table

QUOTED = re.compile(r"'[^']*'|`[^`]*`")
RANDOM = re.compile(
    r"\b(rand|randn|random|uuid|shuffle|monotonically_increasing_id|spark_partition_id)\s*\(", re.IGNORECASE
)
"""Spark's functions whose value is another one each time."""


def same_identity(plan: Plan, first: Pipeline, second: Pipeline) -> HeliosError:
    """Two pipelines of one identity would share a ledger record."""
    what = f"two pipelines are called {plan.pipeline!r} (the other is at {first.origin})"
    if second.name is None:
        what = f"two pipelines write {plan.write.table.text} (the other is at {first.origin})"
    return DeclarationError(
        f"{what}: each needs an identity of its own.",
        where=second.origin,
        fix='name them: pipeline.named("orders_eu").',
    )


def shared_checkpoint(plan: Plan, taken: dict[str, Plan]) -> list[HeliosError]:
    """Two pipelines on one given checkpoint would take it from each other."""
    first = taken.setdefault(plan.checkpoint, plan) if plan.checkpoint else plan
    if first is plan or first.pipeline == plan.pipeline:
        return []
    return [
        DeclarationError(
            f"{plan.pipeline} and {first.pipeline} (at {first.origin}) share the checkpoint {plan.checkpoint}.",
            where=plan.origin,
            fix="give each its own .checkpoint(...), or none: the default is its own.",
        )
    ]


def ambiguous_catalogs(plan: Plan, known: dict[str, Catalog]) -> list[HeliosError]:
    """Spark knows a catalog by its name: two of one name would send rows to the wrong warehouse."""
    return [
        DeclarationError(
            f"two different catalogs are called {catalog.name!r} (the other is at {known[catalog.name].origin}).",
            where=catalog.origin,
            fix="give each catalog of a script its own name.",
        )
        for catalog in plan.catalogs
        if known.setdefault(catalog.name, catalog) != catalog
    ]


def endless_aggregates(steps: Sequence[Step]) -> list[HeliosError]:
    """Aggregates over a followed source that no watermark and window ends."""
    problems: list[HeliosError] = []
    marked = False
    for step in steps:
        marked = marked or isinstance(step, Watermark)
        if isinstance(step, Aggregate) and not marked:
            problems.append(
                DeclarationError(
                    f"{step.text()}: an aggregate over a followed source has no end, so it cannot be appended.",
                    where=step.origin,
                    fix='append behind a watermark: watermark("ts", "10 minutes") before a window("ts", ...), '
                    "or read the source once, without .incremental().",
                )
            )
        elif isinstance(step, Aggregate) and step.window is None:
            problems.append(
                DeclarationError(
                    f"{step.text()}: behind a watermark an aggregate needs a time window to end.",
                    where=step.origin,
                    fix='write window("ts", "1 hour").group_by(...).agg(...).',
                )
            )
    return problems


def broken_demands(pipeline: Pipeline) -> list[HeliosError]:
    """What `.exactly_once()` demands: steps that give the same rows when a batch is run again."""
    problems: list[HeliosError] = []
    for step in (step for inner in flows(pipeline.stream) for step in inner.steps):
        called = [] if isinstance(step, Call | Join | Union) else RANDOM.findall(QUOTED.sub("''", step.text()))
        if called:
            problems.append(
                DeclarationError(
                    f"{step.text()}: {called[0].lower()}() gives other values when a batch is run again, so "
                    ".exactly_once() cannot be kept.",
                    where=step.origin,
                    fix="derive the value from the row, such as hash(id), or leave .exactly_once() out.",
                )
            )
    return problems


def is_streaming(flow: Flow) -> bool:
    """Whether a flow, with what its joins and unions bring in, never ends."""
    return any(inner.source.streaming for inner in flows(flow))


def partition_problems(sink: IcebergSink, schema: Schema) -> list[HeliosError]:
    """Partition fields whose column is missing, or whose transform does not fit the column's type."""
    problems: list[HeliosError] = []
    for item in sink.partitioning or ():
        column = schema.get(item.column)
        if column is None:
            problems.append(
                NotFound(
                    f"partition_by({item}): no column {item.column!r}. {near_miss(item.column, schema.names)}",
                    where=sink.origin,
                )
            )
        elif not _fits(item.transform, column.type):
            problems.append(
                DeclarationError(
                    f"partition_by({item}): {item.transform} does not take {column.type}.",
                    where=sink.origin,
                    fix=f"it takes {FITS[item.transform]}.",
                )
            )
    return problems


FITS = {
    "year": "date, timestamp or timestamp_ntz",
    "month": "date, timestamp or timestamp_ntz",
    "day": "date, timestamp or timestamp_ntz",
    "hour": "timestamp or timestamp_ntz",
    "bucket": "int, bigint, decimal, date, timestamp, timestamp_ntz, string or binary",
    "truncate": "int, bigint, decimal, string or binary",
    "identity": "any plain type, not a struct, array or map",
}
"""The source types of each transform (Iceberg specification, partition transforms)."""


def _fits(transform: str, spark_type: str) -> bool:
    base = spark_type.split("(", maxsplit=1)[0].split("<", maxsplit=1)[0]
    if base == "unknown":
        return True
    if transform == "identity":
        return base not in ("struct", "array", "map")
    return base in FITS[transform].replace(" or ", ", ").split(", ")


def spec_fields(table: Table) -> tuple[PartitionField, ...]:
    """The current partition spec of a PyIceberg table as declared fields."""
    schema = table.schema()
    fields = []
    for item in table.spec().fields:
        name, _, width = str(item.transform).partition("[")
        fields.append(
            PartitionField(
                name, schema.find_column_name(item.source_id) or "", int(width.rstrip("]")) if width else None
            )
        )
    return tuple(f for f in fields if f.transform != "void")


def show_fields(fields: Iterable[PartitionField]) -> str:
    return ", ".join(str(f) for f in fields)
