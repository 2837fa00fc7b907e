"""Reads the input of committed batches again, from the recorded positions of their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.errors import CheckpointError, HeliosError, InputError, first_line, near_miss
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import Entry
from helios.sources.common.spark.protocol import Source
from helios.spark.checkpoint.files import FILES, Checkpoint, StartEntry
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.table.positions import SNAPSHOT, Batch, Span, same_source
from helios.table.rehearsal import CommittedBatch, OffsetLog, Rerun


class UnreadableInput(Exception):
    """The input of a batch cannot be read again; the message says why."""


def offset_log(checkpoint: Checkpoint) -> OffsetLog | None:
    """The offset log of a checkpoint; None if the checkpoint is damaged or was never used."""
    try:
        identity = checkpoint.identity()
        if identity is None:
            return None
        batches = checkpoint.batches("offsets")
        ends = {number: checkpoint.offsets(number) for number in batches}
        starts = checkpoint.start()
    except CheckpointError:
        return None
    ends_by_source = {
        number: {source: position for source, position in zip(identity.sources, end, strict=False) if position}
        for number, end in ends.items()
    }
    starts_by_source = None
    if starts is not None:
        starts_by_source = {s: entry["place"] for s, entry in zip(identity.sources, starts, strict=False)}
    return OffsetLog(
        checkpoint=identity.id,
        ends=ends_by_source,
        last_committed=max(checkpoint.batches("commits"), default=-1),
        starts=starts_by_source,
    )


def copy_columns(real: Checkpoint, rehearsal: Checkpoint) -> None:
    """Copies the recorded columns of followed folders from the real checkpoint into the rehearsal's checkpoint."""
    for name in real.files.names(FILES):
        text = real.files.read(f"{FILES}/{name}") if name.endswith(".columns.json") else None
        if text is not None:
            rehearsal.files.write(f"{FILES}/{name}", text)


@dataclass(frozen=True)
class PastSources:
    """The sources of a pipeline, opened to read the spans of committed batches again.

    Attributes:
        sources: The sources, by their index in the plan.
    """

    plan: Plan
    spark: SparkSession
    sources: Mapping[int, Source]

    @property
    def followed(self) -> dict[int, Source]:
        """The followed sources, by their index in the plan; empty for a pipeline that reads its sources once."""
        return {index: source for index, source in self.sources.items() if self.plan.reads[index].source.streaming}

    def resume(self, commits: Sequence[CommittedBatch], reruns: Sequence[Rerun]) -> None:
        """Resumes each followed source at its last recorded position.

        Raises:
            HeliosError: A source was replaced, or no batch has read it.
        """
        entries: dict[str, Entry] = {}
        for position in (*(batch.position for batch in commits), *(rerun.position for rerun in reruns)):
            entries |= {entry["source"]: entry for entry in position["sources"] if entry.get("place") is not None}
        for source in self.followed.values():
            entry = self._entry(source, entries)
            start = StartEntry(
                declared=source_start(source), branch=entry.get("branch"), uuid=entry.get("uuid"), place=entry["place"]
            )
            source.resume(start)

    def _entry(self, source: Source, entries: Mapping[str, Entry]) -> Entry:
        """The recorded entry of a source, found by the source's current name or UUID."""
        read = source.read_plan
        current = {"source": read.ledger_name, "uuid": read.uuid}
        recorded = next((entry for entry in entries.values() if same_source(current, entry)), None)
        if recorded is None:
            raise InputError(
                f"{self.plan.declared.name or read.ledger_name}: these commits have not read {read.ledger_name}, which "
                f"the script reads now. {near_miss(read.ledger_name, entries)}",
                where=read.source.origin,
                fix="run the pipeline, and rehearse it once a commit has read this source.",
            )
        return recorded

    def batch(self, number: int, rerun: Rerun) -> Batch:
        """A batch with the spans that it had when it was committed.

        Raises:
            UnreadableInput: A source that is read once has changed, or the script now reads a source in another way.
        """
        entries = {entry["source"]: entry for entry in rerun.position["sources"]}
        if not self.plan.streaming:
            spans = [self._state(source, self._entry(source, entries)) for source in self.sources.values()]
            return Batch(number, tuple(spans))
        if not rerun.ends:
            raise UnreadableInput("it read its sources once, and the script now follows them")
        spans = []
        for source in self.followed.values():
            name = self._entry(source, entries)["source"]
            spans.append(source.span(rerun.starts.get(name), rerun.ends.get(name)))
        return Batch(number, tuple(spans), pins={})

    def _state(self, source: Source, entry: Entry) -> Span:
        """The state of a source that is read once, as the batch read it."""
        name = source.read_plan.name
        if entry.get("place") is not None:
            raise UnreadableInput(f"it followed {name}, and the script now reads it once")
        if SNAPSHOT in entry and "after" not in entry:
            if not source.exists(entry[SNAPSHOT]):
                raise UnreadableInput(f"snapshot {entry[SNAPSHOT]} of {name} has expired")
            return source.at_pin(entry[SNAPSHOT])
        current = source.current()
        if {**current.entry, "source": ""} != {**entry, "source": ""}:  # the source may have been renamed
            raise UnreadableInput(f"{name}, which is read once, has changed since")
        return current

    def pins(self, rerun: Rerun, committed: CommittedBatch | None) -> Entry:
        """The snapshots of the tables that a batch joins, by the source's index in the plan.

        Raises:
            UnreadableInput: One of the snapshots has expired.
        """
        if not self.plan.streaming:
            return {}
        recorded = committed.commit.plan if committed is not None else None
        names = [read.name for read in self.plan.reads]
        if recorded is not None:
            names = [str(source["name"]) for source in recorded.plan["sources"]]
        by_name = {names[int(index)]: pin for index, pin in (rerun.pins or {}).items() if int(index) < len(names)}
        pins: dict[str, object] = {}
        for index, source in self.sources.items():
            if index in self.followed or not source.pinned:
                continue
            name = source.read_plan.name
            pin = by_name[name] if name in by_name else source.pin()
            if not source.exists(pin):
                raise UnreadableInput(f"snapshot {pin} of {name}, which it joined, has expired")
            pins[str(index)] = pin
        return pins

    def probe(self, batch: Batch) -> None:
        """Plans the reads of a batch's spans, to check that the spans can still be read.

        Raises:
            UnreadableInput: A span cannot be read any more.
        """
        for source, span in zip((self.followed or self.sources).values(), batch.spans, strict=True):
            try:
                with scan_task_scope():
                    source.read(self.spark, span)
            except HeliosError as error:
                raise UnreadableInput(error.what.rstrip(".")) from error
            except (Py4JError, PySparkException) as error:
                raise UnreadableInput(first_line(error)) from error


def source_start(source: Source) -> str:
    """The declared start of a source, for its entry; a rehearsal reads from recorded positions instead."""
    declared = getattr(source, "declared", None)
    return str(declared) if declared is not None else source.read_plan.source.label()


def newly_joined(plan: Plan, commits: Sequence[CommittedBatch]) -> list[str]:
    """The joined tables that the last commit did not read; the rehearsal reads their current state."""
    recorded = commits[-1].commit.plan if commits else None
    if recorded is None or not plan.streaming:
        return []
    names = {str(source["name"]) for source in recorded.plan["sources"]}
    joined = [read.name for read in plan.reads if read.table is not None and not read.source.streaming]
    return [name for name in joined if name not in names]
