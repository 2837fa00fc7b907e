"""`File`, a file in a listing of a folder."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class File:
    """A file under a source's path.

    Attributes:
        path: Its full path, with scheme (`file:/data/a.csv`).
        size: Its length in bytes.
        modified: Its modification time, in milliseconds since 1970.
    """

    path: str
    size: int
    modified: int
