"""The rows of the matrix: every catalog on every storage that it is run on, with the servers that stand for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from helios import Catalog, Storage
from tests.services.azurite import Azurite
from tests.services.gcs import ForgetfulGcs
from tests.services.hive import Hive
from tests.services.minio import Minio
from tests.services.moto import Moto
from tests.services.nessie import Nessie
from tests.services.rest import Rest
from tests.services.server import Server

NAME = "lake"
"""What the catalog of every combination is called."""


@dataclass(frozen=True)
class Place:
    """Where a warehouse is put.

    Attributes:
        warehouse: Its URI.
        storage: The storage as a pipeline declares it.
        server: What serves it; None for a local folder.
        folder: A local folder, for what else a combination keeps.
    """

    warehouse: str
    storage: Storage
    server: Server | None
    folder: Path


# storages


# Buckets and containers are named after the combination: Hadoop keeps one client for each, with its endpoint.


def _local(stack: ExitStack, folder: Path) -> Place:
    return Place(f"file://{folder / 'warehouse'}", Storage.local(folder / "warehouse"), None, folder)


def _s3(stack: ExitStack, folder: Path, make: Callable[[], Minio | Moto] = Minio) -> Place:
    server = stack.enter_context(make())
    storage = Storage.s3(
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key,
        secret_access_key=server.secret_key,
    )
    return Place(f"s3://{server.bucket(folder.name)}/warehouse", storage, server, folder)


def _adls(stack: ExitStack, folder: Path) -> Place:
    server = stack.enter_context(Azurite())
    storage = Storage.adls(server.account, account_key=server.account_key, endpoint=server.blob_endpoint)
    # Hadoop's driver, for checkpoints, speaks http to abfs alone.
    return Place(f"{server.container(folder.name)}/warehouse".replace("abfss:", "abfs:"), storage, server, folder)


def _gcs(stack: ExitStack, folder: Path) -> Place:
    server = stack.enter_context(ForgetfulGcs())
    storage = Storage.gcs(project_id=server.project_id, endpoint=server.endpoint)
    return Place(f"gs://{server.bucket(folder.name)}/warehouse", storage, server, folder)


# catalogs


def _rest(stack: ExitStack, place: Place) -> Catalog:
    server = stack.enter_context(Rest(place.warehouse, place.server))
    return Catalog.rest(NAME, uri=server.uri, warehouse=place.warehouse, storage=place.storage)


def _glue(stack: ExitStack, place: Place) -> Catalog:
    assert isinstance(place.server, Moto)
    return Catalog.glue(
        NAME,
        warehouse=place.warehouse,
        region=place.server.region,
        endpoint=place.server.endpoint,
        storage=place.storage,
    )


def _hive(stack: ExitStack, place: Place) -> Catalog:
    server = stack.enter_context(Hive(place.warehouse, place.server))
    # The metastore inside pyspark compares and sets, and has no lock tables.
    return Catalog.hive(NAME, uri=server.uri, warehouse=place.warehouse, storage=place.storage, lock=False)


def _nessie(stack: ExitStack, place: Place) -> Catalog:
    assert isinstance(place.server, Minio)
    server = stack.enter_context(Nessie(place.warehouse, place.server))
    return Catalog.nessie(NAME, uri=server.endpoint, warehouse=place.warehouse, storage=place.storage)


def _embedded(stack: ExitStack, place: Place) -> Catalog:
    return Catalog.local(NAME, path=place.folder / "catalog", storage=place.storage, warehouse=place.warehouse)


def _memory(stack: ExitStack, place: Place) -> Catalog:
    return Catalog.memory(NAME)


# combinations


@dataclass(frozen=True)
class Combination:
    """A catalog on a storage.

    Attributes:
        catalog: The type of the catalog.
        storage: The kind of the storage.
        server: The server that stands for the storage, as `-k` and the table name it.
        place: Starts the storage.
        make: Starts the catalog on it.
        components: The jar components that Spark needs beside those of the local catalog.
        quick: Whether it is none of the `slow` ones, which need more servers or show little that is new.
        closest: Whether it is the catalog's simplest storage.
    """

    catalog: str
    storage: str
    server: str
    place: Callable[[ExitStack, Path], Place]
    make: Callable[[ExitStack, Place], Catalog]
    components: tuple[str, ...] = ()
    quick: bool = False
    closest: bool = False

    @property
    def name(self) -> str:
        """As a test's id."""
        return f"{self.catalog}-{self.storage}"

    @property
    def keywords(self) -> tuple[str, ...]:
        """What `-k` finds beside the name."""
        return (self.server, *(["closest"] if self.closest else []))


_S3, _ADLS, _GCS = ("aws", "s3a"), ("azure", "abfs"), ("gcp", "gcs")

COMBINATIONS = (
    Combination("local", "local", "folder", _local, _embedded, quick=True, closest=True),
    Combination("local", "s3", "minio", _s3, _embedded, _S3),
    Combination("rest", "local", "folder", _local, _rest, closest=True),
    Combination("rest", "s3", "minio", _s3, _rest, _S3, quick=True),
    Combination("rest", "adls", "azurite", _adls, _rest, _ADLS),
    Combination("rest", "gcs", "fake-gcs", _gcs, _rest, _GCS),
    Combination("glue", "s3", "moto", lambda stack, folder: _s3(stack, folder, Moto), _glue, _S3, closest=True),
    Combination("hive", "local", "folder", _local, _hive, closest=True),
    Combination("hive", "s3", "minio", _s3, _hive, _S3),
    Combination("nessie", "s3", "minio", _s3, _nessie, _S3, closest=True),
    Combination("memory", "local", "folder", _local, _memory, closest=True),
)
BY_NAME: Mapping[str, Combination] = {row.name: row for row in COMBINATIONS}
