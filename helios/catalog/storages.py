"""The supported types of storages, and functions that find the storage of a URI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from helios.catalog.adls import ADLS
from helios.catalog.gcs import GCS
from helios.catalog.keys import Key, Value
from helios.catalog.rows import StorageRow
from helios.catalog.s3 import S3

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog
    from helios.catalog.storage import Storage


def file_uri(path: str | Path) -> str:
    """An absolute path as a file URI. It is not percent-encoded, because Spark and PyIceberg take it literally.

    Examples:
        >>> file_uri("/data/my lake")
        'file:///data/my lake'
    """
    return "file://" + "/" + Path(path).as_posix().lstrip("/")


def _path_problem(uri: SplitResult, storage: Storage | None) -> str | None:
    absolute = uri.path.startswith("/") and not uri.netloc
    return None if absolute else "does not begin with file:///"


def _no_settings(storage: Storage) -> dict[str, Value]:
    return {}


STORAGES: Mapping[str, StorageRow] = {
    "local": StorageRow(
        keys=(Key("path", "the folder of the warehouse", required=True, path=True),),
        spark=_no_settings,
        pyiceberg=_no_settings,
        hadoop=lambda storage, bucket: {},
        example="file:///folder",
        schemes={"file": "file"},
        warehouse_problem=_path_problem,
        warehouse=lambda storage: file_uri(str(storage.option("path"))),
        gaps=("on a cluster, every machine must see the path",),
    ),
    "s3": S3,
    "adls": ADLS,
    "gcs": GCS,
}
"""The row with all that Helios knows about each type of storage."""

SPARKS_OWN_SCHEMES = ("file", "hdfs", "viewfs")
"""The schemes of file systems for which pyspark's own jars have a driver, so that Spark can keep checkpoints there."""


def warehouse_of(catalog: Catalog) -> str | None:
    """The declared warehouse of a catalog, or the default warehouse of its storage; None if there is neither."""
    declared = catalog.option("warehouse")
    if declared:
        return str(declared)
    return STORAGES[catalog.storage.type].warehouse(catalog.storage) if catalog.storage else None


def storage_type_of(uri: str) -> str | None:
    """The type of the storage that a URI names; None if the text is no URI, or names a file system without a type.

    Examples:
        >>> storage_type_of("s3://bucket/lake"), storage_type_of("/data/lake"), storage_type_of("prod")
        ('s3', 'local', None)
    """
    scheme = "file" if uri.startswith("/") else urlsplit(uri).scheme
    return next((kind for kind, row in STORAGES.items() if scheme in row.schemes), None)


def checkpoint_schemes() -> tuple[str, ...]:
    """The schemes of URIs at which Spark can keep a checkpoint, with its own jars or with those of a storage."""
    of_storages = (scheme for row in STORAGES.values() for scheme in row.schemes.values())
    return tuple(dict.fromkeys((*SPARKS_OWN_SCHEMES, *of_storages)))
