"""Names and paths of files: globs, hidden and unfinished files, and paths that overlap."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from urllib.parse import quote

SAFE = "_-!.~'()*,;:$&+=/@"
"""The ASCII characters, besides letters and digits, that Java does not encode in the path of a URI."""

GLOB = re.compile(r"[{}\[\]*?\\]")
"""A character with a meaning in globs."""
HIDDEN = re.compile(r"\..*|_(?!.*=).*|.*\._COPYING_", re.DOTALL)
"""Names that Spark does not list; `_day=1` is a folder of a partition, and is listed."""
WILDCARDS = {"*": "[^/]*", "?": "[^/]"}
"""The regular expressions for the wildcards of a glob."""
NOT_DATA = re.compile(r"_(common_)?metadata.*|.*\.(tmp|crc)", re.DOTALL)
"""Names of metadata files, checksums, and files that are still being written."""


def is_glob(path: str) -> bool:
    return GLOB.search(path) is not None


def escaped(path: str) -> str:
    """A path as a glob that matches this path only.

    Spark treats every path as a glob. If globs were turned off instead, Spark would read all given paths again for
    each path that has a glob character.

    Examples:
        >>> escaped("in/a[1].csv")
        'in/a\\\\[1\\\\].csv'
    """
    return GLOB.sub(r"\\\g<0>", path)


def split_glob(path: str) -> tuple[str, str]:
    """Splits a path before its first part with a wildcard: the folder, and the rest (empty without a wildcard).

    Examples:
        >>> split_glob("s3://b/lake/*/day=*/"), split_glob("/lake/a")
        (('s3://b/lake', '*/day=*'), ('/lake/a', ''))
    """
    match = GLOB.search(path)
    if match is None:
        return path, ""
    root, _, _ = path[: match.start()].rpartition("/")
    rest = re.sub("/+", "/", path[len(root) :]).strip("/")
    if not root:
        root = "/" if path.startswith("/") else "."
    return root, rest


def glob_pattern(glob: str) -> re.Pattern[str]:
    """The pattern of the paths that a glob matches, by Hadoop's rules.

    Args:
        glob: Parts of a path with `*`, `?`, `[a-z]`, `[^a]`, `{a,b}` or `\\` before a literal character.

    Raises:
        re.error: A brace has no partner, or the characters in brackets are not a class.

    Examples:
        >>> pattern = glob_pattern("{eu,us}/day=202?-*/[!x]*.csv")
        >>> [p for p in ("eu/day=2026-1/a.csv", "us/day=2026-1/x.csv", "eu/day=2026-1/b/a.csv") if pattern.fullmatch(p)]
        ['eu/day=2026-1/a.csv']
    """
    open_braces = 0
    pieces = []
    for part in re.findall(r"\\.|\[[^\]]*\]|.", glob, re.DOTALL):
        if len(part) > 2:  # a character class in brackets
            pieces.append(f"[^{part[2:]}" if part[1] in "!^" else part)
        elif part in WILDCARDS:
            pieces.append(WILDCARDS[part])
        elif part in "{}" or (part == "," and open_braces):
            open_braces += {"{": 1, "}": -1, ",": 0}[part]
            pieces.append({"{": "(?:", "}": ")", ",": "|"}[part])
        else:
            pieces.append(re.escape(part.removeprefix("\\") or part))
    return re.compile("".join(pieces), re.DOTALL)


def local_matches(path: str) -> list[str]:
    """The local files and folders that a path names, by Hadoop's rules: a path that does not exist is a glob."""
    if os.path.lexists(path):
        return [path]
    root, rest = split_glob(path)
    try:
        pattern = glob_pattern(rest)
    except re.error:
        return []
    found: list[str] = []
    for folder, below, names in os.walk(root, followlinks=True) if rest else ():
        relative = os.path.relpath(folder, root)
        parts = [] if relative == "." else relative.split(os.sep)
        found += [os.path.join(folder, n) for n in (*below, *names) if pattern.fullmatch("/".join((*parts, n)))]
        if len(parts) >= rest.count("/"):
            below.clear()
    return sorted(found)


def data_files_below(path: str) -> Iterator[str]:
    """The local data files that a path names, and those inside the folders that the path names."""
    for match in local_matches(path):
        if os.path.isfile(match) and is_data(os.path.basename(match)):
            yield match
        for folder, below, names in os.walk(match):
            below[:] = sorted(name for name in below if not is_hidden(name))
            yield from (os.path.join(folder, name) for name in sorted(names) if is_data(name))


def is_hidden(name: str) -> bool:
    """True if Spark lists neither a file of this name nor the contents of a folder of this name.

    Examples:
        >>> [name for name in ("_temporary", ".a=1.csv", "_day=1", "a.csv._COPYING_", "a.csv") if is_hidden(name)]
        ['_temporary', '.a=1.csv', 'a.csv._COPYING_']
    """
    return HIDDEN.fullmatch(name) is not None


def is_data(name: str) -> bool:
    """True if a file of this name contains rows: it is not hidden, unfinished, metadata or a checksum.

    Examples:
        >>> [name for name in ("a.csv", "a.csv.tmp", "_SUCCESS", "_metadata") if is_data(name)]
        ['a.csv']
    """
    return not is_hidden(name) and NOT_DATA.fullmatch(name) is None


def encoded(path: str) -> str:
    """A path, or a part of it, as Java encodes it in a URI.

    Examples:
        >>> encoded("/in box/ä%.csv")
        '/in%20box/ä%25.csv'
    """
    return "".join(character if ord(character) > 127 else quote(character, safe=SAFE) for character in path)


def overlap(one: str, other: str) -> bool:
    """True if two paths may name the same files: as two spellings, as a folder and a path inside it, or as globs.

    Examples:
        >>> overlap("/in/data", "file:///in/./data/"), overlap("/in/data", "/in/data/*.csv"), overlap("s3://b/i", "s3a://b/i")
        (True, True, True)
        >>> overlap("/in/a*.csv", "/in/b*.csv"), overlap("/in/data", "/in/database"), overlap("/in/2024*", "/in/*.csv")
        (False, False, True)
    """
    # The longer path's further parts do not count: they lie inside the folder that the shorter path names.
    parts = zip(_normalized(one).split("/"), _normalized(other).split("/"), strict=False)
    return all(_may_match(first, second) for first, second in parts)


def _may_match(one: str, other: str) -> bool:
    """True if two names or globs may match the same name."""
    if is_glob(one) and is_glob(other):  # compared by their prefixes and suffixes only
        prefix, *_, suffix = GLOB.split(one)
        other_prefix, *_, other_suffix = GLOB.split(other)
        same_prefix = prefix.startswith(other_prefix) or other_prefix.startswith(prefix)
        return same_prefix and (suffix.endswith(other_suffix) or other_suffix.endswith(suffix))
    glob, name = (one, other) if is_glob(one) else (other, one)
    if not is_glob(glob):
        return glob == name
    try:
        return glob_pattern(glob).fullmatch(name) is not None
    except re.error:  # a brace is closed only in a later part of the path
        return True


def _normalized(path: str) -> str:
    """A path without `.`, `..` and `//`. A local path becomes absolute; the schemes of S3 become `s3`."""
    scheme, _, rest = path.rpartition("://") if "://" in path else ("", "", path)
    if path.startswith("file:"):
        scheme, rest = "", "/" + path.removeprefix("file:").lstrip("/")
    if scheme in ("", "file"):
        return os.path.abspath(rest)
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    return f"{scheme}:/{posixpath.normpath('/' + rest)}"
