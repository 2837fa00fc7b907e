"""The log of Spark's file stream, with which earlier versions followed folders: what it names counts as read.

<checkpoint>/sources/<source>/
  7           line by line, the files that batch 7 of the log added
  9.compact   the files of batches 0 to 9
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.files.log import Store
from helios.sources.files.place import UNKNOWN

COMPACT = ".compact"


def offset_of(position: Mapping[str, Any]) -> int | None:
    """The number of a batch of Spark's log that a position names; None for a position of our own."""
    number = position.get("logOffset")
    return int(number) if number is not None else None


def between(
    store: Store, root: str, number: int, after: Mapping[str, Any] | None, upto: Mapping[str, Any]
) -> list[File]:
    """`files_of` two positions of Spark's log; None is its beginning.

    Raises:
        CheckpointError: The log is missing or damaged.
    """
    first, last = offset_of(after) if after is not None else None, offset_of(upto)
    assert last is not None
    return files_of(store, root, number, first if first is not None else -1, last)


def files_of(store: Store, root: str, number: int, after: int, upto: int) -> list[File]:
    """The files of batches in `(after, upto]`; their sizes are unknown.

    Args:
        store: The files of the checkpoint.
        root: The location of the checkpoint.
        number: The number of the source among the followed ones.
        after: A batch of the log; -1 for all.
        upto: A later one.

    Raises:
        CheckpointError: The log is missing or damaged.
    """
    folder = f"sources/{number}"
    names = store.names(folder)
    compacts = sorted(int(n.removesuffix(COMPACT)) for n in names if n.endswith(COMPACT) and n[0].isdigit())
    last = compacts[-1] if compacts else -1
    wanted = [f"{last}{COMPACT}"] if compacts else []
    wanted += [str(batch) for batch in range(last + 1, upto + 1)]
    found: list[File] = []
    for name in wanted:
        where = f"{root}/{folder}/{name}"
        found += [file for batch, file in _parsed(store.read(f"{folder}/{name}"), where) if after < batch <= upto]
    return found


def _parsed(text: str | None, where: str) -> list[tuple[int, File]]:
    lines = (text or "").splitlines()
    try:
        if not lines or lines[0] != "v1":
            raise ValueError("not a log of version 1")
        entries = [json.loads(line) for line in lines[1:]]
        return [(int(one["batchId"]), File(_plain(one["path"]), UNKNOWN, int(one["timestamp"]))) for one in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{where} is missing or damaged ({error}): it names the files that an earlier version has read.",
            fix="restore the checkpoint from a backup, refill the target with `helios run --full-refresh`, or run "
            "under a new name into a new target.",
        ) from error


def _plain(path: str) -> str:
    """A path as Hadoop prints it, from one that Spark has encoded.

    Examples:
        >>> _plain("file:///in%20box/a.csv"), _plain("s3a://b/a%25.csv")
        ('file:/in box/a.csv', 's3a://b/a%.csv')
    """
    path = unquote(path)
    return f"file:/{path.removeprefix('file:').lstrip('/')}" if path.startswith("file:") else path
