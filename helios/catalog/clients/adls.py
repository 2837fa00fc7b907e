"""PyIceberg's file access to ADLS with fewer retries; by default Azure's client retries for over a minute."""

from __future__ import annotations

from typing import Any

from pyiceberg.io import fsspec

CONNECT_RETRIES = 1
RETRY_SECONDS = 1


class AdlsFileIO(fsspec.FsspecFileIO):
    """Files on ADLS."""

    def _get_fs(self, scheme: str, hostname: str | None = None) -> Any:
        files = super()._get_fs(scheme, hostname)
        if scheme in ("abfs", "abfss"):
            # adlfs has no setting for retries.
            policy = files.service_client._config.retry_policy
            policy.connect_retries = CONNECT_RETRIES
            policy.initial_backoff = policy.increment_base = RETRY_SECONDS
        return files
