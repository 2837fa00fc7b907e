"""Commits the transactions of several tables in one commit of the catalog: either all of them or none.

Iceberg's own catalogs commit table by table. If the catalog stores the locations of metadata files, Iceberg writes the
new metadata files, and the catalog switches all tables to them at once. It switches no table unless each table still
has the metadata that its transaction was applied to. A REST server gets the changes and requirements of all tables in
one request, and writes the metadata itself.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.catalog.catalogs import CATALOGS
from helios.catalog.connections import client
from helios.catalog.names import TableName
from helios.catalog.rows import MetadataMove, Mover
from helios.catalog.spec import Catalog
from helios.errors import InputError, RunError
from helios.spark.iceberg.commit import CONFLICT, HeldCommit
from helios.spark.iceberg.tables import catalog_of, load_table
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import java_causes
from helios.spark.jvm.types.iceberg import JavaRestCatalog, JavaTableCommit
from helios.spark.jvm.types.java import JavaList

CODEC = "write.metadata.compression-codec"

NO_ENDPOINT = re.compile(r"Unable to process \(code: 40[56]\b")
"""Matches the error of Iceberg's client if the server does not accept this kind of request."""

FAILURES = (Py4JJavaError, PySparkException)
"""The Python classes of Java's exceptions: pyspark raises some of them as classes of its own."""


class OutcomeUnknown(Exception):
    """A commit of several tables failed, but the catalog may have applied it."""


@dataclass(frozen=True)
class TableCommit:
    """The transaction that is to be committed to a table."""

    name: TableName
    held: HeldCommit


def verify(spark: SparkSession, table: TableName) -> None:
    """Checks, without any change, that the catalog of a table supports commits of several tables.

    Raises:
        InputError: The server of the catalog does not support them.
    """
    if CATALOGS[table.catalog.type].takes_multi_table_commits:
        try:
            # Iceberg's client first looks at the server's list of endpoints, and then refuses an empty request.
            _rest_catalog(spark, table).commitTransaction(classes().java.util.ArrayList())
        except FAILURES as error:
            exception_class, message = _class_and_message(error)
            if exception_class == "UnsupportedOperationException":
                raise _no_endpoint_error(table.catalog, message) from error
            if exception_class != "IllegalArgumentException":
                raise


def commit_tables(spark: SparkSession, commits: Sequence[TableCommit]) -> bool:
    """Commits all transactions, or none.

    Args:
        commits: The transactions; their tables belong to one catalog.

    Returns:
        True if they are committed; False if one of the tables has changed since its transaction was applied.

    Raises:
        OutcomeUnknown: The catalog failed, and may have committed them.
        HeliosError: The catalog refuses them.
    """
    switch = CATALOGS[commits[0].name.catalog.type].move
    committed = _switch_tables(switch, commits) if switch is not None else _commit_on_server(spark, commits)
    if committed:
        for commit in commits:
            commit.held.table.refresh()
    return committed


# a catalog that stores the locations of metadata files


def _switch_tables(switch: Mover, commits: Sequence[TableCommit]) -> bool:
    written: list[str] = []
    try:
        for commit in commits:
            written.append(_write(commit.held))
    except BaseException:
        _delete(commits, written)
        raise
    tables = [_moved(commit, after) for commit, after in zip(commits, written, strict=True)]
    try:
        switched = switch(commits[0].name.catalog, tables, client)
    except Exception as error:  # the exceptions of databases and HTTP clients have no common base class
        raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
    if not switched:
        _delete(commits, written)
        return False
    remove = classes().org.apache.iceberg.CatalogUtil.deleteRemovedMetadataFiles
    for commit in commits:
        remove(commit.held.table.io(), commit.held.base, commit.held.metadata)
    return True


def _moved(commit: TableCommit, after: str) -> MetadataMove:
    metadata = commit.held.metadata
    snapshot = metadata.currentSnapshot()
    return MetadataMove(
        commit.name.namespace,
        commit.name.table,
        before=_location(commit.held),
        after=after,
        snapshot=int(snapshot.snapshotId()) if snapshot is not None else -1,
        schema=int(metadata.currentSchemaId()),
        spec=int(metadata.defaultSpecId()),
        order=int(metadata.defaultSortOrderId()),
    )


