"""The files and the rows of a table that the next run of a pipeline reads, as plans show them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The files and partitions that the next scan of a table opens.

    Attributes:
        files: The number of files that may have matching rows; None if they were not compared with the predicates.
        of_files: The number of all files.
        partitions: The number of partitions of the files that may have matching rows.
        of_partitions: The number of all partitions; 0 for a table that was never partitioned.
        bytes: The size of the files that are opened.
    """

    files: int | None = None
    of_files: int = 0
    partitions: int | None = None
    of_partitions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The rows of a followed table that the next run reads: sometimes all rows of one snapshot, and then the commits.

    Attributes:
        state: The snapshot that is read as a whole first; None if the run reads only commits.
        state_rows: The number of rows in `state`.
        state_files: The number of data files in `state`.
        since: The snapshot after which commits are read; None for all commits.
        snapshots: The number of commits.
        rows: The number of rows that the commits added.
        files: The number of files that the commits added; if changes are read, also of those that they changed.
        begun: The number of files of the state, or else of the first commit, that an earlier run has read.
        lost: Whether the commits after `since` are unknown, because that snapshot has expired or was rolled back.
    """

    state: int | None = None
    state_rows: int = 0
    state_files: int = 0
    since: int | None = None
    snapshots: int = 0
    rows: int = 0
    files: int = 0
    begun: int = 0
    lost: bool = False
