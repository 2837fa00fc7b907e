"""Infers the columns of a query over `input`, for the step `sql(...)`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from helios.errors import DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.plan.typing.expression import UnparsedExpression, label, output_columns, unparsed, with_aliases
from helios.plan.typing.operands import expression_problems
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Node, Scope
from helios.plan.typing.types import wider

INPUT = "input"
_PLAIN_TABLE = ("this", "db", "catalog", "alias")
"""The parts of sqlglot's Table that a plain table in FROM may have."""


def query_schema(text: str, schema: Schema | None, where: Origin | None) -> tuple[Schema | None, list[HeliosError]]:
    """The columns of a query over `input`, None if known only at run time, and the problems of the query."""
    named = label("sql", text)
    try:
        node = _parse(text, named, where)
    except (UnparsedExpression, DeclarationError) as problem:
        return None, [problem]
    problems: list[HeliosError] = [*_foreign_tables(node, named, where)]
    reader = _Reader(named, where)
    columns = reader.read(node, {INPUT: schema})
    return columns, problems + reader.problems


def _parse(text: str, named: str, where: Origin | None) -> Node:
    """The syntax tree of the only statement of a text, which must be a query."""
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        with _quiet():
            statements = [node for node in Spark().parse(text) if node is not None]
    except (SqlglotError, RecursionError, ValueError) as error:
        raise unparsed(error, named, where) from None
    fix = 'write one query: sql("SELECT id FROM input").'
    if len(statements) != 1:
        raise DeclarationError(f"{named}: {len(statements) or 'no'} statements, not one.", where=where, fix=fix)
    node = statements[0]
    if isinstance(node, (exp.Query, exp.Values)):
        return node
    if isinstance(node, (exp.DDL, exp.DML, exp.Command, exp.Set, exp.Describe, exp.Drop, exp.Alter, exp.TruncateTable)):
        raise DeclarationError(f"{named}: this is not a query.", where=where, fix=fix)
    raise UnparsedExpression(f"{named}: not understood as a query.", where=where, fix=fix)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences sqlglot's warnings: Helios reports the same problems itself."""
    logger = logging.getLogger("sqlglot")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _foreign_tables(node: Node, named: str, where: Origin | None) -> list[NotFound]:
    """A problem for each table that a query reads besides `input` and its common table expressions."""
    from sqlglot import exp

    known = {INPUT, *(cte.alias.lower() for cte in node.find_all(exp.CTE))}
    problems: dict[str, NotFound] = {}
    for table in node.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.find_ancestor(exp.Hint):
            continue
        name = ".".join(part.name for part in table.parts)
        if name.lower() not in known:
            problems[name] = NotFound(
                f"{named}: reads {name!r}, which does not exist. {near_miss(name, known)}",
                where=where,
                fix="read FROM input, and bring other tables in with join(...).",
            )
    return list(problems.values())


class _Reader:
    """Infers the columns of queries from the inside out, and collects problems.

    Each method returns None for columns that are known only at run time.
    """

    def __init__(self, named: str, where: Origin | None) -> None:
        self.named = named
        self.where = where
        self.problems: list[HeliosError] = []

    def read(self, node: Node, tables: Mapping[str, Schema | None]) -> Schema | None:
        """The columns of a query; `tables` has the columns of the tables that it may read, by name in lower case."""
        from sqlglot import exp

        for cte in node.ctes if isinstance(node, exp.Query) else ():
            inner = None if cte.args["alias"].columns else self.read(cte.this, tables)
            tables = {**tables, cte.alias.lower(): inner}
        if isinstance(node, exp.Subquery):
            return self.read(node.this, tables) if _has_only(node, "this", "alias", "with_") else None
        if isinstance(node, exp.SetOperation):
            return self.combine(node, tables)
        return self.select(node, tables) if isinstance(node, exp.Select) else None

    def combine(self, node: Node, tables: Mapping[str, Schema | None]) -> Schema | None:
        """The columns of a UNION, INTERSECT or EXCEPT."""
        left, right = self.read(node.left, tables), self.read(node.right, tables)
        if left is None or right is None or node.args.get("by_name") or len(left.columns) != len(right.columns):
            return None
        return Schema(
            tuple(
                replace(Column.of(a.name, wider(a.kind, b.kind), a.nullable or b.nullable), exact=a.exact)
                for a, b in zip(left.columns, right.columns, strict=True)
            )
        )

    def select(self, node: Node, tables: Mapping[str, Schema | None]) -> Schema | None:
        from sqlglot import exp

        scope = self.scope(node, tables)
        inner, unknown = scope, False
        columns: list[Column] = []
        for item in node.expressions:
            self.check(item, inner)
            output = output_columns(item, item.sql("spark"), inner)
            unknown = unknown or output is None
            columns += output or ()
            inner = with_aliases(inner, output)
        self.check(node.args.get("where"), scope)
        if not unknown:
            # Grouping and ordering may use the columns that the query returns.
            for clause in ("group", "having", "order", "sort", "cluster", "distribute"):
                self.check(node.args.get(clause), inner)
        group = node.args.get("group")
        if group is not None and group.find(exp.Rollup, exp.Cube, exp.GroupingSets):
            # A group column is null in the rows that are not grouped by that column.
            columns = [replace(c, nullable=True) for c in columns]
        return None if unknown or not columns else Schema(tuple(columns))

    def check(self, node: Node | None, scope: Scope) -> None:
        """Adds the problems of an expression, each once."""
        if node is None:
            return
        for problem in expression_problems(node, scope, self.named, self.where):
            if str(problem) not in map(str, self.problems):
                self.problems.append(problem)

    def scope(self, node: Node, tables: Mapping[str, Schema | None]) -> Scope:
        """The scope of a SELECT; its columns are known only if the SELECT reads from one plain table or subquery."""
        from sqlglot import exp

        from_clause = node.args.get("from_")
        if from_clause is None or node.args.get("joins") or node.args.get("laterals") or node.args.get("pivots"):
            return Scope(None)
        source = from_clause.this
        alias = source.args.get("alias")
        if alias is not None and alias.columns:
            return Scope(None)
        if isinstance(source, exp.Subquery):
            return _scope_of(self.read(source, tables), source.alias)
        if not isinstance(source, exp.Table) or not _has_only(source, *_PLAIN_TABLE):
            return Scope(None)
        return _scope_of(tables.get(".".join(p.name for p in source.parts).lower()), source.alias_or_name)


def _scope_of(schema: Schema | None, qualifier: str) -> Scope:
    return Scope(schema, frozenset({qualifier.lower()} if qualifier else ()))


def _has_only(node: Node, *keys: str) -> bool:
    """True if a node has no parts but `keys`."""
    return all(not value or key in keys for key, value in node.args.items())
