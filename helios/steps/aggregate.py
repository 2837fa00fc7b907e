"""`aggregate`, `window` and `session_window`: aggregate groups of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, NamedTuple

from helios.model.arguments import expression_texts, listed, texts
from helios.model.expressions import Expression, SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import duration, show_seconds
from helios.steps.pairs import Pairs, column_pairs, expressions, shown


class TimeWindow(NamedTuple):
    """A time window: the event-time column; the size, or the gap of a session; and the slide. Spans are in seconds."""

    column: str
    size: float
    slide: float | None


@dataclass(frozen=True, kw_only=True)
class Aggregate(Step):
    """Groups by expressions, and by a time window or a session if `window` is set."""

    traits: ClassVar[Traits] = Traits(combines=True, stateful=True, shuffles=True)

    by: tuple[str, ...]
    columns: Pairs
    window: TimeWindow | None = None
    session: bool = False

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (*self.by, *expressions(self.columns), *([self.window.column] if self.window is not None else []))

    def name_after(self, column: str) -> str | None:
        return column if column.lower() in (text.strip().lower() for text in self.by) else None

    def text(self) -> str:
        if self.window is None:
            return f"aggregate([{', '.join(self.by)}], {shown(self.columns)})"
        column, size, slide = self.window
        every = f", every {show_seconds(slide)}" if slide else ""
        grouped = f".group_by({', '.join(self.by)})" if self.by else ""
        kind = "session_window" if self.session else "window"
        return f"{kind}({column}, {show_seconds(size)}{every}){grouped}.agg({shown(self.columns)})"


def aggregate(
    by: SqlText | Sequence[SqlText], columns: Mapping[str, SqlText] | None = None, /, **expressions: SqlText
) -> Transform:
    """Groups by columns and aggregates: `aggregate(["country"], n="count(*)", total="sum(amount)")`."""
    keys = tuple(by) if isinstance(by, Iterable) and not isinstance(by, (str, Expression)) else (by,)
    return as_step(
        Aggregate(by=expression_texts(keys, "aggregate"), columns=column_pairs(columns, "aggregate", expressions))
    )


@dataclass(frozen=True)
class Window:
    """A time window without its aggregates; `.agg(...)` completes it."""

    column: str
    size: float
    slide: float | None
    by: tuple[str, ...] = ()
    session: bool = False

    def group_by(self, *by: SqlText | Sequence[SqlText]) -> Window:
        """Groups by columns in addition to the window."""
        return replace(self, by=self.by + expression_texts(listed(by), "group_by"))

    def agg(self, columns: Mapping[str, SqlText] | None = None, /, **expressions: SqlText) -> Transform:
        """Aggregates per window and group: `window_start`, `window_end`, the groups, then these columns."""
        pairs = column_pairs(columns, "agg", expressions)
        window = TimeWindow(self.column, self.size, self.slide)
        return as_step(Aggregate(by=self.by, columns=pairs, window=window, session=self.session))


def window(column: str, size: float | str | timedelta, slide: float | str | timedelta | None = None) -> Window:
    """Event-time windows of one size, sliding ones if `slide` is given: `window("ts", "1 hour").agg(n="count(*)")`."""
    return Window(
        texts([column], "window")[0],
        duration(size, "size"),
        duration(slide, "slide") if slide is not None else None,
    )


def session_window(column: str, gap: float | str | timedelta) -> Window:
    """Event-time sessions: a row joins the session of the previous row of its group, if the row follows within the gap.

    A session ends one gap after its last row: `session_window("ts", "30 minutes").group_by("user").agg(n="count(*)")`.
    """
    return Window(texts([column], "session_window")[0], duration(gap, "gap"), None, session=True)
