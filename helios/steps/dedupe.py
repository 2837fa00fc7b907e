"""`dedupe`: keeps one row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.arguments import listed, texts
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller, duration, show_seconds


@dataclass(frozen=True, kw_only=True)
class Dedupe(Step):
    traits: ClassVar[Traits] = Traits(combines=True, stateful=True, shuffles=True, same_columns=True)

    keys: tuple[str, ...]
    within: float | None = None

    def text(self) -> str:
        within = f", within={show_seconds(self.within)}" if self.within else ""
        return f"dedupe({', '.join(self.keys)}{within})"


def dedupe(*keys: str | Sequence[str], within: float | str | timedelta | None = None) -> Transform:
    """Keeps one row of each key: `watermark("ts", "10 minutes") >> dedupe("id", within="1 day")`.

    Args:
        keys: The key columns; two nulls are equal.
        within: Drops a row if its event time, which is the watermark's column, is at most this much later than the
            event time of the last row kept for the key, however rows are split into batches. On a followed source, a
            row is written when the watermark has passed it. Without `within`, one row of each key is kept for ever; on
            a followed source, the keys must then include the watermark's column.

    Raises:
        DeclarationError: There is no key.
    """
    if not listed(keys):
        raise DeclarationError("dedupe() needs at least one key.", where=caller(), fix='write dedupe("id").')
    named = texts(listed(keys), "dedupe")
    return as_step(Dedupe(keys=named, within=duration(within, "within") if within is not None else None))
