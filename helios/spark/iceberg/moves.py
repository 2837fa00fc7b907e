"""Several transactions in one commit of the catalog, all or none.

Iceberg's own catalogs commit table by table. Where the catalog keeps the places of metadata files, Iceberg writes
these, and the catalog moves all tables at once: each must have the metadata that its transaction was applied to, or
none is moved. A server of the REST protocol gets the changes themselves in one request, with what must hold for each
table, and writes the metadata.
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
from helios.catalog.rows import Moved, Mover
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
"""The pattern of the error of Iceberg's client for a server that does not take a request of this kind."""


FAILURES = (Py4JJavaError, PySparkException)
"""Java exceptions; pyspark has classes of its own for some of them."""


class OutcomeUnknown(Exception):
    """A commit of several tables failed, and its error leaves open whether the tables have it."""


@dataclass(frozen=True)
class Move:
    """A transaction on a table, by the table's name."""

    name: TableName
    held: HeldCommit


def verify(spark: SparkSession, table: TableName) -> None:
    """Checks that the catalog of a table supports transactions of several tables; nothing is changed.

    Raises:
        InputError: Its server says that it does not.
    """
    if CATALOGS[table.catalog.type].transacts:
        try:
            # Iceberg's client looks at what the server offers, and then refuses a request without changes.
            _rest(spark, table).commitTransaction(classes().java.util.ArrayList())
        except FAILURES as error:
            kind, message = _told(error)
            if kind == "UnsupportedOperationException":
                raise _no_endpoint(table.catalog, message) from error
            if kind != "IllegalArgumentException":
                raise


def move(spark: SparkSession, moves: Sequence[Move]) -> bool:
    """Commits all transactions, or none.

    Args:
        spark: The session of the batch.
        moves: The transactions; their tables are of one catalog.

    Returns:
        Whether they are committed; not, where another commit has come before.

    Raises:
        OutcomeUnknown: The catalog failed, and may have committed them.
        HeliosError: It refuses them.
    """
    moved = CATALOGS[moves[0].name.catalog.type].move
    done = _moved(moved, moves) if moved is not None else _transacted(spark, moves)
    if done:
        for change in moves:
            change.held.table.refresh()
    return done


# the catalog moves tables to metadata


def _moved(moved: Mover, moves: Sequence[Move]) -> bool:
    written: list[str] = []
    try:
        for change in moves:
            written.append(_write(change.held))
    except BaseException:
        _delete(moves, written)
        raise
    tables = [_described(change, after) for change, after in zip(moves, written, strict=True)]
    try:
        done = moved(moves[0].name.catalog, tables, client)
    except Exception as error:  # what a database or an HTTP client raises has no common root
        raise OutcomeUnknown(f"{type(error).__name__}: {error}") from error
    if not done:
        _delete(moves, written)
        return False
    remove = classes().org.apache.iceberg.CatalogUtil.deleteRemovedMetadataFiles
    for change in moves:
        remove(change.held.table.io(), change.held.base, change.held.metadata)
    return True


def _described(change: Move, after: str) -> Moved:
    metadata = change.held.metadata
    snapshot = metadata.currentSnapshot()
    return Moved(
        change.name.namespace,
        change.name.table,
        before=_location(change.held),
        after=after,
        snapshot=int(snapshot.snapshotId()) if snapshot is not None else -1,
        schema=int(metadata.currentSchemaId()),
        spec=int(metadata.defaultSpecId()),
        order=int(metadata.defaultSortOrderId()),
    )


def _location(held: HeldCommit) -> str:
    """The metadata file that a transaction was applied to."""
    location = held.base.metadataFileLocation()
    assert location is not None  # such a catalog tells it
    return location


def _write(held: HeldCommit) -> str:
    """Writes metadata beside that of the table, under the next number, as Iceberg's catalogs name it."""
    parser = classes().org.apache.iceberg.TableMetadataParser
    number = _location(held).rpartition("/")[2].partition("-")[0]
    next_number = int(number) + 1 if number.isdigit() else 0
    extension = parser.getFileExtension(held.metadata.property(CODEC, "none"))
    location = held.table.operations().metadataFileLocation(f"{next_number:05}-{uuid.uuid4()}{extension}")
    parser.write(held.metadata, held.table.io().newOutputFile(location))
    return str(location)


def _delete(moves: Sequence[Move], written: Sequence[str]) -> None:
    """Deletes metadata files that no table was moved to."""
    for change, location in zip(moves, written, strict=False):
        with suppress(Py4JError):  # an orphan file, which `helios orphans` finds
            change.held.table.io().deleteFile(location)


# a server gets the changes


def _transacted(spark: SparkSession, moves: Sequence[Move]) -> bool:
    jvm, name = classes(), moves[0].name
    commits: JavaList[JavaTableCommit] = jvm.java.util.ArrayList()
    for change in moves:
        _, identifier = catalog_of(spark, change.name)
        commits.add(
            jvm.org.apache.iceberg.catalog.TableCommit.create(identifier, change.held.base, change.held.metadata)
        )
    try:
        _rest(spark, name).commitTransaction(commits)
    except FAILURES as error:
        kind, message = _told(error)
        if kind != CONFLICT:
            raise _failure(spark, moves, kind, message) from error
        return False
    return True


def _failure(spark: SparkSession, moves: Sequence[Move], kind: str, message: str) -> Exception:
    """The error for the server's answer, by the class and message of Iceberg's exception."""
    catalog = moves[0].name.catalog
    if kind == "NoSuchTableException":  # so the client takes any 404, that of an unknown path too
        gone = next((change.name for change in moves if load_table(spark, change.name) is None), None)
        if gone is None:
            return _no_endpoint(catalog, message)
        return RunError(f"{gone.text} is gone: {message}; nothing was written.")
    if kind == "UnsupportedOperationException" or NO_ENDPOINT.match(message):
        return _no_endpoint(catalog, message)
    if kind == "ForbiddenException":
        return RunError(
            f"catalog {catalog.name!r} refused a commit of {len(moves)} tables: {message}; nothing was written.",
            fix="let its user change several tables at once, and run again.",
        )
    return OutcomeUnknown(f"{kind}: {message}")


def _rest(spark: SparkSession, table: TableName) -> JavaRestCatalog:
    """Iceberg's client of a REST catalog, which `cache-enabled=false` leaves unwrapped."""
    catalog, _ = catalog_of(spark, table)
    return cast("JavaRestCatalog", catalog)  # its row says so


def _told(error: Py4JJavaError | PySparkException) -> tuple[str, str]:
    """The class of a Java exception, and the first line of its message."""
    cause = next(java_causes(error))
    kind = str(cause.getClass().getSimpleName())
    return kind, (cause.getMessage() or kind).splitlines()[0]


def _no_endpoint(catalog: Catalog, message: str) -> InputError:
    return InputError(
        f"the server of catalog {catalog.name!r} at {catalog.option('uri')} does not support commits of several tables "
        f"(POST /v1/{{prefix}}/transactions/commit), which atomic=True needs: {message}; nothing was written.",
        fix="leave atomic=True out: each table is then written exactly once by itself; or mirror into a catalog whose "
        "server has that endpoint.",
    )
