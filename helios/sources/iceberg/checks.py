"""Checks Iceberg sources, and finds their columns. No JVM is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
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
from helios.sources.iceberg.history import ResolvedSnapshots, history

if TYPE_CHECKING:
    from helios.table.snapshots import Snapshot, Table

_CHANGE_TYPES = ("string", "bigint", "bigint")
CHANGE_SCHEMA = Schema(
    tuple(Column(name, type, nullable=False) for name, type in zip(CHANGE_COLUMNS, _CHANGE_TYPES, strict=True))
)

_MODES = ("write.delete.mode", "write.update.mode", "write.merge.mode")


# the source alone


def contradictions(source: IcebergSource) -> list[HeliosError]:
    """The problems of a source whose calls contradict each other."""
    return [
        DeclarationError(what, where=source.origin, fix=fix) for applies, what, fix in CONTRADICTIONS if applies(source)
    ]


CONTRADICTIONS: tuple[tuple[Callable[[IcebergSource], Any], str, str], ...] = (
    (
        lambda s: s.at and s.start is not None,
        "incremental(start=) with as_of(), at_snapshot() or at_ref(): both say where reading begins.",
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
        "leave .incremental() out; or follow it from a point on: .incremental(start=<snapshot id>), or "
        ".as_of(ts).incremental().",
    ),
    (
        lambda s: s.reads_changes and not s.streaming and not s.between_points,
        "changes() follows a table, but this table is read once.",
        'write .incremental().changes(keys="id"), or read the changes between two points once: '
        '.changes_between(a, b, keys="id").',
    ),
    (
        lambda s: s.overwrites != "fail" and not s.streaming and not s.between_points,
        "on_overwrite() applies to the commits of a followed table, but this table is read once, in one state.",
        "leave it out, or follow the table with .incremental().",
    ),
    (
        lambda s: s.overwrites != "fail" and s.reads_changes,
        'on_overwrite("skip") with changes: the changes include those of overwrites and deletes, row by row.',
        "leave it out; to keep rows of one kind, add a step: source >> where(\"_change_type = 'INSERT'\").",
    ),
    (
        lambda s: s.expired != "fail" and not s.streaming,
        "on_expired() applies to a followed table, but this table is read once.",
        "leave it out, or follow the table with .incremental().",
    ),
    (
        lambda s: s.expired != "fail" and s.reads_changes,
        'on_expired("rebootstrap") with changes(): a state that is read again does not show which rows were deleted.',
        "leave it out, and keep snapshots longer than the pipeline may be stopped.",
    ),
)
"""Contradictions: the condition, the message and the fix."""


# the columns of the source


def columns_of(source: IcebergSource, table: Schema) -> Schema:
    """The columns of a source: the selected columns of its table, then the change columns."""
    table_columns = (table.get(name) for name in source.columns)
    selected = dict.fromkeys(column for column in table_columns if column is not None)
    columns = tuple(selected) if source.columns else table.columns
    return Schema((*columns, *CHANGE_SCHEMA.columns)) if source.reads_changes else Schema(columns)


def column_problems(source: IcebergSource, name: str, table: Schema) -> list[HeliosError]:
    """The problems of columns and conditions of a source that do not fit its table."""
    problems: list[HeliosError] = []
    for condition in source.conditions:
        call = label("where", condition)
        problems += condition_problems(condition, call, table, source.origin)
        problems += _change_column_problems(source, condition, call, table)
    problems += _select_problems(source, name, table)
    if source.changed is not None:
        problems += _key_problems(source, source.changed.keys, name, table)
    return problems


def _change_column_problems(source: IcebergSource, condition: str, call: str, table: Schema) -> list[HeliosError]:
    """The problems of conditions of the source that use change columns, which the scan of the table does not have."""
    if not source.reads_changes or not any(column in condition.lower() for column in CHANGE_COLUMNS):
        return []
    from sqlglot import exp

    try:
        node = parse(condition, call, source.origin)
    except UnparsedExpression:
        return []  # reported by condition_problems
    used = {column.name.lower() for column in node.find_all(exp.Column)}
    return [
        DeclarationError(
            f"{call}: {column} is not a column of the table, and the source's where() is pushed into its scan.",
            where=source.origin,
            fix=f"put the condition after the source, as a step: source >> where({condition!r}).",
        )
        for column in CHANGE_COLUMNS
        if column in used and table.get(column) is None
    ]


def _select_problems(source: IcebergSource, name: str, table: Schema) -> list[HeliosError]:
    """The problems of selected columns that the table lacks, or that are selected twice."""
    problems: list[HeliosError] = []
    for column in source.columns:
        if table.get(column) is None:
            call = label("select", column)
            hint = near_miss(column, table.names)
            fix = None
            if source.reads_changes and column.lower() in CHANGE_COLUMNS:
                fix = "leave it out: the change columns always follow the others."
            elif any(sign in column for sign in " .("):
                fix = "name whole columns here, and compute with a step: source >> select(...)."
            problems.append(NotFound(f"{call}: no column {column!r} in {name}. {hint}", where=source.origin, fix=fix))
    folded = [column.lower() for column in source.columns]
    repeated = [column for index, column in enumerate(source.columns) if column.lower() in folded[:index]]
    if repeated:
        what = f"select({', '.join(source.columns)}): {repeated[0]!r} occurs twice."
        problems.append(DeclarationError(what, where=source.origin, fix="name each column once."))
    return problems


def _key_problems(source: IcebergSource, keys: tuple[str, ...], name: str, table: Schema) -> list[HeliosError]:
    """The problems of the keys of row-level changes, and of table columns with the names of change columns."""
    call = "changes_between" if source.between_points is not None else "changes"
    problems: list[HeliosError] = []
    for column in CHANGE_COLUMNS:
        if table.get(column) is not None:
            problems.append(
                DeclarationError(
                    f"{call}(): {name} has a column {column} of its own.",
                    where=source.origin,
                    fix="rename the column in the table: a change column has the same name.",
                )
            )
    chosen = {column.lower() for column in source.columns}
    for key in keys:
        column_of_key = table.get(key)
        if column_of_key is None:
            what = f"{call}(keys={key}): no column {key!r} in {name}. {near_miss(key, table.names)}"
            problems.append(NotFound(what, where=source.origin))
        elif column_of_key.kind.name in NESTED:
            what = f"{call}(keys={key}): {key!r} is {column_of_key.type}, which cannot be a key."
            fix = "use plain columns as keys."
            problems.append(DeclarationError(what, where=source.origin, fix=fix))
        elif chosen and key.lower() not in chosen:
            what = f"{call}(keys={key}): select() leaves {key!r} out, and updates are paired by it."
            problems.append(DeclarationError(what, where=source.origin, fix=f'add it: select("{key}", ...).'))
    return problems


# the table


def change_problems(source: IcebergSource, table: Table, resolved: ResolvedSnapshots) -> list[HeliosError]:
    """The reason why the changes of a table cannot be computed, as a problem; empty if they can be computed."""
    if source.changed is None:
        return []
    between = source.between_points is not None
    call, points = ("changes_between", "a, b, ") if between else ("changes", "")
    snapshots = _changed_snapshots(source, table, resolved)
    deleting = next((s for s in snapshots if _count(s, "total-equality-deletes", "added-equality-deletes")), None)
    if deleting is not None:
        return [
            DeclarationError(
                f"{call}(): snapshot {deleting.id} of {table.name} has equality deletes, as Flink's upserts write "
                "them: they name keys and not rows, so it is unknown which rows each commit deleted.",
                where=source.origin,
                fix="compact the table until it has none, and read the changes after that; or read its rows, without "
                "changes.",
            )
        ]
    if source.changed.keys or table.iceberg.metadata.format_version >= LINEAGE_SINCE:
        return []
    evidence = _merged_on_read(source, table, snapshots)
    if evidence is None:
        return []
    return [
        DeclarationError(
            f"{call}() without keys: {table.name} is of format v{table.iceberg.metadata.format_version} and stores "
            f"changed rows merge-on-read ({evidence}), where an update cannot be matched with the row it replaces.",
            where=source.origin,
            fix=f'name the columns that identify a row, {call}({points}keys="id"), or upgrade the table to format '
            "v3, whose rows have a lineage.",
        )
    ]


def _changed_snapshots(source: IcebergSource, table: Table, resolved: ResolvedSnapshots) -> list[Snapshot]:
    """The snapshots whose changes are read, newest first; for a followed table at least the current one."""
    if resolved.span is not None:
        after, to = resolved.span
        return _newer(history(table, to), after)
    past = history(table, resolved.head)
    if source.start == "earliest":
        return past
    after = source.start if isinstance(source.start, int) else resolved.state
    newer = _newer(past, after) if after is not None else []
    return newer or past[:1]


def _newer(past: list[Snapshot], after: int | None) -> list[Snapshot]:
    """The snapshots of a history, newest first, that are newer than `after`."""
    return list(takewhile(lambda snapshot: snapshot.id != after, past))


def _merged_on_read(source: IcebergSource, table: Table, snapshots: list[Snapshot]) -> str | None:
    """The evidence, as text, that writers change rows merge-on-read; None if there is no evidence.

    The properties of the table apply to future commits, so they are evidence for a followed table only.
    """
    properties = table.iceberg.properties
    declared = next((name for name in _MODES if properties.get(name) == "merge-on-read"), None)
    if declared is not None and source.streaming:
        return f"{declared}=merge-on-read"
    snapshot = next((s for s in snapshots if _count(s, "total-position-deletes", "added-position-deletes")), None)
    return f"snapshot {snapshot.id} has position deletes" if snapshot is not None else None


def _count(snapshot: Snapshot, *names: str) -> int:
    return sum(int(snapshot.summary.get(name) or 0) for name in names)


# the target


def problems(sink: IcebergSink, read: ReadPlan, path: ReadPath) -> list[HeliosError]:
    """The problems of a pipeline that reads a table into another one."""
    return [*_rebootstrap_problems(sink, read, path), *_unpaired_update_problems(sink, read)]


def _rebootstrap_problems(sink: IcebergSink, read: ReadPlan, path: ReadPath) -> Iterator[HeliosError]:
    """The problem of a source that reads a state again, although rows would be counted or written twice."""
    stateful = path is ReadPath.STATEFUL
    if not read.source.rebootstraps or (not stateful and sink.mode.traits.idempotent):
        return
    if not stateful and (read.format_version is None or read.format_version >= LINEAGE_SINCE):
        return
    what, fix = "Spark's state would count delivered rows a second time.", ""
    if not stateful:
        what = (
            f"{sink.mode.text()} would write delivered rows a second time, and {read.name}, of format "
            f"v{read.format_version}, has no row lineage to recognise them."
        )
        fix = "upsert or overwrite the target, upgrade the source to format v3, or "
    yield DeclarationError(
        f'on_expired("rebootstrap"): {what}',
        where=read.source.origin,
        fix=f"{fix}leave on_expired() out: an expired snapshot then stops the run.",
    )


def _unpaired_update_problems(sink: IcebergSink, read: ReadPlan) -> Iterator[HeliosError]:
    """The problem of updates that are a `DELETE` and an `INSERT` of one commit: nothing shows which is newer."""
    has_no_lineage = read.format_version is not None and read.format_version < LINEAGE_SINCE
    deletes = sink.mode.upsert is not None and sink.mode.upsert.delete_when is not None
    if has_no_lineage and deletes and read.source.reads_changes and not read.source.pairs_by_keys:
        yield DeclarationError(
            f"changes of {read.name}, of format v{read.format_version}, without keys: an update is a DELETE and an "
            f"INSERT of one commit, of which {sink.mode.text()} could keep the DELETE.",
            where=read.source.origin,
            fix='name the columns that identify a row, changes(keys="id"), or upgrade the table to format v3, whose '
            "rows have a lineage.",
        )
