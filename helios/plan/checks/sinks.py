"""Checks of sinks, without a JVM; each function returns the problems that it finds.

Expressions over the stream are checked against the stream's columns. Expressions over the table are checked against
the columns that the table has after the run's changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from helios.errors import DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.model.columns import CHANGE_COLUMNS
from helios.model.partition import PartitionField
from helios.model.sink import FORMAT_PROPERTY, IcebergSink
from helios.plan.checks.merge import merge_problems
from helios.plan.typing.expression import UnparsedExpression, label, parse, plain_column
from helios.plan.typing.infer import condition_problems, expression_type
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Scope
from helios.plan.typing.types import UNKNOWN, wider

NESTED = ("map", "array", "struct", "variant")
"""The types whose values cannot be keys, sort orders or names of tables."""
UNORDERED = ("map", "variant")
"""The types that Spark cannot sort. It can sort structs and arrays, so `order_by` takes them."""
NOT_TABLE_NAMES = (*NESTED, "binary", "date", "timestamp", "timestamp_ntz", "float", "double", "interval")
"""The types whose values cannot name tables: as text, they have characters other than letters, digits and `_`."""

_SORT = re.compile(
    r"\s*(?P<by>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.IGNORECASE | re.DOTALL
)
_COLUMN = re.compile(r"(`[^`]+`|\w+)(\.(`[^`]+`|\w+))*")


@dataclass(frozen=True)
class SortTerm:
    """One part of `.sort_by(...)`. By default, nulls come first in ascending order and last in descending, as in Spark.

    Attributes:
        by: The column, without backticks; the path of a nested field is dotted.
        descending: Whether the largest value comes first.
        nulls_first: Whether nulls come before all values.
    """

    by: str
    descending: bool
    nulls_first: bool

    def __str__(self) -> str:
        direction = "desc" if self.descending else "asc"
        by_default = self.nulls_first is not self.descending
        nulls = "" if by_default else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{self.by} {direction}{nulls}"


def sort_terms(sink: IcebergSink) -> tuple[SortTerm, ...]:
    """The parts of a sink's sort order.

    Examples:
        >>> from helios import Iceberg
        >>> sort_terms(Iceberg.sink("a.t").sort_by("ts desc"))
        (SortTerm(by='ts', descending=True, nulls_first=False),)
    """
    terms = []
    for text in sink.sort:
        match = _SORT.fullmatch(text)
        assert match is not None  # any text that is not blank matches
        descending = (match["direction"] or "").lower() == "desc"
        nulls = (match["nulls"] or ("last" if descending else "first")).lower()
        terms.append(SortTerm(match["by"].replace("`", ""), descending, nulls == "first"))
    return tuple(terms)


# contradictions within the sink


def contradictions(sink: IcebergSink) -> list[HeliosError]:
    """The problems of a sink's calls that contradict each other."""
    return [
        DeclarationError(message, where=sink.origin, fix=fix) for test, message, fix in CONTRADICTIONS if test(sink)
    ]


CONTRADICTIONS: tuple[tuple[Callable[[IcebergSink], Any], str, str], ...] = (
    (
        lambda s: s.audits and not s.publishes,
        "audit() without publish(): batches would be checked, and never published.",
        "write .audit({...}).publish(); single rows are checked with expect({...}).",
    ),
    (
        lambda s: s.publishes and not s.audits,
        "publish() without audit(): there is nothing to wait for.",
        'write .audit({"some": "count(*) > 0"}).publish(), or leave .publish() out.',
    ),
    (
        lambda s: s.audits and s.branch_name,
        "audit() and branch(): an audited batch is written to its own branch, to which main is fast-forwarded.",
        "leave out either .branch(...) or .audit(...).publish().",
    ),
    (
        lambda s: s.audits and s.routing,
        "audit() and route(): the tables of one batch cannot be published together.",
        "leave one of them out, or write one pipeline per table.",
    ),
    (
        lambda s: s.routing and not s.mode.traits.routable,
        "route() and merge_sql(): the MERGE has one target, not one per value.",
        "leave one of them out, or write one pipeline per table.",
    ),
    (
        lambda s: (s.evolution.renames or s.evolution.drops) and s.evolution.mode != "full",
        "renames() and drops() need full schema evolution.",
        'write .evolve_schema("full") with them.',
    ),
    (
        lambda s: (s.evolution.renames or s.evolution.drops) and not s.mode.traits.stores_columns,
        "renames() and drops() need a mode that stores the stream's columns, as append() and upsert() do.",
        "leave them out here, and put them on the pipeline that writes the rows.",
    ),
    (
        lambda s: s.format and dict(s.properties).get(FORMAT_PROPERTY, str(s.format)) != str(s.format),
        "table_properties() and format_version() give different versions.",
        "write .format_version(3), and leave the property out.",
    ),
    (
        lambda s: dict(s.properties).get(FORMAT_PROPERTY, "2") not in ("2", "3"),
        "table_properties(): new tables are of format-version 2 or 3.",
        "write .format_version(2) or .format_version(3), and leave the property out.",
    ),
)
"""For each contradiction: a function that is true for a sink that has it, the message, and the fix."""


