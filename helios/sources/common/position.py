"""Positions of sources: the base class for the positions of a kind."""

from __future__ import annotations

from typing import ClassVar, Self


class SourcePosition:
    """How far a source is read. Each kind of source has a class of its own, which parses what its sources have written.

    The attributes are those of a source that is no table.
    """

    only_followed: ClassVar[bool] = True
    """True if only a followed source has such a position in the record of a batch."""

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The position from the JSON of any source; None for other kinds."""
        raise NotImplementedError

    @property
    def snapshot(self) -> int | None:
        """The last snapshot of a table of which anything is read."""
        return None

    @property
    def partial(self) -> bool:
        """True if a part of that snapshot is not read yet."""
        return False

    def text(self, before: SourcePosition | None) -> str:
        """What lies between an earlier position and this one, for people.

        Args:
            before: The earlier position; None where it is not known.
        """
        return f"up to {self}"
