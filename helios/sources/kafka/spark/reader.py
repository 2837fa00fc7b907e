"""Reads Kafka topics: positions are offsets, and each batch reads ranges of offsets.

Spark's offset log records a range before it is read, so that a batch that runs again reads the same records. With
`read_committed`, a range ends before the first open transaction.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.errors import InputError, NotFound, RunError
from helios.model.values import counted
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.spans import LAG_INTERVAL, SpanSource
from helios.sources.kafka.checks import column_problems
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark import avro as kafka_avro
from helios.sources.kafka.spark import rows as kafka_rows
from helios.sources.kafka.spark.cluster import Cluster, revealed_properties
from helios.sources.kafka.spark.columns import InferredColumns
from helios.sources.kafka.topics import (
    Log,
    Range,
    RecordsLost,
    TopicOffsets,
    TopicsPosition,
    advance,
    deleted_ranges,
    empty_ranges,
    ranges,
    sample_ranges,
    verify,
)
from helios.sources.kafka.transport import Topics, stand_in
from helios.spark.jvm.functions import ddl
from helios.spark.jvm.sql import struct_of
from helios.table.positions import Lag, Position, Span

FETCH_SETTINGS = {"max.poll.records": "50000", "max.partition.fetch.bytes": str(8 << 20), "fetch.max.wait.ms": "10"}
"""The settings of the consumer for large and quick fetches.

