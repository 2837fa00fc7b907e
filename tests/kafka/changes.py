"""Envelopes as Debezium writes them, and the table of PostgreSQL that they come from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from helios import Cdc
from helios.sources.changes.debezium import CdcSource
from helios.sources.kafka.declare import KafkaSource
from tests.kafka.conftest import Topics

SOURCE = {"version": "3.6.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 0, "db": "postgres"}
ID = {"type": "int32", "optional": False, "field": "id"}
NAME = {"type": "string", "optional": True, "field": "name"}
MANY_PARTITIONS = 3
_LSN = count(1000)
_DATABASES = count()


def schema(*fields: Mapping[str, Any]) -> dict[str, Any]:
    """The schema part of a record of a table."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "shop.public.t.Value"}
    return {
        "type": "struct",
        "fields": [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {"type": "struct", "fields": [], "optional": False, "field": "source"},
            {"type": "string", "optional": False, "field": "op"},
        ],
        "optional": False,
        "name": "shop.public.t.Envelope",
    }


def event(
    op: str,
    after: Mapping[str, Any] | None = None,
    *,
    before: Mapping[str, Any] | None = None,
    lsn: int | None = None,
    snapshot: str = "false",
    fields: Iterable[Mapping[str, Any]] | None = (ID, NAME),
    source: Mapping[str, Any] | None = None,
    table: str = "public.t",
    base: Mapping[str, Any] = SOURCE,
) -> dict[str, Any]:
    """The value of a record; without fields it has no schema part."""
    lsn = next(_LSN) if lsn is None else lsn
    named = dict(zip(("schema", "table"), table.split(".", maxsplit=1), strict=True))
    at = {"snapshot": snapshot, "lsn": lsn, "sequence": f'[null,"{lsn}"]', **named}
    payload = {
        "before": before,
        "after": after,
        "source": source or {**base, **at},
        "transaction": None,
        "op": op,
        "ts_ms": 1,
        "ts_us": 1000,
        "ts_ns": 1000000,
    }
    return {"schema": schema(*fields), "payload": payload} if fields is not None else payload


class Table:
    """A topic with the changes of a table."""

    def __init__(self, topics: Topics, partitions: int = 1) -> None:
        self.topics = topics
        self.name = topics.make(partitions)

    def send(
        self, id: int | None, *values: object, partition: int = 0, schemas: bool = True, at: int | None = None
    ) -> None:
        """Sends changes of a row: None is a tombstone; `at` is the time of the records."""
        key: Any = {"id": id}
        if schemas:
            key = {"schema": {"type": "struct", "fields": [ID], "optional": False, "name": "Key"}, "payload": key}
        named = json.dumps(key).encode() if id is not None else None
        self.topics.send(self.name, values, partition, key=named, at=at)

    def source(self, **options: Any) -> CdcSource:
        return Cdc.debezium(self.topics.source(self.name), **options).incremental()


class Database:
    """Topics with the changes of the tables of a database, as Debezium names them."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.prefix = f"db{next(_DATABASES)}"
        self._made: set[str] = set()

    def send(
        self, table: str, key: Mapping[str, Any] | None, *values: Mapping[str, Any] | None, partition: int = 0
    ) -> None:
        """Sends changes of a row: None is a tombstone.

        Args:
            table: The table, with its schema.
            key: The row's key.
            values: Arguments of `event`, with the operation under `op`.
            partition: Where they go.
        """
        topic = f"{self.prefix}.{table}".replace(" ", "_")
        if topic not in self._made:
            self.topics.make(name=topic)
            self._made.add(topic)
        wrapped = {"schema": {"type": "struct", "fields": [], "optional": False, "name": "Key"}, "payload": key}
        source = {**SOURCE, "name": self.prefix}
        events = [event(**{"table": table, "base": source, **value}) if value else None for value in values]
        self.topics.send(topic, events, partition, key=json.dumps(wrapped).encode() if key is not None else None)

    def source(self) -> KafkaSource:
        return self.topics.source(pattern=rf"{self.prefix}\..*").incremental()
