"""The facts that the live page shows, as plain values that become JSON. Times are in milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Json: TypeAlias = Any
"""A JSON value, or a dataclass of JSON values."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """The last error of a pipeline.

    Attributes:
        where: The line of the script that causes the error; None if no line does.
        fix: The fix; None if it is unknown.
        code: The code for `helios explain`; None for an error that is not Helios's own.
    """

    what: str
    where: str | None = None
    fix: str | None = None
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """The backlog of a pipeline. A value is None if it is unknown, or if the pipeline has no such source.

    Attributes:
        snapshots: The number of unread snapshots of tables.
        seconds: The age of the oldest unread data.
        files: The number of unread files of folders.
        bytes: The size of the unread files.
        records: The number of unread records of topics.
        drained: The seconds until the backlog is read, as estimated from the last minutes.
        grows: Whether the backlog has grown in the last minutes.
    """

    snapshots: int | None = None
    seconds: float | None = None
    files: int | None = None
    bytes: int | None = None
    records: int | None = None
    drained: float | None = None
    grows: bool = False


@dataclass(frozen=True, kw_only=True)
class PipelineFacts:
    """One pipeline.

    Attributes:
        state: In a run: waiting, starting, running, away (in an outage), finished, stopped or failed. In a lake:
            running, resting (not running), committed (may be running), new (no known commit), reading (not read yet).
        batches: The number of batches that the run has committed; in a lake, the number of all batches so far.
        rows: The number of rows that the run has written; in a lake, the number of rows of the last commit.
        rejected: The number of rows that were kept out of the target.
        late: The number of rows that a watermark dropped.
        rate: Rows per second over the last minute of the run; None without a run.
        batch: The number of the last batch.
        snapshot: The snapshot of the last commit.
        committed: The time of the last commit.
        behind: The backlog; None if it is unknown.
        message: What the pipeline waits for, or its last message.
        audit: The number of the batch that has not passed its audit.
        declared: The maintenance that the script declares, as text; None if there is none.
    """

    name: str
    target: str
    state: str
    batches: int = 0
    rows: int = 0
    rejected: int = 0
    late: int = 0
    rate: float | None = None
    batch: int | None = None
    snapshot: str | None = None
    committed: float | None = None
    behind: Backlog | None = None
    problem: Problem | None = None
    message: str = ""
    audit: int | None = None
    notes: tuple[str, ...] = ()
    declared: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """One table in its current state, according to the metadata.

    Attributes:
        name: The full name.
        pipelines: The pipelines that write the table.
        files: The number of data files.
        bytes: The size of the data files.
        deletes: The number of delete files.
        snapshots: The number of snapshots in the metadata.
        committed: The time of the last commit.
        changed: The number of schemas after the first in the metadata.
        small: The number of small files, as in `helios.table.status.Status`; None if small files were not counted.
        advice: How to shorten the history of snapshots; None for a short history.
        quarantine: Whether the table is a quarantine.
    """

    name: str
    pipelines: tuple[str, ...] = ()
    rows: int = 0
    files: int = 0
    bytes: int = 0
    deletes: int = 0
    snapshots: int = 0
    format: int = 2
    committed: float | None = None
    changed: int = 0
    small: int | None = None
    advice: str | None = None
    quarantine: bool = False


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """An entry of the timeline: a batch, maintenance, or another event of a pipeline.

    Attributes:
        number: The number in the feed; later entries have higher numbers.
        pipeline: The pipeline; empty for a commit by another writer than Helios.
        kind: batch, skipped, maintained, waiting, resumed or failed.
        at: When the batch, the maintenance or the event ended.
        seconds: The duration in seconds; None if it is unknown.
        writing: The seconds of reading and writing in Spark.
        committing: The seconds of the commit.
        files: The number of new data files.
        bytes: The size of the new data files.
        rejected: The number of rows that were kept out of the target.
        late: The number of rows that a watermark dropped.
    """

    number: int = 0
    pipeline: str
    table: str
    kind: str
    at: float
    batch: int | None = None
    snapshot: str | None = None
    seconds: float | None = None
    writing: float | None = None
    committing: float | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    rejected: int = 0
    late: int = 0
    message: str = ""


class FactSource(Protocol):
    """The facts of a run, or of a lake. Several threads call the methods."""

    token: str

    def items(self) -> Mapping[str, Json]:
        """The current facts by key, such as `pipeline/orders`. Pages receive only facts that have changed."""

    def timeline(self, after: int) -> Sequence[TimelineEntry]:
        """The entries of the timeline with a number above `after`, oldest first."""

    def add_open_pages(self, count: int) -> None:
        """Adds `count` to the number of open pages; `count` is negative when pages close."""

    def series(self, pipeline: str) -> Json | None:
        """The metrics of the last hour; None for a pipeline that has none."""

    def commits(self, table: str, before: str | None, count: int) -> Json | None:
        """Up to `count` commits older than the snapshot `before`, newest first; None for an unknown table."""

    def batch(self, table: str, snapshot: str) -> Json | None:
        """The page of a batch; None if the table has no such snapshot."""

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> Json | None:
        """The rejected rows of a batch: counts by step and reason, and samples; None if there is no such snapshot."""

    def table(self, name: str) -> Json | None:
        """The page of a table; None for an unknown table."""

    def metrics(self) -> str | None:
        """The metrics in Prometheus's text format; None without a run."""

    def stop(self) -> bool:
        """Asks the run to end after its running batches; False if there is no run to stop."""
