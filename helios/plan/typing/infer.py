"""Infers the columns after a declared step, and finds the problems of the step, without a JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TypeAlias

from helios.errors import DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.model.step import Step
from helios.plan.typing.expression import (
    UnparsedExpression,
    label,
    output_column,
    output_columns,
    parse,
    plain_column,
    with_aliases,
)
from helios.plan.typing.operands import expression_problems
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Scope
from helios.plan.typing.types import UNKNOWN, SparkType

Result: TypeAlias = "tuple[Schema | None, list[HeliosError]]"
"""The columns after a step, None if they are known only at run time, and the problems of the step."""


def infer(step: Step, schema: Schema | None, other: Schema | None = None) -> Result:
    """The columns after a step, and the step's problems. An `UnparsedExpression` does not stop a run.

    Args:
        step: The step. The file with its name in `helios.plan.typing.steps` infers its columns.
        schema: The columns before the step; None if they are known only at run time.
        other: The columns of the right side of a join or union.
    """
    result: Result = import_module(f"helios.plan.typing.steps.{step.module_name}").columns(step, schema, other)
    return result


def condition_problems(text: str, named: str, schema: Schema | None, where: Origin | None) -> list[HeliosError]:
    """The problems of a condition: missing columns, or a value that is certainly not a boolean."""
    kind, problems = expression_type(text, named, schema, where)
    if not problems and kind.name not in ("boolean", "unknown", "void"):
        message = f"{named}: this is {kind}, not a condition."
        problems.append(DeclarationError(message, where=where, fix='write a condition, such as "amount > 0".'))
    return problems


def expression_type(
    text: str, named: str, schema: Schema | None, where: Origin | None
) -> tuple[SparkType, list[HeliosError]]:
    """The type of an expression, `unknown` if it is known only at run time, and its problems."""
    plain = plain_column(text, schema)
    if plain is not None:
        return plain.kind, []
    try:
        node = parse(text, named, where)
    except UnparsedExpression as problem:
        return UNKNOWN, [problem]
    scope = Scope(schema)
    return safe_kind_of(node, scope), expression_problems(node, scope, named, where)


def project(
    step: Step, expressions: Sequence[tuple[str | None, str]], scope: Scope
) -> tuple[tuple[Column, ...] | None, list[HeliosError]]:
    """The columns that a step's expressions yield, from left to right, and the problems of the expressions.

    The columns are None if one of them is known only at run time.

    Args:
        expressions: Pairs of a column's name and its expression; the name is None if the expression gives it, as in
            `a AS b`.
    """
    problems: list[HeliosError] = []
    columns: tuple[Column, ...] | None = ()
    for name, text in expressions:
        output, output_problems = _output(step, name, text, scope)
        problems += output_problems
        columns = (*columns, *output) if columns is not None and output is not None else None
        scope = with_aliases(scope, output)
    return columns, problems


def _output(
    step: Step, name: str | None, text: str, scope: Scope
) -> tuple[tuple[Column, ...] | None, list[HeliosError]]:
    """The columns that one expression yields, None if they are known only at run time, and its problems."""
    plain = plain_column(text, scope.schema)
    if plain is not None:
        return (replace(plain, name=name or plain.name),), []
    if text.strip() == "*" and name is None:
        return scope.schema.columns if scope.schema is not None else None, []
    named = label(call_name(step), f"{name}={text}" if name else text)
    try:
        node = parse(text, named, step.origin)
    except UnparsedExpression as problem:
        return (Column.of(name, UNKNOWN),) if name else None, [problem]
    problems = expression_problems(node, scope, named, step.origin)
    return (output_column(node, name, scope),) if name else output_columns(node, text, scope), problems


def call_name(step: Step) -> str:
    """The name of the call at the start of a step's text, such as `window`."""
    return step.text().partition("(")[0]


def schema_of(columns: tuple[Column, ...] | None) -> Schema | None:
    """A schema of the columns; None if they are known only at run time."""
    return Schema(columns) if columns is not None else None


def absent_column_problem(step: Step, name: str, schema: Schema | None, side: str = "") -> list[HeliosError]:
    """The problem of a name that is certainly no column of the schema; the name is not parsed as SQL."""
    if schema is None or not schema.exact or schema.get(name):
        return []
    absence = f"{side} has no column" if side else "no column"
    text = label(call_name(step), name)
    return [NotFound(f"{text}: {absence} {name!r}. {near_miss(name, schema.names)}", where=step.origin)]


def event_time(
    step: Step, name: str, schema: Schema | None, allowed: tuple[str, ...]
) -> tuple[Column, list[HeliosError]]:
    """The column of event time, and its problems. `name` is the name of a column, or the path of a nested field."""
    column = schema.get(name) if schema is not None else None
    if column is None and schema is not None and ("." in name or "`" in name):
        output, problems = _output(step, name, name, Scope(schema))
        column = output[0] if output else None
    else:
        problems = absent_column_problem(step, name, schema)
    column = column or Column.of(name, UNKNOWN)
    if not problems and column.kind.name not in (*allowed, "unknown"):
        problems.append(
            DeclarationError(
                f"{label(call_name(step), name)}: {name!r} is {column.type}, not a timestamp.",
                where=step.origin,
                fix=f'convert it first: with_columns({{"{name}": "to_timestamp(...)"}}).',
            )
        )
    return column, problems
