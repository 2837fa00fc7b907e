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
        added: Rows that only the script as it is now gives.
        missing: Rows that it no longer gives.
        changed: Rows of a key that both give, with other values.
    """

    added: int = 0
    missing: int = 0
    changed: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.missing or self.changed)


@dataclass(frozen=True, kw_only=True)
class Rejects:
    """The rows that an expectation kept out.

    Attributes:
        step: The expectation, or the reason of rows that no step rejected.
        before: How many the commits kept out; None where that was not kept.
        now: How many the script as it is now keeps out.
    """

    step: str
    before: int | None
    now: int


@dataclass(frozen=True, kw_only=True)
class RehearsedCommit:
    """One commit, and what the script as it is now makes of what it read.

    Attributes:
        snapshot: The commit's last snapshot; None for batches after the last commit, which wrote nothing.
        committed: Its time; None for such batches.
        batch: The number of its batch.
        before: The rows that it wrote: added and removed ones.
        now: The rows that the rehearsal wrote.
        differs: How they differ.
        unread: Why it was not read once more; empty where it was.
        failed: The error with which the script as it is now fails on it; empty where it does not.
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
        pipeline: The pipeline.
        target: Its target.
        mode: How it writes.
        keys: The columns that pair rows; none where rows are compared as they are.
        commits: Each commit, oldest first.
        differs: How the target differs after all of them.
        columns: The columns that came, went, or have another type: `+ total double`.
        rejects: The counts of each expectation.
        added: Some of the rows that only the script as it is now gives.
        missing: Some of the rows that it no longer gives.
        changed: Some of the rows with other values: before, and now.
        steps: The steps and other parts that differ from those of the last run, with their lines.
        notes: What was not compared, or cannot be repeated.
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
    def anything(self) -> bool:
        """True if anything would have come out differently."""
        rejected = any(one.before is not None and one.before != one.now for one in self.rejects)
        each = any(one.differs or one.failed for one in self.commits)
        return bool(self.differs or self.columns or rejected or each)

    def as_json(self) -> Values:
        """The result as JSON values."""
        return {**asdict(self), "changed": [{"before": a, "now": b} for a, b in self.changed], "differ": self.anything}