# expressions over the stream's columns


def stream_problems(sink: IcebergSink, stream: Schema | None) -> list[HeliosError]:
    """The problems of keys and expressions that do not fit the columns of the stream."""
    problems = _mode_problems(sink, stream)
    if sink.routing is not None:
        problems += _route_problems(sink, sink.routing, stream)
    return problems


def _mode_problems(sink: IcebergSink, stream: Schema | None) -> list[HeliosError]:
    mode = sink.mode
    problems = key_problems(sink, mode.keys, stream, "the stream") if mode.traits.keyed else []
    if mode.order_by is not None:
        problems += _order_problems(sink, mode.order_by, stream)
    if mode.upsert is not None and mode.upsert.delete_when is not None:
        named = label("delete_when", mode.upsert.delete_when)
        problems += condition_problems(mode.upsert.delete_when, named, stream, sink.origin)
    name_conflicts = [name for name in mode.added_columns if stream is not None and stream.get(name) is not None]
    if name_conflicts:
        problems.append(
            DeclarationError(
                f"{mode.call}(history=True) adds {' and '.join(mode.added_columns)}, and the stream carries "
                f"{' and '.join(name_conflicts)} already.",
                where=sink.origin,
                fix=f'rename or drop it first: rename({{"{name_conflicts[0]}": "source_{name_conflicts[0]}"}}).',
            )
        )
    return problems


def _order_problems(sink: IcebergSink, text: str, stream: Schema | None) -> list[HeliosError]:
    named = label("order_by", text)
    kind, problems = expression_type(text, named, stream, sink.origin)
    message = None
    if re.search(r"\s(asc|desc)\s*$", text, re.IGNORECASE):
        message = f"{named}: write the expression without asc or desc; the row with its largest value is the newest."
    elif kind.name in UNORDERED:
        message = f"{named}: {kind} has no order."
    if message is not None:
        fix = 'write order_by="updated_at"; several columns as "struct(day, sequence)".'
        return [DeclarationError(message, where=sink.origin, fix=fix)]
    return problems


def key_problems(sink: IcebergSink, keys: Sequence[str], columns: Schema | None, place: str) -> list[HeliosError]:
    """The problems of keys that are missing, or have a type that cannot be a key."""
    if columns is None:
        return []
    problems: list[HeliosError] = []
    call = sink.mode.call
    for key in keys:
        column = columns.get(key)
        if column is None and columns.exact:
            message = f"{call}({key}): no column {key!r} in {place}. {near_miss(key, columns.names)}"
            problems.append(NotFound(message, where=sink.origin))
        elif column is not None and column.kind.name in NESTED:
            problems.append(
                DeclarationError(
                    f"{call}({key}): {key!r} is {column.type}, which cannot be a key.",
                    where=sink.origin,
                    fix=f'use plain columns as keys, such as a field of it: with_columns({{"{key}_id": "{key}.id"}}).',
                )
            )
    return problems


