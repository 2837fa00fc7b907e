"""Checks of Iceberg sources, and their columns, without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from helios.errors import DeclarationError, HeliosError, NotFound, near_miss
from helios.model.columns import CHANGE_COLUMNS
from helios.model.sink import IcebergSink
from helios.plan.checks.sinks import NESTED
from helios.plan.nodes import ReadPath, ReadPlan
from helios.plan.typing.expression import UnparsedExpression, label, parse
from helios.plan.typing.infer import condition_problems
from helios.plan.typing.schema import Column, Schema
from helios.sources.iceberg.declare import LINEAGE_SINCE, IcebergSource
from helios.sources.iceberg.history import Settled, history

if TYPE_CHECKING:
    from helios.table.snapshots import Snapshot, Table

CHANGES = Schema(
    tuple(Column(n, t, nullable=False) for n, t in zip(CHANGE_COLUMNS, ("string", "bigint", "bigint"), strict=True))
)

_MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")


# the source alone


def contradictions(source: IcebergSource) -> list[HeliosError]:
    """The problems of calls of one source that contradict each other."""
    return [
        DeclarationError(what, where=source.origin, fix=fix) for holds, what, fix in CONTRADICTIONS if holds(source)
    ]


CONTRADICTIONS: tuple[tuple[Callable[[IcebergSource], Any], str, str], ...] = (
    (
        lambda s: s.at and s.start is not None,
        "incremental(start=) with as_of(), at_snapshot() or at_ref(): both say where the table begins.",
        "leave start= out: the state that the other call names comes first, then every later commit.",
    ),
    (
        lambda s: s.at and s.between_points,
        "as_of(), at_snapshot() and at_ref() read a state, and between() and changes_between() read history.",
        "leave one of them out.",
    ),
    (
        lambda s: s.streaming and s.between_points,
        "between() and changes_between() end at a snapshot, and incremental() follows the table without an end.",
        "leave .incremental() out; or follow it from a point on: .incremental(start=<snapshot id>), .as_of(ts).",
    ),
    (
        lambda s: s.changed and not s.streaming and not s.between_points,
        "changes() follows a table, and this one is read once.",
        'write .incremental().changes(keys="id"), or read the changes between two points once: '
        '.changes_between(a, b, keys="id").',
    ),
    (
        lambda s: s.overwrites != "fail" and not s.streaming and not s.between_points,
        "on_overwrite() applies to commits that are followed, and this table is read once, as it is.",
        "leave it out, or follow the table with .incremental().",
    ),
    (
        lambda s: s.overwrites != "fail" and s.changed,
        'on_overwrite("skip") with changes: they include what overwrites and deletes do, row by row.',
        "leave it out; rows of one kind are kept with where(\"_change_type = 'INSERT'\").",
    ),
    (
        lambda s: s.expired != "fail" and not s.streaming,
        "on_expired() applies to a table that is followed, and this one is read once.",
        "leave it out, or follow the table with .incremental().",
    ),
    (
        lambda s: s.expired != "fail" and s.changed,
        'on_expired("rebootstrap") with changes(): the state that is read again does not show what was deleted.',
        "leave it out, and keep snapshots longer than the pipeline may be stopped.",
    ),
)
"""Contradictions: the condition, the message and the fix."""


# its columns


def columns_of(source: IcebergSource, table: Schema) -> Schema:
    """The columns of a source: those of its table that it selects, then the change columns."""
    chosen = dict.fromkeys(column for name in source.columns if (column := table.get(name)) is not None)
    columns = tuple(chosen) if source.columns else table.columns
    return Schema((*columns, *CHANGES.columns)) if source.changed is not None else Schema(columns)


def column_problems(source: IcebergSource, name: str, table: Schema) -> list[HeliosError]:
    """The problems of columns and conditions that do not fit the table."""
    problems: list[HeliosError] = []
    for condition in source.conditions:
        named = label("where", condition)
        problems += condition_problems(condition, named, table, source.origin)
        problems += _of_changes(source, condition, named, table)
    problems += _selected(source, name, table)
    if source.changed is not None:
        problems += _keyed(source, source.changed.keys, name, table)
    return problems


def _of_changes(source: IcebergSource, condition: str, named: str, table: Schema) -> list[HeliosError]:
    """The problems of change columns in the source's own conditions, which are evaluated in the scan of the table."""
    if source.changed is None or not any(column in condition.lower() for column in CHANGE_COLUMNS):
        return []
    from sqlglot import exp

    try:
        node = parse(condition, named, source.origin)
    except UnparsedExpression:
        return []  # reported by condition_problems
    used = {column.name.lower() for column in node.find_all(exp.Column)}
    return [
        DeclarationError(
            f"{named}: {column} is not a column of the table, and the source's where() is pushed into its scan.",
            where=source.origin,
            fix=f"put the condition after the source, as a step: source >> where({condition!r}).",
        )
        for column in CHANGE_COLUMNS
        if column in used and table.get(column) is None
    ]


