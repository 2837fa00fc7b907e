"""The events that show the progress of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """An event of a run.

    Attributes:
        kind: started, batch, skipped, idle, waiting, resumed, maintained, noted, finished, stopped or failed.
        batch: The number of the batch; None for other events.
        rows: The rows that the batch wrote.
        seconds: The duration of the batch, the outage, the pause or the maintenance.
        write_seconds: The part of `seconds` in which Spark read and wrote.
        commit_seconds: The part of `seconds` in which the batch was committed, with all retries.
        snapshot: The snapshot that the batch added.
        files: The number of files that the batch added; in an event about deleted source files, their number.
        bytes: The size of the files that the batch added.
        late: The number of rows of the batch that a watermark dropped.
        rejected: The number of rows of the batch that were quarantined, dropped by an expectation, or lacked a key.
    """

    pipeline: str
    kind: str
    batch: int | None = None
    rows: int = 0
    seconds: float = 0.0
    snapshot: int | None = None
    files: int = 0
    bytes: int = 0
    late: int = 0
    rejected: int = 0
    message: str = ""
    write_seconds: float = 0.0
    commit_seconds: float = 0.0
