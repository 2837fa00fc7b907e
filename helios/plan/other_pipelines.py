"""Finds the other pipelines that write a table, from the ledger records of the table; without a JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.model.flow import Flow, Source
from helios.model.values import is_pipeline_name
from helios.plan.nodes import Plan, ReadPlan
from helios.sources.kinds import source_kind
from helios.steps.union import Union
from helios.table.refs import BACKFILL, OWN_SUFFIXES, REPLAY

if TYPE_CHECKING:
    from helios.table.ledger import Record

Entry: TypeAlias = "Mapping[str, Any]"
"""The part of a record's position that belongs to one source."""


def other_records(known: Mapping[str, Record], plan: Plan) -> dict[str, Record]:
    """The records of other pipelines in a table, without the records of replays and backfills."""
    own = {f"{name}{suffix}" for name in (plan.pipeline, plan.was) if name for suffix in OWN_SUFFIXES}
    names = {*known, *(name for record in known.values() for name in record.formerly)}

    def is_replay_or_backfill(name: str) -> bool:
        # A pipeline's own name may have such a suffix. Then no pipeline has the name without the suffix.
        return any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in (REPLAY, BACKFILL))

    return {name: record for name, record in known.items() if name not in own and not is_replay_or_backfill(name)}


def entries(record: Record) -> Iterator[Entry]:
    """Yields the entries of a record, one for each source."""
    for entry in (record.position or {}).get("sources") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("source"), str):
            yield entry


def shared_source(plan: Plan, record: Record) -> str | None:
    """The name of a source whose rows both the recorded pipeline and `plan` write; None if there is none."""
    return next((str(entry["source"]) for entry in entries(record) if _writes_rows_of(plan, entry)), None)


def _writes_rows_of(plan: Plan, entry: Entry) -> bool:
    """True if the pipeline writes rows of an entry's source, by its name, its UUID or the rule of its kind."""
    return any(
        read.source.comparable
        and (
            entry["source"] in (read.name, read.ledger_name)
            or (read.uuid and read.uuid == entry.get("uuid"))
            or source_kind(read.source).overlaps(read.source, entry)
        )
        for read in written_reads(plan)
    )


def written_reads(plan: Plan) -> list[ReadPlan]:
    """The reads whose rows a pipeline writes: the followed sources; without any, the sources that are not joined."""
    sources = list(_united_sources(plan.stream))
    return [r for r in plan.reads if (r.source.streaming if plan.streaming else r.source in sources)]


def writers_of_same_branch(plan: Plan, plans: Iterable[Plan | None]) -> list[Plan]:
    """The other pipelines among `plans` that write the same branch of the same table."""
    write = plan.write
    if not write.sink.target_kind.one_table:
        return []
    return [
        other
        for other in plans
        if other is not None
        and other.pipeline not in (plan.pipeline, plan.was)
        and other.write.table.text == write.table.text
        and other.write.sink.branch_name == write.sink.branch_name
        and other.write.sink.target_kind.one_table
    ]


def common_source_entry(plan: Plan, other: Plan) -> Entry | None:
    """A source whose rows two pipelines write, as an entry of a record; None if there is none."""
    for read in written_reads(other):
        entry = {"source": read.ledger_name, "uuid": read.uuid, **source_kind(read.source).empty_entry}
        if _writes_rows_of(plan, entry):
            return entry
    return None


def _united_sources(flow: Flow) -> Iterator[Source]:
    """Yields the source of a flow and the sources of the flows that are united with it, but not of joined flows."""
    yield flow.source
    for step in flow.steps:
        if isinstance(step, Union):
            yield from _united_sources(step.other)


def renaming_call(plan: Plan, was: str) -> str | None:
    """The call that declares a pipeline's former name; None if `.named` refuses one of the two names."""
    name = plan.pipeline if is_pipeline_name(plan.pipeline) else plan.write.table.table
    if not (is_pipeline_name(name) and is_pipeline_name(was, former=True)):
        return None
    return f'.named("{name}", was="{was}")'
