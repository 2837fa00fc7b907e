"""Refuses starts that would duplicate or delete rows of other pipelines in the same target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from helios.catalog.names import TableName
from helios.errors import CheckpointError, InputError
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import Entry, common_source_entry, entries, other_records, renaming_call, shared_source
from helios.plan.other_upserts import Upserts, refuse_other_upserts, upsert_terms, upserts_alongside, upserts_of
from helios.sources.common.position import SourcePosition
from helios.sources.kinds import position_of, source_kind
from helios.spark.iceberg.history import History
from helios.spark.iceberg.tables import load_table
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.run.job import Job
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.records import names_of, newest_record
from helios.spark.sinks.stored_records import known_records
from helios.table.ledger import Record, parse_record
from helios.table.positions import SNAPSHOT, Batch, same_source
from helios.table.refs import LEDGER, OWN_SUFFIXES


def refuse_same_sources(context: SinkContext, name: TableName, table: JavaTable, beside: Collection[str]) -> None:
    """Rejects a pipeline without a record in its target, if another pipeline has written rows of the same source there.

    The other pipeline may be the same one under its former name: the rows would then be written a second time.

    Args:
        beside: Pipelines whose rows of the same source may be in the table, too.

    Raises:
        CheckpointError: The table holds such rows of a pipeline that `beside` does not name.
    """
    plan = context.plan
    traits = plan.write.mode.traits
    if (traits.replaces_foreign_rows and not plan.streaming) or not traits.stores_columns:
        return  # the pipeline replaces or deletes rows, or runs the user's own MERGE
    branch = plan.write.sink.branch_name
    others = _others(table, plan)
    sources = {other: shared_source(plan, record) for other, record in others.items()}
    sharing = {other for other, source in sources.items() if source is not None}
    writers = {other for other in sharing if others[other].branch == branch}
    if sharing - writers:
        committers = _committers(table, branch)
        names = {other: {other, *others[other].formerly} for other in sharing}
        writers |= {other for other in sharing if UNKNOWN in committers or names[other] & committers}
    unaccepted = sorted(writers - set(beside))
    if not unaccepted:
        return
    other = unaccepted[0]
    accepted = " ".join(f"--beside {name}" for name in sorted(writers))
    choices = [f"to let all these pipelines write into the table, run once with `helios run {accepted}`"]
    renaming = renaming_call(plan, other)
    if others[other].branch != branch:
        follow = f"to add only newer rows to {branch or 'main'}, follow with .incremental(start=SNAPSHOT_ID)"
        choices = [f"{follow}, and run once with `helios run {accepted}`"]
        other_branch = others[other].branch
        if other == f"{plan.pipeline}@{other_branch}" and table.refs().containsKey(str(other_branch)):
            hand_over = f"`helios branch {name.text} {others[other].branch} --publish`"
            choices.insert(0, f"to go on after these rows, run {hand_over}: it prints the next steps")
    elif renaming is not None and not plan.write.sink.many_tables:
        choices.insert(0, f"if it is the same pipeline under a new name, write {renaming}")
    raise CheckpointError(
        f"{name.text} holds rows of {sources[other]} that pipeline {other} has written, and {plan.pipeline} would "
        "write them once more; nothing was written.",
        where=plan.declared.sink.origin,
        fix="; ".join(choices) + ".",
    )


def began_on_empty_tables(starts: Sequence[Entry]) -> bool:
    """True if all source tables of a pipeline were empty at its first start, whose entries are given."""
    positions = [_position(start) for start in starts if start.get("uuid") is not None]
    return bool(positions) and all(position is not None and position.snapshot is None for position in positions)


def refuse_two_records(plan: Plan, table: JavaTable) -> None:
    """Rejects a pipeline whose declared former name belongs to another pipeline: both names have a record.

    The rename would drop one of the two records, and with it the position of one pipeline.

    Raises:
        CheckpointError: Both names have a record.
    """
    was, key = plan.was, LEDGER + plan.pipeline
    text = table.properties().get(key) if was is not None and was != plan.pipeline else None
    if was is None or text is None or table.properties().get(LEDGER + was) is None:
        return
    if was in parse_record(text, key, table.name()).formerly:
        # The rename is done; another pipeline has the former name now.
        return
    raise CheckpointError(
        f"{plan.write.table.text} has a record of {was} and one of {plan.pipeline}: was= is for a renamed "
        "pipeline, and these are two pipelines; nothing was moved.",
        where=plan.declared.origin,
        fix=f"if {was} was renamed, give it a name that is free; if not, leave was= out.",
    )


def refuse_out_of_step(job: Job, batch: Batch) -> None:
    """Rejects a batch that replaces the rows of another pipeline that follows the same source.

    If the follower has not read the source exactly up to the end of the batch, it would write the rows between the two
    positions a second time, or never.

    Args:
        job: The pipeline, which reads once.

    Raises:
        InputError: There is such a follower, and `job.beside` does not name it.
    """
    plan = job.plan
    traits = plan.write.mode.traits
    if not plan.write.sink.target_kind.one_table or not (traits.replaces_foreign_rows and traits.stores_columns):
        return
    table = load_table(job.spark, plan.write.table)
    others = _others(table, plan) if table is not None else {}
    for other, record in others.items():
        if other in job.beside or record.branch != plan.write.sink.branch_name or record.snapshot is None:
            continue
        for entry in entries(record):
            for batch_entry in batch.sources:
                follows_source = _is_followed(entry) and _same_source(plan, entry, batch_entry)
                if follows_source and not _same_position(entry, batch_entry):
                    raise _out_of_step(plan, batch_entry, other, entry)
    for sibling in job.siblings:
        known = others.get(sibling.pipeline) or others.get(sibling.was or "")
        begins = sibling.streaming and (known is None or known.position is None)
        common = common_source_entry(plan, sibling) if begins else None
        if common is not None and sibling.pipeline not in job.beside:
            raise _out_of_step(plan, common, sibling.pipeline, None)


def _is_followed(entry: Entry) -> bool:
    position = _position(entry)
    return position is not None and position.only_followed


def _position(entry: Entry | None) -> SourcePosition | None:
    """The position up to which a follower has read; None if the entry has no position."""
    recognized = position_of(entry.get("place")) if entry is not None else None
    if recognized is None:
        return None
    _kind, position = recognized
    return position


def _same_source(plan: Plan, entry: Entry, batch_entry: Entry) -> bool:
    """True if a follower's entry and an entry of a batch are of the same source, even if the source was renamed."""
    if same_source(entry, batch_entry):
        return True
    reads = [read for read in plan.reads if read.ledger_name == batch_entry["source"]]
    return any(source_kind(read.source).overlaps(read.source, entry) for read in reads)


