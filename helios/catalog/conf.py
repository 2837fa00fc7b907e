"""What Spark, PyIceberg and the jar cache need to know of a catalog. Secrets are revealed only here."""

from __future__ import annotations

from helios.catalog.catalogs import CATALOGS
from helios.catalog.spec import Catalog
from helios.catalog.storages import STORAGES, Value
from helios.model.values import Secret

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
# With the cache on, a session does not see what foreachBatch wrote in its clone.
_EVERY_CATALOG: dict[str, Value] = {"cache-enabled": "false"}


def spark_conf(catalog: Catalog) -> dict[str, str]:
    """The Spark conf that declares a catalog, with secrets in clear: for the session only, never to be shown.

    Examples:
        >>> spark_conf(Catalog.local(path="/data"))["spark.sql.catalog.local.uri"]
        'jdbc:sqlite:/data/catalog.db'
    """
    return {key: _reveal(value) for key, value in _spark(catalog).items()}


def shown_spark_conf(catalog: Catalog) -> dict[str, str]:
    """The same conf as a plan or a log may show it: secrets are `***`."""
    return {key: str(value) for key, value in _spark(catalog).items()}


def pyiceberg_properties(catalog: Catalog) -> dict[str, str]:
    """The properties of PyIceberg's catalog, with secrets in clear: never to be shown."""
    storage = STORAGES[catalog.storage.type].pyiceberg(catalog.storage) if catalog.storage else {}
    merged = {**storage, **CATALOGS[catalog.type].pyiceberg(catalog), **dict(catalog.properties)}
    return {key: _reveal(value) for key, value in merged.items()}


def components(catalog: Catalog) -> tuple[str, ...]:
    """The jar components that a catalog and its storage need.

    Examples:
        >>> components(Catalog.local(path="/data"))
        ('iceberg', 'sqlite')
    """
    storage = STORAGES[catalog.storage.type].components if catalog.storage else ()
    return tuple(dict.fromkeys((*CATALOGS[catalog.type].components, *storage)))


def warehouse(catalog: Catalog) -> str | None:
    """The URI of the warehouse; None if it is temporary, or only the server knows it.

    Examples:
        >>> warehouse(Catalog.local(path="/data"))
        'file:///data/warehouse'
    """
    return CATALOGS[catalog.type].warehouse(catalog)


def own_keys(catalog: Catalog) -> frozenset[str]:
    """The properties that Helios sets itself, and a user's `properties` cannot."""
    row = CATALOGS[catalog.type]
    return frozenset({*row.spark(catalog), *row.pyiceberg(catalog), *_EVERY_CATALOG})


def _spark(catalog: Catalog) -> dict[str, Value]:
    prefix = f"spark.sql.catalog.{catalog.name}"
    storage = STORAGES[catalog.storage.type].spark(catalog.storage) if catalog.storage else {}
    merged = {**storage, **CATALOGS[catalog.type].spark(catalog), **_EVERY_CATALOG, **dict(catalog.properties)}
    return {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in merged.items()}}


def _reveal(value: Value) -> str:
    return value.reveal() if isinstance(value, Secret) else value
