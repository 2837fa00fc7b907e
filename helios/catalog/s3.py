"""Amazon S3 and compatible servers, such as MinIO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.catalog.keys import HTTP, Fault, Key, Setting, Settings, Value, as_conf
from helios.catalog.rows import StorageRow

if TYPE_CHECKING:
    from helios.catalog.storage import Storage

CONNECT_SECONDS = "3"
REQUEST_SECONDS = "30"


def _region(storage: Storage) -> Setting | None:
    # Servers other than Amazon's rarely have regions, but a request is always signed for one.
    return storage.option("region") or ("us-east-1" if storage.option("endpoint") else None)


def _path_style(storage: Storage) -> Setting | None:
    """Whether the bucket is in the path, as most servers other than Amazon's require; None for the client's default."""
    declared = storage.option("path_style")
    default = True if storage.option("endpoint") else None
    return default if declared is None else declared


def _keys(storage: Storage, prefix: str = "s3.") -> dict[str, Setting | None]:
    return {
        f"{prefix}access-key-id": storage.option("access_key_id"),
        f"{prefix}secret-access-key": storage.option("secret_access_key"),
        f"{prefix}session-token": storage.option("session_token"),
    }


def _spark(storage: Storage) -> dict[str, Value]:
    return as_conf(
        {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": storage.option("endpoint"),
            "s3.path-style-access": _path_style(storage),
            "client.region": _region(storage),
            **_keys(storage),
        }
    )


def _pyiceberg(storage: Storage) -> dict[str, Value]:
    path_style = _path_style(storage)
    return as_conf(
        {
            "s3.endpoint": storage.option("endpoint"),
            "s3.region": _region(storage),
            "s3.force-virtual-addressing": None if path_style is None else not path_style,
            "s3.connect-timeout": CONNECT_SECONDS,
            "s3.request-timeout": REQUEST_SECONDS,
            **_keys(storage),
        }
    )


def _hadoop(storage: Storage, bucket: str) -> dict[str, Value]:
    endpoint = storage.option("endpoint")
    if storage.option("access_key_id") is None:
        provider = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    elif storage.option("session_token"):
        provider = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    else:
        provider = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    settings: dict[str, Setting | None] = {
        "endpoint": endpoint,
        "endpoint.region": _region(storage),
        "path.style.access": _path_style(storage),
        "connection.ssl.enabled": str(endpoint).startswith("https://") if endpoint else None,
        "access.key": storage.option("access_key_id"),
        "secret.key": storage.option("secret_access_key"),
        "session.token": storage.option("session_token"),
        "aws.credentials.provider": provider,
        # By default the driver retries an unreachable server for minutes.
        "attempts.maximum": "3",
        "connection.establish.timeout": "5s",
    }
    return as_conf({f"fs.s3a.bucket.{bucket}.{key}": value for key, value in settings.items()})


def _fault(settings: Settings) -> Fault | None:
    key, secret, token = (settings.get(name) for name in ("access_key_id", "secret_access_key", "session_token"))
    if (key is None) != (secret is None):
        present, absent = "access_key_id", "secret_access_key"
        if key is None:
            present, absent = absent, present
        return present, f"{present} is given without {absent}: give both, or neither for the default credential chain."
    if token is not None and key is None:
        return "session_token", "session_token is given without access_key_id and secret_access_key: give all three."
    return None


S3 = StorageRow(
    keys=(
        Key("region", "the bucket's region; by default that of the AWS configuration, or us-east-1 with an `endpoint`"),
        Key("endpoint", "the address of a server other than Amazon's", schemes=HTTP),
        Key("path_style", "whether the bucket is in the path; by default true with an `endpoint`", flag=True),
        Key("access_key_id", "with `secret_access_key`; by default AWS's credential chain", secret=True),
        Key("secret_access_key", "the secret of `access_key_id`", secret=True),
        Key("session_token", "the session token of temporary keys", secret=True),
    ),
    spark=_spark,
    pyiceberg=_pyiceberg,
    hadoop=_hadoop,
    example="s3://bucket/folder",
    schemes={"s3": "s3a", "s3a": "s3a", "s3n": "s3a"},
    fault=_fault,
    components=("aws",),
    checkpoint_components=("s3a",),
    gaps=(
        "checkpoints on one bucket have one endpoint and one identity at a time in a process: Hadoop keeps one client "
        "for each bucket",
    ),
)
