"""Compiles the steps of a pipeline to a program of the columnar engine, if the engine supports all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any

from helios.model.flow import Stream
from helios.model.step import Step
from helios.native.program import Expectation, Filter, NotNative, Operation, Program, Project, Term, refuse_wildcard
from helios.plan.native.rules import SUPPORTED_TYPE, cast, condition, term
from helios.plan.typing.expression import UnparsedExpression, parse
from helios.plan.typing.schema import Schema
from helios.plan.typing.scope import Node
from helios.plan.typing.types import TypeProblem, parse_type
from helios.steps.cast import Cast
from helios.steps.drop import Drop
from helios.steps.expect import Expect
from helios.steps.rename import Rename
from helios.steps.select import Select
from helios.steps.where import Where
from helios.steps.with_columns import WithColumns

Columns = tuple[tuple[str, str], ...]


def program_of(stream: Stream, schema: Schema) -> Program:
    """The program of the steps over the rows of a source: an Iceberg table, or files.

    Raises:
        NotNative: The engine does not support a step, an expression or a type.
    """
    source = stream.source
    columns = source.engine_columns_or_reason
    if isinstance(columns, str):
        raise NotNative(columns)
    compiler = _Compiler(tuple((column.name, str(column.kind)) for column in schema.columns))
    for text in source.conditions:
        compiler.where_of_source(text)
    if columns:
        compiler.keep(columns)
    for step in stream.steps:
        rule = STEPS.get(type(step))
        if rule is None:
            raise NotNative(f"{step.text()} is a step that the native engine does not support")
        rule(compiler, step)
    for name, kind in compiler.columns:
        if not SUPPORTED_TYPE.fullmatch(kind):
            raise NotNative(f"column {name} is a {kind}")
    used = _used(compiler.steps, compiler.source_columns)
    return Program(used, tuple(compiler.steps), compiler.columns)


def _used(steps: Iterable[Operation], source_columns: Columns) -> Columns:
    """The columns of the source that must be read: those that the steps use up to the first projection, or else all."""
    used: set[str] = set()
    for step in steps:
        terms = [term for _, term in step.columns] if isinstance(step, Project) else [step.condition]
        for computed in terms:
            used |= _names(computed)
        if isinstance(step, Project):
            return tuple(column for column in source_columns if column[0] in used)
    return source_columns


def _names(value: Term) -> set[str]:
    """The columns that a term reads."""
    own = {str(value.text)} if value.op == "col" else set[str]()
    return own.union(*map(_names, value.args))


class _Compiler:
    """Compiles the steps in order, and tracks the columns after each step."""

    def __init__(self, columns: Columns) -> None:
        for name, _ in columns:
            refuse_wildcard(name)
        self.source_columns = self.columns = columns
        self.steps: list[Operation] = []

    @property
    def known(self) -> Mapping[str, tuple[str, str]]:
        """The columns after the steps so far: name and type, by the name in lower case."""
        columns = {name.lower(): (name, kind) for name, kind in self.columns}
        if len(columns) < len(self.columns):
            raise NotNative("two columns have one name")
        return columns

    def parsed(self, text: str) -> Node:
        """The syntax tree of an expression; refuses text that Spark may read differently."""
        if "\\" in text:
            raise NotNative(f"{text!r} has a backslash")  # two versions of the parser read its escapes differently
        try:
            return parse(text, text, None)
        except UnparsedExpression:
            raise NotNative(f"{text!r} is not understood without Spark") from None

    def where(self, text: str) -> None:
        self.steps.append(Filter(condition(self.parsed(text), self.known)))

    def where_of_source(self, text: str) -> None:
        """Adds the condition of a source; refuses columns that the source does not select."""
        from sqlglot import exp

        for node in self.parsed(text).find_all(exp.Column):
            if len(node.parts) == 1 and node.name.lower() not in self.known:
                raise NotNative(f"the source filters by {node.name}, which it does not select")
        self.where(text)

    def keep(self, names: Iterable[str]) -> None:
        """Adds a projection to some of the columns."""
        known = self.known
        missing = [name for name in names if name.lower() not in known]
        if missing:
            raise NotNative(f"{missing[0]!r} is not a plain column")
        self.project([(name, self.column(name)) for name in names])

    def column(self, name: str) -> Term:
        known_name, kind = self.known[name.lower()]
        return Term("col", kind, text=known_name)

    def project(self, columns: Iterable[tuple[str, Term]]) -> None:
        projected = tuple(columns)
        for name, _ in projected:
            refuse_wildcard(name)
        self.steps.append(Project(projected))
        self.columns = tuple((name, term.kind) for name, term in projected)


def _where(compiler: _Compiler, step: Where) -> None:
    compiler.where(step.condition)


def _select(compiler: _Compiler, step: Select) -> None:
    selected: list[tuple[str, Term]] = []
    for text in step.expressions:
        node = compiler.parsed(text)
        kind = type(node).__name__
        if kind == "Star" and not any(node.args.values()):
            selected += [(name, compiler.column(name)) for name, _ in compiler.columns]
        elif kind == "Alias":
            selected.append((node.alias, term(node.this, compiler.known)))
        elif kind == "Column":
            selected.append((node.name, term(node, compiler.known)))
        else:
            raise NotNative(f"{text!r} has no alias")
    compiler.project(selected)


def _with_columns(compiler: _Compiler, step: WithColumns) -> None:
    # Each expression sees the columns before the step.
    _replace(compiler, {name: term(compiler.parsed(text), compiler.known) for name, text in step.columns})


def _replace(compiler: _Compiler, terms: Mapping[str, Term]) -> None:
    """Replaces the columns that have the name of a term, and appends the other terms."""
    new_names = {name.lower(): name for name in terms}
    if len(new_names) < len(terms):
        raise NotNative("a step names one column twice")
    columns: list[tuple[str, Term]] = []
    for name, _ in compiler.columns:
        new = new_names.pop(name.lower(), None)
        columns.append((name, compiler.column(name)) if new is None else (new, terms[new]))
    compiler.project([*columns, *((new, terms[new]) for new in new_names.values())])


def _rename(compiler: _Compiler, step: Rename) -> None:
    names = {old.lower(): new for old, new in step.names}
    existing = [name.lower() for name, _ in compiler.columns]
    taken = {*existing, *names}  # Spark renames in turn: a new name may be the old one of a later pair
    if len(names) < len(step.names) or any(new.lower() in taken for new in names.values()):
        raise NotNative(f"{step.text()} gives a name that another column has or had")
    compiler.project((names.get(name.lower(), name), compiler.column(name)) for name, _ in compiler.columns)


def _drop(compiler: _Compiler, step: Drop) -> None:
    dropped = {name.lower() for name in step.columns}
    compiler.keep([name for name, _ in compiler.columns if name.lower() not in dropped])


def _cast(compiler: _Compiler, step: Cast) -> None:
    terms = {}
    for name, kind in step.types:
        if name.lower() not in compiler.known:
            raise NotNative(f"{name!r} is not a plain column")
        try:
            terms[name] = cast(compiler.column(name), str(parse_type(kind)))
        except TypeProblem:
            raise NotNative(f"{kind!r} is a type that the native engine does not support") from None
    _replace(compiler, terms)


def _expect(compiler: _Compiler, step: Expect) -> None:
    if step.on_fail == "quarantine":
        raise NotNative(f"{step.text()} quarantines rows as JSON, which only Spark writes")
    # A row whose condition is null fails.
    conditions = [condition(compiler.parsed(text), compiler.known) for _, text in step.conditions]
    all_conditions = reduce(lambda a, b: Term("and", "boolean", (a, b)), conditions)
    refusal = f"a row does not meet {step.text()}, and Spark says which" if step.on_fail == "fail" else ""
    compiler.steps.append(Expectation(all_conditions, refusal))


STEPS: Mapping[type[Step], Callable[[_Compiler, Any], None]] = {
    Where: _where,
    Select: _select,
    WithColumns: _with_columns,
    Rename: _rename,
    Drop: _drop,
    Cast: _cast,
    Expect: _expect,
}
"""The steps that the engine supports, each with the function that compiles it."""
