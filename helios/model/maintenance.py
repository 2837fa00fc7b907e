"""The maintenance that `.maintain(...)` of a sink declares for the sink's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from helios.errors import DeclarationError
from helios.model.values import caller, duration, show_seconds, size

ORPHAN_SECONDS = 86400.0
"""The minimum age of an orphan file, as in Iceberg's procedure: a younger file may belong to an unfinished commit."""


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """The maintenance of a table by its writer, between batches.

    Attributes:
        compact: The bytes of files that compaction writes; 0 for the table's target size, None for no compaction.
        expire: The age in seconds at which snapshots expire; None for never.
        orphans: The age in seconds at which files that no snapshot names are deleted; None for never.
        readers: Checkpoints of other readers of the table. The snapshots that they read next do not expire.
    """

    compact: int | None = None
    expire: float | None = None
    orphans: float | None = None
    readers: tuple[str, ...] = ()


def maintenance(
    compact: bool | int | str | None = None,
    expire: float | str | timedelta | None = None,
    orphans: float | str | timedelta | None = None,
    readers: Sequence[str] = (),
) -> Maintenance:
    """Checks the arguments of `.maintain(...)`, and returns them as a `Maintenance`.

    Raises:
        DeclarationError: There is no setting, or a value is invalid.

    Examples:
        >>> maintenance(compact="128MB", expire="7d")
        Maintenance(compact=134217728, expire=604800.0, orphans=None, readers=())
    """
    readers = readers if isinstance(readers, str) or not isinstance(readers, Iterable) else tuple(readers)
    if not isinstance(readers, tuple) or not all(isinstance(path, str) and path.strip() for path in readers):
        raise DeclarationError(
            f"maintain(readers={readers!r}) takes the locations of checkpoints.",
            where=caller(),
            fix='write readers=["/data/checkpoints/orders"].',
        )
    settings = Maintenance(
        compact=_compact_size(compact),
        expire=None if expire is None else duration(expire, "expire"),
        orphans=None if orphans is None else orphan_age(orphans, "orphans"),
        readers=readers,
    )
    if settings.compact is None and settings.expire is None and settings.orphans is None:
        raise DeclarationError(
            "maintain() needs at least one setting.", where=caller(), fix='write maintain(compact=True, expire="7d").'
        )
    if settings.readers and settings.expire is None:
        raise DeclarationError(
            "maintain(readers=...) has no effect without expire=.",
            where=caller(),
            fix='add expire="7d", or leave readers out.',
        )
    return settings


def orphan_age(value: float | str | timedelta, name: str) -> float:
    """Returns the age in seconds from which a file that no snapshot names counts as an orphan.

    Args:
        value: Seconds, text such as "3d", or a timedelta.

    Raises:
        DeclarationError: The value is not a duration, or is less than a day.
    """
    seconds = duration(value, name)
    if seconds < ORPHAN_SECONDS:
        raise DeclarationError(
            f"{name}={value!r}: a file younger than {show_seconds(ORPHAN_SECONDS)} may be part of a commit under way.",
            where=caller(),
            fix='write "3d".',
        )
    return seconds


def _compact_size(compact: bool | int | str | None) -> int | None:
    if compact is None or compact is False:
        return None
    return 0 if compact is True else size(compact, "compact")
