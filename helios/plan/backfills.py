"""The request for a backfill: the pipelines that can have one, its filter over the target's columns, and its slices."""

from __future__ import annotations

import re
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
from helios.table.refs import MAIN

if TYPE_CHECKING:
    from helios.table.commits import Commit

UNITS = ("hour", "day", "month")
"""The units of time that `--by` takes."""
UTC = ("UTC", "ETC/UTC", "ZULU", "Z", "GMT", "+00:00", "+0")
"""The names of UTC as the time zone of a session."""
SLICED_TYPES = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
"""The types of columns that `--by COLUMN` takes, with one slice for each value."""
TARGETS = {
    TargetKind.ROUTED: "it routes its rows into many tables",
    TargetKind.MIRROR: "it mirrors the tables of a database",
    TargetKind.ATOMIC_MIRROR: "it mirrors the tables of a database",
    TargetKind.AUDITED: "its batches wait for an audit",
    TargetKind.OUTPUT: "its target is not a table",
}
"""The targets that a backfill does not write, and why."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """The request for a backfill.

    Attributes:
        where: The SQL condition over columns of the target for the rows that are replaced; empty with `commits`.
        commits: The commits whose rows are replaced, as `A..B`; None with `where`.
        by: A unit of time or a column, by which the rows are cut into slices; None for one slice.
        other: The table or the folder that is read instead of the source; None to read the source.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
        rows_stay: Whether the user states that the changed script moves no row over an edge of the filter or of a
            slice.
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
        column: The column.
        unit: The unit of time; None if each value of the column is a slice.
        kind: The type of the column.
    """

    column: str
    unit: str | None
    kind: str


def refuse_backfill(plan: Plan) -> None:
    """Rejects a pipeline whose history cannot be replaced.

    Raises:
        InputError: The pipeline is one of these; the message has the reason.
    """
    write, fix = plan.write, None
    why = TARGETS.get(write.sink.target)
    if why is None and plan.path is ReadPath.STREAM:
        why = f"it is a stateful stream ({plan.why}), and its state is that of the newest rows"
    elif why is None and plan.view is not None:
        why = "it maintains a view: `helios run --full-refresh` computes it again"
    elif why is None and not write.mode.traits.only_adds:
        why, fix = _refused_mode(write.mode)
    if why is None and plan.path is ReadPath.BATCH:
        why = "it reads its sources once: give its source a .where(...) and its sink .overwrite(filter), and run it"
    elif why is None and any(read.source.carries_order or read.source.reads_changes for read in plan.reads):
        why = "it reads changes of a source, and the changes between two states depend on the states between them"
    if why is not None:
        raise InputError(f"{plan.pipeline} cannot be backfilled: {why}.", where=plan.origin, fix=fix)


def _refused_mode(mode: Mode) -> tuple[str | None, str | None]:
    """Why rows of a mode that replaces rows are not repaired, and the way on; None where they are."""
    upsert, refill = mode.upsert, "refill the target with `helios run --full-refresh`."
    if upsert is None or upsert.history:
        return f"its mode is {mode.text()}, and rows that it has replaced are not put back", refill
    if upsert.order_by is not None and upsert.delete_when is not None:
        return f"its mode is {mode.text()}, and the deletes that it remembers are not in the table", refill
    return None, None


def refuse_ask(plan: Plan, ask: Ask) -> None:
    """Rejects what a backfill is asked for, as far as the metadata of its target tells, without a JVM.

    Raises:
        HeliosError: The target is not there, or the pipeline has written nothing into it; a filter, a cut, a commit or
            an option does not fit it.
    """
    # A plan of new tables loads nothing that reads tables.
    from helios.table.commits import commits
    from helios.table.ledger import records

    write = plan.write
    if ask.rows_stay and write.mode.upsert is not None:
        raise InputError(
            f"--rows-stay does not go with the upsert of {plan.pipeline}: it is repaired by its keys, and a row may "
            "move over the edge of the filter or of a slice.",
            where=plan.origin,
            fix="leave it out.",
        )
    if not write.table.catalog.exists(write.table.within):
        raise NotFound(
            f"{write.table.text}, the target of {plan.pipeline}, does not exist: there is nothing to repair.",
            where=plan.declared.sink.origin,
            fix="run the pipeline first, or pass the --profile with which it runs.",
        )
    table = write.table.catalog.load(write.table.within)
    known = records(table.iceberg.properties, table.name)
    names = [name for name in write.pipelines if name in known]
    if not names:
        others = f"; it is written by {', '.join(known)}" if known else ""
        raise NotFound(
            f"{plan.pipeline} has written nothing into {write.table.text}: there is nothing to repair{others}.",
            where=plan.origin,
            fix="run the pipeline first; rows of other writers are repaired by those.",
        )
    if ask.commits is not None:
        own = {*write.pipelines, *(former for name in names for former in known[name].formerly)}
        chosen(commits(table, branch=write.sink.branch_name or MAIN), ask.commits, frozenset(own), write.table.text)
        return
    columns = {column.name: column.type for column in from_pyiceberg(table.iceberg.schema()).columns}
    cut_of(ask.by, columns_named(ask.where, columns, write.table.text), columns, write.table.text)


def refuse_other_source(plan: Plan) -> None:
    """Rejects `--from` for a pipeline that follows several sources, because it replaces only one, and for an upsert.

    Raises:
        InputError: The pipeline follows several sources, or upserts.
    """
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
    """The columns of a target that a filter names, spelled as in the table.

    Args:
        where: The filter.
        columns: The types of the target's columns.
        table: The name of the target, for messages.

    Raises:
        InputError: The filter is empty, names no column, one that is not there, or a float or double, or is another
            one each time, or compares a column with a value of another type.

    Examples:
        >>> columns_named("Day >= '2026-01-05' AND day < '2026-01-08'", {"day": "string", "id": "int"}, "local.a.t")
        ['day']
    """
    if not where.strip():
        raise InputError("--where is empty.", fix=f"name columns of {table}: --where \"day >= '2026-01-05'\".")
    if (moving := nondeterministic_function(where)) is not None:
        raise InputError(f"--where has {moving}, whose value changes with each call.", fix="write the value itself.")
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
    refuse_values(parsed, {name.lower(): kind for name, kind in columns.items()}, "--where")
    return list(used)


def spelled(where: str, columns: Iterable[str]) -> str:
    """A filter whose columns are spelled as in the table, because Iceberg's filters are case-sensitive.

    Examples:
        >>> spelled("ID < 10 AND k = 'ID'", ["id", "k"])
        "id < 10 AND k = 'ID'"
    """
    from sqlglot.dialects.spark import Spark

    known = {name.lower(): name for name in columns}
    text, after = where, ""
    for token in reversed(Spark().tokenize(where)):
        name = known.get(token.text.lower(), token.text)
        if token.token_type.name == "VAR" and name != token.text and after != "(":
            text = text[: token.start] + name + text[token.end + 1 :]
        after = token.text
    return text


def _refuse_floating(column: str, kind: str, path: list[str]) -> None:
    """Rejects a column of a filter that is, or may be, a float or double."""
    if kind in ("float", "double") or (path and re.search(rf"\b{re.escape(path[-1])}:(float|double)\b", kind, re.I)):
        raise InputError(
            f"--where: {column} is a float or double, and Iceberg replaces rows by column bounds, which ignore NaN and "
            "the sign of zero: some old rows would stay beside the new ones.",
            fix="filter by a column of another type.",
        )


def refuse_zone(zone: str, named: Iterable[str], columns: Mapping[str, str]) -> None:
    """Rejects timestamps in a filter or a cut if the time zone of the session is not UTC.

    Args:
        zone: The time zone of the session.
        named: The columns.
        columns: The types of the target's columns.

    Raises:
        InputError: A column is a timestamp, and the zone is not UTC.
    """
    if zone.upper() in UTC:
        return
    for name in named:
        if "timestamp" in columns[name]:
            raise InputError(
                f"{name} is a {columns[name]}, and spark.sql.session.timeZone is {zone}: a backfill takes times in UTC "
                "alone.",
                fix="leave that setting out of [spark.conf], or name a column that is not a timestamp.",
            )


def cut_of(by: str | None, named: list[str], columns: Mapping[str, str], table: str) -> Cut | None:
    """The cut that `--by` asks for; None without `--by`. A column has precedence over a unit of the same name.

    Args:
        by: The value of `--by`.
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
                else f"cut by one of {', '.join(SLICED_TYPES)}"
            )
            raise InputError(f"--by {by}: {column} is {kind}, whose values are too many to be slices.", fix=f"{fix}.")
        return Cut(column, None, kind)
    if by.partition(".")[0].lower() in known:
        raise InputError(f"--by {by}: a backfill is not cut by a nested column.", fix="cut by a column, or filter.")
    if by.lower() not in UNITS:
        raise InputError(f"--by {by}: {table} has no such column. {near_miss(by, [*UNITS, *columns])}")
    times = [name for name in named if columns[name] in ("date", "timestamp", "timestamp_ntz")]
    if len(times) != 1:
        names = f"{len(times)}: {', '.join(times)}" if times else "none"
        raise InputError(
            f"--by {by} cuts the one date or timestamp that --where names, and it names {names}.",
            fix="name one in --where, or cut by a column.",
        )
    if columns[times[0]] == "date" and by.lower() == "hour":
        raise InputError(f"--by hour: {times[0]} is a date.", fix="cut by day or month.")
    return Cut(times[0], by.lower(), columns[times[0]])


