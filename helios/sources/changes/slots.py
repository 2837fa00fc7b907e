"""The state of a replication slot, asked of PostgreSQL; no JVM is needed, but the extra `helios-iceberg[postgres]`.

Debezium reads a slot's changes, and PostgreSQL keeps its log until they are read. It drops that log, and the slot is
lost, where it would have to keep more than `max_slot_wal_keep_size`. Debezium then tries again for a long time, and its
topics merely become silent.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import Any

from helios.errors import EnvironmentProblem, NotFound, Origin, RunError, near_miss
from helios.sources.changes.slot import Slot

PATIENCE = 8.0
"""So many seconds each answer is waited for."""

# As JSON: older servers lack some of the columns.
QUERY = """
SELECT to_jsonb(s)::text, (pg_wal_lsn_diff(n.position, s.confirmed_flush_lsn))::bigint,
       (pg_wal_lsn_diff(n.position, s.restart_lsn))::bigint, current_setting('max_slot_wal_keep_size', true)
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS position) n
WHERE s.slot_type = 'logical'
"""

ANEW = (
    "start Debezium with snapshot.mode=when_needed{drop}, which reads the tables again. The changes in between are in "
    "no log, deletes among them: refill the target from that snapshot on, as the docs of changes of databases say."
)
"""The fix for lost changes."""


@dataclass(frozen=True)
class SlotState:
    """The state of a slot, from PostgreSQL.

    Attributes:
        row: Its row of `pg_replication_slots`.
        behind: How many bytes of the log Debezium has not confirmed; None where that is unknown.
        kept: How many bytes of the log the server keeps for the slot.
        limit: The server's `max_slot_wal_keep_size`.
    """

    row: dict[str, Any]
    behind: int | None = None
    kept: int | None = None
    limit: str = "-1"

    @property
    def lost(self) -> str | None:
        """Why the slot is lost; None if it is not."""
        why = self.row.get("invalidation_reason")
        if self.row.get("wal_status") == "lost" or why is not None or self.row.get("conflicting"):
            return str(why) if why is not None else f"max_slot_wal_keep_size is {self.limit}"
        return None


def look_at_slot(slot: Slot, where: Origin | None) -> str:
    """The doctor's text about a working slot.

    Args:
        slot: The slot.
        where: The line that declares it.

    Raises:
        EnvironmentProblem: The driver is not installed.
        NotFound: The server has no such slot.
        RunError: The server does not answer or refuses, or the slot is lost, at risk, or not read.
    """
    return judged(slot, states(slot, where), where)


def judged(slot: Slot, found: dict[str, SlotState], where: Origin | None) -> str:
    """The doctor's text about a slot, from the states of all slots; see `look_at_slot`."""
    at = f"slot {slot.name} of {slot.address}"
    state = found.get(slot.name)
    if state is None:
        raise NotFound(
            f"{at} is not there. {near_miss(slot.name, found)}",
            where=where,
            fix=f"check the name. If Debezium has read by it before: {ANEW.format(drop='')}",
        )
    row = state.row
    if row.get("database") != slot.database:
        raise RunError(
            f"{at} reads the database {row.get('database')}.", where=where, fix="name the database that Debezium reads."
        )
    if state.lost is not None:
        drop = f" after SELECT pg_drop_replication_slot('{slot.name}')"
        raise RunError(
            f"{at} is lost: PostgreSQL has dropped log that Debezium had not read ({state.lost}).",
            where=where,
            fix=ANEW.format(drop=drop),
        )
    if row.get("wal_status") == "unreserved":
        raise RunError(
            f"{at} is about to be lost: {_bytes(state.kept)} of the log are kept for it, and the server keeps "
            f"{state.limit} (max_slot_wal_keep_size).",
            where=where,
            fix="start Debezium at once if it does not run, and raise max_slot_wal_keep_size.",
        )
    if not row.get("active"):
        raise RunError(
            f"{at} is not read by anyone: {_bytes(state.behind)} behind, and the server keeps {_bytes(state.kept)} of "
            "its log for it.",
            where=where,
            fix="start Debezium, whose own log says why it stopped.",
        )
    limit = "without a limit" if state.limit == "-1" else f"of at most {state.limit}"
    return f"read, {_bytes(state.behind)} behind; {_bytes(state.kept)} of the log are kept, {limit}"


def states(slot: Slot, where: Origin | None) -> dict[str, SlotState]:
    """The logical slots of a server, by name; see `look_at_slot` for what it raises."""
    try:
        from pg8000 import native
    except ImportError as error:
        raise EnvironmentProblem(
            f"PostgreSQL is asked with {error.name}, which is not installed.",
            where=where,
            fix="pip install 'helios-iceberg[postgres]'.",
        ) from error
    try:
        connection = native.Connection(
            slot.user,
            host=slot.host,
            port=slot.port,
            database=slot.database,
            password=slot.password.reveal() if slot.password is not None else None,
            ssl_context=_context(slot),
            timeout=PATIENCE,
            application_name="helios doctor",
        )
        with connection:
            rows = connection.run(QUERY) or []
    except (native.Error, OSError) as error:
        raise RunError(
            f"PostgreSQL at {slot.address} does not list its slots: {_told(error)}.",
            where=where,
            fix="check the address, the user, the password and the TLS (?sslmode=) of .slot(...).",
        ) from error
    found = [SlotState(json.loads(row), behind, kept, limit or "-1") for row, behind, kept, limit in rows]
    return {str(state.row["slot_name"]): state for state in found}


def _context(slot: Slot) -> ssl.SSLContext | bool | None:
    """The TLS context of the driver; None for TLS if the server supports it."""
    if slot.tls == "verify-full":
        return ssl.create_default_context(cafile=slot.authorities)
    return {"disable": False, "prefer": None, "require": True}[slot.tls]


def _told(error: Exception) -> str:
    """The message of a driver's error; the server's own errors are a dictionary."""
    first = error.args[0] if error.args else error
    if isinstance(first, dict):
        return str(first.get("M", first)).rstrip(".")
    cause = f": {error.__cause__}" if error.__cause__ is not None else ""
    return f"{str(first).rstrip('.')}{cause}"


def _bytes(count: int | None) -> str:
    """A number of bytes.

    Examples:
        >>> _bytes(3_400_000), _bytes(None)
        ('3.4 MB', 'an unknown part')
    """
    if count is None:
        return "an unknown part"
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
