"""What others have written into the target of a pipeline that begins on it, or that would empty it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from pyspark.sql import SparkSession

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.model.flow import Flow, Source
from helios.model.joins import Union
from helios.model.values import written_as_name
from helios.plan.nodes import Plan
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.validators import COMPACTION
from helios.spark.jvm.classes import listed
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.table.ledger import REPLAY, Record, parse
from helios.table.offsets import IcebergOffset
from helios.table.positions import SNAPSHOT, Batch
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
    traits = plan.write.mode.traits
    if traits.erases or not traits.stores:
        return  # what is there is replaced or removed; a MERGE is the user's own
    branch = plan.write.sink.branch_name
    others = dict(_others(table, plan))
    shared = {other: source for other, record in others.items() if (source := _shared(plan, record)) is not None}
    there = {other for other in shared if others[other].branch == branch}
    if shared.keys() - there:
        written = _writers(table, branch)
        there |= shared.keys() if ANYBODY in written else shared.keys() & written
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


def _shared(plan: Plan, record: Record) -> str | None:
    """The name of a source whose rows a pipeline writes and a record tells of; None if there is none."""
    return next((str(entry["source"]) for entry in _entries(record) if _reads(plan, entry)), None)


def renaming_call(plan: Plan, was: str) -> str | None:
    """The call that says what a pipeline was called; None where its former name cannot be written."""
    name = plan.pipeline if written_as_name(plan.pipeline) else plan.write.table.table
    if not (written_as_name(name) and written_as_name(was, former=True)):
        return None
    return f'.named("{name}", was="{was}")'


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
        for other, record in _others(table, plan)
        if other not in beside and record.branch == plan.write.sink.branch_name and record.snapshot is not None
        for entry in _entries(record)
        if "place" in entry
    ]
    for state in states:
        for other, entry in followed:
            if entry["source"] != state["source"] and entry.get("uuid") != state.get("uuid"):
                continue
            at = IcebergOffset.of(entry["place"])
            if at is None or at.partial or at.snapshot != state[SNAPSHOT]:
                raise _out_of_step(plan, state, other, at)


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

    def is_replay(name: str) -> bool:  # a table may be called so, too
        return name.endswith(REPLAY) and properties.get(LEDGER + name.removesuffix(REPLAY)) is not None

    for key in sorted(str(key) for key in listed(properties.keySet())):
        other, text = key.removeprefix(LEDGER), properties.get(key)
        if key.startswith(LEDGER) and other not in (plan.pipeline, plan.was) and not is_replay(other) and text:
            yield other, parse(text, key, table.name())


def _entries(record: Record) -> Iterator[Entry]:
    for entry in (record.position or {}).get("sources") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("source"), str):
            yield entry


Entry: TypeAlias = "Mapping[str, object]"
"""What a record keeps of one source."""

ANYBODY = ""
"""The writer of snapshots that have expired."""


def _writers(table: JavaTable, branch: str | None) -> frozenset[str]:
    """The pipelines whose commits a branch holds; a branch that is missing is made from main."""
    missing = branch is not None and not table.refs().containsKey(branch)
    head = table.currentSnapshot() if branch is None or missing else Ledger(table, "", "", "", branch).head()
    history = History(table, head)
    found = {str(snapshot.summary().get("helios.pipeline")) for snapshot in history}
    return frozenset(found | ({ANYBODY} if history.expired is not None else set()))


def _reads(plan: Plan, entry: Entry) -> bool:
    """Whether the pipeline writes rows of the source of an entry: a source of its name, or a table of its UUID."""
    sources = list(_sources(plan.stream))
    reads = [r for r in plan.reads if (r.source.streaming if plan.streaming else r.source in sources)]
    return any(
        read.source.comparable
        and (entry["source"] in (read.name, read.ledger_name) or (read.uuid and read.uuid == entry.get("uuid")))
        for read in reads
    )


def _sources(flow: Flow) -> Iterator[Source]:
    """The source of a flow, and those of flows that are united with it; others are joined."""
    yield flow.source
    for step in flow.steps:
        if isinstance(step, Union):
            yield from _sources(step.other)
