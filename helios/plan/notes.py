"""The notes of `helios check` and `helios plan` on the next run, from the ledger records of the target; without a JVM.

A ledger record is the table property in which a pipeline stores its progress (`helios.table.ledger.Record`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helios.catalog.conf import pyiceberg_properties
from helios.errors import CheckpointError, HeliosError, InputError, RunError
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import (
    common_source_entry,
    entries,
    other_records,
    renaming_call,
    shared_source,
    writers_of_same_branch,
    written_reads,
)
from helios.plan.other_upserts import refuse_other_upserts, sharing_notes, upserts_alongside, upserts_of
from helios.sources.kinds import source_kind
from helios.table.positions import SNAPSHOT

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from helios.table.ledger import Record


def lost_checkpoint(plan: Plan, table: str, record: Record) -> CheckpointError | None:
    """The error for a pipeline that has a record in a table, but no checkpoint.

    None if the record has neither a position nor a start, or is a copy from a published branch.
    """
    if record.published is not None or (record.position is None and record.start is None):
        return None
    resume_point, table_state = "at the target's position", f"{table} holds rows of {plan.pipeline}"
    if record.only_began:
        resume_point, table_state = "where it began", f"{plan.pipeline} began to write {table}"
    message, restore = f"{table_state}, but its checkpoint {plan.checkpoint} is lost.", "restore the checkpoint"
    resume = f"resume {resume_point} with `helios run --new-checkpoint`"
    if plan.write.sink.many_tables:
        resume = "run under a new name into new tables"
    elif any(read.source.streaming and source_kind(read.source).logged for read in plan.reads):
        message += " It had the log of the files that were read, which no position can replace."
        restore += " from a backup"
        resume = "empty and refill the table with `helios run --full-refresh` while all files are there"
    return CheckpointError(message, where=plan.declared.sink.origin, fix=f"{restore}, or {resume}.")


def _has_checkpoint(plan: Plan) -> bool:
    """True if a pipeline has a checkpoint, needs none, or keeps it where it cannot be read from here."""
    from helios.table.readers import checkpoint_text

    locations = [location for location in (plan.checkpoint, plan.former_checkpoint) if location]
    properties = pyiceberg_properties(plan.write.table.catalog)
    exist = (checkpoint_text(location, properties, "helios/identity.json") is not None for location in locations)
    try:
        return not locations or any(exist)
    except RunError:
        return True


def with_notes(plan: Plan, plans: Sequence[Plan]) -> tuple[Plan, list[HeliosError]]:
    """The plan with notes from the records of its table, and the problems that the records show.

    Args:
        plans: All pipelines of the script.
    """
    write = plan.write
    if not write.sink.target_kind.one_table:
        return plan, []
    own, others, on_branch = _ledger_records(plan) if write.exists else (None, {}, frozenset())
    siblings = {other.pipeline: other for other in plans if other.pipeline not in (plan.pipeline, plan.was)}
    writers = {name: record for name, record in others.items() if name in on_branch}
    notes = (*_notes(plan, own, writers, siblings), *declared_notes(plan, own, others, siblings.values()))
    recorded_upserts = {name: upserts_of(record) for name, record in others.items()}
    other_upserts = upserts_alongside(plan, siblings.values(), recorded_upserts, ())
    own_upserts = upserts_of(own) if own is not None else None
    notes = (*notes, *sharing_notes(plan, own_upserts, other_upserts))
    problems: list[HeliosError] = []
    if plan.streaming and own is not None:
        lost = lost_checkpoint(plan, write.table.text, own)
        if lost is not None and not _has_checkpoint(plan):
            problems.append(lost)
    try:
        refuse_other_upserts(plan, own_upserts, other_upserts, ())
    except InputError as refused:
        problems.append(refused)
    return replace(plan, write=replace(write, notes=notes)), problems


def _ledger_records(plan: Plan) -> tuple[Record | None, dict[str, Record], Collection[str]]:
    """The pipeline's record in its target, the records of other pipelines, and which of these wrote its branch.

    The third value has the names of all other pipelines if it is unknown which of them wrote the branch.
    """
    from helios.table.ledger import records  # not needed for new tables

    table = plan.write.table
    all_records = records(table.catalog.load(table.name_in_catalog).iceberg.properties, table.text)
    own = next((all_records[name] for name in plan.write.pipeline_names if name in all_records), None)
    branch, others = plan.write.sink.branch_name, other_records(all_records, plan)
    same_branch = {name for name, record in others.items() if record.branch == branch}
    if own is not None or len(same_branch) == len(others):
        return own, others, same_branch
    writers = _writers_of_branch(table.catalog.load(table.name_in_catalog).iceberg.metadata, branch)
    if writers is None:
        return own, others, set(others)
    in_history = {name for name, record in others.items() if not writers.isdisjoint((name, *record.formerly))}
    return own, others, same_branch | in_history


def _writers_of_branch(metadata: TableMetadata, branch: str | None) -> set[str] | None:
    """The names of pipelines with commits in the history of a branch, or of main if the branch does not exist.

    None if a part of the history has expired.
    """
    from helios.table.first_snapshot import has_earlier_rows
    from helios.table.ledger import summary_of
    from helios.table.refs import MAIN, ancestors

    ref = metadata.refs.get(branch or MAIN) or metadata.refs.get(MAIN)
    if ref is None:
        return set()
    history = list(ancestors(metadata, ref.snapshot_id))
    oldest = metadata.snapshot_by_id(history[-1]) if history else None
    if oldest is None or oldest.parent_snapshot_id is not None:
        return None
    if has_earlier_rows(oldest.sequence_number or 0, summary_of(metadata, oldest.snapshot_id).get):
        return None
    return {summary_of(metadata, snapshot).get("helios.pipeline", "") for snapshot in history}


def declared_notes(
    plan: Plan, own: Record | None, others: Collection[str], siblings: Iterable[Plan | None]
) -> Iterator[str]:
    """Yields notes on pipelines of the same run that write rows of the same source, but have no record yet.

    Args:
        others: The names of other pipelines that have a record.
        siblings: The other pipelines of the run.
    """
    traits = plan.write.mode.traits
    adds_rows = traits.stores_columns and (
        not traits.rewrites_same_inputs or (traits.replaces_foreign_rows and plan.streaming)
    )
    if own is not None or not adds_rows:
        return
    for other in writers_of_same_branch(plan, siblings):
        entry = common_source_entry(plan, other) if other.pipeline not in others else None
        if entry is not None and other.write.mode.traits.stores_columns:
            source = entry["source"]
            yield f"{other.pipeline}, of the same script, writes rows of {source}, too: rows that both read come twice"


def _notes(plan: Plan, own: Record | None, others: Mapping[str, Record], siblings: Collection[str]) -> Iterator[str]:
    """Yields notes on rows of the same sources that other pipelines or earlier runs have written."""
    traits = plan.write.mode.traits
    for name, record in others.items():
        source = shared_source(plan, record)
        if source is None or not traits.stores_columns:
            continue
        if traits.replaces_foreign_rows and not plan.streaming:
            if any("place" in entry for entry in entries(record)):
                yield (
                    f"{name} follows {source} into this table: the rows of this run replace the rows of {name}, which "
                    f"goes on with newer rows. A run that would read further than {name} is refused"
                )
        elif own is not None or name in siblings:
            consequence = (
                "rows of equal keys replace each other"
                if plan.write.mode.upsert is not None
                else "rows that both have read are in the table twice"
            )
            yield f"{name} has written rows of {source}, too: {consequence}"
        else:
            yield (
                f"{name} has written rows of {source}, which this pipeline would write once more: the first run of "
                "this pipeline is refused, unless the pipeline declares its former name, "
                f"{renaming_call(plan, name) or '.named(new, was=old)'}, or runs with --beside {name}"
            )
    yield from _appended_again(plan, own)


def _appended_again(plan: Plan, own: Record | None) -> Iterator[str]:
    """Yields a note if a source has changed since a batch pipeline appended it: the next run appends it again."""
    if own is None or plan.streaming or plan.write.mode.traits.rewrites_same_inputs:
        return
    from helios.table.appended import first_changed_state

    reads = [read for read in written_reads(plan) if read.state is None and read.span is None and read.uuid]
    now = [{"source": read.ledger_name, "uuid": read.uuid, SNAPSHOT: read.snapshot} for read in reads]
    before, after = first_changed_state(own.position, {"sources": now}) or ({}, {})
    if SNAPSHOT in before:
        yield (
            f"the table holds the rows of {after['source']} as of snapshot {before[SNAPSHOT]}, and the next run "
            f"appends those of snapshot {after[SNAPSHOT]}: rows in both are duplicated. To append only what is new, "
            "follow it: .incremental()"
        )
