"""Checks of whole pipelines; each function returns the problems that it finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from helios.catalog.conf import warehouse
from helios.catalog.spec import Catalog
from helios.catalog.storages import storage_type_of
from helios.errors import ConfigError, DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.model.flow import Pipeline, Source, flows
from helios.model.output import Output
from helios.model.partition import PartitionField
from helios.model.sink import IcebergSink
from helios.plan.nodes import Plan, ReadPath
from helios.plan.typing.determinism import nondeterministic_part
from helios.plan.typing.late import late_problems, quarantining_watermarks
from helios.plan.typing.schema import Schema
from helios.sources.kinds import source_kind
from helios.steps.expect import Expect

if TYPE_CHECKING:
    from pyiceberg.table import Table


def same_identity_problem(plan: Plan, first: Pipeline, second: Pipeline) -> HeliosError:
    """The problem of two pipelines with the same identity: they would share one record of progress in the target."""
    message = f"two pipelines are called {plan.pipeline!r} (the other is at {first.origin})"
    if second.name is None:
        branch = f", branch {plan.write.sink.branch_name}," if plan.write.sink.branch_name else ""
        message = f"two pipelines write {plan.write.table.text}{branch} (the other is at {first.origin})"
    return DeclarationError(
        f"{message}: each needs an identity of its own.",
        where=second.origin,
        fix='name them: pipeline.named("orders_eu").',
    )


def shared_checkpoint(plan: Plan, taken: dict[str, Plan]) -> list[HeliosError]:
    """The problem of two pipelines with the same checkpoint. `taken` has the first plan with each checkpoint."""
    first = taken.setdefault(plan.checkpoint, plan) if plan.checkpoint else plan
    if first is plan or first.pipeline == plan.pipeline:
        return []
    return [
        DeclarationError(
            f"{plan.pipeline} and {first.pipeline} (at {first.origin}) share the checkpoint {plan.checkpoint}.",
            where=plan.origin,
            fix="give each its own .checkpoint(...), or leave it out: each pipeline has its own default.",
        )
    ]


def ambiguous_catalogs(plan: Plan, known: dict[str, Catalog]) -> list[HeliosError]:
    """The problems of different catalogs with the same name: Spark would write rows into the wrong warehouse."""
    return [
        DeclarationError(
            f"two different catalogs are called {catalog.name!r} (the other is at {known[catalog.name].origin}).",
            where=catalog.origin,
            fix="give each catalog of a script its own name.",
        )
        for catalog in plan.catalogs
        if known.setdefault(catalog.name, catalog) != catalog
    ]


def plans_clash(plan: Plan, other: Plan) -> bool:
    """True if two plans have one identity or one checkpoint, or different catalogs with one name."""
    if plan.pipeline == other.pipeline or (plan.checkpoint and plan.checkpoint == other.checkpoint):
        return True
    others = {catalog.name: catalog for catalog in other.catalogs}
    return any(others.get(catalog.name, catalog) != catalog for catalog in plan.catalogs)


def unusable_storages(plans: Iterable[Plan]) -> dict[HeliosError, list[Plan]]:
    """The problems of storages that cannot be used with their settings, each with the plans that use the storage.

    Raises:
        RunError: A storage cannot be reached.
    """
    locations: dict[tuple[Catalog, str], str] = {}  # a location in each bucket that a catalog's settings open
    users: dict[tuple[Catalog, str], list[Plan]] = {}
    for plan in plans:
        warehouses = [(catalog, warehouse(catalog) or "") for catalog in plan.catalogs]
        for catalog, location in (*warehouses, *((catalog, plan.checkpoint) for catalog in plan.catalogs)):
            if storage_type_of(location) not in (None, "local"):
                storage = (catalog, urlsplit(location).netloc)
                locations.setdefault(storage, location)
                users.setdefault(storage, []).append(plan)
    if not locations:
        return {}
    from helios.catalog.probe import check_storage_access

    problems: dict[HeliosError, list[Plan]] = {}
    for (catalog, bucket), location in locations.items():
        try:
            check_storage_access(catalog, location)
        except ConfigError as problem:
            problems[problem] = users[catalog, bucket]
    return problems


def exactly_once_problems(pipeline: Pipeline, sink: IcebergSink) -> list[HeliosError]:
    """The problems of sources and SQL that break `.exactly_once()`: a batch that is run again would have other rows."""
    all_flows = list(flows(pipeline.stream))
    parts = [(step.text(), step.origin, step.sql_texts) for flow in all_flows for step in flow.steps]
    parts += [(f"where({c})", flow.source.origin, (c,)) for flow in all_flows for c in flow.source.conditions]
    parts.append((sink.mode.text(), sink.origin, sink.mode.sql_texts))
    if sink.routing is not None:
        parts.append((f"route({sink.routing})", sink.origin, (sink.routing,)))
    problems: list[HeliosError] = [
        DeclarationError(
            f"{flow.source.label()} cannot be read again, so .exactly_once() cannot be kept.",
            where=flow.source.origin,
            fix="write it into a table first and read that, or leave .exactly_once() out.",
        )
        for flow in all_flows
        if not source_kind(flow.source).rereadable
    ]
    return problems + [
        DeclarationError(
            f"{named}: {part} gives other values when a batch is run again, so .exactly_once() cannot be kept.",
            where=origin,
            fix="derive the value from the row, such as hash(id), or leave .exactly_once() out.",
        )
        for named, origin, texts in parts
        if (part := nondeterministic_part(texts)) is not None
    ]


def uncounted_rows(sink: IcebergSink, sources: Iterable[Source]) -> list[HeliosError]:
    """The problem of `flush(rows=)` with a source whose rows are not counted before they are read."""
    uncounted = next((s for s in sources if s.streaming and not source_kind(s).counts_rows), None)
    if sink.flush_rows is None or uncounted is None:
        return []
    return [
        DeclarationError(
            f"flush(rows=) cannot bound {uncounted.label()}, whose rows are not counted before they are read.",
            where=sink.origin,
            fix="leave rows= out; for files, write .incremental(max_files=100).",
        )
    ]


def pipeline_problems(pipeline: Pipeline, sink: IcebergSink | Output, path: ReadPath) -> list[HeliosError]:
    """The problems of sources and steps that do not fit the sink."""
    problems: list[HeliosError] = []
    if sink.mode.replaces_table and path is not ReadPath.BATCH:
        problems.append(
            DeclarationError(
                "overwrite() of the whole table from a followed source: each batch would erase the previous one.",
                where=sink.origin,
                fix='read the source once, without .incremental(); or name what is replaced: overwrite("d = DATE '
                "'2026-01-01'\"), overwrite_partitions(), upsert(...).",
            )
        )
    all_flows = list(flows(pipeline.stream))
    quarantining: list[tuple[str, Origin, str]] = [
        (step.text(), step.origin, 'on_fail="drop"')
        for flow in all_flows
        for step in flow.steps
        if isinstance(step, Expect) and step.on_fail == "quarantine"
    ]
    quarantining += [
        (call, flow.source.origin, '"fail"') for flow in all_flows for call in flow.source.quarantining_calls
    ]
    late = [(step.text(), step.origin, 'on_late="drop"') for step in quarantining_watermarks(pipeline.stream)]
    if sink.quarantine_table is None:
        problems += [
            DeclarationError(
                f"{called}: {sink.label()} has no quarantine for rejected rows.",
                where=origin,
                fix=f'add .quarantine("ns.rejected") to the sink, or write {instead}.',
            )
            for called, origin, instead in (*quarantining, *late)
        ]
    if path is ReadPath.STATEFUL:
        problems += late_problems(pipeline.stream)
        problems += [
            DeclarationError(
                f"{called}: Spark runs the steps of this stateful stream as one query, from which no rows can be "
                "quarantined.",
                where=origin,
                fix=f"write {instead}, or split the pipeline: write the rows to a table first.",
            )
            for called, origin, instead in quarantining
        ]
    return problems


def partition_problems(sink: IcebergSink, schema: Schema) -> list[HeliosError]:
    """The problems of partition fields: a column is missing, or the transform does not take its type."""
    problems: list[HeliosError] = []
    for item in sink.partitioning or ():
        column = schema.get(item.column)
        root, nested, _ = item.column.partition(".")
        if column is None and nested and (outer := schema.get(root)) and outer.type.startswith("struct"):
            continue  # a field of a struct, which Iceberg looks up
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
                    fix=f"it takes {TRANSFORM_TYPES[item.transform]}.",
                )
            )
    return problems


TIMES = ("year", "month", "day", "hour")
"""The transforms, from coarse to fine, of which Iceberg takes at most one for a column."""


def name_clashes(sink: IcebergSink, schema: Schema) -> Iterator[HeliosError]:
    """Yields a problem for each partition field that Iceberg refuses in a new table, beside another field or column."""
    kinds: dict[tuple[str, str], PartitionField] = {}
    for item in sink.partitioning or ():
        kind = "time" if item.transform in TIMES else item.transform
        other = kinds.setdefault((kind, item.column.lower()), item)
        taken = schema.get(item.name) if item.transform != "identity" else None
        if other is not item:
            yield DeclarationError(
                f"partition_by({other}, {item}): Iceberg takes one {kind} partition of a column.",
                where=sink.origin,
                fix=f"leave {_coarser(other, item)} out: a filter by a coarser unit finds the finer partitions."
                if kind == "time"
                else f"leave {item} out.",
            )
        elif taken is not None and taken.name == item.name:
            yield DeclarationError(
                f"partition_by({item}): its partition would be called {item.name}, as a column is.",
                where=sink.origin,
                fix=f'rename the column first: rename({{"{taken.name}": "..."}}).',
            )


def _coarser(field: PartitionField, other: PartitionField) -> PartitionField:
    return min(field, other, key=lambda each: TIMES.index(each.transform))


TRANSFORM_TYPES = {
    "year": "date, timestamp or timestamp_ntz",
    "month": "date, timestamp or timestamp_ntz",
    "day": "date, timestamp or timestamp_ntz",
    "hour": "timestamp or timestamp_ntz",
    "bucket": "int, bigint, decimal, date, timestamp, timestamp_ntz, string or binary",
    "truncate": "int, bigint, decimal, string or binary",
    "identity": "any plain type, not a struct, array or map",
}
"""The column types that each partition transform takes, by the Iceberg specification."""


def _fits(transform: str, spark_type: str) -> bool:
    base = spark_type.split("(", maxsplit=1)[0].split("<", maxsplit=1)[0]
    if base == "unknown":
        return True
    if transform == "identity":
        return base not in ("struct", "array", "map")
    return base in TRANSFORM_TYPES[transform].replace(" or ", ", ").split(", ")


def spec_fields(table: Table) -> tuple[PartitionField, ...]:
    """The current partition spec of a PyIceberg table, as `PartitionField`s; removed fields (`void`) are left out."""
    schema = table.schema()
    fields = []
    for item in table.spec().fields:
        if str(item.transform) == "void":
            continue
        name, _, rest = str(item.transform).partition("[")  # bucket[16]
        width = int(rest.rstrip("]")) if rest else None
        fields.append(PartitionField(name, schema.find_column_name(item.source_id) or "", width))
    return tuple(fields)


def show_fields(fields: Iterable[PartitionField]) -> str:
    return ", ".join(str(f) for f in fields)
