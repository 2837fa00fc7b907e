"""The commands `tables`, `schema` and `snapshots`, which read catalogs through PyIceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from helios.cli import options, output
from helios.errors import NotFound, near_miss

if TYPE_CHECKING:
    from collections.abc import Mapping

    from helios.catalog.names import TableName
    from helios.config import Config
    from helios.table.snapshots import Table

table_argument = click.argument("name", metavar="TABLE")


def open_table(name: str, profile: str | None) -> tuple[Config, TableName, Table]:
    """The configuration, the resolved name of a table, and the table."""
    from helios.config import resolve
    from helios.model.values import Identifier, caller

    config = options.load_configuration(profile)
    table = resolve(Identifier.parse(name), None, {}, config, caller())
    return config, table, table.catalog.load(table.name_in_catalog)


@click.command()
@click.argument("catalog", metavar="[CATALOG]", required=False)
@options.common
@options.json_option
def tables(catalog: str | None, profile: str | None, as_json: bool) -> None:
    """List the tables of CATALOG, or of the default catalog.

    \b
    Example:
      helios tables
    """
    config = options.load_configuration(profile)
    catalog = catalog or config.default_catalog
    declared = config.catalogs.get(catalog)
    if declared is None:
        raise NotFound(
            f"catalog {catalog!r} is not declared. {near_miss(catalog, config.catalogs)}",
            fix=f"declare [catalogs.{catalog}] in helios.toml.",
        )
    names = [name for namespace in declared.namespaces() for name in declared.tables(namespace)]
    if as_json:
        output.print_json([{"catalog": catalog, "table": name} for name in names])
    elif not names:
        click.echo(f"catalog {catalog!r} has no tables.", err=True)
    else:
        for name in names:
            click.echo(f"{catalog}.{name}")


@click.command()
@table_argument
@options.common
@options.json_option
def schema(name: str, profile: str | None, as_json: bool) -> None:
    """Show the columns and the partitioning of TABLE.

    \b
    Example:
      helios schema shop.orders
    """
    _, _, table = open_table(name, profile)
    columns = [
        {
            "id": column.field_id,
            "name": column.name,
            "type": str(column.field_type),
            "required": column.required,
            "doc": column.doc,
        }
        for column in table.iceberg.schema().fields
    ]
    partitioning = _partitioning(table)
    if as_json:
        output.print_json(
            {
                "table": table.name,
                "format_version": table.iceberg.metadata.format_version,
                "columns": columns,
                "partitioning": partitioning,
            }
        )
        return
    output.print_table(
        ("id", "column", "type", "required", "doc"),
        [
            (column["id"], column["name"], column["type"], "yes" if column["required"] else "", column["doc"])
            for column in columns
        ],
        numbers=("id",),
    )
    click.echo(f"partitioned by {', '.join(partitioning)}" if partitioning else "unpartitioned")


def _partitioning(table: Table) -> list[str]:
    """The partition fields in the syntax of `partition_by`."""
    columns = table.iceberg.schema()
    fields = []
    for field in table.iceberg.spec().fields:
        column = str(columns.find_column_name(field.source_id))
        transform, _, width = str(field.transform).rstrip("]").partition("[")
        arguments = f"{width}, {column}" if width else column
        fields.append(column if transform == "identity" else f"{transform}({arguments})")
    return fields


@click.command()
@table_argument
@options.common
@options.json_option
def snapshots(name: str, profile: str | None, as_json: bool) -> None:
    """List the snapshots of TABLE, oldest first.

    The current snapshot is marked with a star.

    \b
    Example:
      helios snapshots shop.orders
    """
    _, _, table = open_table(name, profile)
    history = table.snapshots()
    current = table.current_snapshot()
    if as_json:
        output.print_json(
            [
                {**_fields(snapshot), "current": current is not None and snapshot.id == current.id}
                for snapshot in history
            ]
        )
        return
    if not history:
        click.echo(f"table {table.name} has no snapshots.", err=True)
        return
    output.print_table(
        ("snapshot", "parent", "committed", "operation", "added", "total", ""),
        [
            (
                snapshot.id,
                snapshot.parent_id,
                f"{snapshot.timestamp:%Y-%m-%d %H:%M:%S} UTC",
                snapshot.operation,
                _number(snapshot.summary.get("added-records")),
                _rows(snapshot.summary, exact=table.iceberg.metadata.format_version > 2),
                "*" if current is not None and snapshot.id == current.id else "",
            )
            for snapshot in history
        ],
        numbers=("added", "total"),
    )


def _fields(snapshot: Any) -> dict[str, Any]:
    return {
        "id": snapshot.id,
        "parent_id": snapshot.parent_id,
        "timestamp": snapshot.timestamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "operation": snapshot.operation,
        "summary": dict(snapshot.summary),
        "manifest_list": snapshot.manifest_list,
        "schema_id": snapshot.schema_id,
    }


def _rows(summary: Mapping[str, str], *, exact: bool) -> str:
    """The number of rows of a snapshot: the rows of its data files minus the deleted ones; "~" marks an estimate.

    Args:
        exact: Whether the count of deleted rows is exact. It is in format v3, which counts each deleted row once, and
            only in data files that still exist.

    Examples:
        >>> _rows({"total-records": "1200", "total-position-deletes": "100"}, exact=True)
        '1,100'
        >>> _rows({"total-records": "1200", "total-position-deletes": "100"}, exact=False)
        '~1,100'
        >>> _rows({"total-records": "1200", "total-equality-deletes": "0"}, exact=False), _rows({}, exact=False)
        ('1,200', '')
    """
    names = ("total-records", "total-position-deletes", "total-equality-deletes")
    records, *deletes = (summary.get(name) or "" for name in names)
    if not records.isdigit():
        return records
    positions, equalities = (int(text) if text.isdigit() else 0 for text in deletes)
    estimate = "~" if equalities or (positions and not exact) else ""
    return f"{estimate}{max(0, int(records) - positions):,}"


def _number(text: str | None) -> str:
    if not text:
        return ""
    return f"{int(text):,}" if text.isdigit() else text