def _location(held: HeldCommit) -> str:
    """The metadata file that a transaction was applied to."""
    location = held.base.metadataFileLocation()
    assert location is not None  # only a REST server may leave it out
    return location


def _write(held: HeldCommit) -> str:
    """Writes the new metadata file; its name begins with the next number, as in Iceberg's own catalogs."""
    parser = classes().org.apache.iceberg.TableMetadataParser
    number = _location(held).rpartition("/")[2].partition("-")[0]
    next_number = int(number) + 1 if number.isdigit() else 0
    extension = parser.getFileExtension(held.metadata.property(CODEC, "none"))
    location = held.table.operations().metadataFileLocation(f"{next_number:05}-{uuid.uuid4()}{extension}")
    parser.write(held.metadata, held.table.io().newOutputFile(location))
    return str(location)


def _delete(commits: Sequence[TableCommit], written: Sequence[str]) -> None:
    """Deletes new metadata files that no table uses."""
    for commit, location in zip(commits, written, strict=False):
        with suppress(Py4JError):  # a file that cannot be deleted is an orphan, which `helios orphans` finds
            commit.held.table.io().deleteFile(location)


# a REST server


def _commit_on_server(spark: SparkSession, commits: Sequence[TableCommit]) -> bool:
    jvm, name = classes(), commits[0].name
    java_commits: JavaList[JavaTableCommit] = jvm.java.util.ArrayList()
    for commit in commits:
        _, identifier = catalog_of(spark, commit.name)
        java_commits.add(
            jvm.org.apache.iceberg.catalog.TableCommit.create(identifier, commit.held.base, commit.held.metadata)
        )
    try:
        _rest_catalog(spark, name).commitTransaction(java_commits)
    except FAILURES as error:
        exception_class, message = _class_and_message(error)
        if exception_class != CONFLICT:
            raise _failure_of(spark, commits, exception_class, message) from error
        return False
    return True


def _failure_of(spark: SparkSession, commits: Sequence[TableCommit], exception_class: str, message: str) -> Exception:
    """The error for a failed commit, by the class and the message of Iceberg's exception."""
    catalog = commits[0].name.catalog
    if exception_class == "NoSuchTableException":  # the client raises this for any 404, also for an unknown path
        missing = next((commit.name for commit in commits if load_table(spark, commit.name) is None), None)
        if missing is None:
            return _no_endpoint_error(catalog, message)
        return RunError(f"{missing.text} is gone: {message}; nothing was written.")
    if exception_class == "UnsupportedOperationException" or NO_ENDPOINT.match(message):
        return _no_endpoint_error(catalog, message)
    if exception_class == "ForbiddenException":
        return RunError(
            f"catalog {catalog.name!r} refused a commit of {len(commits)} tables: {message}; nothing was written.",
            fix="allow the catalog's user to commit to several tables at once, and run again.",
        )
    return OutcomeUnknown(f"{exception_class}: {message}")


def _rest_catalog(spark: SparkSession, table: TableName) -> JavaRestCatalog:
    """Iceberg's client of a REST catalog. Helios sets `cache-enabled=false`, so no caching catalog wraps the client."""
    catalog, _ = catalog_of(spark, table)
    return cast("JavaRestCatalog", catalog)  # only REST catalogs have `takes_multi_table_commits` in CATALOGS


def _class_and_message(error: Py4JJavaError | PySparkException) -> tuple[str, str]:
    cause = next(java_causes(error))
    exception_class = str(cause.getClass().getSimpleName())
    return exception_class, (cause.getMessage() or exception_class).splitlines()[0]


def _no_endpoint_error(catalog: Catalog, message: str) -> InputError:
    return InputError(
        f"the server of catalog {catalog.name!r} at {catalog.option('uri')} does not support commits of several tables "
        f"(POST /v1/{{prefix}}/transactions/commit), which atomic=True needs: {message}; nothing was written.",
        fix="leave atomic=True out: each table is then written exactly once by itself. Or mirror into a catalog whose "
        "server has that endpoint.",
    )
