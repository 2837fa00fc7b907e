"""The ledger of a batch pipeline that appends. Its record also lists the inputs, so that none is appended twice."""

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
from helios.spark.iceberg.history import History, is_first_snapshot
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.jvm.types.java import JavaMap
from helios.spark.sinks.context import SinkContext
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.options import Commit
from helios.spark.sinks.records import names_of
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.table.appended import Appended, Entry, Finding, Verdict, entry_of, first_changed_state, without_steps
from helios.table.inputs import Input, RangeInput, RetainedSnapshot, SnapshotLookup, StateInput
from helios.table.ledger import Record
from helios.table.positions import Batch, Span, same_input

AGAIN = "or append these rows anyway with `helios run --again`, or pipeline.run(again=True)"

EXPIRED_PARENT = -1
"""The id that stands for a parent whose id an expiry has removed; no snapshot has this id."""


def keeps_inputs(plan: Plan) -> bool:
    """True for a batch pipeline whose mode would duplicate rows if the same inputs were read again."""
    return not plan.streaming and not plan.write.mode.traits.rewrites_same_inputs


def ledger_of(context: SinkContext, table: JavaTable, branch: str | None, name: TableName) -> Ledger:
    """The ledger of a pipeline in one of its targets."""
    if not keeps_inputs(context.plan):
        return context.ledger(table, branch, name)
    return AppendLedger(context, table, name, branch, guard=context.guard(table, name, branch))


