"""Names of the columns that sources add to their rows."""

from __future__ import annotations

CHANGE_COLUMNS = ("_change_type", "_change_ordinal", "_commit_snapshot_id")
"""The columns that a read of row-level changes adds to those of the table."""

POSITION = "__helios_position"
"""Hidden column with a row's source position, which orders rows that are otherwise equal."""

LOG_ORDER, IS_DELETE = "__helios_log", "__helios_gone"
"""Hidden columns of a change in a database: its position in the database's log, and whether it deletes the row."""
