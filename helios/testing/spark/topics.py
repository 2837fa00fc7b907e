"""Topics without a broker. A read returns the records of a test, with the columns of Spark's Kafka reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from helios.errors import NotFound, near_miss
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range, TopicsPosition
from helios.spark.jvm.inline import inline
from helios.testing.records import Record

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string, value: binary>>"


class LakeTopics:
    """The topics of a lake, for one source; `logs` has the records, by topic and partition."""

    def __init__(self, source: KafkaSource, logs: Mapping[str, Sequence[list[Record]]]) -> None:
        self._source = source
        self._logs = logs

    def topics(self) -> list[str]:
        pattern = self._source.pattern
        if pattern is None:
            return list(self._source.topics)
        return sorted(name for name in self._logs if re.fullmatch(pattern, name))

    def logs(self, names: Iterable[str]) -> dict[str, Log]:
        return {
            name: Log(f"test-{name}", (0,) * len(self._logs[name]), tuple(map(len, self._logs[name])))
            for name in names
            if name in self._logs
        }

    def missing_topics_error(self, names: Iterable[str]) -> NotFound:
        first = next(iter(names))
        return NotFound(f"topic {first!r} is not in the test's lake. {near_miss(first, self._logs)}")

    def offsets_at(
        self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int
    ) -> dict[str, tuple[int, ...]]:
        return {name: logs[name].earliest for name in names}  # a test's topics are read from their beginning

    def oldest_timestamp(self, ranges: Sequence[Range]) -> int | None:
        return None

    def records(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range], headers: bool) -> DataFrame:
        rows = [
            (span.topic, span.partition, offset, self._logs[span.topic][span.partition][offset])
            for span in wanted
            for offset in range(span.start, span.end)
        ]
        columns: dict[str, list[object]] = {
            "key": [record.key for *_, record in rows],
            "value": [record.value for *_, record in rows],
            "topic": [topic for topic, *_ in rows],
            "partition": [partition for _, partition, *_ in rows],
            "offset": [offset for *_, offset, _ in rows],
            "timestamp": [_timestamp(record.at) for *_, record in rows],
            "timestampType": [0 for _ in rows],
        }
        if headers:
            columns["headers"] = [
                [{"key": name, "value": value} for name, value in record.headers] or None for *_, record in rows
            ]
        return inline(spark, COLUMNS + (HEADERS if headers else ""), columns)

    def produce(self, topic: str, records: DataFrame) -> None:
        log = self._logs[topic][0]
        has_key = "key" in records.columns
        for row in records.collect():
            log.append(Record.of(Record(value=_plain(row["value"]), key=_plain(row["key"]) if has_key else None)))


def _plain(value: object) -> object:
    """A value of a row as bytes or text: Spark returns bytes as a bytearray."""
    return bytes(value) if isinstance(value, bytearray) else value


def _timestamp(at: datetime | str | None) -> datetime:
    """The timestamp of a record, with a zone; 1970 if the test sets none."""
    if at is None:
        return datetime.fromtimestamp(0, UTC)
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
