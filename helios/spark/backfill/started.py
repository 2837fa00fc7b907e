"""Begins a backfill, or resumes a stopped one if its request, its script and its inputs are still the same."""

from __future__ import annotations

import hashlib
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helios.errors import InputError, LeaseError, LedgerError
from helios.plan.nodes import Plan
from helios.spark.backfill.notes import Notes, State
from helios.spark.backfill.slices import CATCH_UP, Slice, commits_since
from helios.spark.checkpoint.lease import Lease
from helios.spark.iceberg.history import History
from helios.spark.jvm.types.iceberg import JavaTable
from helios.spark.session.user_code import reachable
from helios.spark.sinks.ledger import Ledger
from helios.spark.sinks.rollbacks import RollbackGuard
from helios.table.ledger import Record
from helios.table.refs import BACKFILL


@contextmanager
def backfill_lease(plan: Plan, notes: Notes) -> Iterator[Lease]:
    """Holds the lease of a pipeline's backfill; raises `LeaseError` if another process runs a backfill of it."""
    lease = Lease(notes.checkpoint)
    try:
        lease.acquire()
    except LeaseError as error:
        raise LeaseError(
            f"a backfill of {plan.pipeline} is running already: {error.what}",
            where=plan.origin,
            fix="wait until it ends, or stop it; a stopped backfill resumes when it is started with the same options.",
        ) from error
    try:
        yield lease
    finally:
        lease.release()


def made_by(plan: Plan, reads: Sequence[str]) -> list[str]:
    """Values that identify the script and the inputs from which a backfill computes its rows.

    They are the fingerprint of the steps, a hash of the script and of the modules beside it, and `reads`.

    Args:
        reads: The id of the pipeline's checkpoint, the current states of the sources that are not followed, and, if the
            backfill may fail after another batch of the pipeline, the number of the last batch.
    """
    script, digest = Path(plan.origin.file), hashlib.sha256()
    if script.is_file():
        modules = reachable(script, script.parent) if script.suffix == ".py" else []
        for file in dict.fromkeys((script, *modules)):
            digest.update(file.read_bytes())
    return [plan.fingerprint, digest.hexdigest()[:16], *reads]


@dataclass(kw_only=True)
class BackfillStart:
    """Begins a backfill, or resumes the stopped one.

    Attributes:
        table: Iceberg's table object of the target.
        ask: The request: its filter or commits, and its options.
        made_by: The result of `made_by`; if it has changed, a stopped backfill is not resumed.
        note: Called with a line if a stopped backfill starts over.
        names: The present and former names of the pipeline.
    """

    plan: Plan
    table: JavaTable
    notes: Notes
    ask: Mapping[str, object]
    made_by: Sequence[str]
    note: Callable[[str], None]
    names: Iterable[str]

    def ledger(self, id: str) -> Ledger:
        name, branch = self.plan.pipeline + BACKFILL, self.plan.write.sink.branch_name
        guard = RollbackGuard(self.table, name, id, rollback_fix="start the backfill again", lenient=True)
        return Ledger(self.table, name, id, self.plan.fingerprint, branch, guard=guard)

    def resumed(self) -> tuple[State, Ledger] | None:
        """The stopped backfill, if its request was the same; None if this backfill starts over."""
        state = self.notes.load()
        if state is None or state.ask != self.ask:
            return None
        ledger = self.ledger(state.id)
        record = ledger.load()
        if record is None or record.checkpoint != state.id:
            return None
        if list(state.made_by) != list(self.made_by):
            if record.batch >= 0:
                script_changed = list(state.made_by[:2]) != list(self.made_by[:2])
                subject = "the script" if script_changed else "a joined table, or what the pipeline has read,"
                self.note(f"{subject} has changed since this backfill was stopped: it starts over")
            return None
        try:
            ledger.refuse_rollback(record)
        except LedgerError:  # a rollback has undone its slices
            return None
        return state, ledger

    def begin(self, slices: list[Slice]) -> tuple[State, Ledger]:
        """Begins with the first slice.

        Raises:
            InputError: A stopped backfill did not run its catch-up slice, and this backfill has no such slice.
        """
        self._refuse_skipped_catch_up(slices)
        state = State(id=uuid.uuid4().hex, ask=self.ask, made_by=self.made_by, slices=slices)
        ledger = self.ledger(state.id)
        self.notes.begin(state)
        self.notes.checkpoint.keep_plan(self.plan, of_run=False)
        ledger.claim(Record(checkpoint=state.id, steps=self.plan.fingerprint))
        return state, ledger

    def _refuse_skipped_catch_up(self, slices: list[Slice]) -> None:
        stopped, mode = self.notes.load(), self.plan.write.mode
        if stopped is None or mode.order_by is None or any(slice.name == CATCH_UP for slice in slices):
            return
        catch_up = next((slice for slice in stopped.slices if slice.name == CATCH_UP), None)
        if catch_up is not None and self._has_committed_since(catch_up):
            raise InputError(
                f"a backfill of {self.plan.pipeline} by --where was stopped before its end: rows that arrived while "
                "it ran may be missing until it ends.",
                where=self.plan.origin,
                fix=f"finish it first: helios backfill SCRIPT {_options(stopped.ask)}. Then repeat this command.",
            )

    def _has_committed_since(self, catch_up: Slice) -> bool:
        """True if any backfill of the pipeline has committed since the snapshot that a catch-up slice names.

        Also True if snapshots have expired, so that such a commit may be among them. The stopped backfill may have the
        catch-up slice from an earlier backfill, which was stopped, too; then commits of both count.
        """
        self.table.refresh()
        history = History(self.table, self.ledger("").head())
        return next(commits_since(catch_up, history, self.names), None) is not None or history.is_cut


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
