"""What others have written into the target of a pipeline that begins on it, or that would empty it."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import (
    Entry,
    entries,
    other_records,
    refuse_other_upserts,
    renaming_call,
    shared_source,
    upsert_terms,
    upserts_of,
)
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.validators import COMPACTION
from helios.spark.jvm.classes import listed
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of, newest_record
from helios.table.ledger import Record, records
from helios.table.offsets import IcebergOffset
from helios.table.positions import SNAPSHOT, Batch, same_source
from helios.table.refs import LEDGER, REPLAY


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
    traits = plan.write.mode.traits
    if traits.erases or not traits.stores:
        return  # what is there is replaced or removed; a MERGE is the user's own
    branch = plan.write.sink.branch_name
    others = _others(table, plan)
    shared = {other: source for other, record in others.items() if (source := shared_source(plan, record)) is not None}
    there = {other for other in shared if others[other].branch == branch}
    if shared.keys() - there:
        written = _writers(table, branch)
        names = {other: {other, *others[other].formerly} for other in shared}
        there |= {other for other in shared if ANYBODY in written or names[other] & written}
    found = sorted(there)
    if not set(found) - set(beside):
        return
    other = next(one for one in found if one not in beside)
    accepted = " ".join(f"--beside {one}" for one in found)
    choices = [f"where all are to write into the table, run once with `helios run {accepted}`"]
    renaming = renaming_call(plan, other)
    if renaming is not None and not plan.write.sink.many_tables:
        choices.insert(0, f"where it is the same pipeline, renamed, write {renaming}")
    raise CheckpointError(
        f"{name.text} holds rows of {shared[other]} that pipeline {other} has written, and {plan.pipeline} would write "
        "them once more; nothing was written.",
        where=plan.declared.sink.origin,
        fix="; ".join(choices) + ".",
    )


def refuse_out_of_step(spark: SparkSession, plan: Plan, batch: Batch, beside: Collection[str]) -> None:
    """Rejects rows that replace those of a pipeline which follows their source, and has read it up to elsewhere.

    It would append the rows in between once more, or never.

    Args:
        spark: The session.
        plan: The pipeline, which reads once.
        batch: Its batch.
        beside: Pipelines that may stand elsewhere.

    Raises:
        InputError: There is such a pipeline, and it is none of these.
    """
    traits = plan.write.mode.traits
    one_table = plan.write.output is None and not plan.write.sink.many_tables
    table = load_table(spark, plan.write.table) if one_table and traits.erases and traits.stores else None
    if table is None:
        return
    states = [entry for entry in batch.sources if isinstance(entry.get(SNAPSHOT), int) and "after" not in entry]
    followed = [
        (other, entry)
        for other, record in _others(table, plan).items()
        if other not in beside and record.branch == plan.write.sink.branch_name and record.snapshot is not None
        for entry in entries(record)
        if "place" in entry
    ]
    for state in states:
        for other, entry in followed:
            if not same_source(entry, state):
                continue
            at = IcebergOffset.of(entry["place"])
            if at is None or at.partial or at.snapshot != state[SNAPSHOT]:
                raise _out_of_step(plan, state, other, at)


def refuse_upserts_of_others(plan: Plan, table: JavaTable, record: Record | None, beside: Collection[str]) -> None:
    """Rejects upserts beside those of others, where one remembers what the other cannot know.

    Args:
        plan: The pipeline.
        table: The table.
        record: Its record there.
        beside: Those beside which it may write.

    Raises:
        InputError: There is such a pipeline.
    """
    if upsert_terms(plan) is not None:
        others = {name: upserts_of(one) for name, one in _others(table, plan).items()}
        refuse_other_upserts(plan, upserts_of(record) if record is not None else None, others, beside)


def _out_of_step(plan: Plan, state: Entry, other: str, at: IcebergOffset | None) -> InputError:
    source, written = state["source"], plan.write.table.text
    whole = at is not None and not at.partial and at.snapshot is not None
    until = f"up to snapshot {at.snapshot}" if at is not None and whole else "a part of it so far"
    choices = [f"run {other} until it has read all of {source}"]
    if at is not None and whole:
        choices.insert(0, f"read what {other} has read, with .at_snapshot({at.snapshot})")
    return InputError(
        f"pipeline {other} follows {source} into {written}, and has read it {until}; {plan.pipeline} replaces rows by "
        f"those of snapshot {state[SNAPSHOT]}: what lies between would be there twice, or not at all. Nothing was "
        "written.",
        where=plan.declared.sink.origin,
        fix=f"{', or '.join(choices)}; where that is meant, `helios run --beside {other}`.",
    )


def refuse_rows_of_others(context: SinkContext, table: JavaTable) -> None:
    """Rejects a full refresh that would delete rows of other writers.

    Raises:
        InputError: It would, or they cannot be told from the pipeline's.
    """
    table.refresh()
    plan = context.plan
    record = newest_record(table, plan.write.pipelines, plan.write.sink.branch_name)
    names = names_of(table, (plan.pipeline, plan.was), record)
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


def _others(table: JavaTable, plan: Plan) -> dict[str, Record]:
    properties = table.properties()
    keys = (str(key) for key in listed(properties.keySet()) if str(key).startswith(LEDGER))
    return other_records(records({key: properties.get(key) or "" for key in keys}, table.name()), plan)


ANYBODY = ""
"""The writer of snapshots that have expired."""


def _writers(table: JavaTable, branch: str | None) -> frozenset[str]:
    """The pipelines whose commits a branch holds; a branch that is missing is made from main."""
    missing = branch is not None and not table.refs().containsKey(branch)
    head = table.currentSnapshot() if branch is None or missing else Ledger(table, "", "", "", branch).head()
    history = History(table, head)
    found = {str(snapshot.summary().get("helios.pipeline")) for snapshot in history}
    return frozenset(found | ({ANYBODY} if history.expired is not None else set()))
