"""Rows of a source that a batch has read, found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST = 3
"""Rows of one source that are shown."""


@dataclass(frozen=True, kw_only=True)
class Again:
    """What a source still has of a row that a batch has read.

    Attributes:
        rows: The rows with the same values in some columns, at most `MOST`.
        count: How many of them there are.
        by: The columns that were compared.
        places: Where they are: files with lines, snapshots; none where the source has no such places.
        note: Why none can be found, or what may be missing; None where nothing is.
    """

    rows: tuple[Mapping[str, Any], ...] = ()
    count: int = 0
    by: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    note: str | None = None
