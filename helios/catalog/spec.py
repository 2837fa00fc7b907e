"""Catalogs as immutable values, declared in a script or in helios.toml. They connect at the first use."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helios.catalog.catalogs import CATALOGS
from helios.catalog.checks import check_warehouse, checked_properties, checked_row
from helios.catalog.home import project_folder
from helios.catalog.keys import Pairs, Setting, completed_settings
from helios.catalog.seam import operations
from helios.catalog.storage import Storage, without_none
from helios.errors import Origin
from helios.model.values import Secret, caller

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from helios.catalog.rows import CatalogRow
    from helios.model.partition import PartitionField
    from helios.table.snapshots import Table


@dataclass(frozen=True)
class Catalog:
    """A catalog of Iceberg tables. Made by `Catalog.local` and its siblings, or by `[catalogs.NAME]`.

    Equal values share one connection per process.

    Raises:
        DeclarationError: The name, the type, a setting or a property is invalid.
    """

    name: str
    type: str
    options: Pairs = ()
    storage: Storage | None = None
    properties: Pairs = ()
    origin: Origin | None = field(default_factory=caller, compare=False, repr=False)

    def __post_init__(self) -> None:
        row = checked_row(self)
        options = completed_settings(
            row.keys, dict(self.options), self.name, Path.cwd(), lambda: project_folder(self.origin)
        )
        object.__setattr__(self, "options", options)
        check_warehouse(self, row)
        object.__setattr__(self, "properties", checked_properties(self))

    def option(self, name: str) -> Setting | None:
        """The value of a setting; None if the setting is not given."""
        return dict(self.options).get(name)

    @staticmethod
    def local(
        name: str = "local",
        path: str | os.PathLike[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        storage: Storage | None = None,
        warehouse: str | None = None,
    ) -> Catalog:
        """The embedded catalog: a SQLite file in a folder, which Spark, PyIceberg and DuckDB all read.

        Args:
            name: The catalog's name in table names.
            path: The folder of `catalog.db` and `warehouse/`. By default it is `.helios` beside the configuration file,
                or in the working directory if there is no such file. If `name` is not "local", the default is
                `.helios/catalogs/NAME`.
            properties: Passed through to Iceberg.
            storage: The storage of the warehouse, if the warehouse is not in the folder.
            warehouse: The URI of a warehouse that is not in the folder, such as "s3://bucket/lake".

        Examples:
            >>> Catalog.local("dev", path="/data/dev").options
            (('path', '/data/dev'),)
        """
        return Catalog(name, "local", without_none({"path": path, "warehouse": warehouse}), storage, _pairs(properties))

    @staticmethod
    def memory(name: str, properties: Mapping[str, str] | None = None) -> Catalog:
        """A temporary catalog for tests; it is removed when the process ends.

        Args:
            name: The catalog's name in table names; equal names in one process are one catalog.
            properties: Passed through to Iceberg.

        Examples:
            >>> Catalog.memory("scratch").namespaces()
            []
        """
        return Catalog(name, "memory", properties=_pairs(properties))

    @staticmethod
    def rest(
        name: str,
        *,
        uri: str | Sequence[str],
        warehouse: str | None = None,
        credential: str | Secret | None = None,
        oauth2_server_uri: str | None = None,
        scope: str | None = None,
        token: str | Secret | None = None,
        storage: Storage | None = None,
        properties: Mapping[str, str] | None = None,
        allow_http: bool = False,
    ) -> Catalog:
        """A catalog behind Iceberg's REST protocol.

        Args:
            name: The catalog's name in table names.
            uri: The server's address, or a list of the addresses of its replicas.
            warehouse: The server's warehouse, by name or URI.
            credential: OAuth2 client credentials, "client_id:secret"; Helios requests and renews tokens with them.
            oauth2_server_uri: The token endpoint; by default the catalog's own `v1/oauth/tokens`.
            scope: The OAuth2 scope to request; by default "catalog".
            token: A bearer token, instead of `credential`; it is not renewed.
            storage: The storage of the tables; if it has no keys, the server is asked for credentials.
            properties: Passed through to Iceberg.
            allow_http: Whether `http://` to other machines is allowed.

        Raises:
            DeclarationError: Both `credential` and `token`, `http://` to another machine, or an invalid URL.

        Examples:
            >>> Catalog.rest("prod", uri="https://catalog.example.com", credential="me:secret").options
            (('uri', 'https://catalog.example.com'), ('credential', ***))
        """
        settings = {**_settings(locals(), CATALOGS["rest"]), "allow_http": allow_http or None}
        return Catalog(name, "rest", without_none(settings), storage, _pairs(properties))

    @staticmethod
    def glue(
        name: str,
        *,
        warehouse: str,
        region: str | None = None,
        catalog_id: str | None = None,
        profile: str | None = None,
        endpoint: str | None = None,
        storage: Storage | None = None,
        properties: Mapping[str, str] | None = None,
        allow_http: bool = False,
    ) -> Catalog:
        """AWS Glue, with the default credential chain, a profile, or the keys of the storage.

        Args:
            name: The catalog's name in table names.
            warehouse: Where tables are put, such as "s3://bucket/lake".
            region: The AWS region; by default that of the storage, or of the AWS configuration.
            catalog_id: The AWS account that owns the catalog; by default your own.
            profile: A profile of the AWS configuration.
            endpoint: Another address of the service.
            storage: `Storage.s3(...)`; by default S3 with the default credential chain.
            properties: Passed through to Iceberg.
            allow_http: Whether an `http://` endpoint on another machine is allowed.

        Raises:
            DeclarationError: A setting, the storage or the warehouse does not fit the catalog.

        Examples:
            >>> Catalog.glue("prod", warehouse="s3://lake/tables", region="eu-west-1").type
            'glue'
        """
        settings = {**_settings(locals(), CATALOGS["glue"]), "allow_http": allow_http or None}
        return Catalog(name, "glue", without_none(settings), storage, _pairs(properties))

    @staticmethod
    def hive(
        name: str,
        *,
        uri: str | Sequence[str],
        warehouse: str | None = None,
        storage: Storage | None = None,
        properties: Mapping[str, str] | None = None,
        lock: bool | None = None,
    ) -> Catalog:
        """The Hive Metastore.

        Args:
            name: The catalog's name in table names.
            uri: The metastore's address, "thrift://host:9083", or a list of the addresses of its replicas.
            warehouse: Where tables are put, such as "s3://bucket/lake"; by default the folder of a local storage.
            storage: The storage of the warehouse; by default the storage in its URI, with the default credential chain.
            properties: Passed through to Iceberg.
            lock: Whether commits take a lock (default). Commits without a lock need a metastore that supports
                compare-and-set: 2.3.10, or 4.0 and later.

        Raises:
            DeclarationError: A setting, the storage or the warehouse does not fit the catalog.

        Examples:
            >>> Catalog.hive("prod", uri="thrift://metastore:9083", warehouse="s3://lake/tables").type
            'hive'
        """
        return Catalog(name, "hive", without_none(_settings(locals(), CATALOGS["hive"])), storage, _pairs(properties))

    @staticmethod
    def nessie(
        name: str,
        *,
        uri: str | Sequence[str],
        ref: str = "main",
        warehouse: str | None = None,
        storage: Storage | None = None,
        properties: Mapping[str, str] | None = None,
        token: str | Secret | None = None,
        allow_http: bool = False,
    ) -> Catalog:
        """Project Nessie, by its own protocol.

        Args:
            name: The catalog's name in table names.
            uri: The server's address, such as "http://localhost:19120", or a list of the addresses of its replicas.
            ref: The branch that is read and written, or a tag that is read.
            warehouse: Where tables are put, such as "s3://bucket/lake"; by default the folder of a local storage.
            storage: The storage of the warehouse; by default the storage in its URI, with the default credential chain.
            properties: Passed through to Iceberg.
            token: A bearer token.
            allow_http: Whether `http://` to other machines is allowed.

        Raises:
            DeclarationError: A setting, the storage or the warehouse does not fit the catalog.

        Examples:
            >>> Catalog.nessie("dev", uri="http://localhost:19120", ref="trial", warehouse="s3://lake/x").option("ref")
            'trial'
        """
        settings = {**_settings(locals(), CATALOGS["nessie"]), "allow_http": allow_http or None}
        return Catalog(name, "nessie", without_none(settings), storage, _pairs(properties))

    # Operations, without a JVM

    def namespaces(self) -> list[str]:
        """The names of all namespaces, sorted. The parts of a nested namespace are joined by dots."""
        return operations().namespaces(self)

    def tables(self, namespace: str) -> list[str]:
        """The names of the tables in a namespace, in the form "namespace.table", sorted.

        Raises:
            NotFound: The namespace does not exist.
        """
        return operations().tables(self, namespace)

    def exists(self, table: str) -> bool:
        """True if the table "namespace.table" exists."""
        return operations().exists(self, table)

    def load(self, table: str) -> Table:
        """The table "namespace.table"; its `.iceberg` is PyIceberg's own table.

        The metadata from an embedded catalog is always current. The metadata from a catalog server may be up to
        `helios.catalog.contents.CACHE_SECONDS` old.

        Raises:
            NotFound: There is no such table; the message names the nearest one.
        """
        return operations().load(self, table)

    def create_namespace(self, namespace: str) -> None:
        """Creates a namespace.

        Raises:
            InputError: The namespace exists.
        """
        operations().create_namespace(self, namespace)

    def create_table(
        self, table: str, schema: pa.Schema | Schema, partition_by: Sequence[PartitionField | str] = ()
    ) -> Table:
        """Creates an empty table of format v2.

        Args:
            table: "namespace.table"; the namespace must exist.
            schema: A pyarrow or PyIceberg schema.
            partition_by: `day("ts")`, `bucket(16, "id")`, or bare column names.

        Raises:
            NotFound: The namespace, or a column of `partition_by`, does not exist.
            InputError: The table exists.
            DeclarationError: A transform does not fit its column, or Iceberg has no type for a column.

        Examples:
            >>> import pyarrow as pa
            >>> catalog = Catalog.memory("docs")
            >>> catalog.create_namespace("sales")
            >>> table = catalog.create_table("sales.orders", pa.schema([("id", pa.int64())]), partition_by=["id"])
            >>> catalog.tables("sales")
            ['sales.orders']
        """
        return operations().create_table(self, table, schema, partition_by)

    def drop_table(self, table: str) -> None:
        """Removes a table from the catalog; its files stay.

        Raises:
            NotFound: There is no such table.
        """
        operations().drop_table(self, table)


def _pairs(properties: Mapping[str, str] | None) -> Pairs:
    return tuple((properties or {}).items())


def _settings(arguments: Mapping[str, Any], row: CatalogRow) -> dict[str, Any]:
    """The arguments of a factory that are settings of its type of catalog. A setting without an argument is None."""
    return {key.name: arguments.get(key.name) for key in row.keys}
