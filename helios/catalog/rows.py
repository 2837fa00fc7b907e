"""The shape of the rows of catalogs and storages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from urllib.parse import SplitResult

from helios.catalog.keys import Fault, Given, Key, Value

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyCatalog

    from helios.catalog.spec import Catalog
    from helios.catalog.storage import Storage


def no_fault(given: Given) -> Fault | None:
    """For rows where every combination of settings is valid."""
    return None


def bucketless(uri: SplitResult, storage: Storage | None) -> str | None:
    """The problem with a URI that needs a bucket; None if there is none."""
    if "@" in uri.netloc:
        return "must not hold a user or a password: it would be shown"
    return None if uri.netloc else "names no bucket"


class Moved(NamedTuple):
    """A table whose metadata is replaced: its location now, and the new one.

    Attributes:
        namespace: The parts of its namespace.
        table: Its name.
        before: The metadata file that it has.
        after: The metadata file that it gets.
        snapshot: The current snapshot in that; -1 if there is none.
        schema: The id of the current schema in that.
        spec: The id of the current partition spec in that.
        order: The id of the current sort order in that.
    """

    namespace: tuple[str, ...]
    table: str
    before: str
    after: str
    snapshot: int
    schema: int
    spec: int
    order: int


Mover: TypeAlias = "Callable[[Catalog, Sequence[Moved], Callable[[Catalog], PyCatalog]], bool]"


class CatalogRow(NamedTuple):
    """All that Helios knows of one type of catalog.

    Args:
        keys: Its settings.
        spark: Its Spark conf, with keys relative to `spark.sql.catalog.NAME.`.
        pyiceberg: Its PyIceberg properties.
        warehouse: The URI of its warehouse; None if it is temporary, or only the server knows it.
        components: Jar components that it needs.
        storages: Kinds of storage that it takes.
        fault: What is wrong with a combination of settings.
        java: Java system properties of the driver that it needs, where its client takes no other setting.
        prepare: Creates what a writer needs, such as a folder; idempotent.
        database: The SQLite file whose `iceberg_tables` can be read in milliseconds, without SQLAlchemy.
        move: Gives several tables their metadata, all or none, with what connects to the catalog; returns whether each
            had the metadata that it is said to have. What it raises leaves open whether they are moved. None where the
            catalog, or Helios, cannot.
        transacts: Whether its server takes a transaction of several tables, and writes their metadata itself.
        lends: Whether its server vends the credentials of its storage.
        apart: Why several tables cannot change together, where they cannot.
        client: The class of its PyIceberg client as "module:Class", where it is not PyIceberg's own.
        placed: Whether its warehouse must be a URI on its storage.
        temporary: Whether it, and the checkpoints of its pipelines, are removed when the process ends.
        extra: The extra of helios-iceberg that installs its Python client.
        gaps: What it cannot do, for the docs.
    """

    keys: tuple[Key, ...]
    spark: Callable[[Catalog], dict[str, Value]]
    pyiceberg: Callable[[Catalog], dict[str, Value]]
    warehouse: Callable[[Catalog], str | None]
    components: tuple[str, ...]
    storages: tuple[str, ...] = ()
    fault: Callable[[Given], Fault | None] = no_fault
    java: Callable[[Catalog], dict[str, Value]] = lambda catalog: {}
    prepare: Callable[[Catalog], None] | None = None
    database: Callable[[Catalog], Path] | None = None
    move: Mover | None = None
    transacts: bool = False
    apart: str = ""
    lends: bool = False
    client: str | None = None
    placed: bool = False
    temporary: bool = False
    extra: str | None = None
    gaps: tuple[str, ...] = ()

    @property
    def together(self) -> bool:
        """True if several tables can change in one commit."""
        return self.transacts or self.move is not None


class StorageRow(NamedTuple):
    """All that Helios knows of one kind of storage.

    Args:
        keys: Its settings.
        spark: Its Spark conf, with keys relative to the catalog's prefix.
        pyiceberg: Its PyIceberg properties.
        hadoop: The conf of Hadoop's file system for a place (a bucket, or container@account), for checkpoints.
        example: What a warehouse on it looks like.
        schemes: The schemes of its URIs, each with Hadoop's name of it.
        no_checkpoint: Why Hadoop cannot keep a checkpoint at a location on it; None if it can.
        misplaced: What is wrong with a URI on it, given its settings; None if nothing is.
        warehouse: The default warehouse on it, for catalogs that name none; None if there is no default.
        fault: What is wrong with a combination of settings.
        components: Jar components that it needs.
        checkpoints: Jar components that a checkpoint on it needs.
        extra: The extra of helios-iceberg that installs its Python client.
        gaps: What it cannot do, for the docs.
    """

    keys: tuple[Key, ...]
    spark: Callable[[Storage], dict[str, Value]]
    pyiceberg: Callable[[Storage], dict[str, Value]]
    hadoop: Callable[[Storage, str], dict[str, Value]]
    example: str
    schemes: Mapping[str, str]
    no_checkpoint: Callable[[Storage, str], str | None] = lambda storage, location: None
    misplaced: Callable[[SplitResult, Storage | None], str | None] = bucketless
    warehouse: Callable[[Storage], str | None] = lambda storage: None
    fault: Callable[[Given], Fault | None] = no_fault
    components: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    extra: str | None = None
    gaps: tuple[str, ...] = ()
