"""Infers the schema after each declared step, and finds problems in the step, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from helios.errors import DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.model import steps as s
from helios.model.flow import Call, Step
from helios.model.joins import Join, Union
from helios.plan.typing.expression import (
    UnparsedExpression,
    label,
    outputs,
    parse,
    plain_column,
    value,
    with_alias,
)
from helios.plan.typing.operands import faults
from helios.plan.typing.query import query_schema
from helios.plan.typing.results import window_bound
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Scope
from helios.plan.typing.types import KNOWN, UNKNOWN, SparkType, TypeProblem, parse_type, stored, wider

__all__ = ["INFERRED", "UnparsedExpression", "infer"]

Result: TypeAlias = "tuple[Schema | None, list[HeliosError]]"


def infer(step: Step, schema: Schema | None, other: Schema | None = None) -> Result:
    """The schema after a step.

    Args:
        step: One of `helios.model.steps.CONCRETE`.
        schema: The columns before it; None where they are known only at run time.
        other: The columns of the right side of a join or union.

    Returns:
        The columns after it, None where they are known only at run time, and the problems. Problems of the class
        `UnparsedExpression` do not stop a run.
    """
    return INFERRED[type(step)](step, schema, other)


def _call(step: Call, schema: Schema | None, other: Schema | None) -> Result:
    return None, []


def _where(step: s.Where, schema: Schema | None, other: Schema | None) -> Result:
    return schema, condition_problems(step.condition, label("where", step.condition), schema, step.origin)


def _expect(step: s.Expect, schema: Schema | None, other: Schema | None) -> Result:
    named = ((label(_verb(step), f"{name}={condition}"), condition) for name, condition in step.conditions)
    return schema, [p for name, condition in named for p in condition_problems(condition, name, schema, step.origin)]


def condition_problems(text: str, named: str, schema: Schema | None, where: Origin | None) -> list[HeliosError]:
    """The problems of a condition: missing columns, or a value that is certainly not a boolean."""
    kind, problems = typed(text, named, schema, where)
    if not problems and kind.name not in ("boolean", "unknown", "void"):
        what = f"{named}: this is {kind}, not a condition."
        problems.append(DeclarationError(what, where=where, fix='write a condition, such as "amount > 0".'))
    return problems


def typed(text: str, named: str, schema: Schema | None, where: Origin | None) -> tuple[SparkType, list[HeliosError]]:
    """The type of an expression, `unknown` where it is known only at run time, and its problems.

    Args:
        text: The expression.
        named: How messages name it.
        schema: The columns that it may use.
        where: The line to blame.
    """
    plain = plain_column(text, schema)
    if plain is not None:
        return plain.kind, []
    try:
        node = parse(text, named, where)
    except UnparsedExpression as problem:
        return UNKNOWN, [problem]
    scope = Scope(schema)
    return safe_kind_of(node, scope), faults(node, scope, named, where)


def _select(step: s.Select, schema: Schema | None, other: Schema | None) -> Result:
    columns, problems = _project(step, [(None, e) for e in step.expressions], Scope(schema))
    return _schema(columns), problems


def _with_columns(step: s.WithColumns, schema: Schema | None, other: Schema | None) -> Result:
    columns, problems = _project(step, list(step.columns), Scope(schema))
    if schema is None or columns is None:
        return None, problems
    added = {c.name.lower(): c for c in columns}
    kept = [added.pop(c.name.lower(), c) for c in schema.columns]
    return Schema((*kept, *added.values())), problems


def _project(
    step: Step, expressions: Sequence[tuple[str | None, str]], scope: Scope
) -> tuple[tuple[Column, ...] | None, list[HeliosError]]:
    """The columns of expressions from left to right, None where one is known only at run time; and the problems."""
    problems: list[HeliosError] = []
    columns: tuple[Column, ...] | None = ()
    for name, text in expressions:
        made, found = _output(step, name, text, scope)
        problems += found
        columns = (*columns, *made) if columns is not None and made is not None else None
        scope = with_alias(scope, made)
    return columns, problems


def _output(
    step: Step, name: str | None, text: str, scope: Scope
) -> tuple[tuple[Column, ...] | None, list[HeliosError]]:
    plain = plain_column(text, scope.schema)
    if plain is not None:
        return (replace(plain, name=name or plain.name),), []
    if text.strip() == "*" and name is None:
        return scope.schema.columns if scope.schema is not None else None, []
    named = label(_verb(step), f"{name}={text}" if name else text)
    try:
        node = parse(text, named, step.origin)
    except UnparsedExpression as problem:
        return (Column.of(name, UNKNOWN),) if name else None, [problem]
    problems = faults(node, scope, named, step.origin)
    return (value(node, name, scope),) if name else outputs(node, text, scope), problems


def _verb(step: Step) -> str:
    return step.text().partition("(")[0]


def _schema(columns: tuple[Column, ...] | None) -> Schema | None:
    return Schema(columns) if columns is not None else None


def _absent(step: Step, name: str, schema: Schema | None, side: str = "") -> list[HeliosError]:
    """A problem if a name, taken literally, is certainly not in the schema."""
    if schema is None or not schema.exact or schema.get(name):
        return []
    where = f"{side} has no column" if side else "no column"
    text = label(_verb(step), name)
    return [NotFound(f"{text}: {where} {name!r}. {near_miss(name, schema.names)}", where=step.origin)]


def _rename(step: s.Rename, schema: Schema | None, other: Schema | None) -> Result:
    if schema is None:
        return None, []
    problems: list[HeliosError] = []
    # Spark renames one after the other.
    for old, new in step.names:
        problems += _absent(step, old, schema)
        taken = schema.get(new)
        if taken is not None and new.lower() != old.lower() and schema.get(old):
            problems.append(
                DeclarationError(
                    f"{label('rename', f'{old} -> {new}')}: there is a column {taken.name!r} already.",
                    where=step.origin,
                    fix=f'leave it out first with drop("{taken.name}"), or choose another name.',
                )
            )
            continue
        schema = Schema(
            tuple(replace(c, name=new, exact=True) if c.name.lower() == old.lower() else c for c in schema.columns)
        )
    return schema, problems


def _drop(step: s.Drop, schema: Schema | None, other: Schema | None) -> Result:
    if schema is None:
        return None, []
    problems = [p for name in step.columns for p in _absent(step, name, schema)]
    gone = {name.lower() for name in step.columns}
    return Schema(tuple(c for c in schema.columns if c.name.lower() not in gone)), problems


def _cast(step: s.Cast, schema: Schema | None, other: Schema | None) -> Result:
    problems: list[HeliosError] = []
    columns = {c.name.lower(): c for c in schema.columns} if schema is not None else {}
    for name, text in step.types:
        problems += _absent(step, name, schema)
        kind = str(UNKNOWN)
        try:
            kind = str(stored(parse_type(text)))
        except TypeProblem as problem:
            hint = f" {near_miss(problem.unknown, KNOWN)}" if problem.unknown else ""
            problems.append(
                DeclarationError(
                    f"{label('cast', f'{name}={text}')}: {problem}.{hint}",
                    where=step.origin,
                    fix='name a Spark SQL type, such as "bigint" or "decimal(10,2)".',
                )
            )
        old = columns.get(name.lower())
        if old is not None:
            columns[name.lower()] = Column(name, kind, old.nullable or kind != old.type)
    return (Schema(tuple(columns.values())) if schema is not None else None), problems


def _sql(step: s.Sql, schema: Schema | None, other: Schema | None) -> Result:
    return query_schema(step.query, schema, step.origin)


def _event_time(
    step: Step, name: str, schema: Schema | None, allowed: tuple[str, ...]
) -> tuple[Column, list[HeliosError]]:
    """The column of event time, by its name or by the path of a struct's field."""
    unknown = Column.of(name, UNKNOWN)
    column = schema.get(name) if schema is not None else None
    if column is None and schema is not None and ("." in name or "`" in name):
        made, problems = _output(step, name, name, Scope(schema))
        column = made[0] if made else unknown
    else:
        problems = _absent(step, name, schema)
    column = column or unknown
    if not problems and column.kind.name not in (*allowed, "unknown"):
        problems.append(
            DeclarationError(
                f"{label(_verb(step), name)}: {name!r} is {column.type}, not a timestamp.",
                where=step.origin,
                fix=f'convert it first: with_columns({{"{name}": "to_timestamp(...)"}}).',
            )
        )
    return column, problems


