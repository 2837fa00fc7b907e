"""Checks a backfill before it runs: the pipeline, the filter or the commits, and how the rows are cut into slices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.errors import InputError, NotFound, near_miss
from helios.model.flow import flows
from helios.model.modes import Mode
from helios.model.target import TargetKind
from helios.plan.filter_values import refuse_values
from helios.plan.nodes import Plan, ReadPath
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.expression import parse
from helios.plan.typing.schema import from_pyiceberg
from helios.plan.typing.types import SparkType, TypeProblem, parse_type
from helios.table.refs import MAIN

if TYPE_CHECKING:
    from helios.table.commits import Commit

UNITS = ("hour", "day", "month")
"""The units of time that `--by` takes."""
UTC = ("UTC", "ETC/UTC", "ZULU", "Z", "GMT", "+00:00", "+0")
"""The values of `spark.sql.session.timeZone` that mean UTC, in upper case."""
SLICED_TYPES = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
"""The types of the columns that `--by COLUMN` takes, besides decimals; each value of the column is one slice."""
NOT_BACKFILLED = {
    TargetKind.ROUTED: "it routes its rows into many tables",
    TargetKind.MIRROR: "it mirrors the tables of a database",
    TargetKind.ATOMIC_MIRROR: "it mirrors the tables of a database",
    TargetKind.AUDITED: "its batches wait for an audit",
    TargetKind.OUTPUT: "its target is not a table",
}
"""The kinds of targets that a backfill does not write, each with the reason."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The request for a backfill.

    Attributes:
        where: The SQL condition, over columns of the target, that selects the rows to replace; empty if `commits` is
            given.
        commits: The commits whose rows are replaced, as `A..B`; None if `where` is given.
        by: The unit of time or the column by which the rows are cut into slices; None for a single slice.
        other: The table or the folder that is read instead of the source; None if the source itself is read.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
        rows_stay: Whether the user asserts that the changed script moves no row into or out of the filter, and no row
            from one slice to another.
    """

    where: str = ""
    commits: str | None = None
    by: str | None = None
    other: str | None = None
    trusts_expired: bool = False
    rows_stay: bool = False


@dataclass(frozen=True)
class Cut:
    """How rows are cut into slices.

    Attributes:
        column: The column whose value decides to which slice a row belongs.
        unit: The unit of time; None if each value of the column is a slice.
        kind: The type of the column.
    """

    column: str
    unit: str | None
    kind: str


def refuse_backfill(plan: Plan) -> None:
    """Raises an `InputError` with the reason if a backfill cannot replace the rows of a pipeline."""
    write, fix = plan.write, None
    reason = NOT_BACKFILLED.get(write.sink.target_kind)
    if reason is None and plan.path is ReadPath.STATEFUL:
        reason = f"it is a stateful stream ({plan.why}), and its state is that of the newest rows"
    elif reason is None and plan.view is not None:
        reason = "it maintains a view: `helios run --full-refresh` computes it again"
    elif reason is None and not write.mode.traits.only_adds:
        reason, fix = _why_mode_refused(write.mode)
    if reason is None and plan.path is ReadPath.BATCH:
        reason = "it reads its sources once: give its source a .where(...) and its sink .overwrite(filter), and run it"
    elif reason is None and any(read.source.carries_order or read.source.reads_changes for read in plan.reads):
        reason = "it reads the changes of a source, which cannot be found from the source's present rows"
    if reason is not None:
        raise InputError(f"{plan.pipeline} cannot be backfilled: {reason}.", where=plan.origin, fix=fix)


def _why_mode_refused(mode: Mode) -> tuple[str | None, str | None]:
    """Why a backfill cannot repair the rows of a mode that replaces rows, and the fix; both are None if it can."""
    upsert, refill = mode.upsert, "refill the target with `helios run --full-refresh`."
    if upsert is None or upsert.history:
        return f"its mode is {mode.text()}, and rows that it has replaced are not put back", refill
    if upsert.order_by is not None and upsert.delete_when is not None:
        return f"its mode is {mode.text()}, and the deletes that it remembers are not in the table", refill
    return None, None


def refuse_ask(plan: Plan, ask: Ask) -> None:
    """Rejects a request that does not fit the target. The check reads only the target's metadata, without a JVM.

    Raises:
        HeliosError: The target does not exist, or the pipeline has written nothing into it, or the filter, the cut, a
            commit or an option does not fit the target.
    """
    # Imported late: a plan whose tables are all new must not load the modules that read tables.
    from helios.table.commits import commits
    from helios.table.ledger import records

    write = plan.write
    if ask.rows_stay and write.mode.upsert is not None:
        raise InputError(
            f"--rows-stay does not go with the upsert of {plan.pipeline}: an upsert is repaired by its keys, so a row "
            "may move into or out of the filter, or from one slice to another.",
            where=plan.origin,
            fix="leave it out.",
        )
    if not write.table.catalog.exists(write.table.name_in_catalog):
        raise NotFound(
            f"{write.table.text}, the target of {plan.pipeline}, does not exist: there is nothing to repair.",
            where=plan.declared.sink.origin,
            fix="run the pipeline first, or pass the --profile with which it runs.",
        )
    table = write.table.catalog.load(write.table.name_in_catalog)
    known = records(table.iceberg.properties, table.name)
    names = [name for name in write.pipeline_names if name in known]
    if not names:
        others = f"; the table is written by {', '.join(known)}" if known else ""
        raise NotFound(
            f"{plan.pipeline} has written nothing into {write.table.text}: there is nothing to repair{others}.",
            where=plan.origin,
            fix="run the pipeline first; a backfill repairs only the rows of its own pipeline.",
        )
    if ask.commits is not None:
        own_names = frozenset({*write.pipeline_names, *(former for name in names for former in known[name].formerly)})
        retained = commits(table, branch=write.sink.branch_name or MAIN)
        commits_in_range(retained, ask.commits, own_names, write.table.text)
        return
    columns = {column.name: column.type for column in from_pyiceberg(table.iceberg.schema()).columns}
    cut_of(ask.by, columns_named(ask.where, columns, write.table.text), columns, write.table.text)


def refuse_other_source(plan: Plan) -> None:
    """Rejects `--from`, which replaces one source, for an upsert and for a pipeline that follows several sources."""
    if plan.write.mode.upsert is not None:
        raise InputError(
            f"--from does not go with the upsert of {plan.pipeline}: another source does not tell in which order the "
            "rows of a key came.",
            where=plan.origin,
            fix="repair rows that the source still has, or refill the target with `helios run --full-refresh`.",
        )
    followed = [inner.source.label() for inner in flows(plan.stream) if inner.source.streaming]
    if len(followed) > 1:
        raise InputError(
            f"--from names one source, and {plan.pipeline} follows {len(followed)}: {', '.join(followed)}.",
            where=plan.origin,
        )


def columns_named(where: str, columns: Mapping[str, str], table: str) -> list[str]:
    """The columns of the target that a filter names, spelled as in the target.

    Args:
        columns: The types of the target's columns.
        table: The name of the target, for messages.

    Raises:
        InputError: The filter is empty, has a subquery or a nondeterministic function, names no column, an unknown
            column or a float or double, or compares a column with a value of another type.

    Examples:
        >>> columns_named("Day >= '2026-01-05' AND day < '2026-01-08'", {"day": "string", "id": "int"}, "local.a.t")
        ['day']
    """
    if not where.strip():
        raise InputError("--where is empty.", fix=f"name columns of {table}: --where \"day >= '2026-01-05'\".")
    if (nondeterministic := nondeterministic_function(where)) is not None:
        raise InputError(
            f"--where has {nondeterministic}, whose value changes with each call.", fix="write the value itself."
        )
    from sqlglot import exp

    parsed = parse(where, f"--where ({where})", None)
    if parsed.find(exp.Query) is not None:
        raise InputError("--where has a subquery.", fix="write the values that it returns.")
    known = {name.lower(): name for name in columns}
    used: dict[str, None] = {}
    for column in parsed.find_all(exp.Column):
        name = column.parts[0].name
        if name.lower() not in known:
            raise InputError(f"--where: {table} has no column {name!r}. {near_miss(name, columns)}")
        _refuse_floating(column.sql("spark"), columns[known[name.lower()]], [part.name for part in column.parts[1:]])
        used[known[name.lower()]] = None
    if not used:
        raise InputError(f"--where ({where}) names no column of {table}.", fix=near_miss("", columns))
    refuse_values(parsed, {name.lower(): type_name for name, type_name in columns.items()}, "--where")
    return list(used)


def with_table_spelling(where: str, columns: Iterable[str]) -> str:
    """The filter with its columns spelled as in the table, because Iceberg's filters are case-sensitive.

    Examples:
        >>> with_table_spelling("ID < 10 AND k = 'ID'", ["id", "k"])
        "id < 10 AND k = 'ID'"
        >>> with_table_spelling("DATE = DATE '2026-01-05' AND `ID` < 1 AND place.ID = 2", ["id", "date"])
        "date = date '2026-01-05' AND `id` < 1 AND place.ID = 2"
    """
    from sqlglot.dialects.spark import Spark

    known = {name.lower(): name for name in columns}
    text, tokens = where, Spark().tokenize(where)
    # From the end to the start, so that the positions of the tokens further left stay valid. A column may have the name
    # of a keyword. If such a token is a keyword, the new spelling does no harm: keywords are case-insensitive.
    for index, token in reversed(list(enumerate(tokens))):
        name = known.get(token.text.lower(), token.text)
        is_field = index > 0 and tokens[index - 1].token_type.name == "DOT"
        if name == token.text or token.token_type.name.endswith("STRING") or is_field:
            continue
        spelled = text[token.start : token.end + 1].replace(token.text, name)
        text = text[: token.start] + spelled + text[token.end + 1 :]
    return text


def _refuse_floating(column: str, kind: str, path: list[str]) -> None:
    """Rejects a float or double in a filter: a column, or the field at `path` in a nested column."""
    try:
        compared: SparkType | None = parse_type(kind)
    except TypeProblem:
        return  # Iceberg says whether it compares such a type
    for name in path:
        compared = compared.field(name) if compared is not None and compared.name == "struct" else None
    if compared is not None and compared.name in ("float", "double"):
        raise InputError(
            f"--where: {column} is a float or double, and Iceberg uses column bounds to find the rows to replace, but "
            "the bounds ignore NaN and the sign of zero: some old rows would stay beside the new ones.",
            fix="filter by a column of another type.",
        )


def refuse_zone(zone: str, named: Iterable[str], columns: Mapping[str, str]) -> None:
    """Rejects a filter or a cut by a timestamp if the time zone of the session is not UTC.

    Args:
        named: The columns that the filter names, and the column of the cut.
        columns: The types of the target's columns.
    """
    if zone.upper() in UTC:
        return
    for name in named:
        if "timestamp" in columns[name]:
            raise InputError(
                f"{name} is a {columns[name]}, and spark.sql.session.timeZone is {zone}: a backfill takes times "
                "only in UTC.",
                fix="name a column that is not a timestamp, such as a date.",
            )


def cut_of(by: str | None, named: list[str], columns: Mapping[str, str], table: str) -> Cut | None:
    """The cut that `--by` asks for; None without `--by`. A column has precedence over a unit of the same name.

    Args:
        named: The columns that the filter names.
        columns: The types of the target's columns.
        table: The name of the target, for messages.

    Raises:
        InputError: The column is unknown or has too many values, or the filter does not name exactly one date or
            timestamp.

    Examples:
        >>> cut_of("day", ["ts"], {"ts": "timestamp", "id": "int"}, "local.a.t")
        Cut(column='ts', unit='day', kind='timestamp')
        >>> cut_of("day", ["day"], {"day": "string"}, "local.a.t")
        Cut(column='day', unit=None, kind='string')
    """
    if by is None:
        return None
    known = {name.lower(): name for name in columns}
    if (column := known.get(by.lower())) is not None:
        kind = columns[column]
        if kind not in SLICED_TYPES and not kind.startswith("decimal"):
            fix = (
                "cut by hour, day or month"
                if kind.startswith("timestamp")
                else f"cut by a column of the type {', '.join(SLICED_TYPES)} or decimal"
            )
            raise InputError(f"--by {by}: {column} is {kind}, whose values are too many to be slices.", fix=f"{fix}.")
        return Cut(column, None, kind)
    if by.partition(".")[0].lower() in known:
        raise InputError(f"--by {by}: a backfill is not cut by a nested column.", fix="cut by a top-level column.")
    if by.lower() not in UNITS:
        raise InputError(f"--by {by}: {table} has no such column. {near_miss(by, [*UNITS, *columns])}")
    times = [name for name in named if columns[name] in ("date", "timestamp", "timestamp_ntz")]
    if len(times) != 1:
        names = f"{len(times)}: {', '.join(times)}" if times else "none"
        raise InputError(
            f"--by {by} needs exactly one date or timestamp in --where, which names {names}.",
            fix="name one in --where, or cut by a column.",
        )
    if columns[times[0]] == "date" and by.lower() == "hour":
        raise InputError(f"--by hour: {times[0]} is a date.", fix="cut by day or month.")
    return Cut(times[0], by.lower(), columns[times[0]])


def commits_in_range(retained: Sequence[Commit], requested: str, pipelines: frozenset[str], table: str) -> list[Commit]:
    """The commits of a pipeline that `--commits` requests, oldest first.

    Args:
        retained: The retained commits of the table, newest first.
        requested: The commits `A..B`, or one commit `A`. Each is a snapshot id or the number of a batch.
        pipelines: The present and the former names of the pipeline.
        table: The name of the table, for messages.

    Raises:
        InputError: The number of a batch is that of several commits, B comes before A, or `A..B` has only one end.
        NotFound: The pipeline has no such commit.
    """
    own = [commit for commit in reversed(retained) if commit.pipeline in pipelines and commit.position is not None]
    first, dots, last = requested.partition("..")
    if dots and not (first.strip() and last.strip()):
        raise InputError(f"--commits {requested} has only one end.", fix="write both ends, A..B, or one commit.")
    start = _index_of(own, first.strip(), table)
    end = _index_of(own, last.strip(), table) if dots else start
    if end < start:
        raise InputError(f"--commits {requested}: {last} comes before {first}.", fix=f"write {last}..{first}.")
    return own[start : end + 1]


def _index_of(own: Sequence[Commit], text: str, table: str) -> int:
    """The index of the commit that has a snapshot id or a batch number."""
    indexes = [index for index, commit in enumerate(own) if text in (str(commit.snapshot), str(commit.batch))]
    if len(indexes) > 1:
        ids = ", ".join(str(own[index].snapshot) for index in indexes)
        raise InputError(
            f"--commits: {len(indexes)} commits have batch {text}, as numbers begin again with each checkpoint.",
            fix=f"name its snapshot: {ids}.",
        )
    if not indexes:
        raise NotFound(
            f"--commits: {table} has no commit {text!r} of the pipeline, or it has expired.",
            fix=f"`helios history {table}` lists them: write a snapshot or the number of a batch, or A..B.",
        )
    return indexes[0]
