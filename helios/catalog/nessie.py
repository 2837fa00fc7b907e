"""Project Nessie, through its own protocol. Its Iceberg REST endpoint shows only one snapshot of each table."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from helios.catalog.keys import HTTP, Fault, Key, Setting, Settings, Value, as_conf, unencrypted_address
from helios.catalog.rows import CatalogRow, MetadataMove
from helios.catalog.storages import warehouse_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyCatalog

    from helios.catalog.spec import Catalog

_REF = re.compile(r"[A-Za-z](((?![.]{2})[A-Za-z0-9./_-])*[A-Za-z0-9_-])?")


def _api(catalog: Catalog) -> Setting:
    """The address of the API's version 2, derived from any address of the server."""
    base = re.sub(r"/(api/v\d+|iceberg(/[^/]*)?)?/*$", "", str(catalog.option("uri")))
    return f"{base}/api/v2"


def _spark(catalog: Catalog) -> dict[str, Value]:
    token = catalog.option("token")
    return as_conf(
        {
            "type": "nessie",
            "uri": _api(catalog),
            "ref": catalog.option("ref"),
            "warehouse": warehouse_of(catalog),
            "authentication.type": "BEARER" if token else None,
            "authentication.token": token,
            "connect-timeout": "5000",
            "read-timeout": "60000",
        }
    )


def _pyiceberg(catalog: Catalog) -> dict[str, Value]:
    return as_conf(
        {
            "py-catalog-impl": "helios.catalog.clients.nessie.NessieCatalog",
            "uri": _api(catalog),
            "ref": catalog.option("ref"),
            "warehouse": warehouse_of(catalog),
            "token": catalog.option("token"),
        }
    )


def _move(catalog: Catalog, tables: Sequence[MetadataMove], connect: Callable[[Catalog], PyCatalog]) -> bool:
    """Replaces the metadata files of several tables in one commit of Nessie; see `CatalogRow`."""
    from helios.catalog.clients.nessie import NessieCatalog

    connection = connect(catalog)
    assert isinstance(connection, NessieCatalog)  # the field `client` of NESSIE names this class
    return connection.move(tables)


def _fault(settings: Settings) -> Fault | None:
    ref = settings.get("ref")
    if isinstance(ref, str) and not _REF.fullmatch(ref):
        return "ref", f"ref {ref!r} is not the name of a branch or tag of Nessie."
    return unencrypted_address(settings, "uri")


NESSIE = CatalogRow(
    keys=(
        Key(
            "uri",
            "its address, such as http://localhost:19120, or a list of the addresses of its replicas",
            required=True,
            many=True,
            schemes=HTTP,
        ),
        Key("ref", 'the branch or tag; by default "main"', default=lambda name, project: "main"),
        Key("warehouse", "where tables are put, such as s3://bucket/lake"),
        Key("token", "a bearer token", secret=True),
        Key("allow_http", "whether credentials may go unencrypted to other machines", flag=True),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    warehouse=warehouse_of,
    components=("iceberg",),
    storages=("local", "s3", "adls", "gcs"),
    fault=_fault,
    needs_warehouse=True,
    move=_move,
    client="helios.catalog.clients.nessie:NessieCatalog",
    gaps=(
        "expiry does not delete files: other branches may need them; use Nessie's own collector",
        "a tag of Nessie as `ref` can be read, not written",
    ),
)
