"""What a backfill tells: each slice, how far it has come, and all of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """One slice of a backfill.

    Attributes:
        slice: The name of the slice.
        before: The rows of the target before, as far as they were counted.
        after: The rows now.
        snapshot: The commit; None for a dry run, and where nothing changed.
        again: How often the slice was repeated, because other writers had committed into it.
    """

    slice: str
    before: int
    after: int
    snapshot: int | None = None
    again: int = 0


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a backfill has come.

    Attributes:
        done: The slice that is done.
        number: How many slices are done.
        slices: How many slices there are.
        seconds: About how many seconds the remaining slices take.
    """

    done: Repaired
    number: int
    slices: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Backfilled:
    """The result of a backfill.

    Attributes:
        pipeline: The pipeline.
        table: Its target.
        where: The filter, or the commits.
        dry_run: Whether nothing was written.
        slices: The slices that were done now.
        resumed: How many slices an earlier process had done.
        bytes: The size of the files that hold the rows; None where they were not looked at.
        left: How many slices are left, as it was stopped.
    """

    pipeline: str
    table: str
    where: str
    dry_run: bool
    slices: tuple[Repaired, ...]
    resumed: int = 0
    bytes: int | None = None
    left: int = 0