By default, a poll returns 500 records, and after each poll Spark asks the broker twice for the bounds of the partition.
The consumer also prefetches: at the end of a partition, the broker would wait half a second for new records. The broker
answers requests in order, so Spark's next requests would wait as long.
"""

V1_SOURCES = "spark.sql.sources.useV1SourceList"
"""The setting that lists the formats that Spark reads through its V1 source API, which makes a Java object per row."""


class KafkaReader(SpanSource):
    """Reads the topics of a source, once or batch by batch."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        self._frozen: dict[str, Log] | None = None
        self._topics: Topics | None = None
        self._inferred = InferredColumns(context, index)

    @property
    def _source(self) -> KafkaSource:
        assert isinstance(self.read_plan.source, KafkaSource)
        return self.read_plan.source

    @property
    def _cluster(self) -> Topics:
        if self._topics is None:
            self._topics = stand_in(self._source) or Cluster(self._source)
        return self._topics

    @property
    @override
    def declared(self) -> str:
        return self._source.declared_start

    # positions

    @override
    def first(self) -> Position:
        try:
            return self._first()
        except RunError as error:
            # A run recognizes an outage by the cause of an error, and retries. Before the pipeline has begun, the error
            # is raised without its cause, so that a wrong address is reported at once.
            raise RunError(error.what, where=error.where, fix=error.fix) from None

    def _first(self) -> Position:
        """The position at which the first run starts."""
        names = self._cluster.topics()
        logs = self._cluster.logs(names)
        absent = [name for name in names if name not in logs]
        if absent:
            raise self._cluster.missing_topics_error(absent)
        if not logs:
            raise NotFound(
                f"{self._source.label()}: no topic matches the pattern yet.",
                where=self._source.origin,
                fix="check the pattern, which must match whole names, or create the first topic.",
            )
        offsets = self._starts(logs)
        return TopicsPosition({name: TopicOffsets(log.id, offsets[name]) for name, log in logs.items()}).as_json()

    def _starts(self, logs: Mapping[str, Log]) -> Mapping[str, tuple[int, ...]]:
        """For each topic, the offsets of the declared start."""
        start = self._source.starts_at
        if isinstance(start, datetime):
            return self._cluster.offsets_at(logs, logs, round(start.timestamp() * 1000))
        if isinstance(start, str):
            return {name: log.earliest if start == "earliest" else log.latest for name, log in logs.items()}
        only_topic = next(iter(logs))  # offsets without a name are those of the only topic
        by_topic = {topic or only_topic: dict(offsets) for topic, offsets in start}
        unknown = [name for name in by_topic if name not in logs]
        if unknown or ("" in dict(start) and len(logs) > 1):
            several = "the offsets name no topic, and the source has several"
            problem = f"{unknown[0]!r} is not a topic of the source" if unknown else several
            raise InputError(
                f"start({self._source.declared_start}): {problem}.",
                where=self._source.origin,
                fix='write {"orders": {0: 15}, "payments": {0: 7}}.',
            )
        for name, log in logs.items():
            self._refuse_offsets(name, by_topic.get(name, {}), log)
        return {name: tuple(by_topic[name][number] for number in range(len(log.latest))) for name, log in logs.items()}

    def _refuse_offsets(self, name: str, offsets: Mapping[int, int], log: Log) -> None:
        """Refuses declared offsets that a topic does not have, and offsets for only some partitions of the topic."""
        partitions = set(range(len(log.latest)))
        wrong = sorted(partitions ^ set(offsets))
        if wrong:
            missing = f"the offset of partition {wrong[0]} of {name} is missing"
            problem = missing if wrong[0] in partitions else f"{name} has no partition {wrong[0]}"
            raise InputError(
                f"start({self._source.declared_start}): {problem}: the topic has "
                f"{counted(len(partitions), 'partition')}.",
                where=self._source.origin,
                fix="give one offset for each partition of the topic.",
            )
        bad = next((n for n in sorted(partitions) if not log.earliest[n] <= offsets[n] <= log.latest[n]), None)
        if bad is not None:
            raise InputError(
                f"start({self._source.declared_start}): partition {bad} of {name} has the offsets "
                f"{log.earliest[bad]} to {log.latest[bad]}, and {offsets[bad]} is none of them.",
                where=self._source.origin,
                fix="give one of these offsets.",
            )

    def _logs(self, at: TopicsPosition) -> dict[str, Log]:
        """The current logs of the topics, including new topics that match the pattern."""
        return self._cluster.logs(dict.fromkeys([*at.topics, *self._cluster.topics()]))

    def _verify(
        self, at: TopicsPosition, wanted: list[Range], logs: Mapping[str, Log], *, skips_expired: bool = False
    ) -> None:
        """Calls `verify`, and adds the script's line to the error."""
        try:
            verify(at, wanted, logs, skips_expired=skips_expired)
        except RecordsLost as problem:
            raise RecordsLost(problem.what, where=self._source.origin, fix=problem.fix) from None

    @override
    def freeze(self) -> None:
        self._frozen = self._cluster.logs(self._cluster.topics())

    @override
    def latest(self, after: Position) -> Position:
        at = TopicsPosition.parse(after)
        logs = self._frozen if self._frozen is not None else self._logs(at)
        self._verify(at, empty_ranges(at), logs, skips_expired=self._skips_expired)
        trigger = self.context.plan.trigger
        end = self._end(at, logs, trigger.max_rows if trigger is not None else None)
        self._note_skipped(deleted_ranges(at, logs))
        self.context.observer.lagging(self.index, self._lag(self._unread(at, logs)))
        has_records = bool(ranges(at, end))
        return end.as_json() if has_records or end.topics.keys() != at.topics.keys() else after

    def _end(self, at: TopicsPosition, logs: Mapping[str, Log], max_rows: int | None) -> TopicsPosition:
        return advance(at, logs, max_rows, skips_expired=self._skips_expired)

    @property
    def _skips_expired(self) -> bool:
        """True if the source skips records that Kafka deleted before they were read."""
        return self._source.missing == "skip"

    @override
    def lost(self, span: Span) -> bool:
        """True if records of a planned span were deleted, and the source skips such records."""
        end = TopicsPosition.parse(span.end or {})
        logs = self._cluster.logs(end.topics)
        self._verify(end, [], logs)
        return self._skips_expired and any(
            part.start < logs[part.topic].earliest[part.partition] for part in self._ranges(span)
        )

    def _note_skipped(self, deleted: list[Range]) -> None:
        for part in deleted:
            self.context.observer.noted(
                f"{len(part):,} records of {part.topic}, partition {part.partition}, were deleted before they "
                f'were read, and are left out (.on_missing("skip")): offsets {part.start} to {part.end - 1}'
            )

    # lag

    def _unread(self, at: TopicsPosition, logs: Mapping[str, Log]) -> list[Range]:
        """The records after a position."""
        return ranges(at, advance(at, logs, skips_expired=self._skips_expired))

    @override
    def lag(self, at: Position) -> Lag | None:
        position = TopicsPosition.parse(at)
        lag = self._lag(self._unread(position, self._logs(position)))
        self.keep_lag(lag, every=LAG_INTERVAL if self._frozen is None else 0.0)
        return lag

    def _lag(self, unread: list[Range]) -> Lag:
        oldest = self._cluster.oldest_timestamp(unread) if unread else None
        seconds = max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
        return Lag(0, seconds, records=sum(map(len, unread)))

    # columns

    def _with_value_columns(self, topics: Iterable[str] | None = None) -> KafkaSource:
        """The source with the columns of its values.

        Args:
            topics: The topics whose schemas the columns follow; by default all present topics of the source.

        Raises:
            InputError: The columns cannot be inferred, or two columns have the same name.
        """
        source, spark = self._source, self.context.spark
        if source.values.format == "avro":
            schema = source.values.avro if source.values.avro is not None else self._registered_schema(topics)
            columns = kafka_avro.columns_of(spark, schema, source.origin)
            complete = source.with_value_columns(ddl(spark, columns), schema)
        elif source.values.infers_columns:
            complete = source.with_value_columns(ddl(spark, self._inferred.of(source, self._sample)))
        else:
            return source
        for problem in column_problems(complete, struct_of(str(complete.declared_schema)).names):
            raise problem
        return complete

    def _registered_schema(self, topics: Iterable[str] | None) -> str:
        """The schema that the columns follow.

        The registry is queried after the end of the batch is known. It then has the schemas of all records in the
        batch, since producers register a schema before they write records with it.
        """
        source = self._source
        assert source.values.registry is not None
        try:
            present = topics if topics is not None else self._cluster.topics()
            return kafka_avro.followed_schema(source.values.registry, present, source.origin)
        except RunError as error:
            checkpoint = self.context.checkpoint
            if checkpoint is not None and checkpoint.identity() is not None:
                raise
            # Raised without the cause, as in `first`.
            raise RunError(error.what, where=error.where, fix=error.fix) from None

    def _sample(self) -> DataFrame:
        """The records from which columns are inferred."""
        at = TopicsPosition.parse(self.first())
        wanted = sample_ranges(at, self._cluster.logs(at.topics), self._source.values.sample)
        if not wanted:
            raise NotFound(
                f"{self._source.label()}: there is no record yet from which columns could be inferred.",
                where=self._source.origin,
                fix='declare the columns: value("json", schema="id bigint, name string").',
            )
        return self._read(self.context.spark, at, wanted)

    @override
    def schema(self) -> StructType:
        return struct_of(str(self._with_value_columns().declared_schema))

    # rows

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        once = span is None or not self._source.streaming
        span = span or self.current()
        wanted = self._ranges(span)
        if not wanted:
            return self.empty(spark) if once else None
        end = TopicsPosition.parse(span.end or {})
        self._verify(end, wanted, self._cluster.logs(end.topics))
        return self._rows(self._records_of(spark, span, wanted), end, positioned=positioned)

    def _rows(self, records: DataFrame, end: TopicsPosition, *, positioned: bool) -> DataFrame:
        source = self._with_value_columns(end.topics)
        self._inferred.keep()
        return kafka_rows.rows(records, source, self.context.rejected_input, positioned=positioned)

    def _records_of(self, spark: SparkSession, span: Span, wanted: Iterable[Range]) -> DataFrame:
        return self._read(spark, TopicsPosition.parse(span.end or {}), wanted)

    def _read(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range]) -> DataFrame:
        test_topics = stand_in(self._source)
        if test_topics is not None:
            return test_topics.records(spark, at, wanted, self._has_headers)
        return _loaded(spark, self._options(at, wanted))

    @property
    def _has_headers(self) -> bool:
        return "headers" in dict(self._source.metadata_pairs).values()

    def _ranges(self, span: Span) -> list[Range]:
        assert span.start is not None
        assert span.end is not None
        return ranges(TopicsPosition.parse(span.start), TopicsPosition.parse(span.end))

    def _options(self, at: TopicsPosition, wanted: Iterable[Range]) -> dict[str, str]:
        """The options of Spark's reader for ranges of offsets."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for part in wanted:
            starts.setdefault(part.topic, {})[str(part.partition)] = part.start
            ends.setdefault(part.topic, {})[str(part.partition)] = part.end
        ids = ",".join(topic.id for topic in at.topics.values())
        group = hashlib.sha256(f"{self.context.plan.pipeline} {self.index} {ids}".encode()).hexdigest()[:16]
        return {
            **{f"kafka.{name}": value for name, value in (FETCH_SETTINGS | revealed_properties(self._source)).items()},
            "kafka.isolation.level": self._source.isolation_level,
            "kafka.allow.auto.create.topics": "false",
            # Executors find the consumers of the last batch by the consumer group. The group never commits offsets.
            "kafka.group.id": f"helios-{group}",
            "assign": json.dumps({topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": "true",
            "includeHeaders": str(self._has_headers).lower(),
        }

    @override
    def confirm(self, span: Span) -> None:
        """Refuses records that may come from a new topic with the same name. Spark itself notices deleted records.

        Raises:
            RecordsLost: A topic is gone, or was recreated.
        """
        end = TopicsPosition.parse(span.end or {})
        self._verify(end, [], self._cluster.logs(end.topics))


def _loaded(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """Reads records through Spark's V2 source API."""
    formats = str(spark.conf.get(V1_SOURCES))
    spark.conf.set(V1_SOURCES, ",".join(name for name in formats.split(",") if name.strip() != "kafka"))
    try:
        return spark.read.format("kafka").options(**options).load()
    finally:
        spark.conf.set(V1_SOURCES, formats)
