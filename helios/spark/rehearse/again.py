"""The spans of committed batches once more: what a checkpoint knows of them, and their sources opened for reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from helios.errors import CheckpointError, HeliosError, InputError, near_miss
from helios.plan.nodes import Plan
from helios.plan.other_pipelines import Entry
from helios.sources.common.spark.protocol import Source
from helios.spark.checkpoint.files import FILES, Checkpoint, StartEntry
from helios.spark.iceberg.scan_tasks import scan_task_scope
from helios.table.positions import SNAPSHOT, Batch, Span, same_source
from helios.table.rehearsal import Made, OffsetLog, Rerun


class Unread(Exception):
    """What a batch has read cannot be read again; the text says why."""


def offset_log(checkpoint: Checkpoint) -> OffsetLog | None:
    """What a checkpoint knows of its batches; None where it is damaged, or no pipeline has used it."""
    try:
        identity = checkpoint.identity()
        if identity is None:
            return None
        batches = checkpoint.batches("offsets")
        ends = {number: checkpoint.offsets(number) for number in batches}
        starts = checkpoint.start()
    except CheckpointError:
        return None
    named = {n: {s: e for s, e in zip(identity.sources, end, strict=False) if e} for n, end in ends.items()}
    return OffsetLog(
        checkpoint=identity.id,
        ends=named,
        committed=max(checkpoint.batches("commits"), default=-1),
        starts={s: e["place"] for s, e in zip(identity.sources, starts, strict=False)} if starts is not None else None,
    )


def copy_columns(real: Checkpoint, ours: Checkpoint) -> None:
    """Copies what the real checkpoint knows of the columns of followed folders into that of the rehearsal."""
    for name in real.files.names(FILES):
        text = real.files.read(f"{FILES}/{name}") if name.endswith(".columns.json") else None
        if text is not None:
            ours.files.write(f"{FILES}/{name}", text)


@dataclass(frozen=True)
class Sources:
    """The sources of a pipeline, by their number, opened to read spans of committed batches once more."""

    plan: Plan
    spark: SparkSession
    sources: Mapping[int, Source]

    @property
    def followed(self) -> dict[int, Source]:
        """Those that the pipeline follows; of one that reads its sources once, none."""
        return {index: one for index, one in self.sources.items() if self.plan.reads[index].source.streaming}

    def resume(self, made: Sequence[Made], again: Sequence[Rerun]) -> None:
        """Has each followed source know what all batches have read.

        Raises:
            HeliosError: A source was replaced, or none of the commits has read it.
        """
        entries: dict[str, Entry] = {}
        for batch in (*(one.position for one in made), *(one.position for one in again)):
            entries |= {entry["source"]: entry for entry in batch["sources"] if entry.get("place") is not None}
        for source in self.followed.values():
            entry = self._entry(source, entries)
            start = StartEntry(
                declared=source_start(source), branch=entry.get("branch"), uuid=entry.get("uuid"), place=entry["place"]
            )
            source.resume(start)

    def _entry(self, source: Source, entries: Mapping[str, Entry]) -> Entry:
        """What was recorded of a source, under its name of today or that of then."""
        read = source.read_plan
        known = {"source": read.ledger_name, "uuid": read.uuid}
        found = next((entry for entry in entries.values() if same_source(known, entry)), None)
        if found is None:
            raise InputError(
                f"{self.plan.declared.name or read.ledger_name}: these commits have not read {read.ledger_name}, which "
                f"the script follows now. {near_miss(read.ledger_name, entries)}",
                where=read.source.origin,
                fix="rehearse it once it has read this source.",
            )
        return found

    def batch(self, number: int, rerun: Rerun) -> Batch:
        """A batch with the spans that it had.

        Raises:
            Unread: A source that is read once is not as it was.
        """
        entries = {entry["source"]: entry for entry in rerun.position["sources"]}
        if not self.plan.streaming:
            spans = [self._state(source, self._entry(source, entries)) for source in self.sources.values()]
            return Batch(number, tuple(spans))
        if not rerun.ends:
            raise Unread("it did not read spans of followed sources, which the script follows now")
        spans = []
        for source in self.followed.values():
            name = self._entry(source, entries)["source"]
            spans.append(source.span(rerun.starts.get(name), rerun.ends.get(name)))
        return Batch(number, tuple(spans), pins={})

    def _state(self, source: Source, entry: Entry) -> Span:
        """The state of a source that is read once, as a batch has read it."""
        name = source.read_plan.name
        if entry.get("place") is not None:
            raise Unread(f"it followed {name}, which the script reads once now")
        if SNAPSHOT in entry and "after" not in entry:
            if not source.exists(entry[SNAPSHOT]):
                raise Unread(f"snapshot {entry[SNAPSHOT]} of {name} has expired")
            return source.at_pin(entry[SNAPSHOT])
        now = source.current()
        if {**now.entry, "source": ""} != {**entry, "source": ""}:
            raise Unread(f"{name} is read once, and is not as it was")
        return now

    def pins(self, rerun: Rerun, made: Made | None) -> Entry:
        """The snapshots at which a batch reads the tables that it joins, by the number of the source.

        Raises:
            Unread: One has expired.
        """
        if not self.plan.streaming:
            return {}
        kept = made.commit.plan if made is not None else None
        names = [read.name for read in self.plan.reads]
        then = [str(one["name"]) for one in kept.plan["sources"]] if kept is not None else names
        by_name = {then[int(index)]: pin for index, pin in (rerun.pins or {}).items() if int(index) < len(then)}
        found: dict[str, object] = {}
        for index, source in self.sources.items():
            if index in self.followed or not source.pinned:
                continue
            name = source.read_plan.name
            pin = by_name[name] if name in by_name else source.pin()
            if not source.exists(pin):
                raise Unread(f"snapshot {pin} of {name}, with which it was joined, has expired")
            found[str(index)] = pin
        return found

    def probe(self, batch: Batch) -> None:
        """Plans the read of a batch's spans.

        Raises:
            Unread: It cannot be read any more.
        """
        for source, span in zip((self.followed or self.sources).values(), batch.spans, strict=True):
            try:
                with scan_task_scope():
                    source.read(self.spark, span)
            except HeliosError as error:
                raise Unread(error.what.rstrip(".")) from error
            except (Py4JError, PySparkException) as error:
                raise Unread(str(error).splitlines()[0]) from error


def source_start(source: Source) -> str:
    """The start that a source declares: a rehearsal begins at the positions of batches, wherever that was."""
    declared = getattr(source, "declared", None)
    return str(declared) if declared is not None else source.read_plan.source.label()


def newly_joined(plan: Plan, made: Sequence[Made]) -> list[str]:
    """The joined tables that the commits have not read, which are read as they are now."""
    kept = made[-1].commit.plan if made else None
    if kept is None or not plan.streaming:
        return []
    then = {str(one["name"]) for one in kept.plan["sources"]}
    joined = [read.name for read in plan.reads if read.table is not None and not read.source.streaming]
    return [name for name in joined if name not in then]
