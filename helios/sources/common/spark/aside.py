"""The state that a run's sources share: rejected rows and files, and inferred columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql.types import StructType

from helios.sources.common.file import File


@dataclass
class RejectedInput:
    """The rows and files that the sources of a run have rejected for the current batch.

    Attributes:
        rejected: Rows for the quarantine, as `payload`, `reason` and `step`.
        counted: Counts of dropped rows, available once the rows have been written.
        unread: The files of the last read that could not be read, and why, where the source goes on without them.
    """

    rejected: list[DataFrame] = field(default_factory=list)
    counted: list[Observation] = field(default_factory=list)
    unread: dict[File, str] = field(default_factory=dict)

    def take(self) -> tuple[list[DataFrame], list[Observation]]:
        """Takes the rejected rows and the counts of dropped rows since the last call."""
        taken = self.rejected, self.counted
        self.rejected, self.counted = [], []
        return taken


@dataclass
class Inferred:
    """The columns that files had.

    Attributes:
        columns: By the path of a source: later batches have them too, and types that were inferred stay.
        folders: The same for folders such as `day=2026-01-01`.
        last: The files that were looked at last, and their columns.
    """

    columns: dict[str, StructType] = field(default_factory=dict)
    folders: dict[str, StructType] = field(default_factory=dict)
    last: dict[tuple[File, ...], StructType] = field(default_factory=dict)
