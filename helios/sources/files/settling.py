"""Finds the finished files of a listing. A file that may still be written has to wait for a later listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

YOUNG = 2.0
"""The age in seconds from which a file counts as finished; a younger file must be listed twice without a change."""

SECONDS_APART = 1.0
"""The least seconds between two such listings of a file, since S3 keeps modification times in whole seconds."""

EMPTY = 60.0
"""The age in seconds from which an empty file counts as finished, if its format does not allow empty files."""

BY_LINE = ("csv", "json", "text")
"""Formats in which an empty file is valid and has no rows: an empty file waits until it has content."""

AT_ONCE = ("gs",)
"""Schemes of stores in which a file appears only when it is complete, and each version has its own time."""


@dataclass
class Settling:
    """Remembers young files between listings, to see whether they still change."""

    format: str
    _seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)
    """The young files by path: size and modification time, and when a file was first listed with these values."""

    def finished(self, files: Mapping[str, tuple[int, int]], now: float) -> dict[str, tuple[int, int]]:
        """The files of a listing that are no longer being written, as far as the listings show.

        Args:
            files: Size and modification time in milliseconds, by path.
            now: The time of the listing, in seconds since 1970.
        """
        settled: dict[str, tuple[int, int]] = {}
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for path, stat in files.items():
            if self._done(path, stat, now):
                settled[path] = stat
            else:
                seen_stat, seen_at = self._seen.get(path, (None, now))
                seen[path] = (stat, seen_at if seen_stat == stat else now)
        self._seen = seen
        return settled

    def _done(self, path: str, stat: tuple[int, int], now: float) -> bool:
        size, modified = stat
        age = now - modified / 1000
        if not size:
            return self.format not in BY_LINE and age >= EMPTY
        if age >= YOUNG or path.partition(":")[0] in AT_ONCE:
            return True
        # If the clock of the store is ahead of ours, a file stays young for long. But an unchanged file is finished.
        seen_stat, seen_at = self._seen.get(path, (None, now))
        return seen_stat == stat and now - seen_at >= SECONDS_APART

    def undecided(self, files: Mapping[str, tuple[int, int]]) -> bool:
        """Returns True if a file with content waits: a second listing can show that it is finished."""
        return any(size for path, (size, _) in files.items() if path in self._seen)
