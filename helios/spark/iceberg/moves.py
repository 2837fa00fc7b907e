"""Several transactions in one commit of the catalog: Iceberg writes the metadata, and the catalog moves all tables.

Iceberg's own catalogs commit table by table. Where the catalog is a database, conditional updates of several tables
are one transaction of it: each table must have the metadata that its transaction was applied to, or none is moved.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError

from helios.catalog.catalogs import CATALOGS
from helios.catalog.names import TableName
from helios.catalog.rows import Moved
from helios.errors import RunError
from helios.spark.iceberg.commit import Held
from helios.spark.jvm.classes import classes

CODEC = "write.metadata.compression-codec"


@dataclass(frozen=True)
class Move:
    """A transaction on a table, by the table's name."""

    name: TableName
    held: Held


def move(moves: Sequence[Move]) -> bool:
    """Commits all transactions, or none.

    Args:
        moves: The transactions; their tables are of one catalog.

    Returns:
        Whether they are committed; not, where another commit has come before.

    Raises:
        RunError: The catalog cannot be written.
    """
    catalog = moves[0].name.catalog
    moved = CATALOGS[catalog.type].move
    assert moved is not None  # `helios check` refuses others
    written: list[str] = []
    try:
        for one in moves:
            written.append(_write(one.held))
        tables = [
            Moved(one.name.namespace, one.name.table, _location(one.held), after)
            for one, after in zip(moves, written, strict=True)
        ]
        done = moved(catalog, tables)
    except sqlite3.Error as error:
        # A commit that failed is rolled back; whether one was, which is not known, the next look-up tells.
        raise RunError(
            f"catalog {catalog.name!r} could not move {len(moves)} tables: {error}.",
            fix="run again: the batch is looked up before it is written.",
        ) from error
    except BaseException:
        _delete(moves, written)
        raise
    if not done:
        _delete(moves, written)
        return False
    remove = classes().org.apache.iceberg.CatalogUtil.deleteRemovedMetadataFiles
    for one in moves:
        remove(one.held.table.io(), one.held.base, one.held.metadata)
        one.held.table.refresh()
    return True


def _location(held: Held) -> str:
    """The metadata file that a transaction was applied to."""
    location = held.base.metadataFileLocation()
    assert location is not None  # such a catalog tells it
    return location


def _write(held: Held) -> str:
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
    for one, location in zip(moves, written, strict=False):
        with suppress(Py4JError):  # an orphan file, which `helios orphans` finds
            one.held.table.io().deleteFile(location)
