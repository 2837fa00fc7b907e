"""Rows of other pipelines in the target of a pipeline that starts, or that would empty it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import Entry, entries, other_records, renaming_call, shared_source, source_of_both
from helios.plan.other_upserts import Upserts, refuse_other_upserts, upsert_terms, upserts_alongside, upserts_of
from helios.sources.common.position import SourcePosition
from helios.sources.kinds import position_of, source_kind
from helios.spark.iceberg.added_files import changes_files
from helios.spark.iceberg.history import History
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.validators import COMPACTION
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.job import Job
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of, newest_record
from helios.spark.sinks.stored_records import known_records
from helios.table.ledger import Record, parse
from helios.table.positions import SNAPSHOT, Batch, same_source
from helios.table.refs import LEDGER, OWN_ENDS


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
    if (traits.erases and not plan.streaming) or not traits.stores:
        return  # what is there is replaced or removed; a MERGE is the user's own
    branch = plan.write.sink.branch_name
    others = _others(table, plan)
    shared = {other: source for other, record in others.items() if (source := shared_source(plan, record)) is not None}
    there = {other for other in shared if others[other].branch == branch}
    if shared.keys() - there:
        written = _writers(table, branch)
        names = {other: {other, *others[other].formerly} for other in shared}
        there |= {other for other in shared if ANYBODY in written or names[other] & written}
    writers = sorted(there)
    if not set(writers) - set(beside):
        return
    other = next(name for name in writers if name not in beside)
    accepted = " ".join(f"--beside {name}" for name in writers)
    choices = [f"to let all of them write into the table, run once with `helios run {accepted}`"]
    renaming = renaming_call(plan, other)
    if others[other].branch != branch:
        follow = f"to add only newer rows to {branch or 'main'}, follow with .incremental(start=SNAPSHOT_ID)"
        choices = [f"{follow}, and run once with `helios run {accepted}`"]
    elif renaming is not None and not plan.write.sink.many_tables:
        choices.insert(0, f"if it is the same pipeline under a new name, write {renaming}")
    raise CheckpointError(
        f"{name.text} holds rows of {shared[other]} that pipeline {other} has written, and {plan.pipeline} would write "
        "them once more; nothing was written.",
        where=plan.declared.sink.origin,
        fix="; ".join(choices) + ".",
    )


def refuse_two_records(plan: Plan, table: JavaTable) -> None:
    """Rejects a pipeline whose former name is that of another pipeline with its own record.

    Raises:
        CheckpointError: It continues at its own position, and the rows that wait for the other one would be lost.
    """
    was, key = plan.was, LEDGER + plan.pipeline
    text = table.properties().get(key) if was is not None and was != plan.pipeline else None
    if was is None or text is None or table.properties().get(LEDGER + was) is None:
        return
    if was in parse(text, key, table.name()).formerly:  # which it was: another pipeline goes by that name now
        return
    raise CheckpointError(
        f"{plan.write.table.text} has a record of {was} and one of {plan.pipeline}: was= is for a renamed "
        "pipeline, and these are two pipelines; nothing was moved.",
        where=plan.declared.origin,
        fix=f"give the pipeline that was {was} a name that is free, or leave was= out.",
    )


def refuse_out_of_step(job: Job, batch: Batch) -> None:
    """Rejects rows that replace those of a follower of the same source that has read up to another position.

    It would append the rows in between once more, or never.

    Args:
        job: The pipeline, which reads once.
        batch: Its batch.

    Raises:
        InputError: There is such a pipeline, and it is none beside which the run may write.
    """
    plan = job.plan
    traits = plan.write.mode.traits
    if not plan.write.sink.target.one_table or not (traits.erases and traits.stores):
        return
    table = load_table(job.spark, plan.write.table)
    others = _others(table, plan) if table is not None else {}
    for other, record in others.items():
        if other in job.beside or record.branch != plan.write.sink.branch_name or record.snapshot is None:
            continue
        for entry in entries(record):
            for state in batch.sources:
                if _is_followed(entry) and _same_source(plan, entry, state) and not _same_place(entry, state):
                    raise _out_of_step(plan, state, other, entry)
    for sibling in job.siblings:
        known = others.get(sibling.pipeline) or others.get(sibling.was or "")
        begins = sibling.streaming and (known is None or known.position is None)
        both = source_of_both(plan, sibling) if begins else None
        if both is not None and sibling.pipeline not in job.beside:
            raise _out_of_step(plan, both, sibling.pipeline, None)


def _is_followed(entry: Entry) -> bool:
    """True if an entry is that of a followed source."""
    at = _place(entry)
    return at is not None and at.only_followed


def _place(entry: Entry | None) -> SourcePosition | None:
    """How far a follower has read, by its entry; None if unknown."""
    position = position_of(entry.get("place")) if entry is not None else None
    return position[1] if position is not None else None


def _same_source(plan: Plan, entry: Entry, state: Entry) -> bool:
    """True if a follower's entry and an entry of a batch have the same source, under any name."""
    if same_source(entry, state):
        return True
    reads = [read for read in plan.reads if read.ledger_name == state["source"]]
    return any(source_kind(read.source).same(read.source, entry) for read in reads)


