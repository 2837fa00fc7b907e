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
from helios.plan.typing.aggregates import final_group_names, group_columns, outer_select, upserts_groups
from helios.plan.typing.expression import parse
from helios.steps.sql import Sql


def filtered_groups(flow: Flow, sink: Sink) -> list[HeliosError]:
    """A problem for each step that may drop a group of an upserted aggregate which the target has."""
    if not upserts_groups(flow, sink):
        return []
    problems: list[HeliosError] = []
    for index, step in enumerate(flow.steps):
        names = final_group_names(flow.steps[:index]) or group_columns(step) or ()
        if names and any(not _by_groups(text, names) for text in _conditions(step)):
            problems.append(
                DeclarationError(
                    f"{step.text()}: a group that it drops would stay in the target, with its former values.",
                    where=step.origin,
                    fix="write all groups and filter where the table is read; or filter by the group columns alone "
                    f"({', '.join(names)}).",
                )
            )
    return problems


def _conditions(step: Step) -> Iterator[str]:
    """Yields the conditions by which a step drops groups; an empty one if it drops them by other means."""
    if isinstance(step, Sql):
        select = outer_select(step.query)
        parts = ("having", "qualify") if group_columns(step) is not None else ("where", "having", "qualify")
        clauses = (select.args.get(part) for part in parts) if select is not None else ()
        yield from (clause.this.sql("spark") for clause in clauses if clause is not None)
    elif step.traits.row_by_row and not step.traits.opaque and not step.keeps_rows:
        yield from step.sql_texts or ("",)


def _by_groups(condition: str, names: tuple[str, ...]) -> bool:
    """True if a condition depends on the group columns alone."""
    from sqlglot import exp

    try:
        node = parse(condition, condition, None)
    except InputError:
        return False  # `infer` or Spark reports the problem
    columns = {column.name.lower() for column in node.find_all(exp.Column)}
    return bool(columns) and columns <= {name.lower() for name in names} and node.find(exp.AggFunc, exp.Rand) is None
