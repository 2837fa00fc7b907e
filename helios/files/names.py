"""Names of files that no reader takes."""

from __future__ import annotations

import re

GLOB = re.compile(r"[{}\[\]*?\\]")
HIDDEN = re.compile(r"[._](?!.*=).*|.*\._COPYING_", re.DOTALL)
UNFINISHED = re.compile(r"_(common_)?metadata.*|.*\.(tmp|crc)", re.DOTALL)


def is_glob(path: str) -> bool:
    return GLOB.search(path) is not None


def is_hidden(name: str) -> bool:
    """Whether Spark lists neither a file of this name nor what is in a folder of this name.

    Examples:
        >>> [name for name in ("_temporary", ".a.csv", "_day=1", "a.csv._COPYING_", "a.csv") if is_hidden(name)]
        ['_temporary', '.a.csv', 'a.csv._COPYING_']
    """
    return HIDDEN.fullmatch(name) is not None


def is_data(name: str) -> bool:
    """Whether a file of this name holds rows: it is not hidden, and not still being written.

    Examples:
        >>> [name for name in ("a.csv", "a.csv.tmp", "_SUCCESS", "_metadata") if is_data(name)]
        ['a.csv']
    """
    return not is_hidden(name) and UNFINISHED.fullmatch(name) is None
