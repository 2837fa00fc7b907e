"""The ledger of a batch pipeline that appends: its record also keeps what was appended, so that nothing is twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from typing_extensions import override

from helios.catalog.names import TableName
from helios.errors import InputError, LedgerError
from helios.plan.nodes import Plan, ReadPlan
from helios.spark.iceberg import tables
from helios.spark.iceberg.history import History
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Commit
from helios.spark.sinks.records import names_of
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.table.appended import Appended, Entry, Finding, Verdict, earlier_state, entry_of, unsure
from helios.table.inputs import Input, Look, Node, Range, State
from helios.table.ledger import Record
from helios.table.positions import Batch, Span, same_sources

AGAIN = "or append them all the same with `helios run --again`, or pipeline.run(again=True)"

EXPIRED = -1
"""Stands for the parent of a snapshot that has lost it: no snapshot has this id."""


def keeps_inputs(plan: Plan) -> bool:
    """True if a pipeline appends, and reads each of its sources once."""
    return not plan.streaming and not plan.write.mode.traits.reruns


def ledger_of(context: SinkContext, table: JavaTable, branch: str | None, name: TableName) -> Ledger:
    """The ledger of a target of a pipeline."""
    if not keeps_inputs(context.plan):
        return context.ledger(table, branch, name)
    return AppendLedger(context, table, name, branch, guard=context.guard(table, name, branch))


class AppendLedger(Ledger):
    """A ledger that compares the inputs of a batch with all those that were appended.

    Args:
        context: What the sinks of the run share.
        table: Iceberg's table object of the target.
        name: The name of the target.
        branch: The branch that is written; None for main.
        guard: Compares the target with its last batch; by default by the record alone.
    """

    def __init__(
        self,
        context: SinkContext,
        table: JavaTable,
        name: TableName,
        branch: str | None,
        guard: RollbackGuard | None = None,
    ) -> None:
        plan = context.plan
        super().__init__(table, plan.pipeline, context.checkpoint_id, plan.fingerprint, branch, guard=guard)
        self._plan, self._name = plan, name
        self._again = context.again
        self._observer = context.observer
        self._combines = context.combines
        self._looks = [_look(context, read) for read in plan.reads]
        self._appended = Appended()
        self._judged: Record | None = None  # the record that the last batch was compared with
        self.all_known = True  # whether the last judgement knew all that was appended
        self._entry: Entry | None = None

    @override
    def number(self, spans: Sequence[Span]) -> int:
        """The number of the next batch; the inputs of the last one keep its number, unless they are appended again."""
        record = self.last()
        if record is None:
            return 0
        same = self._again is None and same_sources(record.position, Batch(record.batch, tuple(spans)))
        return record.batch if same else self.repeated(record.batch + 1)

    def repeated(self, number: int) -> int:
        """A number of a batch; of one that is appended again, the one that it has at each restart of the run."""
        return number if self._again is None else self._again.number(self._name.text, number)

    @property
    def repeats(self) -> bool:
        """True if inputs are appended that were appended before."""
        return self._again is not None

    @override
    def decide(self, batch: Batch) -> Commit | None:
        """The commit that has appended a batch's inputs already; None if they are new.

        Raises:
            InputError: Some of the inputs, or all of them by other steps, were appended before.
        """
        commit = self.find(batch)
        finding = self.judge(batch)
        if self.repeats:
            return commit
        if finding.verdict is Verdict.NEW:
            self._tell_of_growth(batch)
            return None
        if finding.verdict is not Verdict.SAME or finding.entry is None:
            raise self._refusal(batch, finding)
        by = commit.snapshot if commit is not None else finding.entry.by
        return Commit(snapshot=by, again=True, note="these inputs and steps are appended already")

    def _tell_of_growth(self, batch: Batch) -> None:
        """Tells, before anything is written, that a source is appended once more that was appended as it was before."""
        grown = earlier_state(self._judged.position, batch.position) if self._judged is not None else None
        source = grown[1]["source"] if grown is not None else None
        read = next((read for read in self._plan.reads if read.ledger_name == source and read.source.comparable), None)
        if read is not None:
            self._observer.noted(
                f"{self.table.name()} holds the rows of {source} as it was before: those that are still in it are "
                "appended once more. To append only what is new, follow it: .incremental()"
            )

    @property
    @override
    def note(self) -> str:
        """The note on unknown inputs of a batch that `decide` judged new; empty if all are known or repeated."""
        if self.all_known or self.repeats:
            return ""
        return (
            f"its inputs are none of the last {len(self._appended.entries)} that were appended; older inputs are "
            "no longer recorded"
        )

    @override
    def record_of(self, batch: Batch, snapshot: int, sequence: int) -> Record:
        record = super().record_of(batch, snapshot, sequence)
        if self._entry is None:
            return record
        added = self._appended.add(replace(self._entry, by=snapshot), combines=self._combines)
        return replace(record, appended=added.as_json())

    def with_batches(self, record: Record, made: Iterable[tuple[JavaSnapshot, JavaMap[str, str]]]) -> Record:
        """A record with what more batches have appended.

        Args:
            record: The record.
            made: The snapshot of each, and its stamps, oldest first.
        """
        known = self._known(record)
        for snapshot, stamps in made:
            position, steps = _json(stamps.get("helios.position")), stamps.get("helios.steps") or ""
            entry = entry_of(position, steps, self._looks, int(snapshot.snapshotId()))
            known = known.add(entry, combines=self._combines) if entry is not None else known
        return replace(record, appended=known.as_json())

    # what was appended

    def judge(self, batch: Batch) -> Finding:
        """Compares the inputs of a batch with all that were appended; the next record adds them."""
        self._judged = self.load()
        self._appended = self._known(self._judged)
        self._entry = entry_of(batch.position, self.steps, self._looks)
        if self._entry is None:
            return Finding(Verdict.NEW)
        judgement = self._appended.judge(self._entry, self._looks, self._combines)
        self.all_known = self._appended.complete
        if judgement.verdict is Verdict.NEW and not self.all_known:
            stamped = self._stamped()
            self.all_known = stamped.complete
            return stamped.judge(self._entry, self._looks, self._combines)
        return judgement

    def by_other_steps(self, batch: Batch, record: Record) -> dict[str, Any]:
        """The record of appended inputs, as if other steps had appended the inputs of this batch."""
        known, same = self._known(record), entry_of(batch.position, "", self._looks)
        entries = (replace(e, steps="") if same is not None and e.inputs == same.inputs else e for e in known.entries)
        return replace(known, entries=tuple(entries)).as_json()

    def _known(self, record: Record | None) -> Appended:
        if record is None or (record.batch < 0 and record.position is None and record.appended is None):
            return Appended()
        # A pipeline that followed its sources until its new checkpoint has kept none.
        known = self._parsed(record.appended) if record.appended is not None else self._stamped()
        last = entry_of(record.position, record.steps, self._looks, record.snapshot)
        if last is None or any(last.inputs == entry.inputs and entry.steps == last.steps for entry in known.entries):
            return known
        return known.add(last, combines=self._combines)

    def _parsed(self, fields: Mapping[str, Any]) -> Appended:
        try:
            return Appended.parse(fields)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise LedgerError(
                f"the ledger record {self.key} of {self.table.name()} is damaged: what was appended cannot be read "
                f"({error}).",
                fix=f"restore the table property {self.key} from an older metadata file.",
            ) from error

    def _stamped(self) -> Appended:
        """The inputs that the stamps of the branch's retained snapshots name."""
        entries: list[Entry] = []
        names = names_of(self.table, (self.pipeline, self._plan.was), self.load())
        oldest, emptied = None, False
        for oldest in History(self.table, self.head()):
            summary = oldest.summary()
            if summary.get("helios.pipeline") not in names:
                continue
            if summary.get("helios.batch") is None:  # a full refresh has emptied the table
                emptied = True
                break
            position = _json(summary.get("helios.position"))
            entry = entry_of(position, summary.get("helios.steps") or "", self._looks, int(oldest.snapshotId()))
            entries += [entry] if entry is not None else []
        # PyIceberg's expiry takes the parent away: only the first commit of a table surely has none.
        complete = emptied or oldest is None or int(oldest.sequenceNumber()) == 1
        known = Appended(complete=complete)
        for entry in reversed(entries):
            known = known.add(entry, combines=self._combines)
        return known

    def carried(self, old: Record) -> Record:
        """The record for a new checkpoint: what was rolled back is no longer there.

        Args:
            old: The record of the former checkpoint.
        """
        try:
            self.refuse_rollback(old)
            return replace(old, appended=self._known(old).as_json())
        except LedgerError:
            there = self._stamped()
        if not there.complete and old.appended is not None:
            history = {
                int(snapshot.snapshotId()): int(snapshot.sequenceNumber())
                for snapshot in History(self.table, self.head())
            }
            for entry in self._parsed(old.appended).entries:
                if entry.by in history:
                    there = there.add(entry, combines=self._combines)
                elif not self._rolled_back(entry, min(history.values(), default=0)):
                    there = there.add(unsure(entry), combines=self._combines)
        return replace(old, position=None, appended=there.as_json())

    def _rolled_back(self, entry: Entry, oldest: int) -> bool:
        """True if an entry is surely that of a single batch whose snapshot is not in the branch's history.

        Args:
            entry: The entry; its snapshot is none of the retained ones of the history.
            oldest: The sequence number of the oldest one of these.
        """
        made = self.table.snapshot(entry.by) if entry.by is not None else None
        if made is None or int(made.sequenceNumber()) < oldest:
            return False
        single = entry_of(_json(made.summary().get("helios.position")), entry.steps or "", self._looks)
        return single is not None and single.inputs == entry.inputs

    # messages

    def _refusal(self, batch: Batch, finding: Finding) -> InputError:
        name, plan = self.table.name(), self._plan
        if finding.verdict is Verdict.STEPS:
            return InputError(
                f"{name} holds the rows that {plan.pipeline} made from these inputs with other steps: "
                "appending them again would double rows.",
                where=plan.origin,
                fix=f"run the changed pipeline under a new name into a new table, {AGAIN}.",
            )
        assert finding.entry is not None
        assert self._entry is not None
        source = batch.spans[finding.source].source
        mine, theirs = self._entry.inputs[finding.source], finding.entry.inputs[finding.source]
        if finding.verdict is Verdict.REGROUPS:
            return self._regrouped(source, finding)
        if finding.verdict is Verdict.UNKNOWN:
            return InputError(
                f"{name} holds {_shown(theirs)} of {source}, and snapshots of {source} have expired: whether "
                f"{_shown(mine)} would double some of its rows cannot be known; nothing was written.",
                where=plan.origin,
                fix=f"read what came after it, {AGAIN}.",
            )
        return InputError(
            f"{name} holds {_shown(theirs)} of {source} already: {_shown(mine)} would double rows of it; nothing was "
            "written.",
            where=plan.origin,
            fix=f"read only what came after it, .between({_end(theirs)}, ...), {AGAIN}.",
        )

    def _regrouped(self, source: str, finding: Finding) -> InputError:
        assert self._entry is not None
        mine, held = self._entry.inputs[finding.source], [entry.inputs[finding.source] for entry in finding.entries]
        named = ", and of ".join(map(_shown, reversed(held[:3]))) + (
            f" ({len(held)} ranges in all)" if held[3:] else ""
        )
        return InputError(
            f"{self.table.name()} holds what {self._plan.pipeline} made of {named} of {source}. Over {_shown(mine)} "
            f"its steps make other rows, as they do not go row by row ({finding.why}): these were not appended, and "
            "appending them would count rows twice; nothing was written.",
            where=self._plan.origin,
            fix=f"read only what came after it, .between({_end(held[0])}, ...), {AGAIN}.",
        )


