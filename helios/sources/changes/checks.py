"""Checks of `Cdc.debezium` and `Cdc.json` sources that need neither a JVM nor the Kafka cluster."""

from __future__ import annotations

from helios.errors import DeclarationError, HeliosError
from helios.plan.checks.sinks import UNORDERED
from helios.plan.typing.determinism import nondeterministic_part
from helios.plan.typing.expression import label
from helios.plan.typing.infer import expression_type
from helios.plan.typing.schema import Schema
from helios.plan.typing.types import SparkType
from helios.sources.changes.json import ChangeLogSource
from helios.sources.changes.topic import TopicChanges


def several_tables_problems(source: TopicChanges) -> list[HeliosError]:
    """The problem of a source that reads several topics, and therefore the changes of several tables."""
    if len(source.kafka.topics) == 1:
        return []
    fix = "write a pipeline for each table, with one topic in its Kafka.source(...)."
    if source.names_tables:
        fix = 'mirror the tables: Iceberg.mirror("catalog.namespace"); or write a pipeline for each table.'
    message = f"{source.label()}: each topic is a table of its own, and the target would mix the tables."
    return [DeclarationError(message, where=source.origin, fix=fix)]


def change_log_problems(source: ChangeLogSource, columns: Schema | None) -> list[HeliosError]:
    """The problems of the expressions `op=` and `order=` of a change log.

    Args:
        columns: The columns of the records; None if they are known only when the pipeline runs.
    """
    problems: list[HeliosError] = []
    types: dict[str, SparkType] = {}
    for name, expression in (("op", source.op), ("order", source.order)):
        if expression is not None:
            types[name], type_problems = expression_type(expression, label(name, expression), columns, source.origin)
            problems += type_problems
    if "order" in types and types["order"].name in UNORDERED:
        problems.append(
            DeclarationError(
                f"{label('order', str(source.order))}: {types['order']} has no order.",
                where=source.origin,
                fix='name a column, as in order="version", or several, as in order="struct(day, sequence)".',
            )
        )
    nondeterministic = nondeterministic_part((source.op, source.order or ""))
    if nondeterministic is not None:
        problems.append(
            DeclarationError(
                f"{source.label()}: {nondeterministic} gives other values when a batch is run again.",
                where=source.origin,
                fix="name columns of the records.",
            )
        )
    return problems
