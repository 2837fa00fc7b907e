"""The start of a backfill, or its resumption: by its request and by what determines its rows."""

from __future__ import annotations

import hashlib
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helios.errors import InputError, LedgerError
from helios.plan.nodes import Plan
from helios.spark.backfill.notes import Notes, State
from helios.spark.backfill.slices import MEANWHILE, Slice
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.session.user_code import reachable
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.table.ledger import Record
from helios.table.refs import BACKFILL


def made_by(plan: Plan, reads: Sequence[str]) -> list[str]:
    """What determines the rows of a backfill: the steps, the script and the modules beside it, and what it reads.

    Args:
        plan: The pipeline.
        reads: The checkpoint of the pipeline, and the current states of the sources that are not followed.
    """
    script, text = Path(plan.origin.file), hashlib.sha256()
    if script.is_file():
        modules = reachable(script, script.parent) if script.suffix == ".py" else []
        for file in dict.fromkeys((script, *modules)):
            text.update(file.read_bytes())
    return [plan.fingerprint, text.hexdigest()[:16], *reads]


@dataclass(kw_only=True)
class Started:
    """Begins a backfill, or resumes the one that was stopped.

    Attributes:
        plan: The pipeline.
        table: Iceberg's table object of the target.
        notes: The notes of the backfill.
        ask: The request: its filter or commits, and its options.
        made_by: What determines its rows, from `made_by`.
        note: Called with a line if it starts over.
    """

    plan: Plan
    table: JavaTable
    notes: Notes
    ask: Mapping[str, object]
    made_by: Sequence[str]
    note: Callable[[str], None]

    def ledger(self, id: str) -> Ledger:
        name, branch = self.plan.pipeline + BACKFILL, self.plan.write.sink.branch_name
        guard = RollbackGuard(self.table, name, id, rollback_fix="start the backfill again", lenient=True)
        return Ledger(self.table, name, id, self.plan.fingerprint, branch, guard=guard)

    def resumed(self) -> tuple[State, Ledger] | None:
        """The stopped backfill, if its request was the same; None if this one starts over."""
        state = self.notes.load()
        if state is None or state.ask != self.ask:
            return None
        ledger = self.ledger(state.id)
        record = ledger.load()
        if record is None or record.checkpoint != state.id:
            return None
        if list(state.made_by) != list(self.made_by):
            if record.batch >= 0:
                script = list(state.made_by[:2]) != list(self.made_by[:2])
                what = "the script" if script else "a joined table, or what the pipeline has read,"
                self.note(f"{what} has changed since this backfill was stopped: it begins anew")
            return None
        try:
            ledger.refuse_rollback(record)
        except LedgerError:  # a rollback has undone its slices
            return None
        return state, ledger

    def begin(self, slices: list[Slice]) -> tuple[State, Ledger]:
        """Begins with the first slice.

        Raises:
            InputError: A stopped backfill still owes rows that came meanwhile, and these slices do not bring them.
        """
        self._refuse_owed(slices)
        state = State(id=uuid.uuid4().hex, ask=self.ask, made_by=self.made_by, slices=slices)
        ledger = self.ledger(state.id)
        self.notes.begin(state)
        self.notes.checkpoint.keep_plan(self.plan, of_run=False)
        ledger.claim(Record(checkpoint=state.id, steps=self.plan.fingerprint))
        return state, ledger

    def _refuse_owed(self, slices: list[Slice]) -> None:
        stopped, mode = self.notes.load(), self.plan.write.mode
        owes = stopped is not None and any(slice.name == MEANWHILE for slice in stopped.slices)
        if not owes or mode.order_by is None or any(slice.name == MEANWHILE for slice in slices):
            return
        assert stopped is not None
        record = self.ledger(stopped.id).load()
        if record is not None and record.checkpoint == stopped.id and record.batch >= 0:
            raise InputError(
                f"a backfill of {self.plan.pipeline} by --where was stopped before its end: rows that came beside it "
                "may be missing until it ends.",
                where=self.plan.origin,
                fix=f"finish it first: helios backfill SCRIPT {_options(stopped.ask)}. Then use --where, too.",
            )


def _options(ask: Mapping[str, object]) -> str:
    """The options of a backfill by --where, for a shell.

    Examples:
        >>> print(_options({"where": "name = 'x'", "by": "day", "trusts_expired": True}))
        --where "name = 'x'" --by day --trust-expired
    """
    where = str(ask["where"])
    quoted = shlex.quote(where) if set(where) & set('"$`\\!') else f'"{where}"'
    by = f" --by {shlex.quote(str(ask['by']))}" if ask.get("by") else ""
    return f"--where {quoted}{by}{' --trust-expired' if ask.get('trusts_expired') else ''}"
