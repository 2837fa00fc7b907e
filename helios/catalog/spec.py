"""Catalogs as values: declared in a script or in helios.toml, connected to only when they are used."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.home import home
from helios.catalog.keys import Pairs, Setting, complete, problem
from helios.catalog.storage import Storage, given
from helios.catalog.storages import STORAGES, kind_of
from helios.errors import DeclarationError, Origin, near_miss
from helios.model.values import Secret, caller, is_secret

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from helios.catalog.rows import CatalogRow
    from helios.model.partition import PartitionField
    from helios.table.snapshots import Table

RESERVED_NAME = "spark_catalog"
_NAME = re.compile(r"[A-Za-z0-9_]+")


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


def not_a_type(kind: object) -> str:
    """What may be meant by the unknown type of a catalog.

    Examples:
        >>> not_a_type("s3")
        "'s3' is a storage: declare [storages.NAME], and name it as the catalog's storage."
    """
    if kind in STORAGES:
        return f"{kind!r} is a storage: declare [storages.NAME], and name it as the catalog's storage."
    return near_miss(str(kind), CATALOGS)


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
            raise DeclarationError(f"catalog type {self.type!r} is unknown. {not_a_type(self.type)}", where=self.origin)
        wrong = problem(row.keys, dict(self.options)) or row.fault(dict(self.options))
        if wrong:
            raise DeclarationError(f"catalog {self.name!r}: {wrong[1]}", where=self.origin)
        if self.storage is not None and not isinstance(self.storage, Storage):
            raise DeclarationError(
                f"catalog {self.name!r}: storage must be a Storage, not {type(self.storage).__name__}.",
                where=self.origin,
                fix="write storage=Storage.s3(...) or another kind; a name is for helios.toml.",
            )
        if self.storage is not None and self.storage.type not in row.storages:
            raise DeclarationError(
                f"catalog {self.name!r}: a {self.type} catalog takes no {self.storage.type} storage. "
                f"{near_miss(self.storage.type, row.storages)}",
                where=self.origin,
            )
        options = complete(row.keys, dict(self.options), self.name, Path.cwd(), lambda: home(self.origin))
        object.__setattr__(self, "options", options)
        self._check_warehouse(row)
        object.__setattr__(self, "properties", self._checked_properties())

    def _check_warehouse(self, row: CatalogRow) -> None:
        place, storage = self.option("warehouse"), self.storage
        kind = kind_of(str(place)) if place else None
        wrong = (
            STORAGES[kind].misplaced(urlsplit(str(place)), storage if storage and storage.type == kind else None)
            if kind
            else None
        )
        if kind and wrong:
            shown = "" if "password" in wrong else f" {place}"
            raise DeclarationError(
                f"catalog {self.name!r}: its warehouse{shown} {wrong}.",
                where=self.origin,
                fix=f"write it as {STORAGES[kind].example}.",
            )
        if storage is not None and kind not in (None, storage.type):
            raise DeclarationError(
                f"catalog {self.name!r}: its warehouse {place} is not on its {storage.type} storage.",
                where=self.origin,
                fix=f"name a warehouse on it ({STORAGES[storage.type].example}), or another storage.",
            )
        if row.placed and not row.warehouse(self):
            raise DeclarationError(
                f"catalog {self.name!r}: it needs warehouse.",
                where=self.origin,
                fix=f"say where tables are put: {STORAGES[storage.type if storage else row.storages[0]].example}.",
            )
        if row.placed and place and kind not in row.storages:
            raise DeclarationError(
                f"catalog {self.name!r}: its warehouse {place} is on no storage that a {self.type} catalog takes.",
                where=self.origin,
                fix=f"write {' or '.join(STORAGES[kind].example for kind in row.storages)}.",
            )

    def _checked_properties(self) -> Pairs:
        from helios.catalog.conf import own_keys

        own = own_keys(self)
        checked: list[tuple[str, Setting]] = []
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
            hidden = isinstance(value, str) and is_secret(key, value)
            checked.append((key, Secret(value) if hidden and isinstance(value, str) else value))
        return tuple(checked)

    def option(self, name: str) -> Setting | None:
        """One setting; None if it has none."""
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
            path: The folder of `catalog.db` and `warehouse/`. By default `.helios` (for another name than "local",
                `.helios/catalogs/NAME`) beside the configuration file, or in the working directory if there is none.
            properties: Passed through to Iceberg.
            storage: Another place for the warehouse.
            warehouse: The URI of the warehouse on that storage, such as "s3://bucket/lake".

        Examples:
            >>> Catalog.local("dev", path="/data/dev").options
            (('path', '/data/dev'),)
        """
        return Catalog(name, "local", given({"path": path, "warehouse": warehouse}), storage, _pairs(properties))

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
            uri: The server's address; a list for replicas of one catalog.
            warehouse: Which warehouse of the server: a name, or a URI.
            credential: OAuth2 client credentials, "client_id:secret", with which tokens are asked for and renewed.
            oauth2_server_uri: Where; by default the catalog's own `v1/oauth/tokens`.
            scope: The scope that is asked for; by default "catalog".
            token: A bearer token instead, which nobody renews.
            storage: Where its tables are; without keys there, the server is asked for some.
            properties: Passed through to Iceberg.
            allow_http: Whether `http://` may lead to other machines.

        Raises:
            DeclarationError: `credential` beside `token`, `http://` to another machine, an address that is no URL.

        Examples:
            >>> Catalog.rest("prod", uri="https://catalog.example.com", credential="me:secret").options
            (('uri', 'https://catalog.example.com'), ('credential', ***))
        """
        settings = {**_only(locals(), CATALOGS["rest"]), "allow_http": allow_http or None}
        return Catalog(name, "rest", given(settings), storage, _pairs(properties))

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
            region: The AWS region; by default the storage's, or that of the AWS configuration.
            catalog_id: The account whose catalog it is; by default one's own.
            profile: A profile of the AWS configuration.
            endpoint: Another address.
            storage: `Storage.s3(...)`; by default S3 with the default credential chain.
            properties: Passed through to Iceberg.
            allow_http: Whether an endpoint with `http://` may lead to other machines.

        Raises:
            DeclarationError: A setting, a storage or a warehouse that it does not take.

        Examples:
            >>> Catalog.glue("prod", warehouse="s3://lake/tables", region="eu-west-1").type
            'glue'
        """
        settings = {**_only(locals(), CATALOGS["glue"]), "allow_http": allow_http or None}
        return Catalog(name, "glue", given(settings), storage, _pairs(properties))

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
            uri: Its address, "thrift://host:9083"; a list for replicas of one metastore.
            warehouse: Where tables are put, such as "s3://bucket/lake"; by default the folder of a local storage.
            storage: The storage of the warehouse; by default that of its URI, with the default credential chain.
            properties: Passed through to Iceberg.
            lock: Whether commits take a lock, as they do by default. Without one they rely on a metastore that
                compares and sets: 2.3.10, or 4.0 and later.

        Raises:
            DeclarationError: A setting, a storage or a warehouse that it does not take.

        Examples:
            >>> Catalog.hive("prod", uri="thrift://metastore:9083", warehouse="s3://lake/tables").type
            'hive'
        """
        return Catalog(name, "hive", given(_only(locals(), CATALOGS["hive"])), storage, _pairs(properties))

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
            uri: Its address, such as "http://localhost:19120"; a list for replicas of one catalog.
            ref: The branch that is read and written, or a tag that is read.
            warehouse: Where tables are put, such as "s3://bucket/lake"; by default the folder of a local storage.
            storage: The storage of the warehouse; by default that of its URI, with the default credential chain.
            properties: Passed through to Iceberg.
            token: A bearer token.
            allow_http: Whether `http://` may lead to other machines.

        Raises:
            DeclarationError: A setting, a storage or a warehouse that it does not take.

        Examples:
            >>> Catalog.nessie("dev", uri="http://localhost:19120", ref="trial", warehouse="s3://lake/x").option("ref")
            'trial'
        """
        settings = {**_only(locals(), CATALOGS["nessie"]), "allow_http": allow_http or None}
        return Catalog(name, "nessie", given(settings), storage, _pairs(properties))

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


def _only(arguments: Mapping[str, Any], row: CatalogRow) -> dict[str, Any]:
    return {key.name: arguments.get(key.name) for key in row.keys}
