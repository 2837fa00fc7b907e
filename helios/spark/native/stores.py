"""Gives tasks access to object stores, with the settings of the catalog's storage. Tasks use PyIceberg's clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helios.catalog.conf import pyiceberg_properties, spark_conf
from helios.catalog.spec import Catalog
from helios.catalog.storages import storage_type_of
from helios.native.program import NotNative
from helios.plan.native.choice import CLIENT_PROPERTIES, refuse_catalog
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.native.fields import string_map

TASK_PROPERTIES = ("s3.", "adls.", "gcs.", "py-io-impl")
"""The prefixes of PyIceberg's properties for storage clients. Tasks get only these properties: no catalog tokens."""
WITH_CREDENTIALS = ("S3FileIO", "GCSFileIO")
"""Iceberg's storage clients that can also get credentials from the catalog's server."""


@dataclass(frozen=True)
class Store:
    """The store of a table's files.

    Attributes:
        kind: The kind of storage, as in `helios.catalog.storages.STORAGES`; "local" for the local disk.
        properties: PyIceberg's properties, which tasks get. They have secrets in plain text, so they are never shown.
    """

    kind: str = "local"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def path(self, location: str) -> str:
        """The path or URI by which tasks open a file; raises `NotNative` if tasks cannot open the file."""
        if location.startswith(("/", "file:")):
            return "/" + location.removeprefix("file:").lstrip("/")
        kind = storage_type_of(location)
        scheme = location.partition(":")[0]
        if kind is None:
            raise NotNative(f"files are on {scheme}, and the engine reads local disks, S3, ADLS and GCS")
        if kind != self.kind:
            raise NotNative(f"files are on {scheme}, and the table is not")
        # PyIceberg would parse the rest of the location as the query or the fragment of a URL.
        if "?" in location or "#" in location:
            raise NotNative("the path of a file has a ? or #")
        return location


def store_of(table: JavaTable, catalog: Catalog) -> Store:
    """The store of a table's files.

    Raises:
        NotNative: PyIceberg's client in the tasks would access the files differently from Iceberg's client in the JVM.
    """
    kind = storage_type_of(str(table.location()))
    if kind is None or kind == "local":
        return Store()
    refuse_catalog(catalog)
    io = table.io()
    in_use = {"io-impl": str(io.getClass().getName()), **string_map(io.properties())}
    prefix = f"spark.sql.catalog.{catalog.name}."
    declared = {key.removeprefix(prefix): value for key, value in spark_conf(catalog).items()}
    server_settings = sorted(
        key
        for key in {*in_use, *declared}
        if key.startswith(CLIENT_PROPERTIES) and in_use.get(key) != declared.get(key)
    )
    if server_settings:
        # Credentials from a server expire, and only Iceberg's client in the JVM renews them.
        raise NotNative(f"the catalog's server sets how the table's files are accessed ({', '.join(server_settings)})")
    if in_use["io-impl"].endswith(WITH_CREDENTIALS) and int(io.credentials().size()):
        raise NotNative("the catalog's server hands out credentials for the table's files")
    properties = {key: value for key, value in pyiceberg_properties(catalog).items() if key.startswith(TASK_PROPERTIES)}
    return Store(kind, properties)
