"""MinIO: S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.artifacts import GoProgram
from tests.services.server import Server, status

PROGRAM = GoProgram("minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c")
ARTIFACTS = (PROGRAM,)


class Minio(Server):
    """An S3 server.

    Attributes:
        access_key: Its only user.
        secret_key: That user's key.
        region: The only region it takes signatures for.
    """

    service = "minio"
    access_key = "helios-tests"
    secret_key = "helios-tests-secret"
    region = "us-east-1"

    def command(self) -> Sequence[str | Path]:
        address = f"127.0.0.1:{self.port}"
        return [PROGRAM.find(), "server", "--quiet", "--address", address, self.folder / "data"]

    def environment(self) -> Mapping[str, str]:
        return {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_REGION": self.region,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_CALLHOME_ENABLE": "off",
            "MINIO_CONFIG_DIR": str(self.folder / "config"),
        }

    def ready(self) -> bool:
        return status(f"{self.endpoint}/minio/health/ready") == 200

    def client(self) -> Any:
        """A boto3 client."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def bucket(self, name: str) -> str:
        """Makes a bucket if there is none of this name, and returns the name."""
        client = self.client()
        try:
            client.create_bucket(Bucket=name)
        except client.exceptions.BucketAlreadyOwnedByYou:
            pass
        finally:
            client.close()
        return name

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
        }

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for it."""
        return {
            "s3.endpoint": self.endpoint,
            "client.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
        }

    def addresses(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }
