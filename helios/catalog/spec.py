"""Catalogs and storages as values: declared in a script or in helios.toml, connected to only when they are used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from helios.catalog.catalogs import CATALOGS, home
from helios.catalog.storages import STORAGES, Pairs, Value, complete, problem
from helios.errors import DeclarationError, Origin, near_miss
from helios.model.values import Secret, caller

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from helios.model.partition import PartitionField
    from helios.table.snapshots import Table

RESERVED_NAME = "spark_catalog"
_NAME = re.compile(r"[A-Za-z0-9_]+")
_SECRET_PROPERTY = re.compile(
    r"secret|passw|token|credential|access-key|account-key|account\.key|service-account|sas|connection-string|auth"
    r"|private|api-?key",
    re.IGNORECASE,
)


def name_problem(name: object) -> str | None:
    """What is wrong with a catalog's name; None if nothing is.

    Examples:
        >>> name_problem("prod-eu")
        "'prod-eu' is not a catalog name: use letters, digits and '_'."
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"{name!r} is not a catalog name: use letters, digits and '_'."
    if name == RESERVED_NAME:
        return f"{name!r} is Spark's own catalog: use another name."
    return None


@dataclass(frozen=True)
class Storage:
    """Where a catalog's warehouse is kept. Made by `Storage.local` and its siblings, or by `[storages.NAME]`."""

    type: str
    options: Pairs = ()
    origin: Origin | None = field(default_factory=caller, compare=False, repr=False)

    def __post_init__(self) -> None:
        row = STORAGES.get(self.type)
        if row is None:
            raise DeclarationError(
                f"storage type {self.type!r} is unknown. {near_miss(self.type, STORAGES)}", where=self.origin
            )
        wrong = problem(row.keys, dict(self.options))
        if wrong:
            raise DeclarationError(f"Storage.{self.type}: {wrong[1]}", where=self.origin)
        options = complete(row.keys, dict(self.options), self.type, Path.cwd(), lambda: home(self.origin))
        object.__setattr__(self, "options", options)

    def option(self, name: str) -> Value | None:
        """One setting; None if it has none."""
        return dict(self.options).get(name)

    @staticmethod
    def local(path: str | os.PathLike[str]) -> Storage:
        """A folder that every machine of the run sees.

        Args:
            path: The folder of the warehouse; a relative one is relative to the working directory.

        Examples:
            >>> Storage.local(path="/data/lake").options
            (('path', '/data/lake'),)
        """
        return Storage("local", (("path", _text(path)),))


