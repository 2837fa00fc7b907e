"""How a look at S3 is tried: once. A request that was given up would hold back every later client of the process."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy


class Once(AwsStandardS3RetryStrategy):  # type: ignore[misc]
    """One attempt."""

    def __init__(self) -> None:
        super().__init__(max_attempts=1)