class AppendLedger(Ledger):
    """A ledger that compares the inputs of a batch with all inputs that were appended before.

    Args:
        branch: The branch that is written; None for main.
        guard: Checks that the target still has the last batch. By default, it knows this batch only from the record.
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
        self._why_not_row_by_row = context.why_not_row_by_row
        self._lookups = [_lookup_of(context, read) for read in plan.reads]
        self._appended = Appended()
        self._compared: Record | None = None  # the record that the last batch was compared with
        self.all_known = True  # whether all appended inputs were known when the last batch was compared
        self._entry: Entry | None = None

    @override
    def number(self, spans: Sequence[Span]) -> int:
        """The number of the next batch: that of the last batch if the inputs are the same, except with `--again`."""
        record = self.last()
        if record is None:
            return 0
        same = self._again is None and same_input(record.position, Batch(record.batch, tuple(spans)))
        return record.batch if same else self.attempt_number(record.batch + 1)

    def attempt_number(self, number: int) -> int:
        """The number under which a batch was first tried with `--again`, so that a restart finds it; else `number`."""
        return number if self._again is None else self._again.number(self._name.text, number)

    @property
    def repeats(self) -> bool:
        """True if this run appends inputs again (`--again`)."""
        return self._again is not None

    @override
    def decide(self, batch: Batch) -> Commit | None:
        """The commit that has already appended a batch's inputs; None if the inputs are new.

        Raises:
            InputError: Some of the inputs were appended before, or all of them with other steps.
        """
        commit = self.find(batch)
        finding = self.judge(batch)
        if self.repeats:
            return commit
        if finding.verdict is Verdict.NEW:
            self._note_earlier_state(batch)
            return None
        if finding.verdict is not Verdict.SAME or finding.entry is None:
            raise self._refusal_error(batch, finding)
        snapshot = commit.snapshot if commit is not None else finding.entry.by
        return Commit(snapshot=snapshot, already_committed=True, note="these inputs and steps are appended already")

    def _note_earlier_state(self, batch: Batch) -> None:
        """Reports, before the write, that rows of an earlier state of a source are appended again."""
        earlier = first_changed_state(self._compared.position, batch.position) if self._compared is not None else None
        if earlier is None:
            return
        _, entry = earlier
        source = entry["source"]
        if any(read.ledger_name == source and read.source.comparable for read in self._plan.reads):
            self._observer.noted(
                f"{self.table.name()} holds the rows of {source} from an earlier state: the rows that are still in "
                f"{source} are appended again. To append only new rows, follow {source} with .incremental()"
            )

    @property
    @override
    def note(self) -> str:
        """A note if `decide` took the inputs for new although older inputs are no longer recorded; else empty."""
        if self.all_known or self.repeats:
            return ""
        return (
            f"its inputs are not among the last {len(self._appended.entries)} that were appended; older inputs are "
            "no longer recorded"
        )

    @override
    def record_of(self, batch: Batch, snapshot: int, sequence: int) -> Record:
        record = super().record_of(batch, snapshot, sequence)
        if self._entry is None:
            return record
        added = self._appended.add(replace(self._entry, by=snapshot), why_not_row_by_row=self._why_not_row_by_row)
        return replace(record, appended=added.as_json())

    def with_batches(self, record: Record, batches: Iterable[tuple[JavaSnapshot, JavaMap[str, str]]]) -> Record:
        """Adds the inputs of batches to a record. `batches` has the snapshot and the stamps of each, oldest first."""
        known = self._inputs_of(record)
        for snapshot, stamps in batches:
            position, steps = _json(stamps.get("helios.position")), stamps.get("helios.steps") or ""
            entry = entry_of(position, steps, self._lookups, int(snapshot.snapshotId()))
            if entry is not None:
                known = known.add(entry, why_not_row_by_row=self._why_not_row_by_row)
        return replace(record, appended=known.as_json())

    # the appended inputs

    def judge(self, batch: Batch) -> Finding:
        """Compares a batch's inputs with those that were appended before. `record_of` then adds the batch's inputs."""
        self._compared = self.load()
        self._appended = self._inputs_of(self._compared)
        self._entry = entry_of(batch.position, self.steps, self._lookups)
        if self._entry is None:
            return Finding(Verdict.NEW)
        finding = self._appended.judge(self._entry, self._lookups, self._why_not_row_by_row)
        self.all_known = self._appended.complete
        if finding.verdict is Verdict.NEW and not self.all_known:
            stamped = self._stamped_inputs()
            self.all_known = stamped.complete
            return stamped.judge(self._entry, self._lookups, self._why_not_row_by_row)
        return finding

    def by_other_steps(self, batch: Batch, record: Record) -> dict[str, Any]:
        """A record's list of appended inputs, changed as if other steps had appended the inputs of a batch."""
        known, entry = self._inputs_of(record), entry_of(batch.position, "", self._lookups)
        inputs = entry.inputs if entry is not None else None
        entries = (replace(kept, steps="") if kept.inputs == inputs else kept for kept in known.entries)
        return replace(known, entries=tuple(entries)).as_json()

    def _inputs_of(self, record: Record | None) -> Appended:
        """The appended inputs by a record, or by the stamps of snapshots if the record has no list of inputs."""
        if record is None or (record.batch < 0 and record.position is None and record.appended is None):
            return Appended()
        # The record has no list if the pipeline was a streaming pipeline under its former checkpoint.
        known = self._parsed(record.appended) if record.appended is not None else self._stamped_inputs()
        last = entry_of(record.position, record.steps, self._lookups, record.snapshot)
        if last is None or any(last.inputs == entry.inputs and entry.steps == last.steps for entry in known.entries):
            return known
        return known.add(last, why_not_row_by_row=self._why_not_row_by_row)

    def _parsed(self, fields: Mapping[str, Any]) -> Appended:
        try:
            return Appended.parse(fields)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise LedgerError(
                f"the ledger record {self.key} of {self.table.name()} is damaged: the list of appended inputs cannot "
                f"be read ({error}).",
                fix=f"restore the table property {self.key} from an older metadata file.",
            ) from error

    def _stamped_inputs(self) -> Appended:
        """The appended inputs according to the stamps of the branch's retained snapshots."""
        entries: list[Entry] = []
        names = names_of(self.table, (self.pipeline, self._plan.was), self.load())
        oldest, emptied = None, False
        for oldest in History(self.table, self.head()):
            summary = oldest.summary()
            if summary.get("helios.pipeline") not in names:
                continue
            if summary.get("helios.batch") is None:  # the snapshot is of a full refresh, which has emptied the table
                emptied = True
                break
            position = _json(summary.get("helios.position"))
            entry = entry_of(position, summary.get("helios.steps") or "", self._lookups, int(oldest.snapshotId()))
            if entry is not None:
                entries.append(entry)
        complete = emptied or oldest is None or is_first_snapshot(oldest)
        known = Appended(complete=complete)
        for entry in reversed(entries):
            known = known.add(entry, why_not_row_by_row=self._why_not_row_by_row)
        return known

    def without_rolled_back(self, old: Record) -> Record:
        """The record of the former checkpoint for a new checkpoint, without inputs that were rolled back."""
        try:
            self.refuse_rollback(old)
            return replace(old, appended=self._inputs_of(old).as_json())
        except LedgerError:
            retained = self._stamped_inputs()
        if not retained.complete and old.appended is not None:
            history = {
                int(snapshot.snapshotId()): int(snapshot.sequenceNumber())
                for snapshot in History(self.table, self.head())
            }
            for entry in self._parsed(old.appended).entries:
                if entry.by in history:
                    retained = retained.add(entry, why_not_row_by_row=self._why_not_row_by_row)
                elif not self._is_rolled_back(entry, min(history.values(), default=0)):
                    retained = retained.add(without_steps(entry), why_not_row_by_row=self._why_not_row_by_row)
        return replace(old, position=None, appended=retained.as_json())

    def _is_rolled_back(self, entry: Entry, oldest_sequence: int) -> bool:
        """True if an entry is certainly of a single batch, and this batch was rolled back.

        Args:
            entry: The entry; its snapshot is not among the retained snapshots of the history.
            oldest_sequence: The sequence number of the oldest retained snapshot.
        """
        snapshot = self.table.snapshot(entry.by) if entry.by is not None else None
        if snapshot is None or int(snapshot.sequenceNumber()) < oldest_sequence:
            return False
        single = entry_of(_json(snapshot.summary().get("helios.position")), entry.steps or "", self._lookups)
        return single is not None and single.inputs == entry.inputs

    # messages

    def _refusal_error(self, batch: Batch, finding: Finding) -> InputError:
        name, plan = self.table.name(), self._plan
        if finding.verdict is Verdict.STEPS and finding.entry is not None and finding.entry.steps is None:
            return InputError(
                f"{name} has or had the rows that {plan.pipeline} made from these inputs, and does not record by which "
                "steps, or whether a rollback took them: appending them again could double rows; nothing was written.",
                where=plan.origin,
                fix=f"look for these rows in {name}: read only later inputs if the table has them, {AGAIN}.",
            )
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
            return self._regrouped_error(source, finding)
        if finding.verdict is Verdict.UNKNOWN:
            return InputError(
                f"{name} holds {_shown(theirs)} of {source}, and snapshots of {source} have expired: it cannot be "
                f"known if {_shown(mine)} would double some of these rows; nothing was written.",
                where=plan.origin,
                fix=f"read only later snapshots, {AGAIN}.",
            )
        return InputError(
            f"{name} holds {_shown(theirs)} of {source} already: {_shown(mine)} would double some of these rows; "
            "nothing was written.",
            where=plan.origin,
            fix=f"read only later snapshots, .between({_end(theirs)}, ...), {AGAIN}.",
        )

    def _regrouped_error(self, source: str, finding: Finding) -> InputError:
        assert self._entry is not None
        mine = self._entry.inputs[finding.source]
        held = [entry.inputs[finding.source] for entry in finding.entries]
        named = ", and from ".join(map(_shown, reversed(held[:3])))
        if len(held) > 3:
            named += f" ({len(held)} ranges in all)"
        return InputError(
            f"{self.table.name()} holds the rows that {self._plan.pipeline} made from {named} of {source}. From "
            f"{_shown(mine)} the pipeline makes other rows, because its steps do not work row by row ({finding.why}). "
            "Appending these would count rows twice; nothing was written.",
            where=self._plan.origin,
            fix=f"read only later snapshots, .between({_end(held[0])}, ...), {AGAIN}.",
        )


