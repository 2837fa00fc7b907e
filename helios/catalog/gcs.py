"""Google Cloud Storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helios.catalog.keys import HTTP, Key, Setting, Value, as_conf
from helios.catalog.rows import StorageRow
from helios.errors import ConfigError

if TYPE_CHECKING:
    from helios.catalog.storage import Storage

_HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
_FSSPEC_IO = "pyiceberg.io.fsspec.FsspecFileIO"
# pyarrow requires an expiry time for each token. This is the year 2100, in milliseconds since 1970.
_NEVER = "4102444800000"


def _emulated(storage: Storage) -> bool:
    """True if the endpoint is an emulator: only emulators use plain http. An emulator needs no credentials."""
    return str(storage.option("endpoint") or "").startswith("http://")


def _spark(storage: Storage) -> dict[str, Value]:
    if storage.option("service_account_key"):
        # GCSFileIO takes no key file. Hadoop's driver takes one, and Iceberg configures the driver for each catalog.
        driver = {f"hadoop.{key}": value for key, value in _hadoop(storage, "").items()}
        return {"io-impl": _HADOOP_IO, **driver}
    return as_conf(
        {
            "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO",
            "gcs.project-id": storage.option("project_id"),
            "gcs.service.host": storage.option("endpoint"),
            "gcs.no-auth": True if _emulated(storage) else None,
        }
    )


def _pyiceberg(storage: Storage) -> dict[str, Value]:
    key = storage.option("service_account_key")
    if key and not Path(str(key)).is_file():
        # If there is no file at the path, gcsfs would send the path to the server as a token.
        raise ConfigError(
            f"there is no file {key}, the service_account_key of a gcs storage.",
            where=storage.origin,
            fix="check the path, or leave service_account_key out to use Google's credential chain.",
        )
    return as_conf(
        {
            # gcsfs takes the path of a key file as `token`, and renews tokens with the file. pyarrow takes no key file.
            "py-io-impl": _FSSPEC_IO if key else "helios.catalog.clients.gcs.GcsFileIO",
            "gcs.oauth2.token": key or ("anon" if _emulated(storage) else None),
            "gcs.oauth2.token-expires-at": _NEVER if _emulated(storage) and not key else None,
            "gcs.project-id": storage.option("project_id"),
            "gcs.service.host": storage.option("endpoint"),
        }
    )


def _hadoop(storage: Storage, bucket: str) -> dict[str, Value]:
    key, endpoint = storage.option("service_account_key"), storage.option("endpoint")
    settings: dict[str, Setting | None] = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        "fs.gs.project.id": storage.option("project_id"),
        "fs.gs.storage.root.url": f"{str(endpoint).rstrip('/')}/" if endpoint else None,
        "fs.gs.auth.service.account.enable": not _emulated(storage),
        "fs.gs.auth.null.enable": True if _emulated(storage) else None,
        "fs.gs.auth.service.account.json.keyfile": key,
    }
    return as_conf(settings)


GCS = StorageRow(
    keys=(
        Key("project_id", "the project that is billed"),
        Key("service_account_key", "the path of a key file; by default Google's credential chain", path=True),
        Key(
            "endpoint",
            "the address of an emulator or another server; with `http://`, no credentials are sent",
            schemes=HTTP,
        ),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    hadoop=_hadoop,
    example="gs://bucket/folder",
    schemes={"gs": "gs"},
    components=("gcp",),
    checkpoint_components=("gcs",),
    extra="gcs",
    gaps=(
        "Iceberg's own client takes no key file, so with `service_account_key` Spark writes through Hadoop's driver; "
        "on a cluster, the key file must be on every machine",
        "all checkpoints of a process use the same key file: they share one Hadoop configuration, which cannot have a "
        "key file for each bucket",
    ),
)
