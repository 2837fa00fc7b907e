"""Reads the namespaces and tables of a catalog, from its SQLite file or through PyIceberg's client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.conf import pyiceberg_properties
from helios.catalog.connections import ask, client, lock_of
from helios.catalog.embedded import BUSY_SECONDS
from helios.catalog.spec import Catalog
from helios.errors import RunError
from helios.model.values import Identifier

if TYPE_CHECKING:
    import sqlite3

    import pyiceberg.catalog
    import pyiceberg.table
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

    PyCatalog = pyiceberg.catalog.Catalog
    PyTable = pyiceberg.table.Table

Name = tuple[str, ...]

CACHE_SECONDS = 5.0
"""How long the tables that PyIceberg's client has found or loaded are cached."""


class CatalogReader(Protocol):
    """Reads the namespaces and tables of one catalog. A result of None means that the namespace or table is missing."""

    def namespaces(self) -> set[Name]: ...

    def tables(self, namespace: Name) -> list[str] | None: ...

    def exists(self, table: Name) -> bool: ...

    def load(self, table: Name) -> PyTable | None: ...


def reader(catalog: Catalog) -> CatalogReader:
    """The fastest reader for a catalog. If the catalog is a SQLite file, the file is read directly."""
    database = CATALOGS[catalog.type].database
    return _SqliteReader(catalog, database(catalog)) if database else _ClientReader(catalog)


class _SqliteReader:
    """Reads a SQLite catalog without SQLAlchemy, whose import alone takes half of the time limit of `helios plan`."""

    def __init__(self, catalog: Catalog, file: Path) -> None:
        self._catalog = catalog
        self._file = file

    def namespaces(self) -> set[Name]:
        declared = [
            row["namespace"] for row in self._rows("SELECT DISTINCT namespace FROM iceberg_namespace_properties")
        ]
        with_tables = [
            row["table_namespace"] for row in self._rows("SELECT DISTINCT table_namespace FROM iceberg_tables")
        ]
        levels = {tuple(text.split(".")) for text in (*declared, *with_tables)}
        return {name[:depth] for name in levels for depth in range(1, len(name) + 1)}

    def tables(self, namespace: Name) -> list[str] | None:
        rows = self._tables("table_namespace = ?", ".".join(namespace))
        # The file stores a namespace as one text with dots, so a part with a dot cannot be told from two parts.
        levels = tuple(".".join(namespace).split("."))
        return [row["table_name"] for row in rows] if rows or levels in self.namespaces() else None

    def exists(self, table: Name) -> bool:
        return bool(self._find(table))

    def load(self, table: Name) -> PyTable | None:
        rows = self._find(table)
        if not rows:
            return None
        location = str(rows[0]["metadata_location"])
        parts = urlsplit(location)
        if parts.scheme not in ("", "file"):
            return _ClientReader(self._catalog).load(table)
        from pyiceberg.exceptions import ValidationError

        try:
            metadata = _metadata(parts.path)
        except (OSError, ValueError, ValidationError) as error:
            name = Identifier((self._catalog.name, *table))
            raise RunError(
                f"table {name}: its metadata cannot be read from {location}: {error}.",
                fix="restore the file, or remove the table from the catalog with .drop_table().",
            ) from error
        return _open(self._catalog, table, metadata, location)

    def _find(self, table: Name) -> list[sqlite3.Row]:
        return self._tables("table_namespace = ? AND table_name = ?", ".".join(table[:-1]), table[-1])

    def _tables(self, condition: str, *values: str) -> list[sqlite3.Row]:
        rows = self._rows(f"SELECT * FROM iceberg_tables WHERE {condition}", *values)
        # A file made before schema V1 has no column iceberg_type; a row written before V1 has NULL there.
        return [row for row in rows if "iceberg_type" not in row.keys() or row["iceberg_type"] in (None, "TABLE")]  # noqa: SIM118

    def _rows(self, query: str, *values: str) -> list[sqlite3.Row]:
        if not self._file.exists():
            return []
        import sqlite3

        keyword = "AND" if "WHERE" in query else "WHERE"
        # mode=rw never creates the file. Unlike mode=ro, it can roll back the transaction of a killed writer.
        uri = f"{self._file.as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS)) as db:
                db.row_factory = sqlite3.Row
                return db.execute(f"{query} {keyword} catalog_name = ?", (*values, self._catalog.name)).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise self._unreadable(error) from error
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: sqlite3.Error) -> RunError:
        return RunError(
            f"catalog {self._catalog.name!r}: {self._file} cannot be read: {error}.",
            fix="check that it is a SQLite file, that you can write to it and that no process has locked it, or set "
            "another path=.",
        )


