"""Checks the MERGE statement of `merge_sql(...)`, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator

from helios.errors import DeclarationError, HeliosError, NotFound, Origin, near_miss
from helios.plan.typing.expression import UnparsedExpression, label, unparsed
from helios.plan.typing.rules import Node
from helios.plan.typing.schema import Schema

TARGET, BATCH = "target", "batch"
FIX = 'write merge_sql("MERGE INTO target USING batch ON target.id = batch.id WHEN ...").'


def merge_problems(text: str, batch: Schema | None, target: Schema | None, where: Origin | None) -> list[HeliosError]:
    """The problems of the user's MERGE INTO `target` USING `batch`.

    Args:
        batch: The columns of the batch; None if they are known only at run.
        target: The columns of the table; None if they are known only at run.
        where: The line to blame.
    """
    named = label("merge_sql", text)
    try:
        node = _parse(text, named, where)
    except (UnparsedExpression, DeclarationError) as problem:
        return [problem]
    problems = _table_problems(node, named, where)
    if problems:
        return problems
    tables = _columns_by_qualifier(node, {TARGET: target, BATCH: batch})
    missing = dict.fromkeys(
        [
            *(
                _missing(name, f" in {table!r}", tables[table])
                for table, name in _qualified_columns(node)
                if table in tables
            ),
            *(_missing(name, f" in {TARGET!r}", target) for name in _assigned_columns(node)),
        ]
    )
    return [NotFound(f"{named}: {message}", where=where) for message in missing if message]


def inserts_only(text: str) -> bool:
    """True if a MERGE has no WHEN MATCHED and no WHEN NOT MATCHED BY SOURCE: Spark runs it as an append.

    Also true for a MERGE that only Spark can parse, as it may be an append.
    """
    try:
        node = _parse(text, "merge_sql", None)
    except (UnparsedExpression, DeclarationError):
        return True
    return all(not when.args.get("matched") and not when.args.get("source") for when in node.args["whens"].expressions)


def _parse(text: str, named: str, where: Origin | None) -> Node:
    """The syntax tree of the only statement of a text, which must be a MERGE."""
    from sqlglot import exp
    from sqlglot.dialects.spark import Spark
    from sqlglot.errors import SqlglotError

    try:
        statements = [node for node in Spark().parse(text) if node is not None]
    except (SqlglotError, RecursionError, ValueError) as error:
        raise unparsed(error, named, where) from None
    if len(statements) != 1:
        raise DeclarationError(f"{named}: {len(statements)} statements, not one.", where=where, fix=FIX)
    if not isinstance(statements[0], exp.Merge):
        raise UnparsedExpression(f"{named}: not understood as a MERGE.", where=where, fix=FIX)
    return statements[0]


def _table_problems(node: Node, named: str, where: Origin | None) -> list[HeliosError]:
    """The problems of the tables that a MERGE names: it must change `target`, read `batch`, and read no other table."""
    from sqlglot import exp

    into = _table_name(node.this)
    if into != TARGET:
        return [DeclarationError(f"{named}: it changes {into!r}, not {TARGET!r}.", where=where, fix=FIX)]
    known = {TARGET, BATCH, *(cte.alias.lower() for cte in node.find_all(exp.CTE))}
    read = [_table_name(table) for table in node.find_all(exp.Table) if table is not node.this]
    problems: list[HeliosError] = [
        NotFound(
            f"{named}: reads {name!r}, which does not exist. {near_miss(name, (TARGET, BATCH))}",
            where=where,
            fix="bring other tables in with join(...), before the sink.",
        )
        for name in dict.fromkeys(read)
        if name not in known
    ]
    if not problems and BATCH not in read:
        problems.append(DeclarationError(f"{named}: it does not read the rows, {BATCH!r}.", where=where, fix=FIX))
    return problems


def _table_name(table: Node) -> str:
    return ".".join(part.name for part in table.parts).lower() if hasattr(table, "parts") else ""


def _columns_by_qualifier(node: Node, known: dict[str, Schema | None]) -> dict[str, Schema | None]:
    """The columns of `target` and `batch`, by name or alias in the MERGE. The columns of a subquery are None."""
    from sqlglot import exp

    qualifiers: dict[str, Schema | None] = {}
    for table in (node.this, node.args["using"]):
        name = _table_name(table) if isinstance(table, exp.Table) else ""
        # A subquery may be called `batch`: its columns are still unknown.
        qualifiers[(table.alias_or_name or name).lower()] = known.get(name)
    return qualifiers


def _qualified_columns(node: Node) -> Iterator[tuple[str, str]]:
    """Yields the qualifier and the name of every qualified column outside of subqueries."""
    from sqlglot import exp

    for column in node.walk(prune=lambda n: isinstance(n, exp.Query)):
        if isinstance(column, exp.Column) and len(column.parts) > 1 and not isinstance(column.this, exp.Star):
            yield column.parts[0].name.lower(), column.parts[1].name


def _assigned_columns(node: Node) -> Iterator[str]:
    """Yields the unqualified columns that UPDATE SET and INSERT write."""
    from sqlglot import exp

    for when in node.args["whens"].expressions:
        then = when.args.get("then")
        if isinstance(then, exp.Update):
            written = [e.this for e in then.expressions if isinstance(e, exp.EQ)]
        elif isinstance(then, exp.Insert) and isinstance(then.this, exp.Tuple):
            written = list(then.this.expressions)
        else:
            continue
        yield from (column.name for column in written if isinstance(column, exp.Column) and len(column.parts) == 1)


def _missing(name: str, place: str, schema: Schema | None) -> str | None:
    """The message if a column is certainly not in the schema; None otherwise."""
    # Iceberg's metadata columns, such as _file, are in no schema.
    if schema is None or not schema.exact or schema.get(name) or name.startswith("_"):
        return None
    return f"no column {name!r}{place}. {near_miss(name, schema.names)}"