def _same_position(entry: Entry, batch_entry: Entry) -> bool:
    """True if the entries show that a follower has read exactly up to the end of a batch."""
    end = batch_entry.get(SNAPSHOT, batch_entry.get("to"))
    if not isinstance(end, int):
        return False  # a folder that is read once has no snapshot
    position = _position(entry)
    return position is not None and not position.partial and position.snapshot == end


def refuse_upserts_of_others(
    plan: Plan, table: JavaTable | None, own: Upserts | None, beside: Collection[str], siblings: Iterable[Plan | None]
) -> None:
    """Rejects upserts into a table where another pipeline upserts, if the two cannot share their upsert states.

    Args:
        table: The table; None before it is made.
        own: The pipeline's upserts until now, as its record describes them; None before its first start.
        beside: The pipelines that `--beside` names.
        siblings: Plans of the script's other pipelines; None for those that the run does not start.

    Raises:
        InputError: There is such a pipeline.
    """
    if upsert_terms(plan) is None:
        return
    records = _others(table, plan) if table is not None else {}
    recorded = {name: upserts_of(record) for name, record in records.items()}
    refuse_other_upserts(plan, own, upserts_alongside(plan, siblings, recorded, beside), beside)


def _out_of_step(plan: Plan, batch_entry: Entry, other: str, entry: Entry | None) -> InputError:
    source, written = batch_entry["source"], plan.write.table.text
    position = _position(entry)
    snapshot = position.snapshot if position is not None else None
    has_whole_snapshot = position is not None and not position.partial
    if entry is None:
        read_so_far = "nothing of it yet"
    elif snapshot is None:
        read_so_far = "what was there at its last batch"
    else:
        read_so_far = f"it up to snapshot {snapshot}" if has_whole_snapshot else "a part of it so far"
    end = batch_entry.get(SNAPSHOT, batch_entry.get("to"))
    rows = f"those of snapshot {end}" if end is not None else f"those that {source} has now"
    read_all = f"run {other} until it has read all of {source}"
    if end is not None and snapshot is not None:
        choices = [f"{read_all}; if the difference is intended, `helios run --beside {other}`"]
        after = batch_entry.get("after")
        if has_whole_snapshot and isinstance(after, int) and after != snapshot:
            choices.insert(0, f"read up to what {other} has read, with .between({after}, {snapshot})")
        if has_whole_snapshot and "after" not in batch_entry:
            choices.insert(0, f"read what {other} has read, with .at_snapshot({snapshot})")
    else:
        choices = [f"{read_all}, then `helios run --beside {other}`"]
    return InputError(
        f"pipeline {other} follows {source} into {written}, and has read {read_so_far}; {plan.pipeline} replaces rows "
        f"by {rows}: the rows in between would be duplicated or lost. Nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"{', or '.join(choices)}.",
    )


def refuse_rows_of_others(context: SinkContext, table: JavaTable) -> None:
    """Rejects a full refresh that would delete rows of other writers.

    Raises:
        InputError: There are such rows, or the writer of an expired snapshot is unknown.
    """
    table.refresh()
    plan = context.plan
    record = newest_record(table, plan.write.pipeline_names, plan.write.sink.branch_name)
    names = names_of(table, (plan.pipeline, plan.was), record)
    own_stamps = {f"{name}{suffix}" for name in names for suffix in OWN_SUFFIXES}
    history = History(table, context.ledger(table, plan.write.sink.branch_name).head())
    # A branch of an empty table starts with an empty snapshot.
    changing = filter(changes_rows, history)
    foreign = next((s for s in changing if s.summary().get("helios.pipeline") not in own_stamps), None)
    if foreign is not None:
        why = f"snapshot {foreign.snapshotId()} is not this pipeline's"
    elif history.is_cut:
        why = f"{history.lost} has expired, so that its writer is unknown"
    else:
        return
    raise InputError(
        f"--full-refresh would empty {plan.write.table.text}, and {why}.",
        where=plan.declared.sink.origin,
        fix="delete the pipeline's own rows by hand, or run under a new name into a new table.",
    )


def _others(table: JavaTable, plan: Plan) -> dict[str, Record]:
    return other_records(known_records(table), plan)


UNKNOWN = ""
"""Stands for the unknown writers of snapshots that have expired."""


def _committers(table: JavaTable, branch: str | None) -> frozenset[str]:
    """The pipelines that have committed to a branch; a missing branch counts as main, from which it will be created."""
    missing = branch is not None and not table.refs().containsKey(branch)
    head = table.currentSnapshot() if branch is None or missing else Ledger(table, "", "", "", branch).head()
    history = History(table, head)
    committers = {str(snapshot.summary().get("helios.pipeline")) for snapshot in history}
    return frozenset(committers | ({UNKNOWN} if history.is_cut else set()))
