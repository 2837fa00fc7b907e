"""Detects rollbacks: refuses a target that no longer has the last batch or the last replay of its pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from helios.errors import LedgerError
from helios.spark.checkpoint.landings import Landings
from helios.spark.iceberg.ancestry import presence_of
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.table.ancestry import Landing, Presence
from helios.table.ledger import Record, parse_record
from helios.table.refs import LEDGER, REPLAY


class Replay(NamedTuple):
    """The last replay of a pipeline into a table: the property that holds its record, and the record."""

    key: str
    record: Record


def replay_of(table: JavaTable, pipeline: str) -> Replay | None:
    """The last replay of a pipeline into a table; None without one."""
    key = LEDGER + pipeline + REPLAY
    text = table.properties().get(key)
    return Replay(key, parse_record(text, key, table.name())) if text is not None else None


def forget_lost_replay(table: JavaTable, pipelines: Iterable[str], head: JavaSnapshot | None) -> None:
    """Changes the record of the last replay if the table has lost that replay; otherwise the record stays.

    Args:
        pipelines: The present and former names of the pipeline.
        head: The newest snapshot of the branch.
    """
    lost = []
    for pipeline in pipelines:
        replay = replay_of(table, pipeline)
        landing = landing_of(replay.record) if replay is not None else None
        if landing is not None and presence_of(table, head, landing) is Presence.GONE:
            lost.append(pipeline)
    forget_replay(table, lost)


def landing_of(record: Record | None) -> Landing | None:
    """The batch that a record names, as a `Landing`; None if the record has no snapshot."""
    if record is None or record.snapshot is None:
        return None
    return Landing(batch=record.batch, snapshot=record.snapshot, sequence=record.sequence)


def forget_replay(table: JavaTable, pipelines: Iterable[str]) -> None:
    """Changes the record of the last replay as if the table never had that replay."""
    table.refresh()
    before = records_before_replays(table, pipelines)
    if before:
        update = table.updateProperties()
        for key, record in before.items():
            update = update.set(key, record)
        update.commit()


def records_before_replays(table: JavaTable, pipelines: Iterable[str]) -> dict[str, str]:
    """The records of the last replays, changed as if these replays had not happened; as JSON, by table property."""
    before = {}
    for pipeline in pipelines:
        replay = replay_of(table, pipeline)
        if replay is not None and replay.record.snapshot is not None:
            record = replay.record
            earlier = replace(record, batch=record.batch - 1, position=None, snapshot=None, sequence=0)
            before[replay.key] = earlier.as_json()
    return before


def rename_replay(table: JavaTable | None, was: str, pipeline: str) -> None:
    """Moves the record of the last replay to a pipeline's new name."""
    if table is None:
        return
    table.refresh()
    replay = replay_of(table, was)
    if replay is not None and replay_of(table, pipeline) is None:
        new_key = LEDGER + pipeline + REPLAY
        table.updateProperties().set(new_key, replay.record.as_json()).remove(replay.key).commit()


