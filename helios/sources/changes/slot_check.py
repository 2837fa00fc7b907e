"""Checks a replication slot of PostgreSQL. It needs the extra `helios-iceberg[postgres]`, but no JVM.

PostgreSQL keeps its log until Debezium has read the changes of the slot. If the log would exceed
`max_slot_wal_keep_size`, PostgreSQL drops the log, and the slot is lost. Debezium then retries for a long time.
Meanwhile, the topics get no new records, and nothing else shows that the slot is lost.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass
from typing import Any

from helios.errors import EnvironmentProblem, NotFound, Origin, RunError, near_miss
from helios.sources.changes.slot import Slot

TIMEOUT = 8.0
"""The seconds after which a request fails."""

# The query returns each row as JSON, since older servers lack some of the columns.
SLOTS_QUERY = """
SELECT to_jsonb(s)::text, (pg_wal_lsn_diff(n.position, s.confirmed_flush_lsn))::bigint,
       (pg_wal_lsn_diff(n.position, s.restart_lsn))::bigint, current_setting('max_slot_wal_keep_size', true)
FROM pg_replication_slots s,
     (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS position) n
WHERE s.slot_type = 'logical'
"""

NEW_SNAPSHOT_FIX = (
    "{first}start Debezium with snapshot.mode=when_needed, which reads the tables again. The changes in between, "
    "such as deletes, are lost: refill the target from that snapshot on (docs: A lost replication slot)."
)
"""The fix for lost changes; `first` is what to do before that, or empty."""


@dataclass(frozen=True)
class SlotState:
    """The state of a slot, as PostgreSQL reports it.

    Attributes:
        row: The row of the slot in `pg_replication_slots`.
        behind: The bytes of the log that Debezium has not confirmed; None if unknown.
        kept: The bytes of the log that the server keeps for the slot; None if unknown.
        limit: The server's `max_slot_wal_keep_size`; "-1" without a limit, or on an older server without the setting.
    """

    row: dict[str, Any]
    behind: int | None = None
    kept: int | None = None
    limit: str = "-1"

    @property
    def lost(self) -> str | None:
        """The reason why the slot is lost; None if the slot is not lost."""
        reason = self.row.get("invalidation_reason")
        if self.row.get("wal_status") == "lost" or reason is not None or self.row.get("conflicting"):
            if reason is None and self.row.get("wal_status") != "lost":
                return "it conflicted with recovery on a standby"
            return str(reason) if reason is not None else f"max_slot_wal_keep_size is {self.limit}"
        return None


def check_slot(slot: Slot, where: Origin | None) -> str:
    """Checks a slot, and returns the text of `helios doctor` about a working one.

    Raises:
        EnvironmentProblem: pg8000 is not installed.
        NotFound: The server does not have the slot.
        RunError: The server does not answer, or refuses the query. Or the slot is lost, about to be lost, not read, or
            of another database.
    """
    return _slot_text(slot, _slot_states(slot, where), where)


def _slot_text(slot: Slot, states: dict[str, SlotState], where: Origin | None) -> str:
    """The text about a working slot, from the states of all slots; see `check_slot` for the errors."""
    label = f"slot {slot.name} of {slot.address}"
    state = states.get(slot.name)
    if state is None:
        raise NotFound(
            f"{label} is not there. {near_miss(slot.name, states)}",
            where=where,
            fix=f"check the name. If Debezium has used this slot before: {NEW_SNAPSHOT_FIX.format(first='')}",
        )
    row = state.row
    if row.get("database") != slot.database:
        raise RunError(
            f"{label} reads the database {row.get('database')}.",
            where=where,
            fix="name the database that Debezium reads in .slot(...).",
        )
    if state.lost is not None:
        drop = f"run SELECT pg_drop_replication_slot('{slot.name}'), then "
        raise RunError(
            f"{label} is lost: PostgreSQL no longer keeps what Debezium has not read ({state.lost}).",
            where=where,
            fix=NEW_SNAPSHOT_FIX.format(first=drop),
        )
    if row.get("wal_status") == "unreserved":
        raise RunError(
            f"{label} is about to be lost: the server keeps {_bytes(state.kept)} of the log for the slot, and at most "
            f"{state.limit} (max_slot_wal_keep_size).",
            where=where,
            fix="start Debezium at once if it does not run, and raise max_slot_wal_keep_size.",
        )
    if not row.get("active"):
        raise RunError(
            f"{label} is not read by anyone: {_bytes(state.behind)} behind, and the server keeps {_bytes(state.kept)} "
            "of the log for the slot.",
            where=where,
            fix="start Debezium, whose own log says why it stopped.",
        )
    limit = "without a limit" if state.limit == "-1" else f"of at most {state.limit}"
    return f"read, {_bytes(state.behind)} behind; {_bytes(state.kept)} of the log are kept, {limit}"


def _slot_states(slot: Slot, where: Origin | None) -> dict[str, SlotState]:
    """The logical slots of a server, by name; see `check_slot` for the errors."""
    try:
        from pg8000 import native
    except ImportError as error:
        raise EnvironmentProblem(
            f"PostgreSQL is queried with {error.name}, which is not installed.",
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
            ssl_context=_tls_context(slot),
            timeout=TIMEOUT,
            application_name="helios doctor",
        )
        with connection:
            rows = connection.run(SLOTS_QUERY) or []
    except (native.Error, OSError) as error:
        raise RunError(
            f"PostgreSQL at {slot.address} does not list its slots: {_error_message(error)}.",
            where=where,
            fix="check the address, the user, the password and the TLS (?sslmode=) of .slot(...).",
        ) from error
    slots = [SlotState(json.loads(row), behind, kept, limit or "-1") for row, behind, kept, limit in rows]
    return {str(state.row["slot_name"]): state for state in slots}


def _tls_context(slot: Slot) -> ssl.SSLContext | bool | None:
    """The TLS context for pg8000. False means no TLS, and None means TLS if the server supports it."""
    if slot.tls == "verify-full":
        return ssl.create_default_context(cafile=slot.ca_file)
    return {"disable": False, "prefer": None, "require": True}[slot.tls]


def _error_message(error: Exception) -> str:
    """The message of a pg8000 error. An error of the server is a dictionary with the message in the field `M`."""
    first = error.args[0] if error.args else error
    if isinstance(first, dict):
        return str(first.get("M", first)).rstrip(".")
    cause = f": {error.__cause__}" if error.__cause__ is not None else ""
    return f"{str(first).rstrip('.')}{cause}"


def _bytes(count: int | None) -> str:
    """A number of bytes.

    Examples:
        >>> _bytes(3_400_000), _bytes(None)
        ('3.4 MB', 'an unknown amount')
    """
    if count is None:
        return "an unknown amount"
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
