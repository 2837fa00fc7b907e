"""fake-gcs-server: Google Cloud Storage."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.artifacts import GoProgram
from tests.services.rest import GCP
from tests.services.server import Server, status

PROGRAM = GoProgram("gcs", "github.com/fsouza/fake-gcs-server", "v1.56.1")
ARTIFACTS = (PROGRAM, GCP)


class Gcs(Server):
    """A GCS server that asks for no credentials.

    Attributes:
        project_id: Some project.
    """

    service = "gcs"
    project_id = "helios-tests"

    def command(self) -> Sequence[str | Path]:
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        names = ["-public-host", f"127.0.0.1:{self.port}", "-external-url", self.endpoint]
        none = ["-data", self.folder / "none", "-log-level", "warn"]
        return [PROGRAM.find(), *where, *names, *self.backend(), *none]

    def backend(self) -> Sequence[str | Path]:
        """Where objects are kept."""
        return ["-backend", "filesystem", "-filesystem-root", self.folder / "data"]

    def ready(self) -> bool:
        return status(f"{self.endpoint}/_internal/healthcheck") == 200

    def bucket(self, name: str) -> str:
        """Makes a bucket if there is none of this name, and returns the name."""
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project={self.project_id}",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:
                    raise
        return name

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
        # PyArrow, without a token, looks for Google's default credentials; gcsfs reads "anon" as none.
        return {
            "gcs.service.host": self.endpoint,
            "gcs.project-id": self.project_id,
            "gcs.oauth2.token": "anon",
            "gcs.oauth2.token-expires-at": "4102444800000",
        }

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for it."""
        return {"gcs.service.host": self.endpoint, "gcs.project-id": self.project_id, "gcs.no-auth": "true"}

    def addresses(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "project_id": self.project_id}


class ForgetfulGcs(Gcs):
    """The same, whose objects are gone after a stop: on disk, it loses the `folder/` objects of Hadoop's driver."""

    def backend(self) -> Sequence[str | Path]:
        return ["-backend", "memory"]