def _route_problems(sink: IcebergSink, text: str, stream: Schema | None) -> list[HeliosError]:
    named = label("route", text)
    kind, problems = expression_type(text, named, stream, sink.origin)
    if not problems and (kind.name in NOT_TABLE_NAMES or (kind.name == "decimal" and kind.numbers[1] > 0)):
        problems.append(
            DeclarationError(
                f"{named}: {kind} cannot name a table; values are letters, digits and '_'.",
                where=sink.origin,
                fix="route by text, such as route(by=\"date_format(day, 'yyyyMM')\").",
            )
        )
    return problems


# expressions over the table's columns


def table_problems(sink: IcebergSink, stream: Schema | None, table: Schema | None) -> list[HeliosError]:
    """The problems of expressions over the table's columns.

    Args:
        stream: The columns of the stream; None if they are known only at run.
        table: The columns of the table after the run's changes; None if they are known only at run.
    """
    problems: list[HeliosError] = []
    mode = sink.mode
    if mode.condition is not None:
        named = label(mode.call, mode.condition)
        problems_of_condition = condition_problems(mode.condition, named, table, sink.origin)
        problems += problems_of_condition or _floating_problems(mode.condition, named, table, sink.origin)
    if mode.merge is not None:
        problems += merge_problems(mode.merge, stream, table, sink.origin)
    for name, condition in sink.audits:
        problems += _audit_problems(sink, label("audit", f"{name}={condition}"), condition, table)
    for text in sink.sort:
        problems += _sort_problems(sink, text, table)
    return problems


def _floating_problems(condition: str, named: str, table: Schema | None, where: Origin | None) -> list[HeliosError]:
    from sqlglot import exp

    columns = parse(condition, named, where).find_all(exp.Column)
    kinds = {column.sql("spark"): safe_kind_of(column, Scope(table)).name for column in columns}
    for column, kind in kinds.items():
        if kind in ("float", "double"):
            message = (
                f"{named}: {column} is a {kind}, and Iceberg uses column bounds to find the rows to replace, but the "
                "bounds ignore NaN and the sign of zero: some old rows would stay beside the new ones."
            )
            fix = "filter by a column of another type, or replace whole partitions with overwrite_partitions()."
            return [DeclarationError(message, where=where, fix=fix)]
    return []


def _sort_problems(sink: IcebergSink, text: str, table: Schema | None) -> list[HeliosError]:
    match = _SORT.fullmatch(text)
    by = match["by"] if match is not None else text
    named = label("sort_by", text)
    if not _COLUMN.fullmatch(by):
        message = f"{named}: {by!r} is not a column; a table is sorted by its columns."
        fix = 'write sort_by("ts desc"); add an expression as a column first: with_columns(...).'
        return [DeclarationError(message, where=sink.origin, fix=fix)]
    kind, problems = expression_type(by, named, table, sink.origin)
    if not problems and kind.name in NESTED:
        message = f"{named}: {kind} has no order in Iceberg."
        problems.append(DeclarationError(message, where=sink.origin, fix="sort by plain columns."))
    return problems


def _audit_problems(sink: IcebergSink, named: str, condition: str, table: Schema | None) -> list[HeliosError]:
    problems = condition_problems(condition, named, table, sink.origin)
    column = None if problems else next(_outside_aggregates(condition, named), None)
    if column is not None:
        problems.append(
            DeclarationError(
                f"{named}: {column!r} is outside of any aggregate, and an audit is one value for the whole batch.",
                where=sink.origin,
                fix='aggregate it, as in "bool_and(amount > 0)", or check rows with expect({...}).',
            )
        )
    return problems


def _outside_aggregates(condition: str, named: str) -> Iterator[str]:
    """Yields the columns outside of aggregates. A function that sqlglot does not know counts as an aggregate."""
    from sqlglot import exp

    node = parse(condition, named, None)
    grouping = (exp.AggFunc, exp.Anonymous, exp.Any, exp.WithinGroup, exp.Filter, exp.Window)
    for inner in node.walk(prune=lambda n: isinstance(n, (*grouping, exp.Query))):
        if isinstance(inner, exp.Column):
            yield inner.name


