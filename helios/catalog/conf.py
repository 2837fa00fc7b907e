"""Translates a catalog into settings of Spark, Hadoop and PyIceberg."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.keys import Value
from helios.catalog.names import file_name
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES, storage_type_of
from helios.model.values import Secret

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
# With the cache on, a session does not see the writes of foreachBatch, which runs in a clone of the session.
_COMMON_SETTINGS: dict[str, Value] = {"cache-enabled": "false"}
_OVERRIDABLE = (
    "rest.client.",
    "glue.max-retries",
    "connect-timeout",
    "read-timeout",
    "hadoop.hive.",
    "s3.connect-",
    "s3.request-",
)
"""Prefixes of settings for timeouts and retries: Helios sets defaults, and users may override them."""


def spark_conf(catalog: Catalog) -> dict[str, str]:
    """The Spark conf that declares a catalog. It contains secrets, so it is only for the session and is never shown.

    A catalog with several replicas gets the address of the first one; see `replicas`.

    Examples:
        >>> from helios import Catalog
        >>> spark_conf(Catalog.local(path="/data"))["spark.sql.catalog.local.uri"]
        'jdbc:sqlite:/data/catalog.db'
    """
    return _revealed(_spark(catalog))


def shown_spark_conf(catalog: Catalog) -> dict[str, str]:
    """The same conf as `spark_conf`, for plans and logs: secrets are shown as `***`."""
    return {key: str(value) for key, value in _spark(catalog).items()}


def java_properties(catalog: Catalog) -> dict[str, str]:
    """The Java system properties that a catalog's client needs in the driver. They may contain secrets."""
    return _revealed(CATALOGS[catalog.type].java(catalog))


def pyiceberg_properties(catalog: Catalog) -> dict[str, str]:
    """The properties for PyIceberg's client of a catalog. They may contain secrets, so they are never shown."""
    first_replica = replicas(catalog)[0]
    merged = {
        **_storage_properties(first_replica),
        **CATALOGS[catalog.type].pyiceberg(first_replica),
        **_properties(catalog),
    }
    return _revealed(merged)


def replicas(catalog: Catalog) -> tuple[Catalog, ...]:
    """The replicas of a catalog, each with one address of `uri`. Without a list in `uri`, this is the catalog itself.

    Examples:
        >>> from helios import Catalog
        >>> [c.option("uri") for c in replicas(Catalog.rest("prod", uri=["https://a", "https://b"]))]
        ['https://a', 'https://b']
    """
    uris = catalog.option("uri")
    if not isinstance(uris, tuple):
        return (catalog,)
    return tuple(replace(catalog, options=tuple({**dict(catalog.options), "uri": uri}.items())) for uri in uris)


def storage_of(catalog: Catalog) -> Storage | None:
    """The declared storage of a catalog, or the storage of its warehouse's URI with the default credentials."""
    if catalog.storage is not None:
        return catalog.storage
    storage_type = storage_type_of(warehouse(catalog) or "")
    if storage_type in (None, "local"):
        return None
    account = urlsplit(warehouse(catalog) or "").hostname or ""
    options = (("account", account.split(".")[0]),) if storage_type == "adls" else ()
    return Storage(storage_type, options, catalog.origin)


def components(catalog: Catalog) -> tuple[str, ...]:
    """The jar components that a catalog and its storage need.

    Examples:
        >>> from helios import Catalog
        >>> components(Catalog.local(path="/data"))
        ('iceberg', 'sqlite')
    """
    storage = storage_of(catalog)
    storage_components = STORAGES[storage.type].components if storage else ()
    return tuple(dict.fromkeys((*CATALOGS[catalog.type].components, *storage_components)))


def warehouse(catalog: Catalog) -> str | None:
    """The URI of a catalog's warehouse; None if the warehouse is temporary, or only the server knows the URI.

    Examples:
        >>> from helios import Catalog
        >>> warehouse(Catalog.local(path="/data"))
        'file:///data/warehouse'
    """
    return CATALOGS[catalog.type].warehouse(catalog)


def own_keys(catalog: Catalog) -> frozenset[str]:
    """The properties that only Helios sets: a user's `properties` must not contain them."""
    row = CATALOGS[catalog.type]
    first_replica = replicas(catalog)[0]
    keys = {*row.spark(first_replica), *row.pyiceberg(first_replica), *_COMMON_SETTINGS}
    return frozenset(key for key in keys if not key.startswith(_OVERRIDABLE))


# Checkpoints


def default_checkpoint(catalog: Catalog, pipeline: str) -> str:
    """The default location of a pipeline's checkpoint; "" for a catalog in memory, whose checkpoints are temporary.

    Examples:
        >>> from helios import Catalog
        >>> default_checkpoint(Catalog.local(path="/data"), "local.shop.orders@staged")
        'file:///data/warehouse/_helios/checkpoints/local.shop.orders@staged'
    """
    base = hadoop_uri(warehouse(catalog) or "")
    return f"{base.rstrip('/')}/_helios/checkpoints/{file_name(pipeline, also='@')}" if base else ""


