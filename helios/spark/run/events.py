"""The events of a run, which its progress is shown by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """An event of a run.

    Attributes:
        pipeline: The pipeline.
        kind: started, batch, skipped, idle, waiting, resumed, maintained, noted, finished, stopped or failed.
        batch: The number of the batch; None for other events.
        rows: The rows that the batch wrote.
        seconds: How long it took.
        snapshot: The snapshot that it made.
        files: The files that it added.
        bytes: Their size.
        late: Its rows that a watermark dropped.
        rejected: Its rows that were quarantined, or dropped by an expectation or a key.
        message: What a user should know.
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