class RollbackGuard:
    """Checks that a target still has the last batch that was committed to it.

    It also checks that the target has the last replay of quarantined rows, as long as the replay's snapshot has not
    expired.

    Args:
        pipeline: The pipeline's identity.
        checkpoint: The id of the pipeline's checkpoint.
        landings: The file of the checkpoint that notes the last committed batch; None if only the record counts.
        has_files: Returns, for two snapshot ids, whether the first still has files that the second added.
        rollback_fix: The advice for a table that has lost rows; by default, to run with `--new-checkpoint`.
        replay_fix: The advice for a table that has lost a replay; by default, to run with `--new-checkpoint`.
        lenient: Whether a batch counts as present if nothing proves that it is gone.
    """

    def __init__(
        self,
        table: JavaTable,
        pipeline: str,
        checkpoint: str,
        landings: Landings | None = None,
        has_files: Callable[[int, int], bool] | None = None,
        *,
        rollback_fix: str | None = None,
        replay_fix: str | None = None,
        lenient: bool = False,
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._landings = landings
        self._has_files = has_files
        self._rollback_fix = rollback_fix
        self._replay_fix = replay_fix
        self._lenient = lenient
        self._replay: Landing | None = None  # the last replay, and a head that was proven to descend from it

    def refuse(self, record: Record | None, head: JavaSnapshot | None) -> None:
        """Raises if the target does not hold its last batch, or if nothing proves that it does.

        Args:
            head: The newest snapshot of the branch.

        Raises:
            LedgerError: The target was rolled back or replaced, or the history that would show it has expired.
        """
        landing = self._last(record)
        if landing is not None:
            presence = self._presence(landing, head)
            if presence is Presence.GONE:
                raise self._gone_error(landing)
            if presence is Presence.UNKNOWN and not self._lenient:
                raise self._unknown_error(landing)
            if head is not None:
                self._store(replace(landing, head=int(head.snapshotId())))
        self._refuse_without_replay(head)

    def _refuse_without_replay(self, head: JavaSnapshot | None) -> None:
        """Raises if the table no longer holds the last replay, whose rows have left the quarantine."""
        landing = self._last_replay()
        if landing is None:
            return
        if presence_of(self._table, head, landing) is Presence.GONE:
            raise LedgerError(
                f"{self._table.name()} was rolled back or replaced: snapshot {landing.snapshot}, a replay of "
                f"{self._pipeline}'s quarantine, is no longer in its history; nothing was written.",
                fix="roll the table forward again, or "
                + (self._replay_fix or "go on without that replay with `helios run --new-checkpoint`")
                + ".",
            )
        assert head is not None
        self._replay = replace(landing, head=int(head.snapshotId()))

    def _last_replay(self) -> Landing | None:
        """The last replay as a `Landing`, with the newest head that is known to descend from it."""
        replay = replay_of(self._table, self._pipeline)
        landing = landing_of(replay.record) if replay is not None else None
        known = self._replay
        return known if known is not None and landing is not None and known.snapshot == landing.snapshot else landing

    def note_commit(self, batch: int, snapshot: int | None) -> None:
        """Notes a committed batch in the checkpoint."""
        committed = self._table.snapshot(snapshot) if snapshot is not None else None
        if snapshot is None or committed is None:  # the snapshot has expired: the record is enough
            return
        self._store(Landing(batch=batch, snapshot=snapshot, sequence=int(committed.sequenceNumber()), head=snapshot))

    def for_new_checkpoint(self, record: Record, head: JavaSnapshot | None) -> Record:
        """The record with which a new checkpoint continues.

        Unless the branch certainly has the last batch, the record names the head in place of the batch's snapshot. The
        record's `rolled_back` is True if a replay is lost, or if a batch is lost or may be lost.

        Raises:
            LedgerError: The target has a later batch than its record names. The rows of this batch would be repeated.
        """
        replay, landing = self._last_replay(), self._last(record)
        if replay is not None and presence_of(self._table, head, replay) is Presence.GONE:
            record = replace(record, rolled_back=True)
        if landing is None and record.position is None:
            return record
        if landing is None or self._presence(landing, head) is not Presence.PRESENT:
            record = replace(record, rolled_back=record.rolled_back or landing is not None)
            if head is None:
                return record
            return replace(record, snapshot=int(head.snapshotId()), sequence=int(head.sequenceNumber()))
        if landing.batch > record.batch:
            raise LedgerError(
                f"{self._table.name()} holds batch {landing.batch} of {self._pipeline}, and its record names batch "
                f"{record.batch}: a new checkpoint would write the rows between them again; nothing was written.",
                fix="restore the record, a table property, from an older metadata file.",
            )
        return record

    def _last(self, record: Record | None) -> Landing | None:
        """The last batch that was committed, according to the target's record and the checkpoint."""
        recorded = landing_of(record)
        noted = self._landings.last() if self._landings is not None else None
        if noted is None or (record is not None and record.checkpoint != self._checkpoint):
            return recorded
        if recorded is not None and recorded.snapshot == noted.snapshot:
            return noted
        return noted if record is None or noted.batch > record.batch else recorded

    def _presence(self, landing: Landing, head: JavaSnapshot | None) -> Presence:
        has_files = self._has_files
        head_has_files = (lambda newest: has_files(newest, landing.snapshot)) if has_files is not None else None
        return presence_of(self._table, head, landing, head_has_files)

    def _store(self, landing: Landing) -> None:
        if self._landings is not None:
            self._landings.store(landing)

    def _gone_error(self, landing: Landing) -> LedgerError:
        name = f"batch {landing.batch} of {self._pipeline} (snapshot {landing.snapshot})"
        if landing.batch < 0:
            name = f"snapshot {landing.snapshot}, after which {self._pipeline} continues,"
        return LedgerError(
            f"{self._table.name()} was rolled back or replaced: {name} is no longer in its history; nothing was "
            "written.",
            fix="roll the table forward again, or "
            + (
                self._rollback_fix
                or "continue from the target's last position, without the rolled back batches, with `helios run "
                "--new-checkpoint`"
            )
            + ".",
        )

    def _unknown_error(self, landing: Landing) -> LedgerError:
        return LedgerError(
            f"{self._table.name()} cannot prove that batch {landing.batch} of {self._pipeline} (snapshot "
            f"{landing.snapshot}) is still in it: snapshots between that one and the newest have expired, their "
            "metadata files are deleted, and the batch's data files were rewritten; nothing was written.",
            fix=(
                self._rollback_fix
                or "if the table was not rolled back, go on with `helios run --new-checkpoint`, which then loses "
                "nothing, or refill the table with `--full-refresh`"
            )
            + "; and keep snapshots or metadata files longer than pipelines pause.",
        )
