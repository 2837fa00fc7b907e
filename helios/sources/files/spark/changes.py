"""The errors and messages for files that are gone, have changed, or are still being written."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from helios.errors import RunError
from helios.sources.common.spark.protocol import ReplanNeeded
from helios.sources.files.declare import FilesSource
from helios.sources.files.log import FileStats
from helios.sources.files.spark.listing import Listed

MAX_NAMES = 3
"""The maximum number of files that a message names."""

# When a file changed. These texts follow "the file ... was".
READ = "read already and {have} changed since"
PLANNED = "planned for this batch and {have} changed since"
MEANWHILE = "read for this batch and {have} changed meanwhile"


def gone_error(source: FilesSource, paths: Sequence[str]) -> RunError:
    """The error for planned files that are gone."""
    return RunError(
        f"{_gone(paths, 'planned for this batch')}; nothing of the batch was written.",
        where=source.origin,
        fix='put the files back, or declare .on_missing("skip") to go on without such files.',
    )


def refill_error(source: FilesSource, paths: Sequence[str]) -> RunError:
    """The error for a full refresh that would lose the rows of files that are gone."""
    return RunError(
        f"{_gone(paths, 'read')}: --full-refresh would empty the target, and could not fill it with their rows again; "
        "nothing was deleted.",
        where=source.origin,
        fix='put the files back; if their rows may be lost, declare .on_missing("skip").',
    )


def _gone(paths: Sequence[str], event: str) -> str:
    return f"{_named(paths)} {event}, and {'is' if len(paths) == 1 else 'are'} gone"


def changed_error(source: FilesSource, before: FileStats, now: Listed, when: str) -> RunError:
    """The error for changed files: a `ReplanNeeded` if the source rereads such files.

    Args:
        before: The changed files, with the size and time that they had before.
        now: Files with their present size and time; all files of `before` are among them.
        when: When the files changed: `READ`, `PLANNED` or `MEANWHILE`.
    """
    paths = list(before)
    path = paths[0]
    rereads = source.changed == "reread"
    error = ReplanNeeded if rereads else RunError
    next_step = "and" if rereads else 'or declare .on_change("reread") to read it again, and'
    return error(
        f"{_named(paths)} {when.format(have='has' if len(paths) == 1 else 'have')}: {path} had "
        f"{_size_and_time(*before[path])}, and has {_size_and_time(*now[path])} now.",
        where=source.origin,
        fix=f"give the new content a name of its own, {next_step} start the run again.",
    )


def _named(paths: Sequence[str]) -> str:
    """The beginning of a sentence that names files.

    Examples:
        >>> _named(["a.csv"]), _named(["a", "b", "c", "d", "e"])
        ('the file a.csv was', 'the files a, b, c and 2 more were')
    """
    return f"the file {paths[0]} was" if len(paths) == 1 else f"the files {_shortened(paths)} were"


def _shortened(paths: Sequence[str]) -> str:
    return ", ".join(paths[:MAX_NAMES]) + (f" and {len(paths) - MAX_NAMES:,} more" if len(paths) > MAX_NAMES else "")


def _size_and_time(size: int, modified: int) -> str:
    seconds = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(modified / 1000))
    return f"{size:,} bytes, modified {seconds}.{modified % 1000:03d} UTC"


def unfinished_text(paths: Iterable[str]) -> str:
    """The message about files that are not read yet, as they may still be written; empty if there are none."""
    young = sorted(paths)
    return f"not read yet, as they may still be written: {_shortened(young)}" if young else ""
