"""A loaded table and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from helios.errors import DeclarationError, NotFound
from helios.model.values import caller

if TYPE_CHECKING:
    import pyiceberg.table
    import pyiceberg.table.snapshots

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN = 10


@dataclass(frozen=True)
class Snapshot:
    """One state of a table.

    Args:
        id: The snapshot's id.
        parent_id: The id of the snapshot that it followed, if any.
        timestamp: When it was committed, in UTC.
        operation: append, overwrite, delete or replace; None where the writer did not say.
        summary: The rest of its summary: counts, and what writers stamped.
        manifest_list: The location of its manifest list.
        schema_id: The id of the schema that it was written with.
    """

    id: int
    parent_id: int | None
    timestamp: datetime
    operation: str | None
    summary: Mapping[str, str] = field(hash=False)
    manifest_list: str
    schema_id: int | None


class Table:
    """A table as it was when it was loaded.

    Args:
        name: The full name, catalog first.
        iceberg: PyIceberg's own table.
    """

    def __init__(self, name: str, iceberg: pyiceberg.table.Table) -> None:
        self.name = name
        self.iceberg = iceberg

    def __repr__(self) -> str:
        return f"Table({self.name})"

    def snapshots(self) -> list[Snapshot]:
        """The retained snapshots of all branches, oldest first."""
        return sorted(
            (_snapshot(raw) for raw in self.iceberg.metadata.snapshots), key=lambda snapshot: snapshot.timestamp
        )

    def current_snapshot(self) -> Snapshot | None:
        """The snapshot that readers of main see; None for a table that was never written."""
        raw = self.iceberg.current_snapshot()
        return _snapshot(raw) if raw else None

    def snapshot(self, id: int) -> Snapshot:
        """The snapshot of an id.

        Raises:
            NotFound: No retained snapshot has it; the message names the newest ones.
        """
        if isinstance(id, bool) or not isinstance(id, int):
            raise DeclarationError(f"a snapshot id is a whole number, not {id!r}.", where=caller())
        found = next((snapshot for snapshot in self.snapshots() if snapshot.id == id), None)
        if found is None:
            raise NotFound(f"table {self.name} has no snapshot {id}. {_existing(self.snapshots())}", where=caller())
        return found

    def snapshot_at(self, ts: datetime | str) -> Snapshot:
        """The snapshot that main had at a time.

        Args:
            ts: A datetime or ISO 8601 text; without an offset it is UTC.

        Raises:
            NotFound: The time is before the first retained state of main.
            DeclarationError: The text is no time.
        """
        moment = _moment(ts)
        # The log, not the list: after a rollback the newest snapshot by time is not the state.
        log = [(_time(e.timestamp_ms), e.snapshot_id) for e in self.iceberg.metadata.snapshot_log]
        past = [entry for entry in log if entry[0] <= moment]
        if past:
            return self.snapshot(past[-1][1])
        first = f"its first state is of {_show(log[0][0])}" if log else "it has no snapshots"
        raise NotFound(f"table {self.name} had no snapshot at {_show(moment)}: {first}.", where=caller())


def _snapshot(raw: pyiceberg.table.snapshots.Snapshot) -> Snapshot:
    return Snapshot(
        id=raw.snapshot_id,
        parent_id=raw.parent_snapshot_id,
        timestamp=_time(raw.timestamp_ms),
        operation=raw.summary.operation.value if raw.summary else None,
        summary=dict(raw.summary.additional_properties) if raw.summary else {},
        manifest_list=raw.manifest_list,
        schema_id=raw.schema_id,
    )


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _moment(ts: datetime | str) -> datetime:
    try:
        parsed = datetime.fromisoformat(ts) if isinstance(ts, str) else ts
    except ValueError:
        parsed = None
    if not isinstance(parsed, datetime):
        raise DeclarationError(
            f"{ts!r} is not a time.", where=caller(), fix='write ISO 8601 ("2026-01-01T00:00:00Z") or a datetime.'
        )
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def _show(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _existing(snapshots: Iterable[Snapshot]) -> str:
    newest = sorted(snapshots, key=lambda snapshot: snapshot.timestamp, reverse=True)
    if not newest:
        return "It has none."
    shown = ", ".join(f"{snapshot.id} ({_show(snapshot.timestamp)})" for snapshot in newest[:_SHOWN])
    return f"Newest: {shown}{', ...' if len(newest) > _SHOWN else ''}."
