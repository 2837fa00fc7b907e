"""Nessie, with its own protocol and Iceberg REST; it needs a newer Java than Spark does."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.artifacts import Jars, Java
from tests.services.minio import Minio
from tests.services.server import Server, status

RUNNER = Jars("nessie", sets=(("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner",),))
JAVA = Java("nessie", least=21)
ARTIFACTS = (JAVA, RUNNER)
_SECRET = "helios.tests.storage"


class Nessie(Server):
    """A Nessie server whose warehouse is on S3.

    Args:
        warehouse: The URI where it puts tables.
        storage: The S3 server.
        folder: See `Server`.

    Attributes:
        storage: The S3 server.
    """

    service = "nessie"
    start_seconds = 180.0
    warehouse_name = "lake"

    def __init__(self, warehouse: str, storage: Minio, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.warehouse = warehouse
        self.storage = storage

    @property
    def uri(self) -> str:
        """Of its own protocol."""
        return f"{self.endpoint}/api/v2"

    @property
    def iceberg_uri(self) -> str:
        """Of Iceberg's REST protocol; a branch or tag follows as a further part of the path."""
        return f"{self.endpoint}/iceberg"

    def command(self) -> Sequence[str | Path]:
        s3 = "nessie.catalog.service.s3.default-options"
        properties = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": "0",
            "nessie.version.store.type": "ROCKSDB",
            "nessie.version.store.persist.rocks.database-path": str(self.folder / "store"),
            "nessie.catalog.default-warehouse": self.warehouse_name,
            f"nessie.catalog.warehouses.{self.warehouse_name}.location": self.warehouse,
            f"{s3}.endpoint": self.storage.endpoint,
            f"{s3}.region": self.storage.region,
            f"{s3}.path-style-access": "true",
            # Iceberg's client gets a 404 from the signing of Nessie.
            f"{s3}.request-signing-enabled": "false",
            f"{s3}.access-key": f"urn:nessie-secret:quarkus:{_SECRET}",
            f"{_SECRET}.name": self.storage.access_key,
            f"{_SECRET}.secret": self.storage.secret_key,
        }
        flags = [f"-D{key}={value}" for key, value in properties.items()]
        return [JAVA.find(), "-XX:+UseSerialGC", *flags, "-jar", *RUNNER.find()]

    def ready(self) -> bool:
        return status(f"{self.uri}/config") == 200 and status(f"{self.iceberg_uri}/v1/config") == 200

    def branch(self, name: str, source: str = "main") -> str:
        """Makes a branch from another one, and returns its name."""
        with urllib.request.urlopen(f"{self.uri}/trees/{source}", timeout=10) as answer:
            reference = json.load(answer)["reference"]
        request = urllib.request.Request(
            f"{self.uri}/trees?name={name}&type=BRANCH",
            data=json.dumps(reference).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()
        return name

    def addresses(self) -> dict[str, str]:
        return {"uri": self.uri, "iceberg_uri": self.iceberg_uri, "warehouse": self.warehouse}
