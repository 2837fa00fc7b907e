"""Finds and checks materialized views: aggregates over the changes of a table, upserted by their groups.

The target always equals a full recomputation of the aggregate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helios.errors import DeclarationError, HeliosError, Origin
from helios.model.call import Call
from helios.model.columns import CHANGE_COLUMNS
from helios.model.flow import Pipeline, flows
from helios.model.sink import IcebergSink
from helios.model.step import Step, Traits, step_kinds
from helios.plan.typing.aggregates import final_group_names, group_columns, stateful_steps
from helios.steps.aggregate import Aggregate

_CHANGE_COLUMN = re.compile(rf"\b({'|'.join(CHANGE_COLUMNS)})\b", re.IGNORECASE)
_TEXT_LITERAL = re.compile(r"'[^']*'")


@dataclass(frozen=True)
class View:
    """An aggregate whose groups are recomputed when one of their rows has changed."""

    before: tuple[Step, ...]
    aggregate: Aggregate
    after: tuple[Step, ...]


def view_of(pipeline: Pipeline) -> View | None:
    """The view that a pipeline maintains; None if it maintains none.

    Examples:
        >>> from helios import Iceberg, aggregate
        >>> orders = Iceberg.source("a.orders").incremental().changes(keys="id")
        >>> counted = orders >> aggregate("name", n="count(*)")
        >>> view_of(counted >> Iceberg.sink("a.t").upsert("name")).aggregate.text()
        'aggregate([name], n=count(*))'
        >>> view_of(counted >> Iceberg.sink("a.t"))
    """
    if not _follows_changes(pipeline) or next(_obstacles(pipeline), None) is not None:
        return None
    return _split(pipeline.stream.steps)


def view_problems(pipeline: Pipeline) -> list[HeliosError]:
    """The problems of a stateful pipeline that follows changes, if it is not a view."""
    if not _follows_changes(pipeline):
        return []
    return [DeclarationError(message, where=where, fix=fix) for message, where, fix in _obstacles(pipeline)]


def _follows_changes(pipeline: Pipeline) -> bool:
    sources = [inner.source for inner in flows(pipeline.stream)]
    return any(s.streaming and s.reads_changes for s in sources)


def _split(steps: Sequence[Step]) -> View | None:
    """The only aggregate, and the steps before and after it; None unless there is exactly one aggregate."""
    aggregates = [(index, step) for index, step in enumerate(steps) if isinstance(step, Aggregate)]
    if len(aggregates) != 1:
        return None
    ((index, aggregate),) = aggregates
    return View(tuple(steps[:index]), aggregate, tuple(steps[index + 1 :]))


def _obstacles(pipeline: Pipeline) -> Iterator[tuple[str, Origin, str]]:
    """Yields why followed changes are not a view: the message, the line of the script and the fix."""
    view = _split(pipeline.stream.steps)
    others = [step for step in stateful_steps(pipeline.stream) if view is None or step is not view.aggregate]
    if view is None or others or view.aggregate.window is not None:
        wrong = others[0] if others else None
        if view is not None and not others:
            wrong = view.aggregate
        named = f"{wrong.text()}: " if wrong is not None else ""
        yield (
            f"{named}followed changes remove rows as well as add them, which Spark's stateful operators do not "
            "support; only one aggregate without a time window is possible, as a view.",
            (wrong or pipeline.stream).origin,
            "leave .changes(...) out if the table is only appended to; or write one aggregate(...) >> "
            ".upsert(<its groups>).",
        )
        return
    yield from _wrong_steps(view)
    yield from _other_followed(pipeline)
    if (sink := pipeline.sink.iceberg) is not None:
        yield from _wrong_sink(view, sink)


def _wrong_steps(view: View) -> Iterator[tuple[str, Origin, str]]:
    """Yields the problems of steps that a view cannot have."""
    for steps, allowed, place in ((view.before, _allowed_before, "before"), (view.after, _allowed_after, "after")):
        for step in steps:
            if not allowed(step.traits):
                names = ", ".join(kind.call() for kind in step_kinds(allowed))
                yield (
                    f"{step.text()}: this cannot come {place} the aggregate of a view, which recomputes groups.",
                    step.origin,
                    f"{place} it, use {names}; put the rest into a pipeline that reads the view's table.",
                )
    for step in (*view.before, view.aggregate):
        used = _CHANGE_COLUMN.search(_TEXT_LITERAL.sub("''", step.text())) if not isinstance(step, Call) else None
        if used:
            yield (
                f"{step.text()}: {used[0]} is not a column of a view, which is computed from the rows of the table.",
                step.origin,
                "leave the change columns out: the view adds and removes rows by itself.",
            )


def _allowed_before(traits: Traits) -> bool:
    """True if a step may come before the aggregate: groups are recomputed from the rows of the table."""
    return traits.row_by_row and not (traits.stateful or traits.judges)


def _allowed_after(traits: Traits) -> bool:
    """True if a step may come after the aggregate: it keeps one row per group."""
    return traits.passes_hidden and traits.keeps_rows


def _other_followed(pipeline: Pipeline) -> Iterator[tuple[str, Origin, str]]:
    """Yields a problem for each followed source but the first."""
    for inner in flows(pipeline.stream):
        if inner.source is not pipeline.stream.source and inner.source.streaming:
            yield (
                f"{inner.source.label()}: a view follows one table.",
                inner.source.origin,
                "join or unite the sources in another pipeline, and follow its target table.",
            )


def _wrong_sink(view: View, sink: IcebergSink) -> Iterator[tuple[str, Origin, str]]:
    """Yields the problem of a sink that does not upsert the view by its groups."""
    groups = group_columns(view.aggregate) or ()
    final_names = final_group_names((view.aggregate, *view.after))
    mode = sink.mode.upsert
    named = f"{view.aggregate.text()} over followed changes is a view, which"
    if not groups:
        yield f"{named} needs groups.", view.aggregate.origin, 'group by a column: aggregate("country", ...).'
        return
    if not final_names:
        yield (
            f"{named} is upserted by its groups ({', '.join(groups)}), and a later step changes or drops one of them.",
            view.aggregate.origin,
            "keep the group columns as they are; they may be renamed.",
        )
        return
    keys = ", ".join(f'"{name}"' for name in final_names)
    if mode is None or {key.lower() for key in mode.keys} != {name.lower() for name in final_names}:
        yield f"{named} is upserted by exactly its groups.", sink.origin, f"write .upsert({keys})."
    elif mode.extra_arguments:
        yield (
            f"{named} knows the value of each group, so {mode.extra_arguments[0]}= has no effect.",
            sink.origin,
            f"write .upsert({keys}).",
        )
    elif sink.routing is not None or sink.audits:
        call = "route()" if sink.routing is not None else "audit()"
        yield f"{named} is one table, without {call}.", sink.origin, f"leave .{call} out."
