"""Finds the rejected rows of keys in a quarantine, now or at a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helios.lineage.fitted import pyiceberg_expression
from helios.sources.common.lookup import row_has_key
from helios.table.positions import Position, parse_position
from helios.table.quarantine import COLUMNS, is_quarantine
from helios.table.refs import translating_errors
from helios.table.snapshots import Table


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row in a quarantine.

    Attributes:
        table: The quarantine.
        batch: The batch; None if a replay has rejected the row again.
        payload: The row's columns before the step.
        position: The position that the batch read.
    """

    table: str
    pipeline: str
    batch: int | None
    step: str
    reason: str
    at: datetime
    payload: Mapping[str, Any]
    position: Position | None


def rejected(
    quarantine: Table, pipelines: Sequence[str], keys: Sequence[Mapping[str, Any]], snapshot: int | None = None
) -> list[list[Rejected]]:
    """Returns the rejected rows of each key in a quarantine, newest first.

    Args:
        pipelines: Only rows that these pipelines have rejected are returned.
        keys: The values of each key, by column.
        snapshot: The snapshot of the quarantine; None for the current one.

    Raises:
        RunError: The quarantine's files cannot be read.
    """
    by_key: list[list[Rejected]] = [[] for _ in keys]
    if not is_quarantine(quarantine):
        return by_key
    with translating_errors(quarantine, "reading it"):
        scan = quarantine.iceberg.scan(
            pyiceberg_expression("In", "pipeline", set(pipelines)), selected_fields=COLUMNS, snapshot_id=snapshot
        )
        for batch in scan.to_arrow_batch_reader():
            for row in batch.to_pylist():
                payload = _payload(row["payload"])
                for index, key in enumerate(keys):
                    if row_has_key(payload, key):
                        by_key[index].append(_rejected(quarantine.name, row, payload))
    return [newest_first([rows]) for rows in by_key]


def _rejected(table: str, row: Mapping[str, Any], payload: Mapping[str, Any]) -> Rejected:
    same_fields = {name: row[name] for name in ("pipeline", "batch", "step", "reason", "at")}
    return Rejected(table=table, payload=payload, position=parse_position(row["position"]), **same_fields)


def _payload(text: str | None) -> Mapping[str, Any]:
    """The columns of a payload; empty if the payload is not a JSON object."""
    try:
        payload = json.loads(text) if text else None
    except ValueError:
        payload = None
    return payload if isinstance(payload, dict) else {}


def newest_first(groups: Iterable[Sequence[Rejected]]) -> list[Rejected]:
    """The rows of several groups in one list, newest first."""
    return sorted((row for rows in groups for row in rows), key=lambda row: row.at, reverse=True)
