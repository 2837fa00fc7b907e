"""The classes `CatalogRow` and `StorageRow`. Each instance describes one type of catalog or storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import SplitResult

from helios.catalog.keys import Fault, Key, Settings, Value

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyCatalog

    from helios.catalog.spec import Catalog
    from helios.catalog.storage import Storage


def no_problem(settings: Settings) -> Fault | None:
    """The `fault` of a type for which every combination of settings is valid."""
    return None


def bucket_problem(uri: SplitResult, storage: Storage | None) -> str | None:
    """The problem with a URI that needs a bucket; None if there is none."""
    if "@" in uri.netloc:
        return "must not contain a user or a password: it would be shown"
    return None if uri.netloc else "names no bucket"


class MetadataMove(NamedTuple):
    """A change of a table in its catalog: the catalog replaces the location of the table's metadata file.

    `before` and `after` are the locations of the old and of the new metadata file. The last four fields are ids in the
    new metadata: of the current snapshot (-1 if there is none), schema, partition spec and sort order.
    """

    namespace: tuple[str, ...]
    table: str
    before: str
    after: str
    snapshot: int
    schema: int
    spec: int
    order: int


Mover: TypeAlias = "Callable[[Catalog, Sequence[MetadataMove], Callable[[Catalog], PyCatalog]], bool]"


class CatalogRow(NamedTuple):
    """All that Helios knows about one type of catalog.

    Args:
        spark: The Spark conf, with keys relative to `spark.sql.catalog.NAME.`.
        pyiceberg: The PyIceberg properties.
        warehouse: The URI of the warehouse; None if the warehouse is temporary, or only the server knows it.
        components: The jar components that the catalog needs.
        storages: The types of storage that the catalog takes.
        fault: The problem with a combination of settings; None if there is none.
        java: Java system properties of the driver, for clients that take no other setting.
        prepare: Creates what a writer needs, such as a folder, unless it exists.
        database: The SQLite file of an embedded catalog, which can be read without SQLAlchemy.
        move: Replaces the metadata files of several tables, all or none. Its last argument connects to the catalog. It
            returns False, and changes no table, if the current metadata file of a table is not `before`. After an
            error it is unknown whether the tables were changed. None if the catalog cannot change tables together.
        takes_multi_table_commits: Whether the server takes one commit of several tables, and writes their metadata
            files itself.
        vends_credentials: Whether the server vends the credentials of its storage.
        not_atomic: The reason why several tables cannot change in one commit; "" if they can.
        client: The class of the PyIceberg client as "module:Class"; None for PyIceberg's own.
        needs_warehouse: Whether a warehouse must be given, as a URI on the catalog's storage.
        temporary: Whether the catalog and its pipelines' checkpoints are removed when the process ends.
        extra: The extra of helios-iceberg that installs the Python client.
        gaps: Limitations, for the docs.
    """

    keys: tuple[Key, ...]
    spark: Callable[[Catalog], dict[str, Value]]
    pyiceberg: Callable[[Catalog], dict[str, Value]]
    warehouse: Callable[[Catalog], str | None]
    components: tuple[str, ...]
    storages: tuple[str, ...] = ()
    fault: Callable[[Settings], Fault | None] = no_problem
    java: Callable[[Catalog], dict[str, Value]] = lambda catalog: {}
    prepare: Callable[[Catalog], None] | None = None
    database: Callable[[Catalog], Path] | None = None
    move: Mover | None = None
    takes_multi_table_commits: bool = False
    not_atomic: str = ""
    vends_credentials: bool = False
    client: str | None = None
    needs_warehouse: bool = False
    temporary: bool = False
    extra: str | None = None
    gaps: tuple[str, ...] = ()

    @property
    def atomic(self) -> bool:
        """True if several tables can change in one commit."""
        return self.takes_multi_table_commits or self.move is not None


class StorageRow(NamedTuple):
    """All that Helios knows about one type of storage.

    Args:
        spark: The Spark conf, with keys relative to the catalog's prefix.
        pyiceberg: The PyIceberg properties.
        hadoop: The conf of Hadoop's file system, which keeps checkpoints, for a bucket (or container@account).
        example: The form of a warehouse on the storage.
        schemes: The schemes of the storage's URIs, each with Hadoop's name for the scheme.
        checkpoint_problem: The reason why Hadoop cannot keep a checkpoint at a location; None if it can.
        warehouse_problem: The problem with the URI of a warehouse, given the storage's settings; None if there is none.
        warehouse: The warehouse of catalogs that declare no warehouse; None if the storage has no default.
        fault: The problem with a combination of settings; None if there is none.
        components: The jar components that the storage needs.
        checkpoint_components: The jar components that a checkpoint on the storage needs.
        extra: The extra of helios-iceberg that installs the Python client.
        gaps: Limitations, for the docs.
    """

    keys: tuple[Key, ...]
    spark: Callable[[Storage], dict[str, Value]]
    pyiceberg: Callable[[Storage], dict[str, Value]]
    hadoop: Callable[[Storage, str], dict[str, Value]]
    example: str
    schemes: Mapping[str, str]
    checkpoint_problem: Callable[[Storage, str], str | None] = lambda storage, location: None
    warehouse_problem: Callable[[SplitResult, Storage | None], str | None] = bucket_problem
    warehouse: Callable[[Storage], str | None] = lambda storage: None
    fault: Callable[[Settings], Fault | None] = no_problem
    components: tuple[str, ...] = ()
    checkpoint_components: tuple[str, ...] = ()
    extra: str | None = None
    gaps: tuple[str, ...] = ()
