"""Refuses filters behind a streaming aggregate that is upserted by its groups.

Spark emits a group again each time its values change. If a filter drops such a row, the target keeps the former values
of the group, which depend on how the rows were cut into batches. A filter by the group columns alone is allowed: it
keeps or drops all rows of a group.
"""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import DeclarationError, HeliosError, InputError
from helios.model.flow import Flow, Sink
from helios.model.step import Step
from helios.plan.typing.aggregates import (
    final_group_names,
    group_columns,
    outer_select,
    upserts_groups,
    with_group_names,
)
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.expression import parse
from helios.steps.join import Join
from helios.steps.sql import Sql


def filtered_group_problems(flow: Flow, sink: Sink) -> list[HeliosError]:
    """A problem for each step that may drop a group of an upserted aggregate which the target has."""
    if not upserts_groups(flow, sink):
        return []
    problems: list[HeliosError] = []
    for index, step in enumerate(flow.steps):
        names = final_group_names(flow.steps[:index]) or group_columns(step) or ()
        if names and any(not _by_groups(text, names) for text in _conditions(step, names)):
            problems.append(
                DeclarationError(
                    f"{step.text()}: a group that it drops would stay in the target, with its former values.",
                    where=step.origin,
                    fix="write all groups and filter where the table is read; or filter by the group columns alone "
                    f"({', '.join(names)}).",
                )
            )
    return problems


def _conditions(step: Step, names: tuple[str, ...]) -> Iterator[str]:
    """Yields the conditions by which a step drops groups; an empty one if it drops them by other means."""
    if isinstance(step, Sql):
        yield from _query_conditions(step)
    elif isinstance(step, Join):
        if step.how in ("inner", "semi", "anti") and not {*map(str.lower, step.on)} <= {*map(str.lower, names)}:
            yield ""
    elif step.traits.row_by_row and not step.traits.opaque and not step.keeps_rows:
        yield from step.sql_texts or ("",)


def _query_conditions(step: Sql) -> Iterator[str]:
    from sqlglot import exp

    select = outer_select(step.query)
    if select is None:
        return  # `infer` or Spark reports the problem
    if group_columns(step) is None:
        if select.find(exp.Limit) is not None:
            yield ""
        for clause in select.find_all(exp.Where, exp.Having, exp.Qualify):
            yield clause.this.sql("spark")
        yield from (join.args["on"].sql("spark") for join in select.find_all(exp.Join) if join.args.get("on"))
    elif (having := select.args.get("having")) is not None:
        yield with_group_names(having.this, select).sql("spark")


def _by_groups(condition: str, names: tuple[str, ...]) -> bool:
    """True if a condition depends on the group columns alone, and is the same at all times."""
    from sqlglot import exp

    try:
        node = parse(condition, condition, None)
    except InputError:
        return False  # `infer` or Spark reports the problem
    paths = ([part.name.lower() for part in column.parts] for column in node.find_all(exp.Column))
    columns = {path[1] if path[0] == "input" and len(path) > 1 else path[0] for path in paths}
    constant = node.find(exp.AggFunc) is None and nondeterministic_function(condition) is None
    return bool(columns) and columns <= {name.lower() for name in names} and constant
