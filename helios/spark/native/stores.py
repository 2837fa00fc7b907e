"""Access of tasks to object stores: PyIceberg's client, with the settings of the catalog's storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helios.catalog.conf import pyiceberg_properties, spark_conf
from helios.catalog.spec import Catalog
from helios.catalog.storages import kind_of
from helios.native.program import NotNative
from helios.plan.native.choice import CLIENT_PROPERTIES, refuse_catalog
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.native.fields import texts

OWN = ("s3.", "adls.", "gcs.", "py-io-impl")
"""The same of PyIceberg's: no address and no token of the catalog goes to a task."""
HANDED = ("S3FileIO", "GCSFileIO")
"""Iceberg's clients that take keys from a server beside their properties."""


@dataclass(frozen=True)
class Store:
    """Where the files of a table are.

    Attributes:
        kind: The kind of storage, as in `helios.catalog.storages.STORAGES`; "local" for the local disk.
        properties: PyIceberg's, with secrets in clear: they go to the tasks, and are shown nowhere.
    """

    kind: str = "local"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def path(self, location: str) -> str:
        """The name of a file for tasks: its path on the local disk, or its URI.

        Raises:
            NotNative: They cannot reach it.
        """
        if location.startswith(("/", "file:")):
            return "/" + location.removeprefix("file:").lstrip("/")
        kind = kind_of(location)
        if kind is None:
            raise NotNative(f"files are on {location.partition(':')[0]}, and it knows local disks, S3, ADLS and GCS")
        if kind != self.kind:
            raise NotNative(f"files are on {location.partition(':')[0]}, and the table is not")
        # PyIceberg takes locations for URLs.
        if "?" in location or "#" in location:
            raise NotNative("the path of a file has a ? or #")
        return location


def store_of(table: JavaTable, catalog: Catalog) -> Store:
    """Where the files of a table are.

    Raises:
        NotNative: On a store that tasks would not reach as Spark does.
    """
    kind = kind_of(str(table.location()))
    if kind is None or kind == "local":
        return Store()
    refuse_catalog(catalog)
    io = table.io()
    wanted = {"io-impl": str(io.getClass().getName()), **texts(io.properties())}
    prefix = f"spark.sql.catalog.{catalog.name}."
    declared = {key.removeprefix(prefix): value for key, value in spark_conf(catalog).items()}
    other = sorted(
        key
        for key in {*wanted, *declared}
        if key.startswith(CLIENT_PROPERTIES) and wanted.get(key) != declared.get(key)
    )
    if other:
        # Keys that a server hands out end, and are renewed by Iceberg's own client alone.
        raise NotNative(f"the catalog's server says how its files are reached ({', '.join(other)})")
    if wanted["io-impl"].endswith(HANDED) and int(io.credentials().size()):
        raise NotNative("the catalog's server hands out keys to its files")
    properties = {key: value for key, value in pyiceberg_properties(catalog).items() if key.startswith(OWN)}
    return Store(kind, properties)