def _selected(source: IcebergSource, name: str, table: Schema) -> list[HeliosError]:
    problems: list[HeliosError] = []
    for column in source.columns:
        if table.get(column) is None:
            shown = label("select", column)
            hint = near_miss(column, table.names)
            fix = None
            if source.changed is not None and column.lower() in CHANGE_COLUMNS:
                fix = "leave it out: the change columns always follow the others."
            elif any(sign in column for sign in " .("):
                fix = "name whole columns here, and compute with a step: source >> select(...)."
            problems.append(NotFound(f"{shown}: no column {column!r} in {name}. {hint}", where=source.origin, fix=fix))
    folded = [column.lower() for column in source.columns]
    twice = [column for index, column in enumerate(source.columns) if column.lower() in folded[:index]]
    if twice:
        what = f"select({', '.join(source.columns)}): {twice[0]!r} occurs twice."
        problems.append(DeclarationError(what, where=source.origin, fix="name each column once."))
    return problems


def _keyed(source: IcebergSource, keys: tuple[str, ...], name: str, table: Schema) -> list[HeliosError]:
    call = "changes_between" if source.between_points is not None else "changes"
    problems: list[HeliosError] = []
    for column in CHANGE_COLUMNS:
        if table.get(column) is not None:
            problems.append(
                DeclarationError(
                    f"{call}(): {name} has a column {column} of its own.",
                    where=source.origin,
                    fix="rename it in the table; a change column has that name.",
                )
            )
    chosen = {column.lower() for column in source.columns}
    for key in keys:
        found = table.get(key)
        if found is None:
            what = f"{call}(keys={key}): no column {key!r} in {name}. {near_miss(key, table.names)}"
            problems.append(NotFound(what, where=source.origin))
        elif found.kind.name in NESTED:
            what = f"{call}(keys={key}): {key!r} is {found.type}, which cannot be a key."
            fix = "use plain columns as keys."
            problems.append(DeclarationError(what, where=source.origin, fix=fix))
        elif chosen and key.lower() not in chosen:
            what = f"{call}(keys={key}): select() leaves {key!r} out, and updates are paired by it."
            problems.append(DeclarationError(what, where=source.origin, fix=f'add it: select("{key}", ...).'))
    return problems


# its table


def change_problems(source: IcebergSource, table: Table, settled: Settled) -> list[HeliosError]:
    """Why the changes of a table cannot be computed."""
    if source.changed is None:
        return []
    between = source.between_points is not None
    call, given = ("changes_between()", "a, b, ") if between else ("changes()", "")
    concerned = _concerned(source, table, settled)
    unpaired = next((s for s in concerned if _count(s, "total-equality-deletes", "added-equality-deletes")), None)
    if unpaired is not None:
        return [
            DeclarationError(
                f"{call}: snapshot {unpaired.id} of {table.name} has equality deletes, as Flink's upserts write them: "
                "they name keys and not rows, so it is unknown which rows each commit deleted.",
                where=source.origin,
                fix="compact the table until it has none, and read the changes after that; or read its rows, without "
                "changes.",
            )
        ]
    if source.changed.keys or table.iceberg.metadata.format_version >= LINEAGE_SINCE:
        return []
    why = _merged_on_read(source, table, concerned)
    if why is None:
        return []
    return [
        DeclarationError(
            f"{call} without keys: {table.name} is of format v{table.iceberg.metadata.format_version} and stores "
            f"changed rows merge-on-read ({why}), where an update cannot be matched with the row it replaces.",
            where=source.origin,
            fix=f'name the columns that identify a row, {call[:-1]}{given}keys="id"), or upgrade the table to format '
            "v3, whose rows have a lineage.",
        )
    ]


