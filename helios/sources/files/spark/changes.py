"""The messages about files that are gone or have changed since they were planned."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from helios.errors import RunError
from helios.sources.common.spark.protocol import ReplanNeeded
from helios.sources.files.declare import FilesSource
from helios.sources.files.log import Known
from helios.sources.files.spark.listing import Listed

NAMED = 3
"""So many files are named in a message."""

READ = "read already and {have} changed since"

PLANNED = "planned for this batch and {have} changed since"

MEANWHILE = "read for this batch and {have} changed meanwhile"


def gone_error(source: FilesSource, paths: Sequence[str]) -> RunError:
    return RunError(
        f"{_gone(paths, 'planned for this batch')}; nothing of the batch was written.",
        where=source.origin,
        fix='put it back, or declare .on_missing("skip") to go on without such files.',
    )


def refill_error(source: FilesSource, paths: Sequence[str]) -> RunError:
    return RunError(
        f"{_gone(paths, 'read')}: --full-refresh would empty the target, and could not fill it with their rows; "
        "nothing was deleted.",
        where=source.origin,
        fix='put them back; where their rows may go, declare .on_missing("skip").',
    )


def _gone(paths: Sequence[str], what: str) -> str:
    return f"{_named(paths)} {what}, and {'is' if len(paths) == 1 else 'are'} gone"


def changed_error(source: FilesSource, before: Known, now: Listed, what: str) -> RunError:
    """The error of files that were planned as `before`: `ReplanNeeded` where the source reads them as they are now.

    Args:
        source: The source.
        before: The files that have changed, with the size and time they were known by.
        now: Files as they are now.
        what: What was done with them: `READ`, `PLANNED` or `MEANWHILE`.
    """
    paths = list(before)
    path = paths[0]
    allowed = source.changed == "reread"
    more = "and" if allowed else 'or declare .on_change("reread") to read it again, and'
    return (ReplanNeeded if allowed else RunError)(
        f"{_named(paths)} {what.format(have='has' if len(paths) == 1 else 'have')}: {path} had "
        f"{_shown(before[path])}, and has {_shown(now[path])} now.",
        where=source.origin,
        fix=f"give the new content a name of its own, {more} start the run again.",
    )


def _named(paths: Sequence[str]) -> str:
    """Files in a sentence.

    Examples:
        >>> _named(["a.csv"]), _named(["a", "b", "c", "d", "e"])
        ('the file a.csv was', 'the files a, b, c and 2 more were')
    """
    return f"the file {paths[0]} was" if len(paths) == 1 else f"the files {_first(paths)} were"


def _first(paths: Sequence[str]) -> str:
    return ", ".join(paths[:NAMED]) + (f" and {len(paths) - NAMED:,} more" if len(paths) > NAMED else "")


def _shown(stat: tuple[int, int]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(stat[1] / 1000))
    return f"{stat[0]:,} bytes, modified {at}.{stat[1] % 1000:03d} UTC"


def unfinished(paths: Iterable[str]) -> str:
    """The message of a run about unread files that may still be written; empty if there are none."""
    young = sorted(paths)
    return f"not read yet, as they may still be written: {_first(young)}" if young else ""
