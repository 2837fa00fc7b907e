"""The settings of a catalog for Spark, PyIceberg and the jar cache. Secrets are revealed only here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from helios.catalog.catalogs import CATALOGS
from helios.catalog.keys import Value
from helios.catalog.names import file_name
from helios.catalog.storage import Storage
from helios.catalog.storages import STORAGES, kind_of
from helios.model.values import Secret

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
# With the cache on, a session does not see what foreachBatch wrote in its clone.
_EVERY_CATALOG: dict[str, Value] = {"cache-enabled": "false"}
_DEFAULTS = (
    "rest.client.",
    "glue.max-retries",
    "connect-timeout",
    "read-timeout",
    "hadoop.hive.",
    "s3.connect-",
    "s3.request-",
)
"""Prefixes of timeouts and retries, of which Helios only sets the defaults: users may set them."""


def spark_conf(catalog: Catalog) -> dict[str, str]:
    """The Spark conf that declares a catalog, with secrets in clear: for the session only, never to be shown.

    Of several replicas it names the first; `replicas` gives the others.

    Examples:
        >>> from helios import Catalog
        >>> spark_conf(Catalog.local(path="/data"))["spark.sql.catalog.local.uri"]
        'jdbc:sqlite:/data/catalog.db'
    """
    return _revealed(_spark(catalog))


def shown_spark_conf(catalog: Catalog) -> dict[str, str]:
    """The same conf as a plan or a log may show it: secrets are `***`."""
    return {key: str(value) for key, value in _spark(catalog).items()}


def java_properties(catalog: Catalog) -> dict[str, str]:
    """Java system properties of the driver that a catalog's client needs, with secrets in clear."""
    return _revealed(CATALOGS[catalog.type].java(catalog))


def pyiceberg_properties(catalog: Catalog) -> dict[str, str]:
    """The properties of PyIceberg's catalog, with secrets in clear: never to be shown."""
    first = replicas(catalog)[0]
    merged = {**_storage_properties(first), **CATALOGS[catalog.type].pyiceberg(first), **_properties(catalog)}
    return _revealed(merged)


def replicas(catalog: Catalog) -> tuple[Catalog, ...]:
    """The replicas of a catalog, each with one address, in the order of its `uri`; the catalog itself if it has one.

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
    """The storage of a catalog: the declared one, else that of its warehouse with the default credentials."""
    if catalog.storage is not None:
        return catalog.storage
    kind = kind_of(warehouse(catalog) or "")
    if kind in (None, "local"):
        return None
    account = urlsplit(warehouse(catalog) or "").hostname or ""
    options = (("account", account.split(".")[0]),) if kind == "adls" else ()
    return Storage(kind, options, catalog.origin)


def components(catalog: Catalog) -> tuple[str, ...]:
    """The jar components that a catalog and its storage need.

    Examples:
        >>> from helios import Catalog
        >>> components(Catalog.local(path="/data"))
        ('iceberg', 'sqlite')
    """
    storage = storage_of(catalog)
    return tuple(
        dict.fromkeys((*CATALOGS[catalog.type].components, *(STORAGES[storage.type].components if storage else ())))
    )


def warehouse(catalog: Catalog) -> str | None:
    """The URI of the warehouse; None if it is temporary, or only the server knows it.

    Examples:
        >>> from helios import Catalog
        >>> warehouse(Catalog.local(path="/data"))
        'file:///data/warehouse'
    """
    return CATALOGS[catalog.type].warehouse(catalog)


def own_keys(catalog: Catalog) -> frozenset[str]:
    """The properties that Helios sets itself, and a user's `properties` cannot."""
    row = CATALOGS[catalog.type]
    first = replicas(catalog)[0]
    keys = {*row.spark(first), *row.pyiceberg(first), *_EVERY_CATALOG}
    return frozenset(key for key in keys if not key.startswith(_DEFAULTS))


# Checkpoints


def default_checkpoint(catalog: Catalog, pipeline: str) -> str:
    """Where a pipeline's checkpoint is by default; empty in a catalog in memory, whose checkpoint is temporary too.

    Examples:
        >>> from helios import Catalog
        >>> default_checkpoint(Catalog.local(path="/data"), "local.shop.orders@staged")
        'file:///data/warehouse/_helios/checkpoints/local.shop.orders@staged'
    """
    base = hadoop_uri(warehouse(catalog) or "")
    return f"{base.rstrip('/')}/_helios/checkpoints/{file_name(pipeline, also='@')}" if base else ""


