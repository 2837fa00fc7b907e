"""What others have written into the target of a pipeline that begins on it, or that would empty it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.plan.nodes import Plan
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.validators import COMPACTION
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.sinks.context import SinkContext
from helios.table.ledger import REPLAY, Record, parse
from helios.table.refs import LEDGER


def refuse_same_sources(context: SinkContext, name: TableName, table: JavaTable, beside: Collection[str]) -> None:
    """Rejects a pipeline that has no record in a table, where another one has written rows of the same source.

    A table, or a pipeline, that was renamed looks like this: everything would be written once more.

    Args:
        context: The pipeline.
        name: The table's name.
        table: The table.
        beside: Pipelines whose rows of the same source may be there too.

    Raises:
        CheckpointError: Another pipeline has, and is none of these.
    """
    plan = context.plan
    if plan.write.mode.whole:
        return  # what is there is replaced
    head = context.ledger(table, plan.write.sink.branch_name).head()
    for other, record in _others(table, plan):
        if other in beside or not _visible(table, plan.write.sink.branch_name, head, record):
            continue
        shared = next((entry for entry in _entries(record) if _reads(plan, entry)), None)
        if shared is None:
            continue
        new = plan.pipeline if all(c.isalnum() or c in "_-." for c in plan.pipeline) else name.table
        raise CheckpointError(
            f"{name.text} holds rows of {shared['source']} that pipeline {other} has written, and {plan.pipeline} "
            "would write them once more; nothing was written.",
            where=plan.declared.sink.origin,
            fix=f'where it is the same pipeline, renamed, write .named("{new}", was="{other}"); where both are to '
            f"write into the table, run once with `--beside {other}`.",
        )


def refuse_rows_of_others(context: SinkContext, table: JavaTable) -> None:
    """Rejects a full refresh that would delete rows of other writers.

    Raises:
        InputError: It would, or they cannot be told from the pipeline's.
    """
    table.refresh()
    plan = context.plan
    names = {name for name in (plan.pipeline, plan.was) if name}
    names |= {f"{name}{REPLAY}" for name in names}  # replayed rows are the pipeline's own too
    history = History(table, context.ledger(table, plan.write.sink.branch_name).head())
    # A branch of an empty table starts with an empty snapshot.
    changing = (s for s in history if str(s.operation()) != COMPACTION and changes_files(s))
    foreign = next((s for s in changing if s.summary().get("helios.pipeline") not in names), None)
    if foreign is not None:
        why = f"snapshot {foreign.snapshotId()} is not this pipeline's"
    elif history.expired is not None:
        why = f"snapshot {history.expired} has expired, so that its writer is unknown"
    else:
        return
    raise InputError(
        f"--full-refresh would empty {plan.write.table.text}, and {why}.",
        where=plan.declared.sink.origin,
        fix="delete the pipeline's own rows by hand, or run under a new name into a new table.",
    )


def _others(table: JavaTable, plan: Plan) -> Iterator[tuple[str, Record]]:
    """The records of other pipelines; those of replays tell of rows that a run had rejected."""
    properties = table.properties()
    for key in sorted(str(key) for key in listed(properties.keySet())):
        other, text = key.removeprefix(LEDGER), properties.get(key)
        if key.startswith(LEDGER) and other not in (plan.pipeline, plan.was) and not other.endswith(REPLAY) and text:
            yield other, parse(text, key, table.name())


def _entries(record: Record) -> Iterator[Mapping[str, object]]:
    for entry in (record.position or {}).get("sources") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("source"), str):
            yield entry


def _visible(table: JavaTable, branch: str | None, head: JavaSnapshot | None, record: Record) -> bool:
    """Whether what the record tells of is in the branch that is written, or in main, from which it would be made."""
    if branch == record.branch or (branch is not None and head is None and record.branch is None):
        return True
    if head is None or record.snapshot is None or table.snapshot(record.snapshot) is None:
        return False
    ancestry = classes().org.apache.iceberg.util.SnapshotUtil
    return bool(ancestry.isAncestorOf(table, head.snapshotId(), record.snapshot))


def _reads(plan: Plan, entry: Mapping[str, object]) -> bool:
    """Whether the pipeline writes rows of the source of an entry: a source of its name, or a table of its UUID.

    Those are the sources that it follows, or the first one of a batch pipeline; others are joined.
    """
    reads = [read for read in plan.reads if read.source.streaming] if plan.streaming else plan.reads[:1]
    return any(
        read.source.comparable
        and (entry["source"] in (read.name, read.ledger_name) or (read.uuid and read.uuid == entry.get("uuid")))
        for read in reads
    )
