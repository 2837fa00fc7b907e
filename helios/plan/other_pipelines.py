"""What the records of a table say of a pipeline and of the others that write into it; without a JVM."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from helios.catalog.conf import pyiceberg_properties
from helios.errors import CheckpointError, HeliosError, InputError, RunError
from helios.model.flow import Flow, Source
from helios.model.joins import Union
from helios.model.modes import Mode
from helios.model.values import written_as_name
from helios.plan.nodes import Plan, ReadPlan
from helios.plan.sources import row_of
from helios.table.positions import SNAPSHOT
from helios.table.refs import REPLAY

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from helios.table.ledger import Record

Entry: TypeAlias = "Mapping[str, Any]"
"""What a record keeps of one source."""


def other_records(known: Mapping[str, Record], plan: Plan) -> dict[str, Record]:
    """The records of other pipelines; those of replays tell of rows that a run had rejected.

    Args:
        known: The records of a table, by pipeline.
        plan: The pipeline.
    """
    own = {f"{name}{end}" for name in (plan.pipeline, plan.was) if name for end in ("", REPLAY)}

    def is_replay(name: str) -> bool:  # a table may be called so, too
        return name.endswith(REPLAY) and name.removesuffix(REPLAY) in known

    return {name: record for name, record in known.items() if name not in own and not is_replay(name)}


def entries(record: Record) -> Iterator[Entry]:
    """What a record keeps of each source."""
    for entry in (record.position or {}).get("sources") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("source"), str):
            yield entry


def shared_source(plan: Plan, record: Record) -> str | None:
    """The name of a source whose rows a pipeline writes and a record tells of; None if there is none."""
    return next((str(entry["source"]) for entry in entries(record) if _reads(plan, entry)), None)


def _reads(plan: Plan, entry: Entry) -> bool:
    """Whether the pipeline writes rows of the source of an entry: a source of its name, or a table of its UUID."""
    return any(
        read.source.comparable
        and (
            entry["source"] in (read.name, read.ledger_name)
            or (read.uuid and read.uuid == entry.get("uuid"))
            or row_of(read.source).same(read.source, entry)
        )
        for read in _written(plan)
    )


def _written(plan: Plan) -> list[ReadPlan]:
    """The reads of a pipeline whose rows it writes; others are joined."""
    sources = list(_sources(plan.stream))
    return [r for r in plan.reads if (r.source.streaming if plan.streaming else r.source in sources)]


def alongside(plan: Plan, plans: Iterable[Plan | None]) -> list[Plan]:
    """Those of some pipelines that write the same branch of the same table."""
    write = plan.write
    if write.sink.many_tables or write.output is not None:
        return []
    return [
        one
        for one in plans
        if one is not None
        and one.pipeline not in (plan.pipeline, plan.was)
        and one.write.table.text == write.table.text
        and one.write.sink.branch_name == write.sink.branch_name
        and one.write.output is None
        and not one.write.sink.many_tables
    ]


def source_of_both(plan: Plan, other: Plan) -> Entry | None:
    """A source whose rows two pipelines write, as a record would name it; None if there is none."""
    for read in _written(other):
        entry = {"source": read.ledger_name, "uuid": read.uuid, **row_of(read.source).entry}
        if _reads(plan, entry):
            return entry
    return None


def upserts_alongside(
    plan: Plan, plans: Iterable[Plan | None], known: Mapping[str, Upserts], beside: Collection[str]
) -> dict[str, Upserts]:
    """The upserts of others into the table, with those of pipelines of the same run that have no record yet.

    Args:
        plan: The pipeline.
        plans: Those of the run.
        known: The upserts of others, as their records tell.
        beside: Those beside which the run may write; that is said to each of its pipelines.
    """
    begun = {}
    for one in alongside(plan, plans):
        was = known.get(one.was or "")
        told = (*beside, *(was.beside if was is not None else ()))  # under a former name, too
        names = (one.was,) if one.was else ()
        begun[one.pipeline] = Upserts(upsert_terms(one), one.write.sink.branch_name, told, names)
    return {**begun, **known}


def _sources(flow: Flow) -> Iterator[Source]:
    """The source of a flow, and those of flows that are united with it; others are joined."""
    yield flow.source
    for step in flow.steps:
        if isinstance(step, Union):
            yield from _sources(step.other)


def renaming_call(plan: Plan, was: str) -> str | None:
    """The call that says what a pipeline was called; None where its former name cannot be written."""
    name = plan.pipeline if written_as_name(plan.pipeline) else plan.write.table.table
    if not (written_as_name(name) and written_as_name(was, former=True)):
        return None
    return f'.named("{name}", was="{was}")'


# upserts

KEYS, NEWEST, REMEMBERS = "keys", "newest", "remembers"


class Upserts(NamedTuple):
    """What a pipeline upserts into a table.

    Attributes:
        terms: What decides which row of a key wins, as `upsert_terms` gives it; None without upserts.
        branch: The branch that it writes.
        beside: The pipelines beside which it was told to write.
        formerly: What it was called before.
    """

    terms: Mapping[str, Any] | None
    branch: str | None
    beside: Sequence[str] = ()
    formerly: Sequence[str] = ()


def upserts_of(record: Record) -> Upserts:
    """What a record tells of upserts."""
    return Upserts(record.upserts, record.branch, record.beside, record.formerly)


def upsert_terms(plan: Plan) -> Mapping[str, Any] | None:
    """What decides which row of a key wins, as a record keeps it; None where nothing is upserted."""
    ordered_by_log = any(read.source.carries_order for read in plan.reads)
    return terms_of(plan.write.mode, ordered_by_log=ordered_by_log)


def terms_of(mode: Mode, *, ordered_by_log: bool = False) -> Mapping[str, Any] | None:
    """As `upsert_terms`, of a mode.

    Args:
        mode: The mode.
        ordered_by_log: Whether rows are changes in the order of their log, which no table stores.

    Examples:
        >>> from helios.model.modes import Upsert
        >>> terms_of(Upsert(keys=("Id",), order_by="n", delete_when="gone"))
        {'keys': ['id'], 'newest': 'n', 'remembers': 'deleted keys'}
    """
    if not mode.traits.upserts:
        return None
    stored = mode.stores_order and re.fullmatch(r"`[^`]+`|\w+", mode.order_by or "") is not None and not ordered_by_log
    remembers = None
    if ordered_by_log or (mode.order_by is not None and (mode.delete_when is not None or not stored)):
        remembers = "deleted keys" if stored or mode.history else "the newest order of each key"
    return {KEYS: sorted(key.lower() for key in mode.keys), NEWEST: mode.order_by, REMEMBERS: remembers}


def refuse_other_upserts(
    plan: Plan, own: Upserts | None, others: Mapping[str, Upserts], beside: Collection[str]
) -> None:
    """Rejects upserts into a table that another pipeline upserts into, where one remembers what the other cannot know.

    What an upsert remembers, deleted keys and orders that the table does not store, is in its own checkpoint.

    Args:
        plan: The pipeline.
        own: Its own upserts until now; None before its first start.
        others: The upserts of the others.
        beside: More pipelines beside which it may write.

    Raises:
        InputError: There is such a pipeline, and it is none of these.
    """
    mine = upsert_terms(plan)
    if mine is None:
        return
    accepted = {*beside, *(own.beside if own is not None else ())}
    called = {plan.pipeline, plan.was, *(own.formerly if own is not None else ())}
    found = {
        name: one.terms
        for name, one in others.items()
        if one.terms is not None
        and one.branch == plan.write.sink.branch_name
        and (mine[REMEMBERS] or one.terms.get(REMEMBERS))
        and not accepted & {name, *one.formerly}
        and not called & set(one.beside)  # it was told to stand beside this one
    }
    if not found:
        return
    other = min(found)
    theirs = found[other].get(REMEMBERS)
    who, whose, what = (other, plan.pipeline, theirs) if theirs is not None else (plan.pipeline, other, mine[REMEMBERS])
    choice = " ".join(f"--beside {one}" for one in sorted(found))
    filled = "filled with --full-refresh" if own is None else "under a new name, into a new table"
    raise InputError(
        f"{other} upserts into {plan.write.table.text}, too, and {who} remembers {what} for itself alone: a late row "
        f"that {whose} writes would bring back a deleted key, or replace a newer row; nothing was written.",
        where=plan.declared.sink.origin,
        fix=f"write both as one pipeline, source >> union(other) >> sink, {filled}; where the two never write the same "
        f"key, run once with `helios run {choice}`.",
    )


# what a plan says


def lost_checkpoint(plan: Plan, table: str, record: Record) -> CheckpointError | None:
    """The error of a pipeline whose record a table has, and whose checkpoint is gone; None where it may begin.

    Args:
        plan: The pipeline.
        table: The name of the table.
        record: The record.
    """
    if record.position is None and record.start is None:
        return None
    at = "where it began" if record.only_began else "at the target's position"
    resumed = f"resume {at} with `helios run --new-checkpoint`"
    if plan.write.sink.many_tables:
        resumed = "run under a new name into new tables"
    there = f"{plan.pipeline} began to write {table}" if record.only_began else f"{table} holds rows of {plan.pipeline}"
    return CheckpointError(
        f"{there}, but its checkpoint {plan.checkpoint} is lost.",
        where=plan.declared.sink.origin,
        fix=f"restore the checkpoint, or {resumed}.",
    )


def _has_checkpoint(plan: Plan) -> bool:
    """Whether a pipeline has its checkpoint, as far as it can be looked at from here."""
    from helios.table.readers import text_in

    places = [place for place in (plan.checkpoint, plan.former_checkpoint) if place]
    properties = pyiceberg_properties(plan.write.table.catalog)
    try:
        return not places or any(text_in(one, properties, "helios/identity.json") is not None for one in places)
    except RunError:
        return True


def with_notes(plan: Plan, plans: Sequence[Plan]) -> tuple[Plan, list[HeliosError]]:
    """The plan with what the records of its table tell, and the problems: whose rows are there, what a run would add.

    Args:
        plan: The pipeline.
        plans: All of its script.
    """
    write = plan.write
    if write.sink.many_tables or write.output is not None:
        return plan, []
    own, others, held = _recorded(plan) if write.exists else (None, {}, frozenset())
    siblings = {one.pipeline: one for one in plans if one.pipeline not in (plan.pipeline, plan.was)}
    there = {name: record for name, record in others.items() if name in held}
    notes = (*_notes(plan, own, there, siblings), *declared_notes(plan, own, others, siblings.values()))
    known = {name: upserts_of(record) for name, record in others.items()}
    upserts = upserts_alongside(plan, siblings.values(), known, ())
    problems: list[HeliosError] = []
    if plan.streaming and own is not None and (lost := lost_checkpoint(plan, write.table.text, own)) is not None:
        problems += [lost] if not _has_checkpoint(plan) else []
    try:
        refuse_other_upserts(plan, upserts_of(own) if own is not None else None, upserts, ())
    except InputError as refused:
        problems.append(refused)
    return replace(plan, write=replace(write, notes=notes)), problems


def _recorded(plan: Plan) -> tuple[Record | None, dict[str, Record], Collection[str]]:
    """The record of a pipeline in its target, those of others, and whose rows the branch that it writes may hold."""
    from helios.table.ledger import records  # a plan of new tables reads no table

    table = plan.write.table
    known = records(table.catalog.load(table.within).iceberg.properties, table.text)
    own = next((known[name] for name in plan.write.pipelines if name in known), None)
    branch, others = plan.write.sink.branch_name, other_records(known, plan)
    same = {name for name, record in others.items() if record.branch == branch}
    if own is not None or len(same) == len(others):
        return own, others, same
    written = _writers(table.catalog.load(table.within).iceberg.metadata, branch)
    held = {name for name, one in others.items() if None in written or not written.isdisjoint((name, *one.formerly))}
    return own, others, same | held


def _writers(metadata: TableMetadata, branch: str | None) -> set[str | None]:
    """The pipelines whose commits a branch holds, and None where some have expired; one that is missing is main's."""
    from helios.table.ledger import stamps_of
    from helios.table.refs import MAIN, ancestors

    ref = metadata.refs.get(branch or MAIN) or metadata.refs.get(MAIN)
    if ref is None:
        return set()
    history = list(ancestors(metadata, ref.snapshot_id))
    oldest = metadata.snapshot_by_id(history[-1]) if history else None
    expired = oldest is None or oldest.parent_snapshot_id is not None
    written: set[str | None] = {stamps_of(metadata, one).get("helios.pipeline", "") for one in history}
    return written | ({None} if expired else set())


