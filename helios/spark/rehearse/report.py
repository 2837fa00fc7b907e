"""The result of a rehearsal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

Values: TypeAlias = "Mapping[str, Any]"
"""A row, by column."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many rows differ.

    Attributes:
        added: Rows that only the current script produces.
        missing: Rows that the current script no longer produces.
        changed: Rows that the current script produces with the same key and other values.
    """

    added: int = 0
    missing: int = 0
    changed: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.missing or self.changed)


@dataclass(frozen=True, kw_only=True)
class Rejects:
    """How many rows an expectation rejected, then and now.

    Attributes:
        step: The expectation that rejected the rows; the reason if no step rejected them.
        before: How many rows the commits rejected; None if unknown.
        now: How many rows the current script rejects.
    """

    step: str
    before: int | None
    now: int


@dataclass(frozen=True, kw_only=True)
class RehearsedCommit:
    """A commit, compared with what the current script writes from its input.

    Attributes:
        snapshot: The commit's last snapshot; None for batches after the last commit, which wrote nothing.
        committed: The commit's time; None without a commit.
        batch: The number of the commit's batch; None without a commit.
        before: The number of rows that the commit added and removed.
        now: How many rows the rehearsal wrote.
        unread: The reason why the commit was not rehearsed; empty if it was.
        failed: The error of the current script on the commit's input; empty if there is none.
    """

    snapshot: int | None
    committed: datetime | None
    batch: int | None
    before: int = 0
    now: int = 0
    differs: Counts = Counts()
    unread: str = ""
    failed: str = ""


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """The result of a rehearsal.

    Attributes:
        keys: The columns that pair rows; empty if whole rows are compared.
        commits: The commits, oldest first.
        differs: How the target differs after all commits.
        columns: The added and dropped columns, and those with another type, such as `+ total double`.
        rejects: The rejected rows of each expectation.
        added: A sample of the rows that only the current script produces.
        missing: A sample of the rows that the current script no longer produces.
        changed: A sample of the rows with other values, each as a pair: before and now.
        steps: How the plan differs from that of the last commit, each new step with its line in the script.
        notes: Notes on what was not compared or cannot be repeated.
    """

    pipeline: str
    target: str
    mode: str
    keys: tuple[str, ...] = ()
    commits: tuple[RehearsedCommit, ...] = ()
    differs: Counts = Counts()
    columns: tuple[str, ...] = ()
    rejects: tuple[Rejects, ...] = ()
    added: Sequence[Values] = field(default=())
    missing: Sequence[Values] = field(default=())
    changed: Sequence[tuple[Values, Values]] = field(default=())
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def has_differences(self) -> bool:
        """True if anything would have come out differently: rows, columns, rejected rows, or an error."""
        rejected = any(step.before is not None and step.before != step.now for step in self.rejects)
        commits = any(commit.differs or commit.failed for commit in self.commits)
        return bool(self.differs or self.columns or rejected or commits)

    def as_json(self) -> Values:
        return {
            **asdict(self),
            "changed": [{"before": a, "now": b} for a, b in self.changed],
            "differ": self.has_differences,
        }