def chosen(made: Sequence[Commit], asked: str, pipelines: frozenset[str], table: str) -> list[Commit]:
    """The commits of a pipeline that `--commits` names, oldest first.

    Args:
        made: The retained commits of the table, newest first.
        asked: `A..B`, or one of them: snapshot ids, or numbers of batches.
        pipelines: The names of the pipeline.
        table: The name of the table, for messages.

    Raises:
        InputError: One of them is not there, or a number is that of several.
    """
    ours = [one for one in reversed(made) if one.pipeline in pipelines and one.position is not None]
    first, dots, last = asked.partition("..")
    since = _place(ours, first.strip(), table)
    until = _place(ours, last.strip(), table) if dots else since
    if until < since:
        raise InputError(f"--commits {asked}: {last} comes before {first}.", fix=f"write {last}..{first}.")
    return ours[since : until + 1]


def _place(ours: Sequence[Commit], text: str, table: str) -> int:
    found = [place for place, one in enumerate(ours) if text in (str(one.snapshot), str(one.batch))]
    if len(found) > 1:
        ids = ", ".join(str(ours[place].snapshot) for place in found)
        raise InputError(
            f"--commits: batch {text} is there {len(found)} times, as numbers begin again with each checkpoint.",
            fix=f"name its snapshot: {ids}.",
        )
    if not found:
        raise NotFound(
            f"--commits: {table} has no commit {text!r} of the pipeline, or it has expired.",
            fix=f"`helios history {table}` lists them: write a snapshot or the number of a batch, or A..B.",
        )
    return found[0]
