"""The declared steps: strings are Spark SQL expressions, and their text shows in the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, TypeAlias, get_args

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import listed, one_of, texts
from helios.model.flow import Call, Function, Step, Transform
from helios.model.joins import Join, Union
from helios.model.values import caller, duration, show_seconds

Pairs = tuple[tuple[str, str], ...]

OnFail: TypeAlias = Literal["fail", "drop", "quarantine"]
ON_FAIL: tuple[OnFail, ...] = get_args(OnFail)

OnLate: TypeAlias = Literal["drop", "quarantine"]
ON_LATE: tuple[OnLate, ...] = get_args(OnLate)


@dataclass(frozen=True, kw_only=True)
class Where(Step):
    condition: str

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (self.condition,)

    def text(self) -> str:
        return f"where({self.condition})"


@dataclass(frozen=True, kw_only=True)
class Select(Step):
    expressions: tuple[str, ...]

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return self.expressions

    def text(self) -> str:
        return f"select({', '.join(self.expressions)})"


@dataclass(frozen=True, kw_only=True)
class WithColumns(Step):
    columns: Pairs

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return _expressions(self.columns)

    def text(self) -> str:
        return f"with_columns({_pairs(self.columns)})"


@dataclass(frozen=True, kw_only=True)
class Rename(Step):
    names: Pairs

    def text(self) -> str:
        return f"rename({', '.join(f'{a} -> {b}' for a, b in self.names)})"


@dataclass(frozen=True, kw_only=True)
class Drop(Step):
    columns: tuple[str, ...]

    def text(self) -> str:
        return f"drop({', '.join(self.columns)})"


@dataclass(frozen=True, kw_only=True)
class Cast(Step):
    types: Pairs

    def text(self) -> str:
        return f"cast({_pairs(self.types)})"


@dataclass(frozen=True, kw_only=True)
class Sql(Step):
    query: str

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (self.query,)

    def text(self) -> str:
        return f"sql({' '.join(self.query.split())})"


@dataclass(frozen=True, kw_only=True)
class Watermark(Step):
    column: str
    delay: float
    on_late: OnLate = "drop"

    @property
    def kept(self) -> str:
        """The watermark alone, on which the state depends, as text."""
        return f"watermark({self.column}, {show_seconds(self.delay)})"

    def text(self) -> str:
        return self.kept if self.on_late == "drop" else f"{self.kept[:-1]}, on_late={self.on_late})"


@dataclass(frozen=True, kw_only=True)
class Aggregate(Step):
    """Groups by expressions, and by a time window when `window` is set; that of a session has the gap as its size."""

    by: tuple[str, ...]
    columns: Pairs
    window: tuple[str, float, float | None] | None = None
    session: bool = False

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (*self.by, *_expressions(self.columns), *(self.window[:1] if self.window is not None else ()))

    def text(self) -> str:
        if self.window is None:
            return f"aggregate([{', '.join(self.by)}], {_pairs(self.columns)})"
        column, size, slide = self.window
        every = f", every {show_seconds(slide)}" if slide else ""
        grouped = f".group_by({', '.join(self.by)})" if self.by else ""
        kind = "session_window" if self.session else "window"
        return f"{kind}({column}, {show_seconds(size)}{every}){grouped}.agg({_pairs(self.columns)})"


@dataclass(frozen=True, kw_only=True)
class Dedupe(Step):
    keys: tuple[str, ...]
    within: float | None = None

    def text(self) -> str:
        within = f", within={show_seconds(self.within)}" if self.within else ""
        return f"dedupe({', '.join(self.keys)}{within})"


@dataclass(frozen=True, kw_only=True)
class Expect(Step):
    """Conditions that every row must meet, and what happens to rows that do not."""

    conditions: Pairs
    on_fail: OnFail

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return _expressions(self.conditions)

    def text(self) -> str:
        return f"expect({_pairs(self.conditions)}, on_fail={self.on_fail})"


def _pairs(pairs: Pairs) -> str:
    return ", ".join(f"{name}={expression}" for name, expression in pairs)


def _expressions(pairs: Pairs) -> tuple[str, ...]:
    return tuple(expression for _, expression in pairs)


STATEFUL: tuple[type[Step], ...] = (Watermark, Aggregate, Dedupe)
"""Steps that keep state between the batches of a stream."""

CONCRETE: tuple[type[Step], ...] = (
    Call, Where, Select, WithColumns, Rename, Drop, Cast, Sql, Watermark, Aggregate, Dedupe, Join, Union,
    Expect,
)  # fmt: skip
"""Every step; a compiler of steps has a rule for each."""


def _one(step: Step) -> Transform:
    return Transform(steps=(step,))


def _mapping(values: Mapping[str, str] | None, what: str, named: Mapping[str, str] | None = None) -> Pairs:
    if values is not None and not isinstance(values, Mapping):
        raise DeclarationError(
            f"{what} takes columns by name, not {values!r}.", where=caller(), fix=f'name it: {what}(..., n="{values}").'
        )
    values = {**(values or {}), **(named or {})}
    if not values:
        raise DeclarationError(f"{what} needs at least one column.", where=caller())
    texts(list(values), what)
    texts(list(values.values()), what)
    return tuple(values.items())


def step(function: Function) -> Transform:
    """Makes a step of a callable, so that it can come first: `step(clean) >> where("x > 0")`."""
    if not callable(function):
        raise DeclarationError(f"step({function!r}) is not callable.", where=caller(), fix="pass a function.")
    return _one(Call(function=function))


def where(condition: str) -> Transform:
    """Keeps the rows for which a SQL condition is true: `where("amount > 0")`."""
    return _one(Where(condition=texts([condition], "where")[0]))


def select(*expressions: str | Sequence[str]) -> Transform:
    """Keeps columns, or SQL expressions with an alias: `select("id", "price * qty AS total")`."""
    if not listed(expressions):
        raise DeclarationError("select() needs at least one column.", where=caller(), fix='write select("id").')
    return _one(Select(expressions=texts(listed(expressions), "select")))


def with_columns(columns: Mapping[str, str] | None = None, /, **expressions: str) -> Transform:
    """Adds or replaces columns by SQL expressions: `with_columns(total="price * qty")`.

    A mapping serves names that are not Python words: `with_columns({"unit price": "price / qty"})`.
    """
    return _one(WithColumns(columns=_mapping(columns, "with_columns", expressions)))


def rename(names: Mapping[str, str]) -> Transform:
    """Renames columns: `rename({"old": "new"})`."""
    return _one(Rename(names=_mapping(names, "rename")))


def drop(*columns: str | Sequence[str]) -> Transform:
    """Drops columns: `drop("tmp")`."""
    if not listed(columns):
        raise DeclarationError("drop() needs at least one column.", where=caller(), fix='write drop("tmp").')
    return _one(Drop(columns=texts(listed(columns), "drop")))


def cast(columns: Mapping[str, str] | None = None, /, **types: str) -> Transform:
    """Changes types, named as in Spark SQL: `cast(id="bigint", price="decimal(10,2)")`."""
    return _one(Cast(types=_mapping(columns, "cast", types)))


def sql(query: str) -> Transform:
    """A query over the stream, called `input`: `sql("SELECT id, count(*) AS n FROM input GROUP BY id")`."""
    return _one(Sql(query=texts([query], "sql")[0]))


def watermark(column: str, delay: float | str | timedelta, *, on_late: OnLate = "drop") -> Transform:
    """Declares how late a row may come by its event time: `watermark("ts", "10 minutes", on_late="quarantine")`.

    Args:
        column: The event time.
        delay: How far a row may lie behind the newest one before it.
        on_late: What happens to a row that a window or `dedupe` of a followed source takes no more: "drop" leaves it
            out and counts it, "quarantine" counts it and writes it to the sink's `.quarantine(table)`.

    Raises:
        DeclarationError: `on_late` is unknown.
    """
    late = one_of(on_late, ON_LATE, "watermark(on_late=)")
    return _one(Watermark(column=texts([column], "watermark")[0], delay=duration(delay, "delay"), on_late=late))


def aggregate(by: str | Sequence[str], columns: Mapping[str, str] | None = None, /, **expressions: str) -> Transform:
    """Groups by columns and aggregates: `aggregate(["country"], n="count(*)", total="sum(amount)")`."""
    keys = (by,) if isinstance(by, str) else tuple(by)
    return _one(Aggregate(by=texts(keys, "aggregate"), columns=_mapping(columns, "aggregate", expressions)))


@dataclass(frozen=True)
class Window:
    """A time window without its aggregates; `.agg(...)` completes it."""

    column: str
    size: float
    slide: float | None
    by: tuple[str, ...] = ()
    session: bool = False

    def group_by(self, *by: str | Sequence[str]) -> Window:
        """Groups by columns in addition to the window."""
        return replace(self, by=self.by + texts(listed(by), "group_by"))

    def agg(self, columns: Mapping[str, str] | None = None, /, **expressions: str) -> Transform:
        """Aggregates per window and group: `window_start`, `window_end`, the groups, then these columns."""
        pairs = _mapping(columns, "agg", expressions)
        return _one(
            Aggregate(by=self.by, columns=pairs, window=(self.column, self.size, self.slide), session=self.session)
        )


def window(column: str, size: float | str | timedelta, slide: float | str | timedelta | None = None) -> Window:
    """Event-time windows of a size, sliding when `slide` is given: `window("ts", "1 hour").agg(n="count(*)")`."""
    return Window(
        texts([column], "window")[0],
        duration(size, "size"),
        duration(slide, "slide") if slide is not None else None,
    )


def session_window(column: str, gap: float | str | timedelta) -> Window:
    """Event-time sessions: rows of a group of which none is more than the gap behind the one before.

    A session ends a gap behind its last row: `session_window("ts", "30 minutes").group_by("user").agg(n="count(*)")`.
    """
    return Window(texts([column], "session_window")[0], duration(gap, "gap"), None, session=True)


def dedupe(*keys: str | Sequence[str], within: float | str | timedelta | None = None) -> Transform:
    """Keeps one row of each key: `watermark("ts", "10 minutes") >> dedupe("id", within="1 day")`.

    Args:
        keys: The columns that rows of one key have in common; nulls are equal.
        within: A row is kept if its event time, that of the watermark's column, is later than this after the last kept
            row of its key. How rows are cut into batches does not matter. On a followed source a row is written when
            the watermark has passed it. Without `within` one row of each key is kept for good; on a followed source
            the watermark's column must then be among the keys.

    Raises:
        DeclarationError: There is no key.
    """
    if not listed(keys):
        raise DeclarationError("dedupe() needs at least one key.", where=caller(), fix='write dedupe("id").')
    named = texts(listed(keys), "dedupe")
    return _one(Dedupe(keys=named, within=duration(within, "within") if within is not None else None))


def expect(conditions: Mapping[str, str], *, on_fail: OnFail = "fail") -> Transform:
    """Conditions that every row must meet: `expect({"positive": "amount > 0"}, on_fail="drop")`.

    Args:
        conditions: Name and SQL condition; a row for which it is false or null fails.
        on_fail: What happens to such a row: "fail" stops the run before anything of the batch is written, "drop"
            leaves the row out and counts it, "quarantine" writes it to the sink's `.quarantine(table)`.

    Raises:
        DeclarationError: No condition, or `on_fail` is unknown.
    """
    if on_fail not in ON_FAIL:
        raise DeclarationError(f"expect(on_fail={on_fail!r}) is unknown. {near_miss(on_fail, ON_FAIL)}", where=caller())
    if not conditions:
        raise DeclarationError(
            "expect() needs at least one condition.", where=caller(), fix='write expect({"positive": "amount > 0"}).'
        )
    return _one(Expect(conditions=_mapping(conditions, "expect"), on_fail=on_fail))
