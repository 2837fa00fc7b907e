"""`watermark`: declares how late a row may come."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, TypeAlias, get_args

from helios.model.arguments import one_of, texts
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import duration, show_seconds

OnLate: TypeAlias = Literal["drop", "quarantine"]
ON_LATE: tuple[OnLate, ...] = get_args(OnLate)


@dataclass(frozen=True, kw_only=True)
class Watermark(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, stateful=True, same_columns=True)

    column: str
    delay: float
    on_late: OnLate = "drop"

    @property
    def state_text(self) -> str:
        """The text without `on_late`, on which Spark's state does not depend."""
        return f"watermark({self.column}, {show_seconds(self.delay)})"

    def text(self) -> str:
        on_late = "" if self.on_late == "drop" else f", on_late={self.on_late}"
        return f"watermark({self.column}, {show_seconds(self.delay)}{on_late})"


def watermark(column: str, delay: float | str | timedelta, *, on_late: OnLate = "drop") -> Transform:
    """Declares how late a row may come by its event time: `watermark("ts", "10 minutes", on_late="quarantine")`.

    Args:
        column: The event time.
        delay: How far a row's event time may lie before the newest event time so far.
        on_late: What happens to a row that comes too late for a window or `dedupe` of a followed source: "drop" leaves
            the row out and counts it, "quarantine" counts it and writes it to the sink's `.quarantine(table)`.

    Raises:
        DeclarationError: `on_late` is unknown.
    """
    late = one_of(on_late, ON_LATE, "watermark(on_late=)")
    return as_step(Watermark(column=texts([column], "watermark")[0], delay=duration(delay, "delay"), on_late=late))