def _look(context: SinkContext, read: ReadPlan) -> Look:
    """Looks snapshots of a source up; its table is loaded when the first one is asked for."""
    loaded: list[JavaTable | None] = []

    @cache
    def look(snapshot: int) -> Node | None:
        if not loaded:
            loaded.append(tables.load_table(context.spark, read.table) if read.table is not None else None)
        [table] = loaded
        made = table.snapshot(snapshot) if table is not None else None
        if made is None:
            return None
        parent, sequence = made.parentId(), int(made.sequenceNumber()) or None
        # PyIceberg's expiry takes the parent away: only the first commit of a table surely has none.
        return Node(int(parent) if parent is not None else None if sequence == 1 else EXPIRED, sequence)

    return look


def _json(text: str | None) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = json.loads(text) if text else None
    return found


def _shown(given: Input) -> str:
    """An input as messages name it."""
    if isinstance(given, Range):
        start = f"after snapshot {given.after.snapshot} " if given.after is not None else ""
        return f"the rows {start}up to snapshot {given.to.snapshot}"
    return f"the state at snapshot {_end(given)}" if isinstance(given, State) else "other inputs"


def _end(given: Input) -> int | None:
    if isinstance(given, Range):
        return given.to.snapshot
    return given.at.snapshot if isinstance(given, State) and given.at is not None else None
