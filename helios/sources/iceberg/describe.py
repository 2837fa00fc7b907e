"""Describes an Iceberg source for the plan: its table, snapshots and columns, and the problems of reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.catalog.names import TableName
from helios.catalog.operations import missing_table
from helios.errors import HeliosError, InputError
from helios.plan.checks.types import unsupported_types
from helios.plan.context import Surroundings
from helios.plan.evolution.fields import renamed_columns
from helios.plan.nodes import ReadPlan
from helios.plan.typing.schema import Schema, from_pyiceberg
from helios.sources.iceberg.checks import change_problems, column_problems, columns_of, contradictions
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.history import ResolvedSnapshots, resolve_snapshots

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema


def describe(source: IcebergSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    """The plan of reading an Iceberg table, and its problems.

    Raises:
        RunError: The catalog cannot be reached.
    """
    contradictory = contradictions(source)
    try:
        read, problems = _describe(source, around, resolves=not contradictory)
    except InputError as problem:
        read, problems = ReadPlan(source=source), [problem]
    return read, [*contradictory, *problems]


def _describe(source: IcebergSource, around: Surroundings, *, resolves: bool) -> tuple[ReadPlan, list[HeliosError]]:
    table = around.context.resolve(*source.reference, source.origin)
    if around.context.offline:
        return ReadPlan(source=source, table=table), []
    if not table.catalog.exists(table.name_in_catalog):
        if table in around.produced:
            return _produced(source, table, around.produced.columns(table))
        raise missing_table(table.catalog, table.name_in_catalog, source.origin)
    return _existing(source, table, resolves=resolves)


def _produced(source: IcebergSource, table: TableName, columns: Schema | None) -> tuple[ReadPlan, list[HeliosError]]:
    """The plan of reading a table that another pipeline of the script will create."""
    if columns is None or not columns.exact:
        return ReadPlan(source=source, table=table), []
    read = ReadPlan(source=source, table=table, schema=columns_of(source, columns))
    return read, column_problems(source, table.text, columns)


def _existing(source: IcebergSource, table: TableName, *, resolves: bool) -> tuple[ReadPlan, list[HeliosError]]:
    """The plan of reading an existing table; with `resolves`, also the snapshots that the source names."""
    loaded = table.catalog.load(table.name_in_catalog)
    metadata = loaded.iceberg.metadata
    resolved = ResolvedSnapshots(head=metadata.current_snapshot_id)
    problems: list[HeliosError] = []
    if resolves:
        try:
            resolved = resolve_snapshots(source, loaded)
            problems += change_problems(source, loaded, resolved)
        except InputError as problem:
            problems.append(problem)
    problems += unsupported_types(
        table.text,
        loaded.iceberg.schema(),
        source.origin,
        fix="read a table of few rows through PyIceberg, without these columns: `Memory.source(catalog.load("
        f'"{table.name_in_catalog}").iceberg.scan(selected_fields=(...)).to_arrow())`',
    )
    columns = from_pyiceberg(loaded.iceberg.schema())
    read = ReadPlan(
        source=source,
        table=table,
        uuid=str(metadata.table_uuid),
        snapshot=resolved.head,
        schema=columns_of(source, columns),
        branch=resolved.branch,
        state=resolved.state,
        span=resolved.span,
        format_version=metadata.format_version,
        renamed=renamed_columns(map(_names, metadata.schemas), _names(loaded.iceberg.schema())),
    )
    return read, [*problems, *column_problems(source, table.text, columns)]


def _names(schema: IcebergSchema) -> dict[int, str]:
    """The names of the columns and nested fields of a schema, by field id."""
    return {id: schema.find_column_name(id) or "" for id in schema.field_ids}
