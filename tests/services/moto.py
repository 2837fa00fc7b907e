"""moto: Glue, with an S3 of its own. It keeps everything in memory: what it knows is gone after a stop."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.artifacts import PythonModule
from tests.services.server import Server, status

MODULE = PythonModule("moto", "moto", "moto[glue,s3]>=5 flask flask-cors")
ARTIFACTS = (MODULE,)


class Moto(Server):
    """A server of the Glue and S3 protocols that takes any credentials.

    Attributes:
        access_key: Some access key.
        secret_key: Some secret key.
        region: The region whose catalog is used.
    """

    service = "moto"
    access_key = "helios-tests"
    secret_key = "helios-tests-secret"
    region = "us-east-1"

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", f"{MODULE.find()}.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONWARNINGS": "ignore", "MOTO_CALL_RESET_API": "false"}

    def ready(self) -> bool:
        return status(f"{self.endpoint}/moto-api/data.json") == 200

    def client(self, name: str = "s3") -> Any:
        """A boto3 client, of "s3" or "glue"."""
        import boto3

        return boto3.client(
            name,
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def bucket(self, name: str) -> str:
        """Makes a bucket if there is none of this name, and returns the name; it needs three letters or more."""
        client = self.client()
        client.create_bucket(Bucket=name)
        client.close()
        return name

    def glue(self) -> dict[str, str]:
        """PyIceberg's properties for the catalog, without those of a storage."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": self.region,
            "glue.access-key-id": self.access_key,
            "glue.secret-access-key": self.secret_key,
        }

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for its S3."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.path-style-access": "true",
        }

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for its S3."""
        own = {key: value for key, value in self.pyiceberg().items() if key != "s3.region"}
        return {**own, "client.region": self.region}

    def addresses(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }
