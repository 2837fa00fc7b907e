"""Parses Spark SQL expressions, resolves their columns, and infers the name and the type of the result, without a JVM.

A problem is reported only if it is certain: a false problem would block a pipeline that works.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from helios.errors import InputError, NotFound, Origin, near_miss
from helios.plan.typing.rules import safe_kind_of
from helios.plan.typing.schema import Column, Schema
from helios.plan.typing.scope import Node, Scope, member
from helios.plan.typing.types import UNKNOWN, SparkType

_WORD = re.compile(r"[A-Za-z_]\w*")
_CONSTANTS = frozenset({"true", "false", "null"})
# Names that Spark reads as function calls if no column has the name.
_BARE_CALLS = frozenset(
    [
        "current_date",
        "current_timestamp",
        "current_time",
        "current_user",
        "session_user",
        "user",
        "localtimestamp",
        "grouping__id",
    ]
)
# Metadata columns of Iceberg's scans and of reads of changes. No schema has them.
_METADATA = frozenset(
    [
        "_file",
        "_pos",
        "_partition",
        "_spec_id",
        "_deleted",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    ]
)
SPARK_METADATA = "_metadata"
"""The metadata column of Spark's own readers of files."""
# Arguments of date functions that sqlglot may take for columns.
_UNITS = frozenset(
    [
        "year",
        "years",
        "quarter",
        "month",
        "months",
        "week",
        "weeks",
        "day",
        "days",
        "dayofyear",
        "hour",
        "hours",
        "minute",
        "minutes",
        "second",
        "seconds",
        "millisecond",
        "milliseconds",
        "microsecond",
        "microseconds",
    ]
)
_GENERATORS = frozenset(
    [
        "Explode",
        "ExplodeOuter",
        "_ExplodeOuter",
        "Posexplode",
        "PosexplodeOuter",
        "_PosexplodeOuter",
        "Inline",
        "_InlineOuter",
        "Stack",
    ]
)
_GENERATING_CALLS = frozenset(
    [
        "stack",
        "json_tuple",
        "inline",
        "inline_outer",
        "explode",
        "explode_outer",
        "posexplode",
        "posexplode_outer",
        "variant_explode",
        "variant_explode_outer",
        "collations",
        "sql_keywords",
    ]
)


class UnparsedExpression(InputError):
    """Text that sqlglot cannot parse. It does not stop a run, because Spark's own parser may accept it."""


def label(step: str, detail: str) -> str:
    """The name of an expression in messages: the call and its text, such as `where(amount > 0)`.

    Examples:
        >>> label("where", "a  =\\n 1")
        'where(a = 1)'
    """
    shown = " ".join(detail.split())
    return f"{step}({shown if len(shown) <= 120 else shown[:117] + '...'})"


def parse(text: str, named: str, where: Origin | None) -> Node:
    """The syntax tree of one expression.

    Raises:
        UnparsedExpression: sqlglot cannot parse the text.
    """
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        # The root of all nodes was called Expression before sqlglot 30.
        (node,) = Spark().parse_into(getattr(exp, "Expr", exp.Expression), text)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise unparsed(error, named, where) from None
    # sqlglot parses a text such as `a:b` as an alias, but this alias is not a name.
    if node is None or (isinstance(node, exp.Alias) and not isinstance(node.args.get("alias"), exp.Identifier)):
        raise UnparsedExpression(f"{named}: this is not an expression.", where=where)
    return node


def unparsed(error: Exception, named: str, where: Origin | None) -> UnparsedExpression:
    """The problem of a text that sqlglot cannot parse, with the position of the error."""
    details = getattr(error, "errors", None) or [{}]
    line, column, near = (details[0].get(k) for k in ("line", "col", "highlight"))
    # An error of the tokenizer has the position in its text, and is the cause of the raised error.
    position = re.search(r"(\d+):(\d+)\s*$", str(error.__cause__ or error))
    if column is None and position:
        line, column = int(position[1]), int(position[2])
    at = ""
    if column is not None:
        at = f" at column {column}" if line == 1 else f" at line {line}, column {column}"
    near = f", near {near!r}" if near else ""
    return UnparsedExpression(
        f"{named}: not understood as Spark SQL{at}{near}.",
        where=where,
        fix="correct it; if Spark knows the syntax, `helios run` accepts it.",
    )


def plain_column(text: str, schema: Schema | None) -> Column | None:
    """The column whose name is the text; None for other expressions. This saves the import of the parser (0.3 s)."""
    word = text.strip()
    lowered = word.lower()
    if not _WORD.fullmatch(word) or lowered in _CONSTANTS:
        return None
    column = schema.get(word) if schema is not None else None
    return replace(column, name=word) if column else None


def missing_column_problems(node: Node, scope: Scope, named: str, where: Origin | None) -> list[NotFound]:
    """The problems of columns that an expression names, and that certainly do not exist."""
    if scope.schema is None or not scope.schema.exact:
        return []
    problems: dict[str, NotFound] = {}
    for column in _columns(node):
        problem = _column_problem(column, scope, scope.schema)
        if problem and problem not in problems:
            problems[problem] = NotFound(f"{named}: {problem}", where=where)
    return list(problems.values())


def _columns(node: Node) -> Iterator[Node]:
    """Yields the columns in an expression, without those in subqueries, whose names refer to other columns."""
    from sqlglot import exp

    for column in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(column, exp.Column) and not isinstance(column.this, exp.Star):
            yield column


def _column_problem(column: Node, scope: Scope, schema: Schema) -> str | None:
    """The message if a column or one of its nested fields certainly does not exist; None otherwise."""
    parts = [part.name for part in column.parts]
    kind, rest = scope.root(parts)
    if kind is None and len(parts) == 2 and parts[0].lower() in scope.qualifiers and parts[1].lower() not in _METADATA:
        return f"no column {parts[1]!r} in {parts[0]!r}. {near_miss(parts[1], schema.names)}"
    if kind is None and parts[0].lower() == SPARK_METADATA and SPARK_METADATA not in scope.qualifiers:
        return "no column '_metadata': Helios has its own file readers. .with_metadata('_file') stores each row's file."
    if kind is None:
        # A dotted name may begin with a table, an alias or a metadata column.
        if rest or _may_be_no_column(column):
            return None
        return f"no column {parts[0]!r}. {near_miss(parts[0], schema.names)}"
    path = parts[len(parts) - len(rest) - 1]
    for name in rest:
        inner = member(kind, name)
        if inner is None:
            if schema.get(name):
                return None
            struct = kind if kind.name == "struct" else kind.parts[0]
            return f"no field {name!r} in {path!r}. {near_miss(name, struct.fields)}"
        kind, path = inner, f"{path}.{name}"
    return None


def _may_be_no_column(column: Node) -> bool:
    """True if a name may be a function call, a metadata column or a unit of time."""
    name = column.name.lower()
    if name in _BARE_CALLS or name in _METADATA:
        return True
    from sqlglot import exp

    return name in _UNITS and isinstance(column.parent, exp.Func)


def output_column(node: Node, name: str, scope: Scope) -> Column:
    """The column that an expression yields, under the given name."""
    return Column.of(name, safe_kind_of(node, scope), _nullable(node, scope))


def _nullable(node: Node, scope: Scope) -> bool:
    """True unless an expression is certainly never null."""
    while type(node).__name__ in ("Alias", "Paren"):
        node = node.this
    kind = type(node).__name__
    if kind == "Column" and len(node.parts) == 1 and scope.schema is not None:
        column = scope.schema.get(node.name)
        return column.nullable if column else True
    return kind not in ("Count", "Literal", "Boolean")