def _same_place(entry: Entry, state: Entry) -> bool:
    """True if a follower has read exactly up to the end of a batch. False where their entries do not show it."""
    end = state.get(SNAPSHOT, state.get("to"))
    if not isinstance(end, int):
        return False  # of a folder that is read once nothing tells
    at = _place(entry)
    return at is not None and not at.partial and at.snapshot == end


def refuse_upserts_of_others(
    plan: Plan, table: JavaTable | None, own: Upserts | None, beside: Collection[str], siblings: Iterable[Plan | None]
) -> None:
    """Rejects upserts beside those of others that cannot share the keys that they remember.

    Args:
        plan: The pipeline.
        table: The table; None before it is made.
        own: Its upserts there until now; None before its first start.
        beside: Those beside which it may write.
        siblings: Those that the same run starts.

    Raises:
        InputError: There is such a pipeline.
    """
    if upsert_terms(plan) is None:
        return
    there = {name: upserts_of(record) for name, record in _others(table, plan).items()} if table is not None else {}
    there = upserts_alongside(plan, siblings, there, beside)
    refuse_other_upserts(plan, own, there, beside)


def _out_of_step(plan: Plan, state: Entry, other: str, entry: Entry | None) -> InputError:
    source, written = state["source"], plan.write.table.text
    at = _place(entry)
    at = at if at is not None and at.snapshot is not None else None
    whole = at is not None and not at.partial
    until = "what was there at its last look" if at is None else "a part of it so far"
    until = f"it up to snapshot {at.snapshot}" if at is not None and whole else until
    until = until if entry is not None else "nothing of it yet"
    end = state.get(SNAPSHOT, state.get("to"))
    rows = f"those of snapshot {end}" if end is not None else "those that are there now"
    read_all = f"run {other} until it has read all of {source}"
    if end is not None and at is not None:
        choices = [f"{read_all}; where that is meant, `helios run --beside {other}`"]
        after = state.get("after")
        if whole and isinstance(after, int) and after != at.snapshot:
            choices.insert(0, f"read up to what {other} has read, with .between({after}, {at.snapshot})")
        if whole and "after" not in state:
            choices.insert(0, f"read what {other} has read, with .at_snapshot({at.snapshot})")
    else:
        choices = [f"{read_all}, then `helios run --beside {other}`"]
    return InputError(
        f"pipeline {other} follows {source} into {written}, and has read {until}; {plan.pipeline} replaces rows by "
        f"{rows}: the rows in between would be duplicated or lost. Nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"{', or '.join(choices)}.",
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
    names = {f"{name}{end}" for name in names for end in OWN_ENDS}
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
    return other_records(known_records(table), plan)


ANYBODY = ""
"""The writer of snapshots that have expired."""


def _writers(table: JavaTable, branch: str | None) -> frozenset[str]:
    """The pipelines whose commits a branch holds; a branch that is missing is made from main."""
    missing = branch is not None and not table.refs().containsKey(branch)
    head = table.currentSnapshot() if branch is None or missing else Ledger(table, "", "", "", branch).head()
    history = History(table, head)
    writers = {str(snapshot.summary().get("helios.pipeline")) for snapshot in history}
    return frozenset(writers | ({ANYBODY} if history.expired is not None else set()))