def _watermark(step: s.Watermark, schema: Schema | None, other: Schema | None) -> Result:
    # A struct may be the window of an earlier aggregate, which Spark takes too.
    _, problems = _event_time(step, step.column, schema, ("timestamp", "timestamp_ntz", "struct"))
    return schema, problems


def _aggregate(step: s.Aggregate, schema: Schema | None, other: Schema | None) -> Result:
    scope, columns, problems = Scope(schema), [], list[HeliosError]()
    if step.window is not None:
        # Spark casts text to timestamps here.
        allowed = ("timestamp", "timestamp_ntz", "date", "string", "struct")
        column, problems = _event_time(step, step.window[0], schema, allowed)
        bound = str(window_bound(column.kind))
        columns = [Column("window_start", bound), Column("window_end", bound)]
        scope = with_alias(scope, (*columns, Column("window", str(UNKNOWN))))
    made, found = _project(step, [*((None, e) for e in step.by), *step.columns], scope)
    return _schema((*columns, *made) if made is not None else None), problems + found


def _dedupe(step: s.Dedupe, schema: Schema | None, other: Schema | None) -> Result:
    return schema, [p for key in step.keys for p in _absent(step, key, schema)]


def _join(step: Join, left: Schema | None, right: Schema | None) -> Result:
    # A cross join has no columns in common.
    on = () if step.how == "cross" else step.on
    problems = [p for key in on for p in _absent(step, key, left, "the left side")]
    problems += [p for key in on for p in _absent(step, key, right, "the right side")]
    one_sided = step.how in ("semi", "anti")
    if left is None or (right is None and not one_sided):
        return None, problems
    left_rest = _beside(left, on)
    if one_sided or right is None:
        return Schema((*(c for key in on if (c := left.get(key))), *left_rest)), problems
    right_rest = _beside(right, on)
    shared = _shared(left_rest, right_rest)
    if shared:
        problems.append(_both_have(step, on, shared))
        right_rest = [c for c in right_rest if c.name not in shared]
    joined = [c for key in on if (c := _key(key, step.how, left, right))]
    # Where a row has no match, the columns of the other side are null.
    left_rest = _optional(left_rest) if step.how in ("right", "full") else left_rest
    right_rest = _optional(right_rest) if step.how in ("left", "full") else right_rest
    return Schema((*joined, *left_rest, *right_rest)), problems


