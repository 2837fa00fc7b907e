"""Lakes of many commits: real tables, whose metadata is then given a long history, as commits of pipelines leave it."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from helios import Catalog
from helios.table.ledger import Record
from helios.table.refs import LEDGER

ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])
NAMESPACE = "page"


def name_of(number: int) -> str:
    return f"t{number:02}"


def lake(folder: Path, tables: int, commits: int) -> Catalog:
    """An embedded catalog of tables, each with so many commits of a pipeline of its name."""
    catalog = Catalog.local("local", path=folder / ".helios")
    catalog.create_namespace(NAMESPACE)
    for number in range(tables):
        table = catalog.create_table(f"{NAMESPACE}.{name_of(number)}", ROWS)
        table.iceberg.append(pa.table({"id": [1], "name": ["a"]}, schema=ROWS))
        lengthen(catalog, number, commits)
    return catalog


def lengthen(catalog: Catalog, number: int, commits: int) -> None:
    """Gives a table of one commit the history of so many, a second apart, up to now."""
    table = catalog.load(f"{NAMESPACE}.{name_of(number)}").iceberg
    file = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(file.read_text())
    [first] = metadata["snapshots"]
    now = int(time.time() * 1000)
    snapshots = [
        _snapshot(first, batch, commits, now - (commits - 1 - batch) * 1000, table.name()[-1])
        for batch in range(commits)
    ]
    last = snapshots[-1]
    position = json.loads(last["summary"]["helios.position"])
    record = Record(checkpoint="c", batch=commits - 1, position=position, snapshot=last["snapshot-id"], steps="ab")
    record = replace(record, sequence=last["sequence-number"])
    metadata |= {
        "snapshots": snapshots,
        "current-snapshot-id": last["snapshot-id"],
        "last-sequence-number": last["sequence-number"],
        "last-updated-ms": last["timestamp-ms"],
        "snapshot-log": [{"snapshot-id": s["snapshot-id"], "timestamp-ms": s["timestamp-ms"]} for s in snapshots],
        "refs": {"main": {"snapshot-id": last["snapshot-id"], "type": "branch"}},
    }
    metadata["properties"][f"{LEDGER}{name_of(number)}"] = record.as_json()
    longer = file.with_name(f"00009-{file.name.partition('-')[2]}")
    longer.write_text(json.dumps(metadata))
    database = Path(str(catalog.option("path"))) / "catalog.db"
    with closing(sqlite3.connect(database)) as db, db:
        change = "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?"
        db.execute(change, (f"file://{longer}", name_of(number)))


def _snapshot(first: dict[str, Any], batch: int, commits: int, at: int, name: str) -> dict[str, Any]:
    """The snapshot of a batch: the files of the first one, and the stamps of its own."""
    position = {"sources": [{"source": "local.page.source", "uuid": "u", "to": batch + 1}]}
    id = first["snapshot-id"] if batch == commits - 1 else batch + 1
    stamps = {
        "helios.pipeline": name,
        "helios.batch": str(batch),
        "helios.position": json.dumps(position),
        "helios.checkpoint": "c",
        "helios.steps": "ab",
        "helios.version": "0.1.0",
    }
    own = {key: value for key, value in first.items() if key != "parent-snapshot-id"}
    parent = {"parent-snapshot-id": batch} if batch else {}
    numbers = {"snapshot-id": id, "sequence-number": batch + 1, "timestamp-ms": at}
    return {**own, **parent, **numbers, "summary": {**first["summary"], **stamps}}
