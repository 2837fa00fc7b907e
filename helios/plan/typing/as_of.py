"""Checks joins by event time: with a table as of a time (`as_of=`), and of two streams within bounds (`within=`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import takewhile

from helios.errors import DeclarationError, HeliosError, NotFound, near_miss
from helios.model.flow import Flow
from helios.model.modes import VALID_FROM, VALID_TO
from helios.model.step import Step
from helios.plan.typing.aggregates import is_streaming
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.watermarks import has_watermark
from helios.steps.expect import Expect
from helios.steps.join import Join
from helios.steps.union import Union

EVENT_TIME_TYPES = ("timestamp", "timestamp_ntz")
"""The types that a column of event time may have."""
VALIDITY_TYPES = (*EVENT_TIME_TYPES, "date")
"""The types that `valid_from` and `valid_to` may have."""


class AsOfRead(Enum):
    """How the right side of a join as of a time is read; plans print the value."""

    VALIDITY = "by valid_from and valid_to"
    COMMITS = "by the table's commit times"
    UNKNOWN = "by valid_from and valid_to if it has them, else by commit times: known at run"


def timed_join_problems(step: Step, flow: Flow, left: Schema | None, right: Schema | None) -> list[HeliosError]:
    """The problems of a step if it is a join by event time; `left` and `right` are None if known only at run."""
    if not isinstance(step, Join):
        return []
    if step.as_of is not None:
        return [*_left_problems(step, step.as_of, left), *_right_problems(step, right)]
    return _missing_watermark(step, flow) if step.within is not None else []


def as_of_read(step: Join, right: Schema | None) -> AsOfRead:
    """How the right side of a join as of a time is read; only for a join without problems."""
    if right is None or not right.exact:
        return AsOfRead.UNKNOWN
    return AsOfRead.VALIDITY if has_validity(step, right.names) else AsOfRead.COMMITS


def has_validity(step: Join, names: Iterable[str]) -> bool:
    """True if the right side has both `valid_from` and `valid_to`.

    Raises:
        DeclarationError: The right side has only one of the two.
    """
    known = {name.lower() for name in names}
    bounds = [name for name in (VALID_FROM, VALID_TO) if name in known]
    if len(bounds) == 1:
        (other,) = {VALID_FROM, VALID_TO} - set(bounds)
        raise DeclarationError(
            f"{short_text(step)}: the right side has {bounds[0]!r} and no {other!r}.",
            where=step.origin,
            fix=f"give it both, or drop {bounds[0]!r} to go by commit times. Each version ends where the next begins: "
            'with_columns(valid_to="lead(valid_from) OVER (PARTITION BY id ORDER BY valid_from)").',
        )
    return len(bounds) == 2


def time_problem(step: Join, column: Column, allowed: tuple[str, ...], side: str) -> DeclarationError | None:
    """The problem of a time column whose type is known, and is not one of `allowed`; None if there is none."""
    if column.kind.name in (*allowed, "unknown"):
        return None
    return DeclarationError(
        f"{short_text(step)}: {column.name!r} of the {side} side is {column.type}, not a timestamp.",
        where=step.origin,
        fix=f'convert it first: with_columns({{"{column.name}": "to_timestamp(...)"}}).',
    )


def short_text(step: Join) -> str:
    """A join as of a time, without its right side, as messages name it."""
    return f"join(on={', '.join(step.on)}, as_of={step.as_of})"


def _left_problems(step: Join, name: str, left: Schema | None) -> Iterator[HeliosError]:
    """Yields the problem of the time column on the left side of a join as of a time."""
    if left is None or "." in name or "`" in name:
        return  # the run checks the column of an unknown schema, or the field of a struct
    column = left.get(name)
    if column is None:
        if left.exact:
            message = f"{short_text(step)}: the left side has no column {name!r}. {near_miss(name, left.names)}"
            yield NotFound(message, where=step.origin)
        return
    problem = time_problem(step, column, EVENT_TIME_TYPES, "left")
    if problem is not None:
        yield problem


def _right_problems(step: Join, right: Schema | None) -> Iterator[HeliosError]:
    if is_streaming(step.other):
        yield DeclarationError(
            f"{short_text(step)}: {step.other.source.label()} is followed, and as_of= joins a table as it was.",
            where=step.origin,
            fix="leave .incremental() out of the right side: each batch reads it again; two streams are joined with "
            "within=.",
        )
        return
    if right is None or not right.exact:
        return
    try:
        valid = has_validity(step, right.names)
    except DeclarationError as problem:
        yield problem
        return
    if not valid:
        yield from commit_time_problems(step)
        return
    for name in (VALID_FROM, VALID_TO):
        column = right.get(name)
        fault = time_problem(step, column, VALIDITY_TYPES, "right") if column is not None else None
        if fault is not None:
            yield fault
            return


def commit_time_problems(step: Join) -> list[HeliosError]:
    """The problem of a right side that must be read by commit times, but cannot be read as of earlier commits."""
    source = step.other.source
    refused = next((inner for inner in step.other.steps if isinstance(inner, (Join, Union, Expect))), None)
    if source.why_no_past is not None:
        why = f"{source.label()} {source.why_no_past}"
        fix = "join a plain Iceberg.source(...), or give the right side the columns valid_from and valid_to."
    elif refused is not None:
        why = f"{refused.text()} does not work on earlier states of a table"
        fix = "write the right side to a table of its own, with .upsert(..., history=True), and join that."
    else:
        return []
    return [
        DeclarationError(
            f"{short_text(step)}: the right side has no valid_from and valid_to, so it is read by its commit times, "
            f"and {why}.",
            where=step.origin,
            fix=fix,
        )
    ]


def stateful_as_of(step: Join) -> DeclarationError:
    """The problem of a join by commit times in a stateful stream."""
    return DeclarationError(
        f"{short_text(step)}: Spark plans this stateful stream only once, so a batch cannot choose the commits that it "
        "joins.",
        where=step.origin,
        fix="join a table with valid_from and valid_to, as .upsert(..., history=True) writes it; or write the rows to "
        "a table first, and join in a second pipeline.",
    )


def _missing_watermark(step: Join, flow: Flow) -> list[HeliosError]:
    """The problem of `within=` if one of the two sides has no watermark."""
    before = takewhile(lambda other: other is not step, flow.steps)
    lacking = [side for side, steps in (("left", before), ("right", step.other.steps)) if not has_watermark(steps)]
    if not lacking:
        return []
    return [
        DeclarationError(
            f"{step.short}: within= is a span between two event times, and no watermark says which column of the "
            f"{lacking[0]} side has the event time.",
            where=step.origin,
            fix='put watermark("ts", "10 minutes") into each side, before the join.',
        )
    ]
