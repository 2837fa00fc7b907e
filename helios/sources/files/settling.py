"""Which files of a listing are finished: a file that is still being written waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

YOUNG = 2.0
"""Seconds since a file's last change in which it may still be written: it is looked at a second time."""

APART = 1.0
"""Seconds between two looks at a file that count as two; S3 tells versions apart by whole seconds."""

EMPTY = 60.0
"""Seconds after which an empty file counts as finished, in a format that has no empty files."""

BY_LINE = ("csv", "json", "text")
"""Formats in which an empty file is one without rows: it waits until it is filled."""

AT_ONCE = ("gs",)
"""Stores where a file appears when it is closed, whole, and two versions of it never have the same time."""


@dataclass
class Settling:
    """The observations of young files, which may still be written.

    Attributes:
        format: The format of the files.
    """

    format: str
    _seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)

    def finished(self, files: Mapping[str, tuple[int, int]], now: float) -> dict[str, tuple[int, int]]:
        """The files that are no longer written, as far as a listing shows.

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
                before = self._seen.get(path)
                seen[path] = before if before is not None and before[0] == stat else (stat, now)
        self._seen = seen
        return settled

    def _done(self, path: str, stat: tuple[int, int], now: float) -> bool:
        size, modified = stat
        age = now - modified / 1000
        if not size:
            return self.format not in BY_LINE and age >= EMPTY
        if age >= YOUNG or path.partition(":")[0] in AT_ONCE:
            return True
        # A clock that is ahead of ours makes files young for ever: what stays as it is, is finished.
        before = self._seen.get(path)
        return before is not None and before[0] == stat and now - before[1] >= APART

    def undecided(self, files: Mapping[str, tuple[int, int]]) -> bool:
        """True if a second listing would settle a file that has content."""
        return any(files[path][0] for path in self._seen if path in files)