@dataclass(frozen=True)
class Catalog:
    """A catalog of Iceberg tables. Made by `Catalog.local` and its siblings, or by `[catalogs.NAME]`.

    Equal values share one connection per process.

    Raises:
        DeclarationError: The name, the type, a setting or a property that cannot be.
    """

    name: str
    type: str
    options: Pairs = ()
    storage: Storage | None = None
    properties: Pairs = ()
    origin: Origin | None = field(default_factory=caller, compare=False, repr=False)

    def __post_init__(self) -> None:
        wrong_name = name_problem(self.name)
        if wrong_name:
            raise DeclarationError(wrong_name, where=self.origin)
        row = CATALOGS.get(self.type)
        if row is None:
            raise DeclarationError(
                f"catalog type {self.type!r} is unknown. {near_miss(self.type, CATALOGS)}", where=self.origin
            )
        wrong = problem(row.keys, dict(self.options))
        if wrong:
            raise DeclarationError(f"catalog {self.name!r}: {wrong[1]}", where=self.origin)
        if self.storage is not None and self.storage.type not in row.storages:
            raise DeclarationError(
                f"catalog {self.name!r}: a {self.type} catalog takes no {self.storage.type} storage. "
                f"{near_miss(self.storage.type, row.storages)}",
                where=self.origin,
            )
        options = complete(row.keys, dict(self.options), self.name, Path.cwd(), lambda: home(self.origin))
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "properties", self._checked_properties())

    def _checked_properties(self) -> Pairs:
        from helios.catalog.conf import own_keys

        own = own_keys(self)
        checked: list[tuple[str, Value]] = []
        for key, value in sorted(dict(self.properties).items(), key=lambda pair: str(pair[0])):
            if not isinstance(key, str) or not isinstance(value, (str, Secret)):
                raise DeclarationError(
                    f"catalog {self.name!r}: property {key!r} must be text, not {type(value).__name__}.",
                    where=self.origin,
                    fix='write properties={"key": "value"}.',
                )
            if key in own:
                raise DeclarationError(
                    f"catalog {self.name!r}: property {key!r} is set by Helios for a {self.type} catalog.",
                    where=self.origin,
                    fix="leave it out.",
                )
            secret = isinstance(value, str) and _SECRET_PROPERTY.search(key)
            checked.append((key, Secret(value) if secret and isinstance(value, str) else value))
        return tuple(checked)

    def option(self, name: str) -> Value | None:
        """One setting; None if it has none."""
        return dict(self.options).get(name)

    @staticmethod
    def local(
        name: str = "local",
        path: str | os.PathLike[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        storage: Storage | None = None,
    ) -> Catalog:
        """The embedded catalog: a SQLite file in a folder, which Spark, PyIceberg and DuckDB all read.

        Args:
            name: The catalog's name in table names.
            path: The folder of `catalog.db` and `warehouse/`. By default `.helios` (for another name than "local",
                `.helios/catalogs/NAME`) beside the configuration file, or in the working directory if there is none.
            properties: Passed through to Iceberg.
            storage: Another place for the warehouse.

        Examples:
            >>> Catalog.local("dev", path="/data/dev").options
            (('path', '/data/dev'),)
        """
        options = (("path", _text(path)),) if path is not None else ()
        return Catalog(name, "local", options, storage, _pairs(properties))

    @staticmethod
    def memory(name: str, properties: Mapping[str, str] | None = None) -> Catalog:
        """A catalog that is gone with the process, for tests.

        Args:
            name: The catalog's name in table names; equal names in one process are one catalog.
            properties: Passed through to Iceberg.

        Examples:
            >>> Catalog.memory("scratch").namespaces()
            []
        """
        return Catalog(name, "memory", properties=_pairs(properties))

    # Operations, without a JVM

    def namespaces(self) -> list[str]:
        """All namespaces, nested ones dotted, sorted."""
        from helios.catalog import operations

        return operations.namespaces(self)

    def tables(self, namespace: str) -> list[str]:
        """The tables of a namespace as "namespace.table", sorted.

        Raises:
            NotFound: The namespace does not exist.
        """
        from helios.catalog import operations

        return operations.tables(self, namespace)

    def exists(self, table: str) -> bool:
        """Whether there is a table "namespace.table"."""
        from helios.catalog import operations

        return operations.exists(self, table)

    def load(self, table: str) -> Table:
        """The table "namespace.table" as it is now; its `.iceberg` is PyIceberg's own.

        From an embedded catalog it is always fresh; from a server its metadata may be up to
        `helios.catalog.operations.CACHE_SECONDS` old.

        Raises:
            NotFound: There is no such table; the message names the nearest one.
        """
        from helios.catalog import operations

        return operations.load(self, table)

    def create_namespace(self, namespace: str) -> None:
        """Makes a namespace.

        Raises:
            InputError: It exists.
        """
        from helios.catalog import operations

        operations.create_namespace(self, namespace)

    def create_table(
        self, table: str, schema: pa.Schema | Schema, partition_by: Sequence[PartitionField | str] = ()
    ) -> Table:
        """Makes an empty table of format v2.

        Args:
            table: "namespace.table"; the namespace must exist.
            schema: A pyarrow or PyIceberg schema.
            partition_by: `day("ts")`, `bucket(16, "id")`, or bare column names.

        Raises:
            NotFound: The namespace, or a column of `partition_by`, does not exist.
            InputError: The table exists.
            DeclarationError: A transform does not fit its column, or a type has no place in Iceberg.

        Examples:
            >>> import pyarrow as pa
            >>> catalog = Catalog.memory("docs")
            >>> catalog.create_namespace("sales")
            >>> table = catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]), partition_by=["id"])
            >>> catalog.tables("sales")
            ['sales.orders']
        """
        from helios.catalog import operations

        return operations.create_table(self, table, schema, partition_by)

    def drop_table(self, table: str) -> None:
        """Takes a table out of the catalog; its files stay.

        Raises:
            NotFound: There is no such table.
        """
        from helios.catalog import operations

        operations.drop_table(self, table)


def _pairs(properties: Mapping[str, str] | None) -> Pairs:
    return tuple((properties or {}).items())


def _text(path: str | os.PathLike[str]) -> str:
    return os.fspath(path) if isinstance(path, os.PathLike) else path