class _ClientReader:
    """Reads a catalog through PyIceberg's own client."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def namespaces(self) -> set[Name]:
        return ask(self._catalog, lambda connection: set(_namespaces_below(connection, ())))

    def tables(self, namespace: Name) -> list[str] | None:
        from pyiceberg.exceptions import NoSuchNamespaceError

        try:
            return [name[-1] for name in ask(self._catalog, lambda connection: connection.list_tables(namespace))]
        except NoSuchNamespaceError:
            return None

    def exists(self, table: Name) -> bool:
        key = (os.getpid(), self._catalog, table)
        # Only existing tables are cached: a pipeline that waits for a missing table must see it at once.
        if _fresh(_KNOWN_TO_EXIST.get(key)) or _fresh(_LOADED_TABLES.get(key)):
            return True
        exists = ask(self._catalog, lambda connection: connection.table_exists(table))
        if exists:
            _KNOWN_TO_EXIST[key] = (time.monotonic(), None)
        return exists

    def load(self, table: Name) -> PyTable | None:
        from pyiceberg.exceptions import NoSuchTableError

        key = (os.getpid(), self._catalog, table)
        # One thread loads a table; other threads wait for its result.
        with lock_of(key):
            cached = _LOADED_TABLES.get(key)
            if cached is not None and _fresh(cached):
                return cached[1]
            try:
                loaded = ask(self._catalog, lambda connection: connection.load_table(table))
            except NoSuchTableError:
                forget(self._catalog, table)
                return None
            _LOADED_TABLES[key] = (time.monotonic(), loaded)
            return loaded


_LOADED_TABLES: dict[tuple[int, Catalog, Name], tuple[float, PyTable]] = {}
_KNOWN_TO_EXIST: dict[tuple[int, Catalog, Name], tuple[float, None]] = {}


def _fresh(entry: tuple[float, object] | None) -> bool:
    return entry is not None and time.monotonic() - entry[0] < CACHE_SECONDS


def forget(catalog: Catalog, table: Name) -> None:
    """Drops a table from the cache."""
    for cached_tables in (_LOADED_TABLES, _KNOWN_TO_EXIST):
        cached_tables.pop((os.getpid(), catalog, table), None)


def forget_all(catalog: Catalog) -> None:
    """Drops all tables of a catalog from the cache, after another client in this process has written some of them."""
    for cached_tables in (_LOADED_TABLES, _KNOWN_TO_EXIST):
        for key in [key for key in tuple(cached_tables) if key[:2] == (os.getpid(), catalog)]:
            cached_tables.pop(key, None)


def _namespaces_below(connection: PyCatalog, namespace: Name) -> Iterator[Name]:
    for child in connection.list_namespaces(namespace):
        yield child
        # A server that lists a namespace under itself must not cause endless recursion.
        if len(child) > len(namespace):
            yield from _namespaces_below(connection, child)


# opening tables lazily


@lru_cache(maxsize=64)
def _metadata(path: str) -> TableMetadata:
    # A metadata file never changes, so its path is enough as a cache key.
    from pyiceberg.serializers import Compressor, FromByteStream

    with open(path, "rb") as stream:
        return FromByteStream.table_metadata(cast(Any, stream), compression=Compressor.get_compressor(path))


def _open(catalog: Catalog, table: Name, metadata: TableMetadata, location: str) -> PyTable:
    from pyiceberg.table import Table

    def file_io() -> FileIO:
        from pyiceberg.io import load_file_io

        return load_file_io({**pyiceberg_properties(catalog), **metadata.properties}, location)

    # pyarrow's file system and SQLAlchemy are slow to import, and reading metadata needs neither.
    io = cast("FileIO", _Lazy(file_io))
    return Table(table, metadata, location, io, cast("PyCatalog", _Lazy(lambda: client(catalog))))


class _Lazy:
    """A proxy for an object that is created when one of its attributes is first read."""

    def __init__(self, create: Callable[[], object]) -> None:
        self.__dict__["_object"] = cache(create)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_object"](), name)
