"""The facts of the live page, as plain values that become JSON; times are milliseconds since 1970."""

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
        what: What happened.
        where: The line of the script; None where no line is to blame.
        fix: What to do; None where that is unknown.
        code: The code of its family, for `helios explain`; None for an error that is not Helios's own.
    """

    what: str
    where: str | None = None
    fix: str | None = None
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class Behind:
    """How far a pipeline is behind its sources; None where something is unknown, or no such source is read.

    Attributes:
        snapshots: Snapshots of tables.
        seconds: The age of the oldest of what waits.
        files: Files of folders.
        bytes: Their sizes.
        records: Records of topics.
        drained: Seconds until all of it is read, at the rate of the last minutes; None without an estimate.
        grows: Whether it has grown in the last minutes.
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
        name: Its name.
        target: Its table.
        state: waiting, starting, running, away, finished, stopped or failed; of a lake running or resting.
        batches: Committed batches: of the run, or the number of the last one.
        rows: Rows of the run; of a lake, those of the last commit.
        rejected: Rows that were kept out of the target.
        late: Rows that a watermark dropped.
        rate: Rows a second, over the last minute of the run; None without one.
        batch: The last batch.
        snapshot: The snapshot of the last commit.
        committed: The time of the last commit.
        behind: The backlog; None where it is unknown.
        problem: The last error.
        message: What it waits for, or has last said.
        audit: The batch that has not passed its audit.
        notes: Further remarks.
        declared: The maintenance that the script declares, as text; None without a script.
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
    behind: Behind | None = None
    problem: Problem | None = None
    message: str = ""
    audit: int | None = None
    notes: tuple[str, ...] = ()
    declared: str | None = None


@dataclass(frozen=True, kw_only=True)
class TableFacts:
    """One table, by the metadata of its current snapshot.

    Attributes:
        name: Its full name.
        pipelines: The pipelines that write it.
        rows: Its rows.
        files: Its data files.
        bytes: Their sizes.
        deletes: Its delete files.
        snapshots: The snapshots that its metadata names.
        format: The format version.
        committed: The time of the last commit.
        changed: How often its columns have changed, as far as its metadata tells.
        small: Data files below half of the target file size; None where they were not counted.
        advice: What bounds its history, if that is long.
        quarantine: Whether it holds rejected rows.
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
class Happening:
    """A batch, a maintenance or another event of a pipeline, as the timeline shows it.

    Attributes:
        number: Its place in the feed, ascending.
        pipeline: The pipeline; empty for another writer of a table.
        table: The table.
        kind: batch, skipped, maintained, waiting, resumed or failed.
        at: The time of its end.
        batch: The batch's number.
        snapshot: Its snapshot.
        seconds: How long it took; None where that is not known.
        writing: Of that, reading and writing in Spark.
        committing: Of that, the commit.
        rows: The rows that it wrote.
        files: Its files.
        bytes: Their sizes.
        rejected: Rows that were kept out.
        late: Rows that a watermark dropped.
        message: What it says.
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


class Facts(Protocol):
    """What the server serves: the facts of a run, or of a lake. Methods are called from several threads."""

    token: str

    def items(self) -> Mapping[str, Json]:
        """The current values by their keys; a value that is equal to its last one is not sent again."""

    def happenings(self, after: int) -> Sequence[Happening]:
        """What was added to the feed behind a number, oldest first."""

    def watched(self, by: int) -> None:
        """So many more pages are open, or fewer."""

    def series(self, pipeline: str) -> Json | None:
        """The metrics of the last hour; None for a pipeline that has none."""

    def commits(self, table: str, before: str | None, count: int) -> Json | None:
        """The commits of a table, newest first, behind a snapshot; None for an unknown table."""

    def batch(self, table: str, snapshot: str) -> Json | None:
        """The page of a batch; None where the table has no such snapshot."""

    def rejects(self, table: str, snapshot: str, *, samples: bool) -> Json | None:
        """The rejected rows of a batch, counted by step and reason, and some of them; None for no such snapshot."""

    def table(self, name: str) -> Json | None:
        """The page of a table; None for an unknown one."""

    def metrics(self) -> str | None:
        """The metrics in Prometheus's text format; None without a run."""

    def stop(self) -> bool:
        """Asks the run to end behind its running batches; False where there is no run to stop."""