def keys_folder(catalog: Catalog, checkpoint: str | None, id: str) -> str | None:
    """The folder of the keys that a pipeline's upserts remember.

    None where only the server knows the warehouse, and where the checkpoint is in another store: Hadoop is configured
    only with the driver and the credentials of the checkpoint's store.

    Args:
        catalog: The catalog of its table.
        checkpoint: Its checkpoint.
        id: The checkpoint's id.

    Examples:
        >>> from helios import Catalog
        >>> keys_folder(Catalog.local(path="/data"), "/data/checkpoint", "0a1b")
        'file:///data/warehouse/_helios/keys/0a1b'
        >>> keys_folder(Catalog.local(path="/data"), "s3a://bucket/checkpoint", "0a1b")
    """
    base = hadoop_uri(warehouse(catalog) or "").rstrip("/")
    one, other = (urlsplit(hadoop_uri(uri or "")) for uri in (base, checkpoint))
    same = (one.scheme or "file", one.netloc) == (other.scheme or "file", other.netloc)
    return f"{base}/_helios/keys/{id}" if base and same else None


def hadoop_uri(uri: str) -> str:
    """A URI with the scheme of Hadoop's file system.

    Examples:
        >>> hadoop_uri("s3://bucket/lake"), hadoop_uri("/data/lake")
        ('s3a://bucket/lake', '/data/lake')
    """
    kind, parts = kind_of(uri), urlsplit(uri)
    scheme = STORAGES[kind].schemes.get(parts.scheme) if kind else None
    return urlunsplit(parts._replace(scheme=scheme)) if scheme and scheme != parts.scheme else uri


def checkpoint_components(location: str) -> tuple[str, ...]:
    """The jar components that a checkpoint needs.

    Examples:
        >>> checkpoint_components("s3a://bucket/progress"), checkpoint_components("/data/progress")
        (('s3a',), ())
    """
    kind = kind_of(location)
    return STORAGES[kind].checkpoints if kind else ()


def object_components(location: str) -> tuple[str, ...]:
    """The jar components that Hadoop needs to read a folder of files at a location.

    Examples:
        >>> object_components("s3a://bucket/in"), object_components("/data/in")
        (('aws', 's3a'), ())
    """
    kind = kind_of(location)
    return (*STORAGES[kind].components, *STORAGES[kind].checkpoints) if kind else ()


def hadoop_conf(location: str, catalogs: Iterable[Catalog], storage: Storage | None = None) -> dict[str, str]:
    """The conf of Hadoop's file system for a checkpoint or a folder of files, with secrets in clear: for the session.

    Args:
        location: Where that is.
        catalogs: The pipeline's catalogs: the credentials are those of the one whose warehouse is at the same place,
            else of the first one on such a storage, else the default chain's.
        storage: The storage that was given for it, which takes the place of theirs.
    """
    storage = storage or _storage_at(location, catalogs)
    place = urlsplit(location).netloc
    return _revealed(STORAGES[storage.type].hadoop(storage, place)) if storage else {}


def no_checkpoint(location: str, catalogs: Iterable[Catalog]) -> str | None:
    """Why Hadoop's file systems cannot keep a checkpoint at a place; None if they can."""
    storage = _storage_at(location, catalogs)
    return STORAGES[storage.type].no_checkpoint(storage, location) if storage else None


def _storage_at(location: str, catalogs: Iterable[Catalog]) -> Storage | None:
    kind = kind_of(location)
    if kind is None or not STORAGES[kind].checkpoints:
        return None
    place = urlsplit(location).netloc
    fitting = [(catalog, storage) for catalog in catalogs if (storage := storage_of(catalog)) and storage.type == kind]
    fitting.sort(key=lambda pair: urlsplit(warehouse(pair[0]) or "").netloc != place)
    account = (("account", place.rpartition("@")[2].split(".")[0]),) if kind == "adls" else ()
    return fitting[0][1] if fitting else Storage(kind, account, None)


def _spark(catalog: Catalog) -> dict[str, Value]:
    prefix = f"spark.sql.catalog.{catalog.name}"
    first = replicas(catalog)[0]
    storage = storage_of(first)
    stored = STORAGES[storage.type].spark(storage) if storage else {}
    own = CATALOGS[catalog.type].spark(first)
    merged = {**stored, **own, **_EVERY_CATALOG, **_properties(catalog)}
    return {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in merged.items()}}


def _storage_properties(catalog: Catalog) -> dict[str, Value]:
    storage = storage_of(catalog)
    return STORAGES[storage.type].pyiceberg(storage) if storage else {}


def _properties(catalog: Catalog) -> dict[str, Value]:
    return {key: value for key, value in catalog.properties if isinstance(value, (str, Secret))}


def _revealed(conf: dict[str, Value]) -> dict[str, str]:
    return {key: value.reveal() if isinstance(value, Secret) else value for key, value in conf.items()}
