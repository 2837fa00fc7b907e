"""Small values that users write as text (durations, sizes, identifiers, secrets), and the line that wrote them."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from helios.errors import DeclarationError, Origin, near_miss

if TYPE_CHECKING:
    from datetime import datetime

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_NOT_USERS = (_PACKAGE, "<string>", contextlib.__file__)
"""Beginnings of paths that are not the user's.

`<string>` is the file of a dataclass's generated `__init__`. The frames of contextlib are on the stack while a context
manager is entered.
"""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_UNIT_WORDS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h", "day": "d"}

T = TypeVar("T")

Point: TypeAlias = "int | str | datetime"
"""A snapshot as a user names it: an id, a time (a datetime or ISO text), or any other text for a branch or a tag."""


def caller() -> Origin:
    """The nearest line on the stack that is outside of Helios (takes 0.8 us; a traceback takes 39 us)."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_USERS):
            break
        frame = frame.f_back
    file = frame.f_code.co_filename
    if os.path.isabs(file):
        relative = os.path.relpath(file)
        file = file if relative.startswith("..") else relative
    return Origin(file, frame.f_lineno)


def is_pipeline_name(name: str, *, former: bool = False) -> bool:
    """True if a text is a valid name of a pipeline. A former name may also be `table@branch`."""
    return bool(name) and all(c.isalnum() or c in ("_-.@" if former else "_-.") for c in name)


def duration(value: float | str | timedelta, name: str) -> float:
    """Seconds, from a number of seconds, a text such as "30s", or a timedelta.

    Args:
        value: The duration; text is a number and a unit (ms, s, m, h, d, or the word).
        name: The name of the argument, for the error.

    Raises:
        DeclarationError: The text has no known unit, or the duration is not positive.

    Examples:
        >>> duration("2 minutes", "poll")
        120.0
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise DeclarationError(
            f"{name}={value!r} is not a duration.",
            where=caller(),
            fix='write seconds (60), text ("30s", "5 minutes") or a timedelta.',
        )
    elif isinstance(value, str):
        seconds = _parse_duration(value, name)
    else:
        seconds = _as_float(value)
    if not 0 < seconds < float("inf"):
        raise DeclarationError(
            f"{name}={value!r} is not a positive duration.", where=caller(), fix="give a time above zero."
        )
    return seconds


def _as_float(value: float | str) -> float:
    """A number as a float; infinity if it is too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _parse_duration(text: str, name: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match:
        raise DeclarationError(
            f"{name}={text!r} is not a duration.", where=caller(), fix='write it as "30s", "5m", "1h" or "2 days".'
        )
    number, unit = match.groups()
    word = unit.lower()
    short = _UNIT_WORDS.get(word.removesuffix("s"), word) if word else "s"
    if short not in _SECONDS:
        known = [*_SECONDS, *(f"{w}s" for w in _UNIT_WORDS)]
        raise DeclarationError(f"{name}={text!r}: unknown unit {unit!r}. {near_miss(unit, known)}", where=caller())
    return float(number) * _SECONDS[short]


def show_seconds(seconds: float) -> str:
    """A duration in words.

    Examples:
        >>> show_seconds(90), show_seconds(3600), show_seconds(0.25)
        ('90 s', '1 h', '0.25 s')
    """
    for size, unit in ((86400, "d"), (3600, "h")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.12g} {unit}"
    return f"{seconds:.12g} s"


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Examples:
        >>> counted(1, "row"), counted(1200, "file"), counted(0, "batch")
        ('1 row', '1,200 files', '0 batches')
    """
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


_BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}


def size(value: int | str, name: str) -> int:
    """Bytes, from a number of bytes or a text such as "128MB"; a kilobyte is 1,024 bytes.

    Args:
        value: The size; text is a number and a unit (B, KB, MB, GB, TB, or KiB and so on).
        name: The name of the argument, for the error.

    Raises:
        DeclarationError: The text does not parse, or the size is not positive.

    Examples:
        >>> size("128MB", "target_file_size"), size("1.5 GiB", "target_file_size")
        (134217728, 1610612736)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value) if isinstance(value, str) else None
    if isinstance(value, bool) or not (isinstance(value, int) or match):
        raise DeclarationError(
            f"{name}={value!r} is not a size.", where=caller(), fix='write it as "128MB", "1GB" or a number of bytes.'
        )
    number = _as_float(value if match is None else match.group(1))
    if match is not None and match.group(2):
        unit = match.group(2).lower().replace("ib", "b")
        unit = unit if unit.endswith("b") else f"{unit}b"
        if unit not in _BYTES:
            known = [u.upper() for u in _BYTES]
            raise DeclarationError(
                f"{name}={value!r}: unknown unit {match.group(2)!r}. {near_miss(match.group(2), known)}", where=caller()
            )
        number *= _BYTES[unit]
    if not 1 <= number < float("inf"):
        raise DeclarationError(f"{name}={value!r} is not a positive size.", where=caller(), fix="give at least a byte.")
    return int(number)


