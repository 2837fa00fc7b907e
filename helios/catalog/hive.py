"""The Hive Metastore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.catalog.keys import Key, Setting, Value, as_conf
from helios.catalog.rows import CatalogRow
from helios.catalog.storages import warehouse_of

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


def _common(catalog: Catalog) -> dict[str, Setting | None]:
    return {"type": "hive", "uri": catalog.option("uri"), "warehouse": warehouse_of(catalog)}


def _spark(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            **_common(catalog),
            "hadoop.iceberg.engine.hive.lock-enabled": catalog.option("lock"),
            "hadoop.hive.metastore.client.socket.timeout": "60s",
            "hadoop.hive.metastore.connect.retries": "2",
        }
    )


def _pyiceberg(catalog: Catalog) -> dict[str, Value]:
    # Spark's client is that of Hive 2, so PyIceberg's client must also use the type names of Hive 2.
    return as_conf({**_common(catalog), "helios.hive.lock": catalog.option("lock"), "hive.hive2-compatible": "true"})


HIVE = CatalogRow(
    keys=(
        Key(
            "uri",
            "its address, or a list of the addresses of its replicas",
            required=True,
            many=True,
            schemes=("thrift",),
        ),
        Key("warehouse", "where tables are put, such as s3://bucket/lake or file:///data/lake"),
        Key(
            "lock",
            "whether commits take a lock (default); false only for a metastore that supports compare-and-set (2.3.10, "
            "4.0 and later), which then needs no lock tables",
            flag=True,
        ),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    warehouse=warehouse_of,
    components=("iceberg",),
    storages=("local", "s3", "adls", "gcs"),
    needs_warehouse=True,
    not_atomic="a metastore changes one table at a time",
    client="helios.catalog.clients.hive:HiveCatalog",
    extra="hive",
    gaps=(
        "namespaces have one level, and names are lower case, as Hive's databases are",
        "no setting for Kerberos: give `hadoop.*` and `hive.kerberos-*` as properties",
    ),
)