def _concerned(source: IcebergSource, table: Table, settled: Settled) -> list[Snapshot]:
    """The snapshots whose changes are read, and for a followed table the current one."""
    after, to = settled.span if settled.span is not None else (settled.state, settled.head)
    past = history(table, to)
    if settled.span is None and source.start == "earliest":
        return past
    after = source.start if isinstance(source.start, int) else after
    if settled.span is None and after is None:
        return past[:1]
    until = next((index for index, snapshot in enumerate(past) if snapshot.id == after), len(past))
    return past[: until if settled.span is not None else max(until, 1)]


def _merged_on_read(source: IcebergSource, table: Table, concerned: list[Snapshot]) -> str | None:
    """The evidence that rows are changed merge-on-read; the properties apply to future commits."""
    properties = table.iceberg.properties
    declared = next((name for name in _MODES if properties.get(name) == "merge-on-read"), None)
    if declared is not None and source.streaming:
        return f"{declared}=merge-on-read"
    snapshot = next((s for s in concerned if _count(s, "total-position-deletes", "added-position-deletes")), None)
    return f"snapshot {snapshot.id} has position deletes" if snapshot is not None else None


def _count(snapshot: Snapshot, *names: str) -> int:
    return sum(int(snapshot.summary.get(name) or 0) for name in names)


# its target


def problems(sink: IcebergSink, read: ReadPlan, path: ReadPath) -> list[HeliosError]:
    """The problems of a pipeline that reads a table into another one."""
    return [*_rebootstrap(sink, read, path), *_unpaired(sink, read)]


def _rebootstrap(sink: IcebergSink, read: ReadPlan, path: ReadPath) -> Iterator[HeliosError]:
    """The problem of a state that is read again where rows that were already delivered do harm."""
    stateful = path is ReadPath.STREAM
    if not read.source.rebootstraps or (not stateful and sink.mode.traits.idempotent):
        return
    if not stateful and (read.format_version is None or read.format_version >= LINEAGE_SINCE):
        return
    lineage = f", and {read.name}, of format v{read.format_version}, has no row lineage to recognise them."
    again = "Spark's state would count rows again" if stateful else f"{sink.mode.text()} would write rows again"
    yield DeclarationError(
        f'on_expired("rebootstrap"): {again} that were already delivered{"." if stateful else lineage}',
        where=read.source.origin,
        fix=("" if stateful else "upsert or overwrite the target, upgrade the source to format v3, or ")
        + "leave on_expired() out: an expired snapshot then stops the run.",
    )


def _unpaired(sink: IcebergSink, read: ReadPlan) -> Iterator[HeliosError]:
    """The problem of updates that are a `DELETE` and an `INSERT` of one commit: nothing says which one is newer."""
    old = read.format_version is not None and read.format_version < LINEAGE_SINCE
    deletes = sink.mode.upsert is not None and sink.mode.upsert.delete_when is not None
    if old and deletes and read.source.reads_changes and not read.source.pairs_by_keys:
        yield DeclarationError(
            f"changes of {read.name}, of format v{read.format_version}, without keys: an update is a DELETE and an "
            f"INSERT of one commit, of which {sink.mode.text()} could keep the DELETE.",
            where=read.source.origin,
            fix='name the columns that identify a row, changes(keys="id"), or upgrade the table to format v3, whose '
            "rows have a lineage.",
        )
