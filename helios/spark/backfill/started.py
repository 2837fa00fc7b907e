"""Begins a backfill, or resumes a stopped backfill if the request, the script and the inputs are still the same."""

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
    """Holds the lease of a pipeline's backfill.

    Raises:
        LeaseError: Another process runs a backfill of the pipeline.
    """
    lease = Lease(notes.checkpoint)
    try:
        lease.acquire()
    except LeaseError as error:
        raise LeaseError(
            f"a backfill of {plan.pipeline} is running already: {error.what}",
            where=plan.origin,
            fix="wait until that backfill ends, or stop it; the same command resumes a stopped backfill.",
        ) from error
    try:
        yield lease
    finally:
        lease.release()


def computed_from(plan: Plan, inputs: Sequence[str]) -> list[str]:
    """Values that identify the script and the inputs from which a backfill computes its rows.

    The values are: the fingerprint of the steps; a hash of the script and of its modules in the same folder; `inputs`.

    Args:
        inputs: The id of the pipeline's checkpoint; the current state of each source that is read once, not followed;
            and, if the backfill cannot be resumed after a further batch of the pipeline, the number of the pipeline's
            last batch.
    """
    script, digest = Path(plan.origin.file), hashlib.sha256()
    if script.is_file():
        modules = reachable(script, script.parent) if script.suffix == ".py" else []
        for file in dict.fromkeys((script, *modules)):
            digest.update(file.read_bytes())
    return [plan.fingerprint, digest.hexdigest()[:16], *inputs]


@dataclass(kw_only=True)
class BackfillStart:
    """Begins a backfill, or resumes a stopped backfill.

    Attributes:
        table: Iceberg's table object of the target.
        request: The filter or the commits to repair, and the options.
        computed_from: The result of the function `computed_from`. If the result has changed, a stopped backfill is not
            resumed.
        say: If the inputs of a stopped backfill have changed, this function is called with a line for the user.
        names: The present name and the former names of the pipeline.
    """

    plan: Plan
    table: JavaTable
    notes: Notes
    request: Mapping[str, object]
    computed_from: Sequence[str]
    say: Callable[[str], None]
    names: Iterable[str]

    def ledger(self, id: str) -> Ledger:
        name, branch = self.plan.pipeline + BACKFILL, self.plan.write.sink.branch_name
        guard = RollbackGuard(self.table, name, id, rollback_fix="start the backfill again", lenient=True)
        return Ledger(self.table, name, id, self.plan.fingerprint, branch, guard=guard)

    def resumed(self) -> tuple[State, Ledger] | None:
        """The state and the ledger of the stopped backfill, to resume it; None if this backfill starts over."""
        state = self.notes.load()
        if state is None or state.request != self.request:
            return None
        ledger = self.ledger(state.id)
        record = ledger.load()
        if record is None or record.checkpoint != state.id:
            return None
        if list(state.computed_from) != list(self.computed_from):
            if record.batch >= 0:
                script_changed = list(state.computed_from[:2]) != list(self.computed_from[:2])
                change = (
                    "the script has changed"
                    if script_changed
                    else "a joined table or the checkpoint has changed, or the pipeline has run another batch,"
                )
                self.say(f"{change} since this backfill was stopped: the backfill starts over")
            return None
        try:
            ledger.refuse_rollback(record)
        except LedgerError:  # a rollback has undone slices of the stopped backfill
            return None
        return state, ledger

    def begin(self, slices: list[Slice]) -> tuple[State, Ledger]:
        """Begins with the first slice.

        Raises:
            InputError: A stopped backfill did not run its catch-up slice, and this backfill has no such slice.
        """
        self._refuse_skipped_catch_up(slices)
        state = State(id=uuid.uuid4().hex, request=self.request, computed_from=self.computed_from, slices=slices)
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
        if catch_up is not None and self._backfill_has_committed_since(catch_up):
            command = f"helios backfill SCRIPT {_options(stopped.request)}"
            raise InputError(
                f"an earlier backfill of {self.plan.pipeline} by --where was stopped and is not finished: rows that "
                "arrived meanwhile may be missing until you finish that backfill.",
                where=self.plan.origin,
                fix=f"finish that backfill: {command}. Then repeat this command.",
            )

    def _backfill_has_committed_since(self, catch_up: Slice) -> bool:
        """True if a backfill of the pipeline has committed since the snapshot that a catch-up slice names.

        Also True if snapshots have expired, because an expired snapshot may be a commit of a backfill. If the stopped
        backfill took the slice over from a backfill that was stopped before it, a commit of either backfill is enough.
        """
        self.table.refresh()
        history = History(self.table, self.ledger("").head())
        return next(commits_since(catch_up, history, self.names), None) is not None or history.is_cut


def _options(request: Mapping[str, object]) -> str:
    """The options of a backfill by --where, for a shell.

    Examples:
        >>> print(_options({"where": "name = 'x'", "by": "day", "trusts_expired": True}))
        --where "name = 'x'" --by day --trust-expired
    """
    where = str(request["where"])
    quoted = shlex.quote(where) if set(where) & set('"$`\\!') else f'"{where}"'
    by = f" --by {shlex.quote(str(request['by']))}" if request.get("by") else ""
    return f"--where {quoted}{by}{' --trust-expired' if request.get('trusts_expired') else ''}"
