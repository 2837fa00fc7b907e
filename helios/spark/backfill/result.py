"""The results of a backfill: of each slice and of the whole backfill, and its progress."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """One slice of a backfill.

    Attributes:
        before: The number of rows that were replaced.
        after: The number of rows that replaced them.
        snapshot: The commit; None for a dry run, or if nothing changed.
        again: How often the slice was repeated because other writers had committed into it.
    """

    slice: str
    before: int
    after: int
    snapshot: int | None = None
    again: int = 0


@dataclass(frozen=True, kw_only=True)
class SliceProgress:
    """How far a backfill has come.

    Attributes:
        last_slice: The slice that was repaired last.
        number: The number of repaired slices.
        slices: The number of all slices.
        seconds_left: An estimate of the time for the remaining slices.
    """

    last_slice: Repaired
    number: int
    slices: int
    seconds_left: float


@dataclass(frozen=True, kw_only=True)
class Backfilled:
    """The result of a backfill.

    Attributes:
        table: The target.
        where: The filter, or the commits.
        dry_run: Whether nothing was written.
        slices: The slices that were repaired now.
        resumed: The number of slices that an earlier process had repaired.
        bytes: The size of the files that hold the rows; None if it was not computed.
        left: The number of slices that are left after a stop.
    """

    pipeline: str
    table: str
    where: str
    dry_run: bool
    slices: tuple[Repaired, ...]
    resumed: int = 0
    bytes: int | None = None
    left: int = 0
