"""moto: Glue, with an S3 of its own. It keeps everything in memory: what it knows is gone after a stop."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.artifacts import PythonModule
from tests.services.s3 import S3
from tests.services.server import status

MODULE = PythonModule("moto", "moto", "moto[glue,s3]>=5 flask flask-cors")
ARTIFACTS = (MODULE,)


class Moto(S3):
    """A server of the Glue and S3 protocols that takes any credentials."""

    service = "moto"

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", f"{MODULE.find()}.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def environment(self) -> Mapping[str, str]:
        return {"PYTHONWARNINGS": "ignore", "MOTO_CALL_RESET_API": "false"}

    def ready(self) -> bool:
        return status(f"{self.endpoint}/moto-api/data.json") == 200

    def glue(self) -> dict[str, str]:
        """PyIceberg's properties for the catalog, without those of a storage."""
        return {
            "type": "glue",
            "glue.endpoint": self.endpoint,
            "glue.region": self.region,
            "glue.access-key-id": self.access_key,
            "glue.secret-access-key": self.secret_key,
        }
