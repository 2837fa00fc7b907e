"""The state that the sources of a run share: rejected rows and files, and inferred columns."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql.types import StructType

from helios.sources.common.file import File


@dataclass
class RejectedInput:
    """The rows and files that the sources of a run have rejected for the current batch.

    Attributes:
        rejected_rows: DataFrames of rows for the quarantine, with the columns `payload`, `reason` and `step`.
        drop_counts: Observations that count the dropped rows. A count is known only when the batch's rows are written.
        unreadable: The files that the last read left out because they cannot be read, each with the reason.
    """

    rejected_rows: list[DataFrame] = field(default_factory=list)
    drop_counts: list[Observation] = field(default_factory=list)
    unreadable: dict[File, str] = field(default_factory=dict)

    def take(self) -> tuple[list[DataFrame], list[Observation]]:
        """Returns and removes the rejected rows and the counts of dropped rows since the last call."""
        taken = self.rejected_rows, self.drop_counts
        self.rejected_rows, self.drop_counts = [], []
        return taken


@dataclass
class Inferred:
    """The columns that were inferred from files.

    Attributes:
        columns: The columns of each source, by `inferred_key(source)`. Later batches keep names and types.
        partition_columns: The columns from folders such as `day=2026-01-01`, of each source by the same key.
        last: The columns of the latest inference only, by the same key and the files from which they were inferred.
    """

    columns: dict[str, StructType] = field(default_factory=dict)
    partition_columns: dict[str, StructType] = field(default_factory=dict)
    last: dict[tuple[str, tuple[File, ...]], StructType] = field(default_factory=dict)
