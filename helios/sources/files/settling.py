"""Finds the finished files of a listing. A file that may still be written waits for a later listing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FINISHED_AGE = 2.0
"""The age in seconds from which a file counts as finished. A younger file must be listed twice without a change."""

LISTING_INTERVAL = 1.0
"""The minimum seconds between the two listings of a young file. S3 keeps modification times in whole seconds."""

EMPTY_FINISHED_AGE = 60.0
"""The age in seconds from which an empty file counts as finished, if its format does not allow empty files."""

EMPTY_IS_VALID = ("csv", "json", "text")
"""Formats in which an empty file is valid. Since it has no rows, it waits until it has content."""

ATOMIC_SCHEMES = ("gs",)
"""Schemes of stores in which a file appears only when it is complete. A new version has a new modification time."""


@dataclass
class Settling:
    """Remembers young files between listings, to see whether they still change."""

    format: str
    _seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)
    """For each young file by path: size and modification time, and when it was first listed with these values."""

    def finished(self, files: Mapping[str, tuple[int, int]], now: float) -> dict[str, tuple[int, int]]:
        """The files of a listing that are no longer being written, as far as the listings show.

        Args:
            files: Size and modification time in milliseconds, by path.
            now: The time of the listing, in seconds since 1970.
        """
        finished_files: dict[str, tuple[int, int]] = {}
        seen: dict[str, tuple[tuple[int, int], float]] = {}
        for path, stat in files.items():
            if self._is_finished(path, stat, now):
                finished_files[path] = stat
            else:
                seen_stat, seen_at = self._seen.get(path, (None, now))
                seen[path] = (stat, seen_at if seen_stat == stat else now)
        self._seen = seen
        return finished_files

    def _is_finished(self, path: str, stat: tuple[int, int], now: float) -> bool:
        size, modified = stat
        age = now - modified / 1000
        if not size:
            return self.format not in EMPTY_IS_VALID and age >= EMPTY_FINISHED_AGE
        if age >= FINISHED_AGE or path.partition(":")[0] in ATOMIC_SCHEMES:
            return True
        # If the clock of the store is ahead of ours, a file stays young for long: an unchanged file is finished, too.
        seen_stat, seen_at = self._seen.get(path, (None, now))
        return seen_stat == stat and now - seen_at >= LISTING_INTERVAL

    def undecided(self, files: Mapping[str, tuple[int, int]]) -> bool:
        """Returns True if a file with content waits, so that a second listing can show whether the file is finished."""
        return any(size for path, (size, _) in files.items() if path in self._seen)
