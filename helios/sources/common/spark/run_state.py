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
        unread: The files that the last read left out because they cannot be read, each with the reason.
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
    """The columns that were inferred from files.

    Attributes:
        columns: The columns of each source, by its path. Later batches keep these columns and their types.
        folders: The columns that folders such as `day=2026-01-01` add to each source, by its path.
        last: The columns of the files that were inferred last.
    """

    columns: dict[str, StructType] = field(default_factory=dict)
    folders: dict[str, StructType] = field(default_factory=dict)
    last: dict[tuple[File, ...], StructType] = field(default_factory=dict)
