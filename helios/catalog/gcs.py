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
    """True if the endpoint is an emulator, which needs no credentials. Only emulators use plain http."""
    return str(storage.option("endpoint") or "").startswith("http://")


def _spark(storage: Storage) -> dict[str, Value]:
    if storage.option("service_account_key"):
        # GCSFileIO takes a token or the default chain, but no key file. Hadoop's driver takes a key file per catalog.
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
        # gcsfs would send the path of a missing file as the token.
        raise ConfigError(
            f"there is no file {key}, the service_account_key of a gcs storage.",
            where=storage.origin,
            fix="check the path, or leave service_account_key out to use Google's credential chain.",
        )
    return as_conf(
        {
            # gcsfs takes a key file as its token setting, and renews tokens with it; pyarrow takes no key file.
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
        Key("endpoint", "another address, such as an emulator's (`http://`: no credentials)", schemes=HTTP),
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
        "with `service_account_key`, Spark writes through Hadoop's driver, and on a cluster every machine must see the "
        "key file: Iceberg's own client takes no key file",
        "all checkpoints of a process use one key: Hadoop's driver has no keys per bucket",
    ),
)