def output_columns(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    """The columns that one expression of a SELECT yields; None if they are known only at run time."""
    rule = _OUTPUTS.get(type(node).__name__)
    if rule is not None:
        return rule(node, text, scope)
    if type(node).__name__ in _GENERATORS or str(node.this).lower() in _GENERATING_CALLS:
        return None
    # The name that Spark gives an expression without an alias is not certain.
    return (replace(output_column(node, " ".join(text.split()), scope), exact=False),)


def _named_column(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    if type(node.this).__name__ == "Star":
        return _fields(node, scope)
    kind, _ = scope.root([part.name for part in node.parts])
    # sqlglot parses `+ a` as the column a, and `user` may be a function: Spark gives both another name.
    exact = not text.lstrip().startswith("+") and (kind is not None or node.name.lower() not in _BARE_CALLS)
    return (replace(output_column(node, node.name, scope), exact=exact),)


def _fields(node: Node, scope: Scope) -> tuple[Column, ...] | None:
    """The columns of `s.*`: the fields of a struct, or all columns of the table that `s` names."""
    parts = [part.name for part in node.parts[:-1]]
    if any(node.this.args.values()):
        return None
    if len(parts) == 1 and parts[0].lower() in scope.qualifiers:
        return scope.schema.columns if scope.schema is not None else None
    kind, rest = scope.root(parts)
    if kind is None or kind.name != "struct" or rest:
        return None
    return tuple(Column.of(n, t) for n, t in zip(kind.fields, kind.parts, strict=True))


def _star(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    """The columns of `*`, also with EXCEPT; with REPLACE, RENAME or qualified names they are known only at run time."""
    clauses = {key: value for key, value in node.args.items() if value}
    excepted = clauses.pop("except_", [])
    if scope.schema is None or clauses or any(getattr(e, "table", "") for e in excepted):
        return None
    names = {e.name.lower() for e in excepted}
    return tuple(c for c in scope.schema.columns if c.name.lower() not in names)


def _aliased(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    return (output_column(node.this, node.alias, scope),)


def _aliases(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    """The columns of an expression with several aliases, such as `explode(m) AS (k, v)`."""
    kinds = [UNKNOWN] * len(node.expressions)
    exploded = safe_kind_of(node.this.this, scope) if type(node.this).__name__ == "Explode" else UNKNOWN
    if len(exploded.parts) == len(kinds):
        kinds = list(exploded.parts)
    return tuple(Column.of(e.name, k) for e, k in zip(node.expressions, kinds, strict=True))


def _field(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    """The column of a nested field that sqlglot parses as Dot. Spark names `a.b.c.d.e` after `e`, but not `f(a).b`."""
    base = node
    while type(base).__name__ == "Dot":
        base = base.this
    if type(node.expression).__name__ == "Star":
        return None
    if type(base).__name__ == "Column" and type(node.expression).__name__ == "Identifier":
        return (output_column(node, node.expression.name, scope),)
    return (replace(output_column(node, " ".join(text.split()), scope), exact=False),)


def _cast(node: Node, text: str, scope: Scope) -> tuple[Column, ...] | None:
    """The column of a cast. Spark names `CAST(id AS INT)` after `id`, but not `try_cast(id AS INT)` or `int(id)`."""
    plain = type(node.this).__name__ == "Column" and len(node.this.parts) == 1 and not node.args.get("safe")
    name = node.this.name if plain else " ".join(text.split())
    return (replace(output_column(node, name, scope), exact=plain),)


_OUTPUTS = {
    "Alias": _aliased,
    "Aliases": _aliases,
    "Column": _named_column,
    "Dot": _field,
    "Star": _star,
    "TryCast": _cast,
}


def with_aliases(scope: Scope, columns: tuple[Column, ...] | None) -> Scope:
    """The scope with columns as aliases: expressions further right in a SELECT may use the columns further left."""
    added: Mapping[str, SparkType] = {c.name.lower(): c.kind for c in columns or () if c.exact}
    return replace(scope, aliases={**scope.aliases, **added})
