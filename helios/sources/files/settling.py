"""Finds the finished files of a listing; a file that may still be written waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

YOUNG = 2.0
"""A file may still be written until so many seconds after its last change: it is then listed a second time."""

APART = 1.0
"""Two listings of a file count only if so many seconds lie between them: S3 keeps times in whole seconds."""

EMPTY = 60.0
"""Seconds after which an empty file counts as finished, in a format that has no empty files."""

BY_LINE = ("csv", "json", "text")
"""Formats in which an empty file is valid and has no rows: such a file waits until it has content."""

AT_ONCE = ("gs",)
"""Schemes of stores in which a file appears only when it is whole, and each version of it has its own time."""


@dataclass
class Settling:
    """Remembers young files between listings, to see whether they still change.

    Attributes:
        format: The format of the files.
    """

    format: str
    _seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)
    """By path: size and modification time of a young file, and when the file was first listed with them."""

    def finished(self, files: Mapping[str, tuple[int, int]], now: float) -> dict[str, tuple[int, int]]:
        """The files that are no longer being written, as far as a listing shows.

        Args:
            files: Size and modification time in milliseconds, by path.
            now: When they were listed, in seconds since 1970.
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
        # If the store's clock is ahead of ours, a file stays young for long. An unchanged file is finished.
        seen_stat, seen_at = self._seen.get(path, (None, now))
        return seen_stat == stat and now - seen_at >= APART

    def undecided(self, files: Mapping[str, tuple[int, int]]) -> bool:
        """True if a file with content waits: a second listing can show that it is finished."""
        return any(size for path, (size, _) in files.items() if path in self._seen)
