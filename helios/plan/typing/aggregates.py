"""Checks aggregates of a stream: each must be appended after a watermark, or upserted by its group columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from helios.errors import DeclarationError, HeliosError, InputError
from helios.model.flow import Flow, Sink, flows
from helios.model.step import Step
from helios.plan.typing.expression import output_columns, parse
from helios.plan.typing.schema import Column
from helios.plan.typing.scope import Node, Scope
from helios.steps.aggregate import Aggregate
from helios.steps.dedupe import Dedupe
from helios.steps.join import Join
from helios.steps.sql import Sql
from helios.steps.watermark import Watermark

_WORD = re.compile(r"\w+")


def is_streaming(flow: Flow) -> bool:
    """True if a flow, or any flow that is joined or united with it, reads its source as a stream."""
    return any(inner.source.streaming for inner in flows(flow))


def streaming_steps(flow: Flow) -> list[Step]:
    """The steps that process a stream: of a flow, and of the flows that it joins or unites with."""
    return [step for inner in flows(flow) for step in inner.steps if is_streaming(inner)]


def stateful_steps(flow: Flow) -> list[Step]:
    """The steps of a flow that keep state between the batches of a stream."""
    return [
        step
        for step in streaming_steps(flow)
        if step.traits.stateful
        or (isinstance(step, Join) and is_streaming(step.other))
        or group_columns(step) is not None
    ]


def upserts_groups(flow: Flow, sink: Sink) -> bool:
    """True if a flow has only one streaming aggregate, and the sink upserts by exactly the aggregate's group columns.

    Each batch then emits the changed groups with their new values. So no group has to be complete.
    """
    table = sink.iceberg
    if table is None or table.mode.upsert is None or not is_streaming(flow):
        return False
    aggregates = [step for step in streaming_steps(flow) if group_columns(step) is not None]
    if len(aggregates) != 1 or aggregates[0] not in flow.steps:
        return False
    return {name.lower() for name in final_group_names(flow.steps)} == {key.lower() for key in table.mode.keys}


def final_group_names(steps: Sequence[Step]) -> tuple[str, ...]:
    """The names that the aggregate's group columns have after the last step.

    Empty if there is no aggregate, or if a later step keeps state, yields several rows for a group, or drops a group
    column.
    """
    names: tuple[str, ...] | None = None
    for step in steps:
        if names is None:
            names = group_columns(step)
        elif isinstance(step, Dedupe) or (isinstance(step, Join) and is_streaming(step.other)) or step.traits.generates:
            return ()
        elif isinstance(step, Sql):
            names = _selected_names(step.query, names)
        elif not step.traits.opaque:
            after = [step.name_after(name) for name in names]
            names = tuple(name for name in after if name is not None)
            if len(names) < len(after):
                return ()
    return names or ()


def group_columns(step: Step) -> tuple[str, ...] | None:
    """The group columns of a step, by their names in the step's result; None if the step does not group.

    Examples:
        >>> group_columns(Aggregate(by=("country", "year(ts) AS y"), columns=(("n", "count(*)"),)))
        ('country', 'y')
        >>> group_columns(Sql(query="SELECT country AS c, count(*) AS n FROM input GROUP BY country"))
        ('c',)
        >>> group_columns(Sql(query="SELECT country, count(*) AS n FROM input GROUP BY ALL"))
        ('country',)
    """
    if isinstance(step, Sql):
        return _query_groups(step.query)
    if not isinstance(step, Aggregate):
        return None
    window = ("window_start", "window_end") if step.window is not None else ()
    return (*window, *(column.name for text in step.by for column in _output_columns(text)))


def _output_columns(text: str) -> tuple[Column, ...]:
    """The output columns of a group's expression; empty if the expression cannot be parsed."""
    if _WORD.fullmatch(text.strip()):
        return (Column(text.strip(), "unknown"),)
    try:
        return output_columns(parse(text, text, None), text, Scope(None)) or ()
    except InputError:
        return ()


def alias_of(text: str) -> str | None:
    """The alias of an expression; None if the expression has no alias, or cannot be parsed.

    Examples:
        >>> alias_of("id % 100 AS g"), alias_of("year(ts) y"), alias_of("id"), alias_of("id % 2")
        ('g', 'y', None, None)
    """
    if _WORD.fullmatch(text.strip()):
        return None
    try:
        node = parse(text, text, None)
    except InputError:
        return None
    has_alias = type(node).__name__ == "Alias" and node.alias
    return str(node.alias) if has_alias else None


def _query_groups(query: str) -> tuple[str, ...] | None:
    """The group columns of a query; None if the outer SELECT does not group.

    A GROUP BY expression that is not in the SELECT list is named by its own SQL text.
    """
    if "group" not in query.lower():
        return None  # so the parser need not be imported
    from sqlglot import exp

    node = outer_select(query)
    if node is None or node.args.get("group") is None:
        return None
    group = node.args["group"]
    if group.args.get("all"):
        keys = (item for item in node.expressions if not item.find(exp.AggFunc))
        return tuple(str(key.alias_or_name or key.sql("spark")) for key in keys)
    return tuple(_output_name(key, node.expressions) for key in group.expressions)


def outer_select(query: str) -> Node | None:
    """The outer SELECT of a query; None if the query is another statement, or cannot be parsed."""
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        (node,) = Spark().parse(query)
    except (SqlglotError, RecursionError, ValueError):
        return None  # `infer` or Spark reports the problem
    return node if isinstance(node, exp.Select) else None


