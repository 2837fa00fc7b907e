"""What a pipeline has stored, read from disk alone: the formats that later versions must go on reading.

Two pipelines that did the same have the same record. Snapshot ids, UUIDs and other values of chance are numbered as
they are met, so that the record still shows which of them are the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import StaticTable

from tests.compat.cases import Lake

CHANCE = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{32}\b|\b\d{12,}\b")
"""UUIDs, their digits without dashes, snapshot ids and times."""

LEDGER = "helios.ledger."
ADDED = ("helios.version", "helios/plans")
"""A stamp and a folder that the older version did not write, and that no record needs."""
SPARKS_OWN = ("commits", "metadata", "offsets", "sources", "state")


def record(lake: Lake) -> Any:
    """All that Helios has stored in a folder, with values of chance numbered."""
    tables = {name: _table(table) for name, table in lake.tables().items()}
    checkpoints = {path.name: _checkpoint(path) for path in lake.checkpoints.iterdir()}
    return _numbered({"tables": tables, "checkpoints": checkpoints}, {})


def batches(table: StaticTable) -> Counter[tuple[str, str]]:
    """How many snapshots in a table's history are stamped as a pipeline's batch."""
    known = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    found: Counter[tuple[str, str]] = Counter()
    snapshot = table.current_snapshot()
    while snapshot is not None:
        stamps = _stamps(snapshot)
        if "helios.batch" in stamps:
            found[stamps["helios.pipeline"], stamps["helios.batch"]] += 1
        snapshot = known.get(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return found


def _table(table: StaticTable) -> Any:
    metadata = table.metadata
    return {
        "format": metadata.format_version,
        "schema": [(field.name, str(field.field_type), field.required) for field in table.schema().fields],
        "partitioning": str(table.spec()),
        "sorting": str(table.sort_order()),
        "properties": {
            key: _ledger(value) if key.startswith(LEDGER) else value for key, value in metadata.properties.items()
        },
        "snapshots": [{"id": one.snapshot_id, **_stamps(one)} for one in metadata.snapshots],
        "refs": {name: (ref.snapshot_ref_type.value, ref.snapshot_id) for name, ref in metadata.refs.items()},
        # of a quarantine, by whose position as text its rows are found again
        "rows": list(_rows(table.scan().to_arrow())) if "payload" in table.schema().column_names else None,
    }


def _ledger(text: str) -> Any:
    fields = json.loads(text)
    fields.get("appended", {}).pop("apart", None)  # no code reads it any more
    return fields


def _stamps(snapshot: Any) -> dict[str, Any]:
    """What Helios says in a snapshot's summary, and the operation."""
    assert snapshot.summary is not None
    told = snapshot.summary.additional_properties
    stamps = {key: _read(told[key]) for key in told if key.startswith("helios.") and key not in ADDED}
    return {"operation": snapshot.summary.operation.value, **stamps}


def _read(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text


def _checkpoint(folder: Path) -> Any:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or path.name.endswith(".crc") or name.startswith(ADDED):
            continue
        if name.startswith("offsets/"):
            version, _, *ends = path.read_text().splitlines()  # the second line is Spark's conf
            found[name] = [version, *(end if end == "-" else json.loads(end) for end in ends)]
        elif path.suffix == ".json":
            found[name] = json.loads(path.read_text())
        elif path.suffix == ".parquet":
            rows = pq.read_table(path.parent)  # in how many files is chance
            found[f"{name.rpartition('/')[0]}/*.parquet"] = [str(rows.schema.remove_metadata()), *_rows(rows)]
        elif name.partition("/")[0] in SPARKS_OWN:
            found["/".join(name.split("/")[:2])] = "of Spark"
        else:
            found[name] = path.read_text()
    return found


def _rows(rows: Any) -> Iterator[str]:
    """Rows but for the time at which they were written."""
    yield from sorted(map(str, rows.drop_columns("at").to_pylist()))


def _numbered(value: Any, seen: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _numbered(value[key], seen) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_numbered(one, seen) for one in value]
    if isinstance(value, int) and not isinstance(value, bool) and CHANCE.fullmatch(str(value)):
        return {"number": _numbered(str(value), seen)}
    if isinstance(value, str):
        return CHANCE.sub(lambda found: seen.setdefault(found[0], f"<{len(seen) + 1}>"), value)
    return value
