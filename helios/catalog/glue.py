"""AWS Glue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.catalog.keys import HTTP, Fault, Key, Setting, Settings, Value, as_conf, unencrypted_address
from helios.catalog.rows import CatalogRow

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


def _region(catalog: Catalog) -> Setting | None:
    storage_region = catalog.storage.option("region") if catalog.storage else None
    # Servers other than Amazon's rarely have regions, but a request is always signed for one.
    default = "us-east-1" if catalog.option("endpoint") else None
    return catalog.option("region") or storage_region or default


def _storage_key(catalog: Catalog, name: str) -> Setting | None:
    """An access key of the storage: Glue uses the keys of S3 too, unless the catalog has a profile."""
    return catalog.storage.option(name) if catalog.storage and not catalog.option("profile") else None


def _spark(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            "type": "glue",
            "warehouse": catalog.option("warehouse"),
            "client.region": _region(catalog),
            "glue.id": catalog.option("catalog_id"),
            "glue.endpoint": catalog.option("endpoint"),
        }
    )


def _pyiceberg(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            "type": "glue",
            "warehouse": catalog.option("warehouse"),
            "glue.region": _region(catalog),
            "glue.id": catalog.option("catalog_id"),
            "glue.endpoint": catalog.option("endpoint"),
            "glue.profile-name": catalog.option("profile"),
            "glue.access-key-id": _storage_key(catalog, "access_key_id"),
            "glue.secret-access-key": _storage_key(catalog, "secret_access_key"),
            "glue.session-token": _storage_key(catalog, "session_token"),
            "glue.max-retries": "3",
            # S3 uses Glue's region, unless the storage has its own: pyarrow would look up the region of every bucket.
            "s3.region": None if catalog.storage and catalog.storage.option("region") else _region(catalog),
        }
    )


def _java(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            "aws.profile": catalog.option("profile"),
            "aws.accessKeyId": _storage_key(catalog, "access_key_id"),
            "aws.secretAccessKey": _storage_key(catalog, "secret_access_key"),
            "aws.sessionToken": _storage_key(catalog, "session_token"),
        }
    )


def _fault(settings: Settings) -> Fault | None:
    account = settings.get("catalog_id")
    if isinstance(account, str) and "${" not in account and not account.isdigit():
        return "catalog_id", f"catalog_id {account!r} is not the number of an AWS account."
    return unencrypted_address(settings, "endpoint")


GLUE = CatalogRow(
    keys=(
        Key("warehouse", "where tables are put, such as s3://bucket/lake", required=True),
        Key("region", "the AWS region; by default that of the AWS configuration"),
        Key("catalog_id", "the account that owns the catalog; by default your own"),
        Key("profile", "a profile of the AWS configuration; by default the credential chain, or the storage's keys"),
        Key("endpoint", "another address", schemes=HTTP),
        Key("allow_http", "whether requests may go unencrypted to other machines", flag=True),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    warehouse=lambda catalog: str(catalog.option("warehouse")),
    components=("iceberg", "aws"),
    storages=("s3",),
    fault=_fault,
    java=_java,
    needs_warehouse=True,
    not_atomic="Glue changes one table at a time",
    client="helios.catalog.clients.glue:GlueCatalog",
    extra="glue",
    gaps=(
        "namespaces have one level, and names are lower case, as Glue's databases are",
        "Spark's Glue client takes keys and profile from system properties of the driver: one identity per process",
        "executors do not know `profile`: set AWS_PROFILE there, or give the storage keys",
    ),
)
