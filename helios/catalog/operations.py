"""Catalog operations without a JVM, through PyIceberg, which is imported at the first use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from helios.catalog.connections import ask, client
from helios.catalog.contents import CACHE_SECONDS, Name, forget, forget_all, reader
from helios.catalog.partitioning import partition_spec
from helios.catalog.spec import Catalog
from helios.errors import DeclarationError, InputError, NotFound, Origin, near_miss
from helios.model.partition import PartitionField
from helios.model.values import Identifier, caller

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from helios.table.snapshots import Table

__all__ = [
    "CACHE_SECONDS",
    "client",
    "create_namespace",
    "create_table",
    "drop_table",
    "exists",
    "forget",
    "forget_all",
    "load",
    "missing_namespace",
    "missing_table",
    "namespaces",
    "tables",
]


def namespaces(catalog: Catalog) -> list[str]:
    """The names of all namespaces, sorted. The parts of a nested namespace are joined by dots."""
    return sorted(_dotted(name) for name in reader(catalog).namespaces())


def tables(catalog: Catalog, namespace: str) -> list[str]:
    """The names of the tables in a namespace, in the form "namespace.table", sorted.

    Raises:
        NotFound: The namespace does not exist.
    """
    name = _namespace(namespace)
    names = reader(catalog).tables(name)
    if names is None:
        raise missing_namespace(catalog, name, caller())
    return sorted(_dotted((*name, table)) for table in names)


def exists(catalog: Catalog, table: str) -> bool:
    """True if the table "namespace.table" exists."""
    return reader(catalog).exists(Identifier.parse(table).parts)


def load(catalog: Catalog, table: str) -> Table:
    """The table "namespace.table".

    Raises:
        NotFound: There is no such table.
    """
    name = Identifier.parse(table).parts
    iceberg = reader(catalog).load(name)
    if iceberg is None:
        raise missing_table(catalog, table, caller())
    from helios.table.snapshots import Table

    return Table(_dotted((catalog.name, *name)), iceberg)


def create_namespace(catalog: Catalog, namespace: str) -> None:
    """Creates a namespace.

    Raises:
        InputError: The namespace exists.
    """
    from pyiceberg.exceptions import NamespaceAlreadyExistsError

    name = _namespace(namespace)
    try:
        ask(catalog, lambda connection: connection.create_namespace(name))
    except NamespaceAlreadyExistsError as error:
        raise InputError(
            f"namespace {_dotted(name)!r} already exists in catalog {catalog.name!r}.",
            where=caller(),
            fix="use the existing namespace.",
        ) from error


def create_table(
    catalog: Catalog, table: str, schema: pa.Schema | Schema, partition_by: Sequence[PartitionField | str] = ()
) -> Table:
    """Creates an empty table.

    Raises:
        NotFound: The namespace, or a column of `partition_by`, does not exist.
        InputError: The table exists.
        DeclarationError: A transform does not fit its column, or Iceberg has no type for a column.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, TableAlreadyExistsError
    from pyiceberg.schema import assign_fresh_schema_ids

    name = Identifier.parse(table).parts
    already_exists = InputError(
        f"table {table} already exists in catalog {catalog.name!r}.", where=caller(), fix=f'use .load("{table}").'
    )
    if exists(catalog, table):
        raise already_exists
    try:
        # The partition spec needs field ids. PyIceberg adds them to a pyarrow schema only in this private method.
        columns = assign_fresh_schema_ids(client(catalog)._convert_schema_if_needed(schema))
        spec = partition_spec(table, columns, partition_by)
        ask(catalog, lambda connection: connection.create_table(name, columns, partition_spec=spec))
    except NoSuchNamespaceError as error:
        raise missing_namespace(catalog, name[:-1], caller()) from error
    except TableAlreadyExistsError as error:
        raise already_exists from error
    except (TypeError, ValueError) as error:
        raise DeclarationError(
            f"table {table}: the schema does not fit Iceberg: {error}",
            where=caller(),
            fix="give a pyarrow.Schema or a pyiceberg.schema.Schema with types that Iceberg has.",
        ) from error
    return load(catalog, table)


def drop_table(catalog: Catalog, table: str) -> None:
    """Removes a table from the catalog; its files stay.

    Raises:
        NotFound: There is no such table.
    """
    from pyiceberg.exceptions import NoSuchTableError

    name = Identifier.parse(table).parts
    if not exists(catalog, table):
        raise missing_table(catalog, table, caller())
    try:
        ask(catalog, lambda connection: connection.drop_table(name))
    except NoSuchTableError as error:
        raise missing_table(catalog, table, caller()) from error
    finally:
        forget(catalog, name)


def missing_table(catalog: Catalog, table: str, where: Origin) -> NotFound:
    """The error for a missing table. The message has the nearest table, or says that the namespace is missing."""
    name = Identifier.parse(table, where).parts
    names = reader(catalog).tables(name[:-1])
    if names is None:
        return missing_namespace(catalog, name[:-1], where, what=f"table {table}: ")
    return NotFound(
        f"table {table} does not exist in catalog {catalog.name!r}. "
        f"{near_miss(table, (_dotted((*name[:-1], other)) for other in names))}",
        where=where,
        fix=f"list the tables with `helios tables {catalog.name}`.",
    )


def missing_namespace(catalog: Catalog, namespace: Name, where: Origin, what: str = "") -> NotFound:
    """The error for a missing namespace."""
    name = _dotted(namespace)
    if namespace[0] == catalog.name and len(namespace) > 1:
        fix = f"leave {catalog.name!r} out: names given to a catalog start with the namespace."
    elif what:  # the caller looks for a table in the namespace
        fix = f"list the tables with `helios tables {catalog.name}`."
    else:
        fix = f'create it with .create_namespace("{name}").'
    return NotFound(
        f"{what}namespace {name!r} does not exist in catalog {catalog.name!r}. {near_miss(name, namespaces(catalog))}",
        where=where,
        fix=fix,
    )


def _dotted(parts: Iterable[str]) -> str:
    return str(Identifier(tuple(parts)))


def _namespace(text: str) -> Name:
    try:
        return Identifier.parse(f"{text}.table").parts[:-1]
    except DeclarationError as error:
        raise DeclarationError(
            f"{text!r} is not a namespace: parts must not be empty or contain '/', '\\', '..' or control characters.",
            where=caller(),
            fix='write "sales" or "sales.eu".',
        ) from error