def existing_key_problems(sink: IcebergSink, stream: Schema | None, table: Schema) -> list[HeliosError]:
    """The problems of key columns that an existing table lacks, or has with another type.

    Args:
        stream: The columns of the stream; None if they are known only at run.
        table: The columns of the table before the run adds any: no row has a key in a new column.
    """
    mode = sink.mode
    if not mode.traits.keyed:
        return []
    # `stream_problems` reports the keys that the stream lacks.
    keys = [key for key in mode.keys if stream is None or stream.get(key)]
    problems = key_problems(sink, keys, table, "the table")
    if mode.traits.stores_columns or stream is None:
        return problems  # `evolve` compares the types of stored columns
    for key in keys:
        ours, theirs = stream.get(key), table.get(key)
        if ours is not None and theirs is not None and not _comparable(ours, theirs):
            problems.append(
                DeclarationError(
                    f"{mode.call}({key}): {key!r} is {ours.type} in the stream and {theirs.type} in the table.",
                    where=sink.origin,
                    fix=f'convert it first: cast({{"{key}": "{theirs.type}"}}).',
                )
            )
    return problems


def _comparable(ours: Column, theirs: Column) -> bool:
    return "unknown" in (ours.type, theirs.type) or wider(ours.kind, theirs.kind) != UNKNOWN


# which columns are stored


def left_out(sink: IcebergSink, stream: Schema, table: Schema | None, *, has_written: bool = False) -> tuple[str, ...]:
    """The columns of the stream that are not stored, because only `order_by` and `delete_when` use them.

    Such a column is stored nevertheless if the table has it, or if a key, a partition field or `.sort_by` names it. A
    struct is stored if an expression uses only one of its fields. The columns of `order_by` are stored, unless
    `store_order=False`, or the pipeline has written a table without them. If either expression uses one of
    `CHANGE_COLUMNS`, all of these columns count as used, and are left out unless the table, a key, a partition field or
    `.sort_by` names them.

    Args:
        table: The columns of the table before the run changes it; None if there is no table.
        has_written: Whether the pipeline has written into the table.
    """
    mode = sink.mode.upsert
    if mode is None:
        return ()
    order_columns = _whole_columns(mode.order_by, stream) if mode.order_by else set()
    used = order_columns | (_whole_columns(mode.delete_when, stream) if mode.delete_when else set())
    # The target is a copy of the table whose changes the stream carries, and that table has no change columns.
    if used & set(CHANGE_COLUMNS):
        used |= {name for name in CHANGE_COLUMNS if stream.get(name) is not None}
    stored = {key.lower() for key in mode.keys}
    if mode.stores_order and not has_written:
        stored |= order_columns - set(CHANGE_COLUMNS)
    stored |= {_root(item) for item in sink.partitioning or ()}
    stored |= {term.by.lower() for term in sort_terms(sink)}
    if table is not None:
        stored |= {name.lower() for name in table.names}
    return tuple(c.name for c in stream.columns if c.name.lower() in used - stored)


def _root(item: PartitionField) -> str:
    """The top-level column of a partition field, whose source may be a nested field."""
    return item.column.split(".")[0].lower()


def _whole_columns(text: str, schema: Schema) -> set[str]:
    """The columns that an expression uses as a whole, in lower case; empty if the expression cannot be parsed."""
    plain = plain_column(text, schema)
    if plain is not None:
        return {plain.name.lower()}
    from sqlglot import exp

    try:
        node = parse(text, text, None)
    except UnparsedExpression:
        return set()
    return {
        column.name.lower()
        for column in node.find_all(exp.Column)
        if len(column.parts) == 1 and not isinstance(column.parent, (exp.Dot, exp.Bracket)) and schema.get(column.name)
    }


def stored_columns(sink: IcebergSink, stream: Schema, not_stored: tuple[str, ...]) -> Schema:
    """The columns that a sink stores: those of the stream without `not_stored`, and those that `history=True` adds."""
    dropped = {name.lower() for name in not_stored}
    columns = tuple(c for c in stream.columns if c.name.lower() not in dropped)
    mode = sink.mode
    if mode.added_columns and mode.order_by is not None:
        kind, _ = expression_type(mode.order_by, "order_by", stream, sink.origin)
        columns += tuple(Column.of(name, kind) for name in mode.added_columns if stream.get(name) is None)
    return Schema(columns)