def keys_folder(catalog: Catalog, checkpoint: str | None, id: str) -> str | None:
    """The folder in which a pipeline stores the keys of its upserts; None if there is none.

    There is no folder if the warehouse is temporary, or if only the server knows it. Nor is there one if the checkpoint
    and the warehouse are in different stores: Hadoop has classes and credentials only for the checkpoint's store.

    Args:
        id: The checkpoint's id.

    Examples:
        >>> from helios import Catalog
        >>> keys_folder(Catalog.local(path="/data"), "/data/checkpoint", "0a1b")
        'file:///data/warehouse/_helios/keys/0a1b'
        >>> keys_folder(Catalog.local(path="/data"), "s3a://bucket/checkpoint", "0a1b")
    """
    base = hadoop_uri(warehouse(catalog) or "").rstrip("/")
    same_store = _store(base) == _store(hadoop_uri(checkpoint or ""))
    return f"{base}/_helios/keys/{id}" if base and same_store else None


def _store(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return parts.scheme or "file", parts.netloc


def hadoop_uri(uri: str) -> str:
    """A URI with the scheme of Hadoop's file system.

    Examples:
        >>> hadoop_uri("s3://bucket/lake"), hadoop_uri("/data/lake")
        ('s3a://bucket/lake', '/data/lake')
    """
    storage_type, parts = storage_type_of(uri), urlsplit(uri)
    scheme = STORAGES[storage_type].schemes.get(parts.scheme) if storage_type else None
    return urlunsplit(parts._replace(scheme=scheme)) if scheme and scheme != parts.scheme else uri


def checkpoint_components(location: str) -> tuple[str, ...]:
    """The jar components that a checkpoint needs.

    Examples:
        >>> checkpoint_components("s3a://bucket/progress"), checkpoint_components("/data/progress")
        (('s3a',), ())
    """
    storage_type = storage_type_of(location)
    return STORAGES[storage_type].checkpoint_components if storage_type else ()


def folder_components(location: str) -> tuple[str, ...]:
    """The jar components that Hadoop needs to read a folder of files at a location.

    Examples:
        >>> folder_components("s3a://bucket/in"), folder_components("/data/in")
        (('aws', 's3a'), ())
    """
    storage_type = storage_type_of(location)
    return (*STORAGES[storage_type].components, *STORAGES[storage_type].checkpoint_components) if storage_type else ()


def hadoop_conf(location: str, catalogs: Iterable[Catalog], storage: Storage | None = None) -> dict[str, str]:
    """The conf of Hadoop's file system for a checkpoint or a folder of files. It may contain secrets.

    Args:
        location: The URI of the checkpoint or folder.
        catalogs: The pipeline's catalogs, from which the credentials come: from the catalog whose warehouse is in the
            same bucket, or else from the first catalog on this type of storage. If there is no such catalog, the
            default credential chain is used.
        storage: The storage to use instead of the catalogs' storages.
    """
    storage = storage or _storage_at(location, catalogs)
    bucket = urlsplit(location).netloc
    return _revealed(STORAGES[storage.type].hadoop(storage, bucket)) if storage else {}


def checkpoint_problem(location: str, catalogs: Iterable[Catalog]) -> str | None:
    """The reason why a checkpoint cannot be kept at a location with Hadoop's file systems; None if it can."""
    storage = _storage_at(location, catalogs)
    return STORAGES[storage.type].checkpoint_problem(storage, location) if storage else None


def _storage_at(location: str, catalogs: Iterable[Catalog]) -> Storage | None:
    storage_type = storage_type_of(location)
    if storage_type is None or not STORAGES[storage_type].checkpoint_components:
        return None
    bucket = urlsplit(location).netloc
    # False sorts before True: the catalogs whose warehouse is in the same bucket come first.
    for catalog in sorted(catalogs, key=lambda catalog: urlsplit(warehouse(catalog) or "").netloc != bucket):
        storage = storage_of(catalog)
        if storage is not None and storage.type == storage_type:
            return storage
    account = (("account", bucket.rpartition("@")[2].split(".")[0]),) if storage_type == "adls" else ()
    return Storage(storage_type, account, None)


def _spark(catalog: Catalog) -> dict[str, Value]:
    prefix = f"spark.sql.catalog.{catalog.name}"
    first_replica = replicas(catalog)[0]
    storage = storage_of(first_replica)
    storage_conf = STORAGES[storage.type].spark(storage) if storage else {}
    catalog_conf = CATALOGS[catalog.type].spark(first_replica)
    merged = {**storage_conf, **catalog_conf, **_COMMON_SETTINGS, **_properties(catalog)}
    return {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in merged.items()}}


def _storage_properties(catalog: Catalog) -> dict[str, Value]:
    storage = storage_of(catalog)
    return STORAGES[storage.type].pyiceberg(storage) if storage else {}


def _properties(catalog: Catalog) -> dict[str, Value]:
    return {key: value for key, value in catalog.properties if isinstance(value, (str, Secret))}


def _revealed(conf: dict[str, Value]) -> dict[str, str]:
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in conf.items()}
