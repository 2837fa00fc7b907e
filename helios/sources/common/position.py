"""`SourcePosition`, the base class of the positions in sources."""

from __future__ import annotations

from typing import ClassVar, Self


class SourcePosition:
    """How far a source has been read. Each kind of source has a subclass, which parses the positions of that kind.

    The defaults here suit a source that is not a table.
    """

    only_followed: ClassVar[bool] = True
    """True if only followed sources record positions of this class; False if sources that are read once do so, too."""

    @classmethod
    def of(cls, value: object) -> Self | None:
        """The position in a JSON value of any source; None if another kind wrote the value."""
        raise NotImplementedError

    @property
    def snapshot(self) -> int | None:
        """The last snapshot that was read, at least in part; None for a source that is not a table."""
        return None

    @property
    def partial(self) -> bool:
        """True if a part of `snapshot` has not been read yet."""
        return False

    @property
    def is_beginning(self) -> bool:
        """True if the position itself shows that no data precedes it; False if that is unknown."""
        return False

    @property
    def is_rebootstrapped(self) -> bool:
        """True if unread snapshots have expired, so that only the new rows of a later state are read in their place."""
        return False

    def text(self, before: SourcePosition | None) -> str:
        """The data between an earlier position and this position, as text.

        Args:
            before: The earlier position; None if that is unknown.
        """
        return f"up to {self}"
