"""The rows of a key that quarantines hold, or held at a snapshot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helios.lineage.predicate import compared
from helios.sources.common.again import has
from helios.table.positions import Position, position_in
from helios.table.quarantine import COLUMNS, is_quarantine
from helios.table.refs import talking
from helios.table.snapshots import Table

MOST = 5
"""Rejected rows of one key that are shown, the newest ones."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A row that a quarantine holds.

    Attributes:
        table: The quarantine.
        pipeline: The pipeline that set it aside.
        batch: The batch; None where a replay has rejected it once more.
        step: The step that it failed in.
        reason: Why.
        at: When.
        payload: Its columns in front of that step.
        position: What the batch read.
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
    """The rows of each of some keys in a quarantine, newest first.

    Args:
        quarantine: The quarantine.
        pipelines: The pipelines whose rows are meant.
        keys: The columns of each key.
        snapshot: The snapshot of the quarantine that is read; None for the current one.

    Raises:
        RunError: Its files cannot be read.
    """
    found: list[list[Rejected]] = [[] for _ in keys]
    if not is_quarantine(quarantine):
        return found
    with talking(quarantine, "reading it"):
        scan = quarantine.iceberg.scan(
            compared("In", "pipeline", set(pipelines)), selected_fields=COLUMNS, snapshot_id=snapshot
        )
        for batch in scan.to_arrow_batch_reader():
            for row in batch.to_pylist():
                payload = _payload(row["payload"])
                for index, key in enumerate(keys):
                    if has(payload, key):
                        found[index].append(_rejected(quarantine.name, row, payload))
    return [sorted(rows, key=lambda row: row.at, reverse=True) for rows in found]


def _rejected(table: str, row: Mapping[str, Any], payload: Mapping[str, Any]) -> Rejected:
    known = {name: row[name] for name in ("pipeline", "batch", "step", "reason", "at")}
    return Rejected(table=table, payload=payload, position=position_in(row["position"]), **known)


def _payload(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}


def newest(found: Iterable[Sequence[Rejected]]) -> list[Rejected]:
    """The rows of several quarantines, newest first."""
    return sorted((row for rows in found for row in rows), key=lambda row: row.at, reverse=True)