def _lookup_of(context: SinkContext, read: ReadPlan) -> SnapshotLookup:
    """A function that looks up snapshots of a source. Its first call loads the table."""
    loaded: list[JavaTable | None] = []

    @cache
    def look(snapshot_id: int) -> RetainedSnapshot | None:
        if not loaded:
            loaded.append(tables.load_table(context.spark, read.table) if read.table is not None else None)
        [table] = loaded
        snapshot = table.snapshot(snapshot_id) if table is not None else None
        if snapshot is None:
            return None
        parent, sequence = snapshot.parentId(), int(snapshot.sequenceNumber()) or None
        if parent is not None:
            return RetainedSnapshot(int(parent), sequence)
        return RetainedSnapshot(None if is_first_snapshot(snapshot) else EXPIRED_PARENT, sequence)

    return look


def _json(text: str | None) -> Mapping[str, Any] | None:
    parsed: Mapping[str, Any] | None = json.loads(text) if text else None
    return parsed


def _shown(appended: Input) -> str:
    """An input as messages name it."""
    if isinstance(appended, RangeInput):
        start = f"after snapshot {appended.after.snapshot} " if appended.after is not None else ""
        return f"the rows {start}up to snapshot {appended.to.snapshot}"
    return f"the state at snapshot {_end(appended)}" if isinstance(appended, StateInput) else "other inputs"


def _end(appended: Input) -> int | None:
    """The last snapshot of an input; None for an input without one."""
    if isinstance(appended, RangeInput):
        return appended.to.snapshot
    return appended.at.snapshot if isinstance(appended, StateInput) and appended.at is not None else None
