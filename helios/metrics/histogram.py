"""A histogram as a value, and the histograms of a run. Standard library only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True)
class Histogram:
    """How many values fell under each bound.

    Args:
        bounds: Inclusive upper bounds, as the label `le` writes them; infinity follows them.
        counts: Values per bucket, one more than there are bounds.
        sum: The sum of all values.

    Examples:
        >>> list(Histogram.empty("1.0", "5.0").observe(1).observe(9).cumulative())
        [('1.0', 1), ('5.0', 1), ('+Inf', 2)]
    """

    bounds: tuple[str, ...]
    counts: tuple[int, ...]
    sum: float = 0.0

    @classmethod
    def empty(cls, *bounds: str) -> Self:
        """A histogram without values."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    def observe(self, value: float) -> Self:
        """The histogram with one more value."""
        at = bisect_left(self.bounds, value, key=float)
        counts = (*self.counts[:at], self.counts[at] + 1, *self.counts[at + 1 :])
        return replace(self, counts=counts, sum=self.sum + value)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Each bound with the number of values up to it."""
        below = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            yield bound, below


COMMIT_SECONDS = "iceberg_commit_duration_seconds"
WRITE_SECONDS = "iceberg_write_duration_seconds"
BATCH_RECORDS = "iceberg_records_per_batch"
NO_OBSERVATIONS: Mapping[str, Histogram] = {
    COMMIT_SECONDS: Histogram.empty("0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0"),
    WRITE_SECONDS: Histogram.empty("0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0", "60.0", "300.0", "900.0"),
    BATCH_RECORDS: Histogram.empty("1.0", "10.0", "100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "1e+08"),
}
"""The empty histogram of each metric that is one."""
