"""PyIceberg's file access to Google Cloud Storage with a retry limit; pyarrow's default is a quarter of an hour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from pyiceberg import io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.utils.datetime import millis_to_datetime

RETRY_SECONDS = 8.0


class GcsFileIO(PyArrowFileIO):
    """Files on Google Cloud Storage."""

    def _initialize_gcs_fs(self) -> Any:
        from pyarrow.fs import GcsFileSystem

        settings: dict[str, Any] = {"retry_time_limit": timedelta(seconds=RETRY_SECONDS)}
        if token := self.properties.get(io.GCS_TOKEN):
            expires = self.properties.get(io.GCS_TOKEN_EXPIRES_AT_MS)  # a REST server may leave it out
            ends = millis_to_datetime(int(expires)) if expires else datetime.now(UTC) + timedelta(hours=1)
            settings |= {"access_token": token, "credential_token_expiration": ends}
        if project := self.properties.get(io.GCS_PROJECT_ID):
            settings["project_id"] = project
        if endpoint := self.properties.get(io.GCS_SERVICE_HOST):
            parts = urlsplit(endpoint)
            settings |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
        return GcsFileSystem(**settings)
