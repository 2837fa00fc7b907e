"""`join`: joins flows by keys, as of a time, or two streams whose event times are near each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Literal, TypeAlias, get_args

from helios.errors import DeclarationError, near_miss
from helios.model.arguments import texts
from helios.model.flow import Flow, Transform
from helios.model.step import Step, Traits
from helios.model.values import caller, duration, show_seconds

JoinKind: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti", "cross"]
JOIN_KINDS: tuple[JoinKind, ...] = get_args(JoinKind)

JoinAlias: TypeAlias = Literal[
    "leftouter", "left_outer", "rightouter", "right_outer", "outer", "fullouter", "full_outer", "leftsemi", "left_semi",
    "leftanti", "left_anti",
]  # fmt: skip
JOIN_ALIASES: Mapping[JoinKind | JoinAlias, JoinKind] = {
    "leftouter": "left", "left_outer": "left", "rightouter": "right", "right_outer": "right", "outer": "full",
    "fullouter": "full", "full_outer": "full", "leftsemi": "semi", "left_semi": "semi", "leftanti": "anti",
    "left_anti": "anti",
}  # fmt: skip
"""Spark's other names for kinds of join, each with the name that plans and checkpoints use."""

TIMED_KINDS: tuple[JoinKind, ...] = ("inner", "left")
"""The kinds of join that may have `as_of` or `within`."""

Duration: TypeAlias = "float | str | timedelta"


@dataclass(frozen=True, kw_only=True)
class Join(Step):
    """A join with another flow.

    Attributes:
        other: The right side.
        on: The columns that must be equal.
        how: The kind of join.
        as_of: The timestamp column of the left side as of which the right table is read; None for a join without it.
        within: How many seconds the right side's event time may lie before and after the left's; None for no bound.
    """

    traits: ClassVar[Traits] = Traits(shuffles=True)

    other: Flow
    on: tuple[str, ...]
    how: JoinKind
    as_of: str | None = None
    within: tuple[float, float] | None = None

    def name_after(self, column: str) -> str | None:
        """The same name; None for a right or full join, in which the right side adds rows.

        In such a row, a column of the left side is null, or holds the right side's value if it is in `on`.
        """
        return column if self.how not in ("right", "full") else None

    def text(self) -> str:
        as_of = f", as_of={self.as_of}" if self.as_of is not None else ""
        within = f", within={self._bounds}" if self.within is not None else ""
        return f"join({self.other.text()}, on={', '.join(self.on)}, how={self.how}{as_of}{within})"

    @property
    def short(self) -> str:
        """The join without its right side, as graphs and messages show it."""
        on = f" on {', '.join(self.on)}" if self.on else ""
        as_of = f" as of {self.as_of}" if self.as_of is not None else ""
        within = f" within {self._bounds}" if self.within is not None else ""
        return f"{self.how} join{on}{as_of}{within}"

    @property
    def _bounds(self) -> str:
        assert self.within is not None
        before, after = (show_seconds(seconds) if seconds else "0" for seconds in self.within)
        return before if before == after else f"({before}, {after})"


def join(
    right: Flow,
    *,
    on: str | Sequence[str],
    how: JoinKind | JoinAlias = "inner",
    as_of: str | None = None,
    within: Duration | tuple[Duration, Duration] | None = None,
) -> Transform:
    """Joins another source or stream: `join(airlines, on="carrier", how="left")`.

    With `as_of=` each row of the left side is joined with the right table as of the row's own time:
    `join(prices, on="item", as_of="ts")`. If the right side has `valid_from` and `valid_to`, as
    `.upsert(..., history=True)` writes them, a row is valid while `valid_from <= ts < valid_to`; a null bound is open.
    Otherwise the commit times of the main branch decide: a snapshot is valid from the millisecond of its commit on.
    A time before the first commit matches no row. A time before the retained history stops the run. For a time after
    the last commit, the row is joined with the snapshot at which the batch pins the table. All valid rows of a key
    match; a null key or time matches none. Times without a zone are UTC.

    With `within=` two streams are joined, and the event times of two matching rows must be near each other:
    `join(clicks, on="ad", how="left", within=(0, "1 hour"))`. Each side needs a watermark, whose column is the event
    time, so that no row waits for ever.

    Args:
        right: The other side. In a stateless pipeline, each batch reads a batch source anew, at a single snapshot.
        on: Column names that both sides have. They appear once in the result.
        how: inner, left, right, full, semi, anti or cross; or Spark's other name for one of these, such as outer,
            left_outer or left_anti. With `as_of` or `within`: inner or left.
        as_of: The timestamp column of the left side as of which the right side is read.
        within: How far the right side's event time may lie before and after the left's, as one duration or a pair;
            the bounds are included.

    Raises:
        DeclarationError: `right` is not a source or stream, or `how` is unknown or does not fit `as_of` or `within`.
    """
    kind = _kind(right, how)
    keys = tuple(on) if isinstance(on, Iterable) and not isinstance(on, str) else (on,)
    _check_time_options(kind, as_of, within)
    if not keys and kind != "cross":
        raise DeclarationError("join() needs at least one column in on=.", where=caller())
    if keys and kind == "cross":
        raise DeclarationError(
            'join(how="cross") pairs each row with all rows of the right side, and takes no columns in on=.',
            where=caller(),
            fix='write on=[], or another how=, such as "inner".',
        )
    time = texts([as_of], "join(as_of=)")[0] if as_of is not None else None
    bounds = _within(within) if within is not None else None
    return Transform(steps=(Join(other=right, on=texts(keys, "join"), how=kind, as_of=time, within=bounds),))


def _kind(right: Flow, how: JoinKind | JoinAlias) -> JoinKind:
    """The kind of join that `how` names; refuses an unknown one, and a right side that is not a flow."""
    if not isinstance(right, Flow):
        raise DeclarationError(
            f"join() takes a source or a stream, not {type(right).__name__}.",
            where=caller(),
            fix='write join(Iceberg.source("ns.table"), on="id").',
        )
    kind = JOIN_ALIASES.get(how) or next((known for known in JOIN_KINDS if known == how), None)
    if kind is None:
        known = near_miss(str(how), (*JOIN_KINDS, *JOIN_ALIASES))
        raise DeclarationError(f"join(how={how!r}) is unknown. {known}", where=caller())
    return kind


def _check_time_options(kind: JoinKind, as_of: object, within: object) -> None:
    """Refuses `as_of` together with `within`, and either of them in a kind of join that is not in `TIMED_KINDS`."""
    named = [name for name, value in (("as_of", as_of), ("within", within)) if value is not None]
    if len(named) == 2:
        raise DeclarationError(
            "join(as_of=, within=): as_of= is for a table as it was, within= for two streams.",
            where=caller(),
            fix="leave one of them out.",
        )
    if named and kind not in TIMED_KINDS:
        raise DeclarationError(
            f"join({named[0]}=, how={kind!r}): a join by event time is inner or left.",
            where=caller(),
            fix='write how="left".',
        )


def _within(bounds: Duration | tuple[Duration, Duration]) -> tuple[float, float]:
    """The bounds before and after the left event time, in seconds; one of them may be 0."""
    pair = bounds if isinstance(bounds, tuple) else (bounds, bounds)
    if len(pair) != 2 or all(bound == 0 for bound in pair):
        raise DeclarationError(
            f"join(within={bounds!r}) is neither a duration above zero nor a pair of durations with one above zero.",
            where=caller(),
            fix='write within="1 hour", or before and after: within=(0, "1 hour").',
        )
    before, after = (0.0 if bound == 0 else duration(bound, "within") for bound in pair)
    return before, after
