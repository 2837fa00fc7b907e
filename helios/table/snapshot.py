"""A snapshot of a table as a value, and conversions of times to UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from helios.errors import DeclarationError
from helios.model.values import caller

if TYPE_CHECKING:
    import pyiceberg.table.snapshots

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """One state of a table.

    Args:
        id: The snapshot's id.
        parent_id: The id of its parent; None for a first snapshot.
        timestamp: The time of its commit, in UTC.
        operation: append, overwrite, delete or replace; None if the writer did not record it.
        summary: The other entries of its summary: counts, and stamps of writers.
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


def as_snapshot(raw: pyiceberg.table.snapshots.Snapshot) -> Snapshot:
    """PyIceberg's snapshot as a value."""
    return Snapshot(
        id=raw.snapshot_id,
        parent_id=raw.parent_snapshot_id,
        timestamp=from_milliseconds(raw.timestamp_ms),
        operation=raw.summary.operation.value if raw.summary else None,
        summary=dict(raw.summary.additional_properties) if raw.summary else {},
        manifest_list=raw.manifest_list,
        schema_id=raw.schema_id,
    )


def from_milliseconds(milliseconds: int) -> datetime:
    """The time in UTC of milliseconds since 1970."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def as_moment(ts: datetime | str) -> datetime:
    """The time in UTC of a datetime or an ISO 8601 text; a time without a zone is UTC.

    Raises:
        DeclarationError: The text is not a time.
    """
    try:
        parsed = datetime.fromisoformat(ts) if isinstance(ts, str) else ts
    except ValueError:
        parsed = None
    if not isinstance(parsed, datetime):
        raise DeclarationError(
            f"{ts!r} is not a time.", where=caller(), fix='write ISO 8601 ("2026-01-01T00:00:00Z") or a datetime.'
        )
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


def shown(moment: datetime) -> str:
    """A time in UTC as messages show it: ISO 8601 with milliseconds."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
