"""The checks of `helios doctor` for a source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Look:
    """One look.

    Attributes:
        name: What is looked at.
        what: Looks, and returns what was seen.
        where: The address.
        remedy: The fix of a failure whose cause is unknown.
        needed: Whether nothing else can be seen where all such looks fail.
    """

    name: str
    what: Callable[[], str]
    where: str = ""
    remedy: str | None = None
    needed: bool = False