def declared_notes(
    plan: Plan, own: Record | None, others: Collection[str], siblings: Iterable[Plan | None]
) -> Iterator[str]:
    """What a run tells of pipelines that it starts beside one, before either has a record in their table.

    Args:
        plan: The pipeline.
        own: Its record.
        others: The pipelines that have one.
        siblings: Those of the run.
    """
    traits = plan.write.mode.traits
    adds = traits.stores and (not traits.reruns or (traits.erases and plan.streaming))
    for one in alongside(plan, siblings) if own is None and adds else ():
        entry = source_of_both(plan, one) if one.pipeline not in others else None
        if entry is not None and one.write.mode.traits.stores:
            source = entry["source"]
            yield f"{one.pipeline}, of the same script, writes rows of {source}, too: what both read is there twice"


def _notes(plan: Plan, own: Record | None, others: Mapping[str, Record], siblings: Collection[str]) -> Iterator[str]:
    traits = plan.write.mode.traits
    for name, record in others.items():
        source = shared_source(plan, record)
        if source is None or not traits.stores:
            continue
        if traits.erases and not plan.streaming:
            if any("place" in entry for entry in entries(record)):
                yield (
                    f"{name} follows {source} into this table: it appends what it has not read yet, and the rows of "
                    "this run replace what it wrote. A run that would read further than it is refused"
                )
        elif own is not None or name in siblings:
            what = "rows of equal keys replace each other" if traits.upserts else "what both have read is there twice"
            yield f"{name} has written rows of {source}, too: {what}"
        else:
            yield (
                f"{name} has written rows of {source}, which this pipeline would write once more: its first run is "
                f"refused, unless it says what it was called, {renaming_call(plan, name) or '.named(new, was=old)'}, "
                f"or is told to stand beside it, --beside {name}"
            )
    yield from _once_more(plan, own)


def _once_more(plan: Plan, own: Record | None) -> Iterator[str]:
    """The sources that a batch pipeline appends again, as they have grown since."""
    if own is None or plan.streaming or plan.write.mode.traits.reruns:
        return
    from helios.table.appended import earlier_state

    states = [read for read in _written(plan) if read.state is None and read.span is None]
    now = [{"source": read.ledger_name, "uuid": read.uuid, SNAPSHOT: read.snapshot} for read in states if read.uuid]
    found = earlier_state(own.position, {"sources": now})
    if found is not None and SNAPSHOT in found[0]:
        before, after = found
        yield (
            f"the table holds the rows of {after['source']} as of snapshot {before[SNAPSHOT]}, and the next run "
            f"appends those of snapshot {after[SNAPSHOT]}: what is in both is there twice. To append only what is new, "
            "follow it: .incremental()"
        )
