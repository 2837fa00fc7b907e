"""The table of storage types."""

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
    """An absolute path as the URI that Spark and PyIceberg both take literally: not percent-encoded.

    Examples:
        >>> file_uri("/data/my lake")
        'file:///data/my lake'
    """
    return "file://" + "/" + Path(path).as_posix().lstrip("/")


def _rootless(uri: SplitResult, storage: Storage | None) -> str | None:
    return (
        None
        if uri.path.startswith("/") and not uri.netloc
        else "does not begin with file:///, and would be somewhere else"
    )


def _nothing(storage: Storage) -> dict[str, Value]:
    return {}


STORAGES: Mapping[str, StorageRow] = {
    "local": StorageRow(
        keys=(Key("path", "the folder that holds the warehouse", required=True, path=True),),
        spark=_nothing,
        pyiceberg=_nothing,
        hadoop=lambda storage, place: {},
        example="file:///folder",
        schemes={"file": "file"},
        misplaced=_rootless,
        warehouse=lambda storage: file_uri(str(storage.option("path"))),
        gaps=("on a cluster, every machine must see the path",),
    ),
    "s3": S3,
    "adls": ADLS,
    "gcs": GCS,
}
"""Every storage."""

SPARKS_OWN_SCHEMES = ("file", "hdfs", "viewfs")
"""File systems that pyspark's own jars can write, and so can hold a checkpoint."""


def kind_of(uri: str) -> str | None:
    """The kind of storage that a URI is on; None for a name that is no URI, and for file systems without a row.

    Examples:
        >>> kind_of("s3://bucket/lake"), kind_of("/data/lake"), kind_of("prod")
        ('s3', 'local', None)
    """
    scheme = "file" if uri.startswith("/") else urlsplit(uri).scheme
    return next((kind for kind, row in STORAGES.items() if scheme in row.schemes), None)


def checkpoint_schemes() -> tuple[str, ...]:
    """The schemes on which Spark can keep a checkpoint, with the jars of the storages' rows."""
    rows = (scheme for row in STORAGES.values() for scheme in row.schemes.values())
    return tuple(dict.fromkeys((*SPARKS_OWN_SCHEMES, *rows)))


def warehouse_of(catalog: Catalog) -> str | None:
    """The `warehouse` that a catalog is given, or else that of its storage."""
    given = catalog.option("warehouse")
    stored = STORAGES[catalog.storage.type].warehouse(catalog.storage) if catalog.storage else None
    return str(given) if given else stored
