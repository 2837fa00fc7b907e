"""The retry strategy of a probe of S3: a single attempt, since an abandoned request would delay later clients."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy


class SingleAttempt(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """One attempt."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)