def _selected_names(query: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that columns have after a query; empty if a computed value has the name of one of the columns."""
    node = outer_select(query)
    aliased = [item for item in node.expressions if item.alias] if node is not None else []
    values = [(item.alias, item.unalias().unnest()) for item in aliased]
    plain = {value.name.lower(): alias for alias, value in values if type(value).__name__ == "Column"}
    computed = {alias.lower() for alias, value in values if type(value).__name__ != "Column"}
    if computed & {name.lower() for name in names}:
        return ()
    return names if node is None or node.is_star else tuple(plain.get(name.lower(), name) for name in names)


def with_group_names(condition: Node, select: Node) -> Node:
    """Copies a condition of a query with GROUP BY; in the copy, the output name of a group replaces its expression."""
    from sqlglot import exp

    names = {group: _output_name(group, select.expressions) for group in select.args["group"].expressions}
    replaced: Node = condition.copy().transform(lambda node: exp.column(names[node]) if node in names else node)
    return replaced


def _output_name(group: Node, items: Sequence[Node]) -> str:
    """The output name of a group. The query may give the group by position, expression or alias."""
    if group.is_int and 0 < int(group.name) <= len(items):
        return str(items[int(group.name) - 1].alias_or_name)
    for item in items:
        if group == item.unalias() or (item.alias and group.name.lower() == item.alias.lower()):
            return str(item.alias_or_name)
    return str(group.sql("spark"))


def _session_problems(flow: Flow, sink: Sink) -> list[HeliosError]:
    """The problems of sessions over a followed source: sessions need a group, and cannot be upserted."""
    steps = streaming_steps(flow) if is_streaming(flow) else []
    sessions = [step for step in steps if isinstance(step, Aggregate) and step.session]
    problems: list[HeliosError] = [
        DeclarationError(
            f"{step.text()}: sessions of a followed source need a group.",
            where=step.origin,
            fix='write .group_by("user") in front of .agg(...).',
        )
        for step in sessions
        if not step.by
    ]
    problems += [
        DeclarationError(
            f"{step.text()}: the end of a session moves while the session grows. The end is part of the upsert's key, "
            "so an upsert would leave a row for each earlier end.",
            where=step.origin,
            fix="append the sessions: leave .upsert(...) out.",
        )
        for step in sessions
        if step.by and upserts_groups(flow, sink)
    ]
    return problems


def distinct_aggregate_problems(flow: Flow) -> list[HeliosError]:
    """A problem for each aggregate of distinct values over a followed source: Spark refuses these aggregates."""
    return [
        DeclarationError(
            f"{step.text()}: Spark cannot aggregate distinct values, as in {called.sql('spark')!r}, over a followed "
            "source.",
            where=step.origin,
            fix=_fix_for_distinct(called),
        )
        for step in (streaming_steps(flow) if is_streaming(flow) else ())
        for called in _distinct_calls(step)
    ]


def _distinct_calls(step: Step) -> list[Node]:
    """The aggregates of distinct values in a step, such as `count(DISTINCT id)`."""
    texts = [step.query] if isinstance(step, Sql) else []
    if isinstance(step, Aggregate):
        texts = [text for _, text in step.columns]
    if not any("distinct" in text.lower() for text in texts):
        return []  # so the parser need not be imported
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        nodes = Spark().parse(texts[0]) if isinstance(step, Sql) else [parse(text, text, None) for text in texts]
    except (InputError, SqlglotError, RecursionError, ValueError):
        return []  # `infer` or Spark reports the problem
    calls = [distinct.parent for node in nodes if node is not None for distinct in node.find_all(exp.Distinct)]
    return [call for call in calls if isinstance(call, exp.AggFunc) and not call.find_ancestor(exp.Window)]


def _fix_for_distinct(called: Node) -> str:
    values = called.this.expressions
    if type(called).__name__ != "Count" or len(values) != 1:
        return 'drop duplicates before the aggregate: watermark("ts", "10 minutes") >> dedupe("ts", "...").'
    counted = f"approx_count_distinct({values[0].sql('spark')})"
    by_table = (
        "write each distinct value of each group as one row of a table, and count the rows of each group in a pipeline "
        "that reads this table once"
    )
    return f"count distinct values approximately, with {counted}; or {by_table}."


def endless_aggregate_problems(flow: Flow, sink: Sink) -> list[HeliosError]:
    """A problem for each aggregate over a followed source, unless the groups become final or are upserted.

    Groups become final only with a watermark and a time window. The problems of sessions come first.
    """
    problems = _session_problems(flow, sink)
    if upserts_groups(flow, sink):
        return problems
    has_watermark = False
    for step in streaming_steps(flow):
        has_watermark = has_watermark or isinstance(step, Watermark)
        names = group_columns(step)
        # After a watermark, Spark itself checks the groups of a SQL query.
        is_bounded = has_watermark and (
            isinstance(step, Sql) or (isinstance(step, Aggregate) and step.window is not None)
        )
        if names is None or is_bounded:
            continue
        keys = ", ".join(f'"{name}"' for name in names)
        reason = "the groups of an aggregate over a followed source are never final, so they cannot be appended"
        if has_watermark:
            reason = "even after a watermark, only the groups of a time window become final"
        problems.append(
            DeclarationError(
                f"{step.text()}: {reason}.",
                where=step.origin,
                fix='append after a watermark: watermark("ts", "10 minutes") before window("ts", ...).agg(...), '
                + (f"or upsert by the group columns: .upsert({keys})." if keys else "or group by columns and upsert."),
            )
        )
    return problems
