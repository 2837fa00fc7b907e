"""MinIO: S3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.artifacts import GoProgram
from tests.services.s3 import S3
from tests.services.server import status

PROGRAM = GoProgram("minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c")
ARTIFACTS = (PROGRAM,)


class Minio(S3):
    """An S3 server with one user and one region."""

    service = "minio"

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
