"""PyIceberg's files on ADLS, given up after a while: Azure's client alone tries for more than a minute."""

from __future__ import annotations

from typing import Any

from pyiceberg.io import fsspec
from pyiceberg.typedef import Properties

CONNECT_RETRIES = 1
RETRY_SECONDS = 1


def _impatient(properties: Properties, hostname: str | None = None) -> Any:
    files = fsspec._adls(properties, hostname)
    # adlfs hands no settings of retries on.
    policy = files.service_client._config.retry_policy
    policy.connect_retries = CONNECT_RETRIES
    policy.initial_backoff = policy.increment_base = RETRY_SECONDS
    return files


class AdlsFileIO(fsspec.FsspecFileIO):
    """Files on ADLS."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._scheme_to_fs |= dict.fromkeys(("abfs", "abfss"), _impatient)
