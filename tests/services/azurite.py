"""Azurite: Azure Blob Storage, which serves what ADLS clients ask of a warehouse."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.services.artifacts import NpmPackage
from tests.services.rest import AZURE
from tests.services.server import Server, listens

PACKAGE = NpmPackage("azurite", "azurite", "3.37.0", "dist/src/blob/main.js")
ARTIFACTS = (PACKAGE, AZURE)


class Azurite(Server):
    """A Blob Storage server.

    Attributes:
        account: Its only account.
        account_key: The key of that account, which is Microsoft's published one for development.
    """

    service = "azurite"
    account = "devstoreaccount1"
    account_key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def command(self) -> Sequence[str | Path]:
        script = PACKAGE.find()
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(self.folder / "data")]
        return [shutil.which("node") or "node", script, *where, "--skipApiVersionCheck", "--disableTelemetry"]

    def ready(self) -> bool:
        return listens(self.port)

    @property
    def blob_endpoint(self) -> str:
        return f"{self.endpoint}/{self.account}"

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.account_key};"
            f"BlobEndpoint={self.blob_endpoint};"
        )

    def container(self, name: str) -> str:
        """Makes a container if there is none of this name, and returns its URI as a warehouse has it."""
        from azure.core.exceptions import ResourceExistsError
        from azure.storage.blob import BlobServiceClient

        client = BlobServiceClient.from_connection_string(self.connection_string)
        with client, suppress(ResourceExistsError):
            client.create_container(name)
        return f"abfss://{name}@{self.account}.dfs.core.windows.net"

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
        return {"adls.account-name": self.account, "adls.connection-string": self.connection_string}

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for it."""
        return {
            f"adls.connection-string.{self.account}.dfs.core.windows.net": self.blob_endpoint,
            "adls.auth.shared-key.account.name": self.account,
            "adls.auth.shared-key.account.key": self.account_key,
        }

    def addresses(self) -> dict[str, str]:
        return {
            "endpoint": self.blob_endpoint,
            "account": self.account,
            "account_key": self.account_key,
            "connection_string": self.connection_string,
        }