_BAD_PART = re.compile(r"[/\\\x00-\x1f\x7f]")
_BAD_REF = re.compile(r"[/\\\x00-\x1f\x7f`]|^\s|\s$|^$|\.\.")


def is_ref_name(name: object) -> bool:
    """True if a tag, or a branch other than main, may have this name. A name of digits would be read as a snapshot id.

    Examples:
        >>> is_ref_name("audit-2026"), is_ref_name("2026"), is_ref_name("a/b"), is_ref_name("main")
        (True, False, False, False)
    """
    return isinstance(name, str) and not _BAD_REF.search(name) and not name.isdigit() and name != "main"


@dataclass(frozen=True)
class Identifier:
    """A dotted name as the user wrote it. It is validated, but not yet resolved to a catalog."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, where: Origin | None = None) -> Identifier:
        """Splits a dotted name; a part in backticks may contain dots.

        Raises:
            DeclarationError: The text is not a dotted name of a table.

        Examples:
            >>> Identifier.parse("prod.sales.`my.orders`").parts
            ('prod', 'sales', 'my.orders')
        """
        if not isinstance(text, str):
            raise DeclarationError(
                f"A table name must be text, not {type(text).__name__}.",
                where=where or caller(),
                fix='write "namespace.table" or "catalog.namespace.table".',
            )
        # The empty matches are empty parts: between two dots, before a first dot, and after a last one.
        parts = tuple(
            part[1:-1] if len(part) > 1 and part[0] == part[-1] == "`" else part
            for part in re.findall(r"`[^`]*`|[^.`]+|(?<=\.)(?=\.)|^(?=\.)|(?<=\.)$", text)
        )
        invalid_part = next((p for p in parts if not p.strip() or _BAD_PART.search(p) or p in (".", "..")), None)
        is_quoted_wrongly = "`" in re.sub(r"(?:(?<=\.)|^)`[^`]*`(?=\.|$)", "", text)
        if invalid_part is not None or ".." in text.replace("`", "") or not parts or is_quoted_wrongly:
            rule = (
                "backticks must enclose a whole part"
                if is_quoted_wrongly
                else ("parts must not be empty or contain '/', '\\', '..' or control characters")
            )
            raise DeclarationError(
                f"{text!r} is not a table name: {rule}.",
                where=where or caller(),
                fix='write "namespace.table" or "catalog.namespace.table".',
            )
        if len(parts) < 2:
            raise DeclarationError(
                f"{text!r} has no namespace.",
                where=where or caller(),
                fix=f'write "namespace.{text}", or "catalog.namespace.{text}".',
            )
        return cls(parts)

    def __str__(self) -> str:
        return ".".join(f"`{p}`" if "." in p else p for p in self.parts)


_PASSWORD_IN_URL = r"://[^/@\s]*:[^/@\s]+@"
SECRETS = (
    r"(?i)secret|passw|token|credential|access[.-]?key|account[.-]?key|service-account|sas|connection[.-]string|auth"
    r"|private|api-?key|[.]key$|(en|de)cryption-?key|signing.?key|cookie|bearer|pwd|keystore.pass|" + _PASSWORD_IN_URL
)
"""A pattern for names of secrets and for values with a password in a URL; valid in Python and in Java."""


def is_secret(name: str, value: str) -> bool:
    """True if the name of a setting is that of a secret, or its value is a URL with a password.

    Examples:
        >>> is_secret("s3.access-key-id", "x"), is_secret("uri", "https://me:pw@host"), is_secret("uri", "https://host")
        (True, True, False)
    """
    return re.search(SECRETS, name) is not None or re.search(_PASSWORD_IN_URL, value) is not None


class Secret:
    """A value that is never shown: its text, repr and JSON are `***`; `.reveal()` returns the value."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __str__(self) -> str:
        return "***"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


PARAMETERS: dict[str, str] = {}
"""The values of `--set NAME=VALUE`, read by `param` while a script is loaded."""


def param(name: str, default: T, *, parse: Callable[[str], Any] | None = None) -> T:
    """Returns the value of a parameter: that of `helios run --set NAME=VALUE`, or else the default.

    The text is converted to the type of the default (bool, int, float, str), or by `parse`.

    Raises:
        DeclarationError: The text does not convert.

    Examples:
        >>> param("day", "2026-01-01")
        '2026-01-01'
    """
    USED_PARAMETERS.add(name)
    if name not in PARAMETERS:
        return default
    text = PARAMETERS[name]
    convert: Callable[[str], Any] = parse or _CONVERT.get(type(default), str)
    try:
        converted: T = convert(text)
    except (ValueError, KeyError) as error:
        raise DeclarationError(
            f"--set {name}={text}: not a {type(default).__name__}.",
            where=caller(),
            fix=f"give a value like the default, {default!r}.",
        ) from error
    return converted


USED_PARAMETERS: set[str] = set()
"""The parameters that the script has read. `--set` with any other name is an error."""
_BOOLS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_CONVERT: Mapping[type, Callable[[str], Any]] = {bool: lambda t: _BOOLS[t.lower()], int: int, float: float, str: str}
