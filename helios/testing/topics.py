"""Topics of a test: the feed that receives records, and sources that read them from the lake instead of a broker."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helios.errors import InputError
from helios.model.flow import Source
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.topic import TopicChanges
from helios.sources.kafka.declare import KafkaSource
from helios.testing.avro import HEADER, encoded
from helios.testing.diff import hidden
from helios.testing.feeds import Feed
from helios.testing.records import Record, as_bytes, envelope

__tracebackhide__ = hidden

LOG_BEGIN = 1000
"""The position before the first change in a database log; an arbitrary number."""


@dataclass
class Topics:
    """The topics of a lake.

    Attributes:
        broker: The made-up address under which sources read the lake's topics; no broker has it.
        logs: The records, by topic and partition.
        changes: The number of database changes fed so far.
    """

    broker: str
    logs: dict[str, list[list[Record]]]
    changes: int = 0

    def partitions(self, name: str) -> list[list[Record]]:
        """The partitions of a topic; a missing topic is created with one partition."""
        return self.logs.setdefault(name, [[]])


class TopicFeed(Feed):
    """Feeds a topic with the records of the test."""

    ordered = True

    def __init__(self, topic: str, source: Source, topics: Topics, keys: Sequence[str] = ()) -> None:
        super().__init__(topic)
        self._source = source
        self._topics = topics
        self._keys = source.key if isinstance(source, TopicChanges) and source.key else tuple(keys)
        topics.partitions(topic)

    def prepare(self, rows: Any) -> list[Any]:
        contents = [rows] if isinstance(rows, bytes | str) else rows
        return [self._record(content) for content in contents]

    def _record(self, content: Any) -> Record:
        if isinstance(self._source, KafkaSource):
            return self._encoded_record(content, self._source)
        if not isinstance(self._source, CdcSource):
            return Record.of(content)
        self._topics.changes += 1
        with_schema = self._source.declared_schema is None
        position = LOG_BEGIN + self._topics.changes
        return envelope(content, keys=self._keys, topic=self.name, number=position, with_schema=with_schema)

    def _encoded_record(self, content: Any, source: KafkaSource) -> Record:
        """Encodes dicts and text as a record in the format that the source reads."""
        record = content if isinstance(content, Record) else Record(value=content)
        values, value = source.values, record.value
        if values.avro is not None and isinstance(value, Mapping):
            value = encoded(value, values.avro, self.name)
        elif values.registry is not None and values.format == "avro" and value is not None:
            value = self._without_header(value)
        elif values.registry is not None and isinstance(value, (Mapping, str)):
            value = HEADER + (as_bytes(value) or b"")
        return Record.of(replace(record, value=value))

    def _without_header(self, value: Any) -> bytes:
        """Strips the registry's header from bytes, since a test decodes all values with the declared schema."""
        if isinstance(value, bytes) and len(value) >= len(HEADER) and value[:1] == HEADER[:1]:
            return value[len(HEADER) :]
        raise InputError(
            f"{self.name}: {value!r} does not begin with the byte 0 and the id of a schema.",
            where=self._source.origin,
            fix="pass a dict of the schema's fields, or the bytes as the producer sends them.",
        )

    def deliver(self, records: Sequence[Any]) -> None:
        log = self._topics.partitions(self.name)
        for record in records:
            while len(log) <= record.partition:
                log.append([])
            log[record.partition].append(record)

    def stand_in(self, source: Source) -> Source:
        return with_broker(source, self._topics.broker)

    def column_value(self, record: Any, column: str) -> Any:
        kafka = kafka_source_of(self._source)
        has_header = kafka is not None and kafka.values.registry is not None and kafka.values.format == "json"
        try:
            return json.loads(record.value[len(HEADER) :] if has_header else record.value)[column]
        except (TypeError, ValueError, KeyError):
            return None


def with_broker(source: Source, broker: str) -> Source:
    """A copy of a source of topics or changes that reads the test's broker from the beginning."""
    if isinstance(source, TopicChanges):
        changes = replace(source, kafka=_from_broker(source.kafka, broker), max_rows=None)
        return replace(changes, replication_slot=None) if isinstance(changes, CdcSource) else changes
    assert isinstance(source, KafkaSource)
    return _from_broker(source, broker)


def _from_broker(source: KafkaSource, broker: str) -> KafkaSource:
    values = source.values
    if values.registry is not None and values.format == "avro":
        if values.avro is None:
            raise InputError(
                f"{source.label()} takes its columns from a schema registry, which a test does not have.",
                where=source.origin,
                fix='declare the schema beside the registry: .value("avro", schema="orders.avsc", registry=...); '
                "test.batch() then takes dicts.",
            )
        source = replace(source, values=replace(values, registry=None))  # the feed delivers values without the header
    unsecured = replace(source, brokers=(broker,), login=None, encryption=None, client_settings=())
    return replace(unsecured, starts_at="earliest", max_rows=None)


def kafka_source_of(source: Source) -> KafkaSource | None:
    """The source itself if it is a Kafka source, or the Kafka source of its changes; None for other sources."""
    kafka = source.kafka if isinstance(source, TopicChanges) else source
    return kafka if isinstance(kafka, KafkaSource) else None


def is_topic(name: str, source: Source) -> bool:
    """True if the pattern of a source matches a name."""
    kafka = kafka_source_of(source)
    return kafka is not None and kafka.pattern is not None and re.fullmatch(kafka.pattern, name) is not None
