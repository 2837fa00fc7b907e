"""What the servers of S3 have in common: how clients are told of them."""

from __future__ import annotations

from typing import Any

from tests.services.server import Server


class S3(Server):
    """A server of the S3 protocol.

    Attributes:
        access_key: Its only user.
        secret_key: That user's key.
        region: The region that requests are signed for.
    """

    access_key = "helios-tests"
    secret_key = "helios-tests-secret"
    region = "us-east-1"

    def client(self, name: str = "s3") -> Any:
        """A boto3 client of one of its services."""
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
        try:
            client.create_bucket(Bucket=name)
        except client.exceptions.BucketAlreadyOwnedByYou:
            pass
        finally:
            client.close()
        return name

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
        return {**self._connection(), "s3.region": self.region}

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for it."""
        return {**self._connection(), "client.region": self.region}

    def _connection(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.endpoint,
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
