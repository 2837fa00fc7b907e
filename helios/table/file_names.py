"""Names of files that no reader takes."""

from __future__ import annotations

import os
import posixpath
import re
from urllib.parse import quote

SAFE = "_-!.~'()*,;:$&+=/@"
"""ASCII characters that Java leaves as they are in a path."""

GLOB = re.compile(r"[{}\[\]*?\\]")
HIDDEN = re.compile(r"[._](?!.*=).*|.*\._COPYING_", re.DOTALL)
ANY = {"*": "[^/]*", "?": "[^/]"}
UNFINISHED = re.compile(r"_(common_)?metadata.*|.*\.(tmp|crc)", re.DOTALL)


def is_glob(path: str) -> bool:
    return GLOB.search(path) is not None


def escaped(path: str) -> str:
    """A path as the glob that stands for it alone.

    Spark takes every path for a glob, and where it is told not to, it reads each file as often as there are such names.

    Examples:
        >>> escaped("in/a[1].csv")
        'in/a\\\\[1\\\\].csv'
    """
    return GLOB.sub(r"\\\g<0>", path)


def rooted(path: str) -> tuple[str, str]:
    """The folder before the first part of a path that is a glob, and the rest; of no glob nothing.

    Examples:
        >>> rooted("s3://b/lake/*/day=*/"), rooted("/lake/a")
        (('s3://b/lake', '*/day=*'), ('/lake/a', ''))
    """
    match = GLOB.search(path)
    if match is None:
        return path, ""
    root, _, _ = path[: match.start()].rpartition("/")
    return root or "/" * path.startswith("/") or ".", re.sub("/+", "/", path[len(root) :]).strip("/")


def globbed(glob: str) -> re.Pattern[str]:
    """The pattern of the paths that a glob matches, by Hadoop's rules.

    Args:
        glob: Parts of a path with `*`, `?`, `[a-z]`, `[^a]`, `{a,b}` or `\\` before a sign that stands for itself.

    Raises:
        re.error: A brace is not closed.

    Examples:
        >>> pattern = globbed("{eu,us}/day=202?-*/[!x]*.csv")
        >>> [p for p in ("eu/day=2026-1/a.csv", "us/day=2026-1/x.csv", "eu/day=2026-1/b/a.csv") if pattern.fullmatch(p)]
        ['eu/day=2026-1/a.csv']
    """
    within = 0
    made = []
    for part in re.findall(r"\\.|\[[^\]]*\]|.", glob, re.DOTALL):
        if len(part) > 2:
            made.append(f"[^{part[2:]}" if part[1] in "!^" else part)
        elif part in ANY:
            made.append(ANY[part])
        elif part in "{}" or (part == "," and within):
            within += {"{": 1, "}": -1, ",": 0}[part]
            made.append({"{": "(?:", "}": ")", ",": "|"}[part])
        else:
            made.append(re.escape(part.removeprefix("\\") or part))
    return re.compile("".join(made), re.DOTALL)


def is_hidden(name: str) -> bool:
    """True if Spark lists neither a file of this name nor the contents of a folder of this name.

    Examples:
        >>> [name for name in ("_temporary", ".a.csv", "_day=1", "a.csv._COPYING_", "a.csv") if is_hidden(name)]
        ['_temporary', '.a.csv', 'a.csv._COPYING_']
    """
    return HIDDEN.fullmatch(name) is not None


def is_data(name: str) -> bool:
    """True if a file of this name holds rows: it is not hidden, and not still being written.

    Examples:
        >>> [name for name in ("a.csv", "a.csv.tmp", "_SUCCESS", "_metadata") if is_data(name)]
        ['a.csv']
    """
    return not is_hidden(name) and UNFINISHED.fullmatch(name) is None


def encoded(path: str) -> str:
    """A path, or a part of it, as Java encodes it in a URI.

    Examples:
        >>> encoded("/in box/ä%.csv")
        '/in%20box/ä%25.csv'
    """
    return "".join(character if ord(character) > 127 else quote(character, safe=SAFE) for character in path)


def overlap(one: str, other: str) -> bool:
    """True if two paths may name the same files: by other spellings, as a folder that contains the other, or as globs.

    Examples:
        >>> overlap("/in/data", "file:///in/./data/"), overlap("/in/data", "/in/data/*.csv"), overlap("s3://b/i", "s3a://b/i")
        (True, True, True)
        >>> overlap("/in/a*.csv", "/in/b*.csv"), overlap("/in/data", "/in/database"), overlap("/in/2024*", "/in/*.csv")
        (False, False, True)
    """
    parts = zip(_plain(one).split("/"), _plain(other).split("/"), strict=False)  # a folder has what is below it
    return all(_may_be(first, second) for first, second in parts)


def _may_be(one: str, other: str) -> bool:
    """True if a name or a glob may match the same name as another one."""
    if is_glob(one) and is_glob(other):  # compared by their prefixes and suffixes
        begins = GLOB.split(one)[0], GLOB.split(other)[0]
        ends = GLOB.split(one)[-1], GLOB.split(other)[-1]
        starts = begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])
        return starts and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))
    if not is_glob(one):
        one, other = other, one
    try:
        return globbed(one).fullmatch(other) is not None if is_glob(one) else one == other
    except re.error:  # a brace that is closed behind a slash
        return True


def _plain(path: str) -> str:
    """A path in one form: without `.`, `..` and `//`, a local one absolute, and of a store with one scheme."""
    scheme, _, rest = path.rpartition("://") if "://" in path else ("", "", path)
    if path.startswith("file:"):
        scheme, rest = "", "/" + path.removeprefix("file:").lstrip("/")
    if scheme in ("", "file"):
        return os.path.abspath(rest)
    return f"{ {'s3a': 's3', 's3n': 's3'}.get(scheme, scheme) }:/{posixpath.normpath('/' + rest)}"
