"""The retry strategy for probes of S3. It makes a single attempt, since abandoned retries would delay later clients."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy


class SingleAttempt(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """A strategy without retries."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)