def _beside(schema: Schema, on: Sequence[str]) -> list[Column]:
    """The columns of one side that are not in `on=`."""
    keys = {key.lower() for key in on}
    return [c for c in schema.columns if c.name.lower() not in keys]


def _shared(left: Sequence[Column], right: Sequence[Column]) -> list[str]:
    """The names that both sides certainly have."""
    names = {c.name.lower() for c in left if c.exact}
    return [c.name for c in right if c.exact and c.name.lower() in names]


def _both_have(step: Join, on: Sequence[str], shared: Sequence[str]) -> DeclarationError:
    return DeclarationError(
        f"{_verb(step)}(on={', '.join(on)}): both sides have {', '.join(map(repr, shared))}.",
        where=step.origin,
        fix=f'rename or drop it on one side first: rename({{"{shared[0]}": "right_{shared[0]}"}}).',
    )


def _optional(columns: Sequence[Column]) -> list[Column]:
    return [replace(c, nullable=True) for c in columns]


def _key(name: str, how: str, left: Schema, right: Schema) -> Column | None:
    """A column of `on=`, as USING gives it: from the side whose rows are all kept."""
    ours, theirs = left.get(name), right.get(name)
    if ours is None or theirs is None:
        return ours or theirs
    if how == "full":
        return Column.of(ours.name, wider(ours.kind, theirs.kind))
    return theirs if how == "right" else ours


def _union(step: Union, left: Schema | None, right: Schema | None) -> Result:
    if left is None or right is None:
        return None, []
    if not (left.exact and right.exact):
        return left, []
    problems: list[HeliosError] = []
    for side, has, lacks in (("left", left, right), ("right", right, left)):
        only = [c.name for c in has.columns if lacks.get(c.name) is None]
        if only:
            problems.append(
                DeclarationError(
                    f"union(): only the {side} side has {', '.join(map(repr, only))}. "
                    f"{near_miss(only[0], lacks.names)}",
                    where=step.origin,
                    fix="give both sides the same columns with select(...) or with_columns(...).",
                )
            )
    columns = []
    for ours in left.columns:
        theirs = right.get(ours.name)
        kind = wider(ours.kind, theirs.kind) if theirs else ours.kind
        columns.append(Column.of(ours.name, kind, ours.nullable or theirs is None or theirs.nullable))
    return Schema(tuple(columns)), problems


INFERRED: dict[type[Step], Callable[[Any, Schema | None, Schema | None], Result]] = {
    Call: _call,
    s.Where: _where,
    s.Select: _select,
    s.WithColumns: _with_columns,
    s.Rename: _rename,
    s.Drop: _drop,
    s.Cast: _cast,
    s.Sql: _sql,
    s.Watermark: _watermark,
    s.Aggregate: _aggregate,
    s.Dedupe: _dedupe,
    Join: _join,
    Union: _union,
    s.Expect: _expect,
}
"""The rule of every step."""
