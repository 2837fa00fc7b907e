"""The source of Kafka topics: positions are offsets, and each batch is a range of offsets that is read as a batch.

A range is in Spark's log before it is read, so that a replay reads the same records. It ends where the last transaction
is decided, at the latest: a reader of committed records gets no further.
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
from helios.sources.common.spark.context import SourceContext
from helios.sources.common.spark.row_stream import RowStream
from helios.sources.common.spark.spans import KEPT_EVERY, SpanSource
from helios.sources.kafka.checks import column_problems
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.spark import avro as kafka_avro
from helios.sources.kafka.spark import rows as kafka_rows
from helios.sources.kafka.spark.cluster import Cluster, properties
from helios.sources.kafka.spark.columns import InferredColumns
from helios.sources.kafka.topics import (
    Log,
    Range,
    RecordsLost,
    Topic,
    TopicsPosition,
    advance,
    gone,
    onward,
    ranges,
    sampled,
    verify,
)
from helios.sources.kafka.transport import Topics, stand_in
from helios.spark.jvm.functions import ddl
from helios.spark.jvm.sql import struct_of
from helios.table.positions import Lag, Position, Span

FETCHES = {"max.poll.records": "50000", "max.partition.fetch.bytes": str(8 << 20), "fetch.max.wait.ms": "10"}
"""Spark asks the broker twice for the bounds of a partition after each poll, of 500 records by default.

The consumer has asked for what follows by then. At the end of a partition the broker would wait half a second for that,
and it answers what comes over one connection in order.
"""

V1_SOURCES = "spark.sql.sources.useV1SourceList"
"""The formats that Spark reads by its first interface, which makes a Java object of each row."""


class KafkaReader(SpanSource):
    """Topics as a `Source`."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        self._frozen: dict[str, Log] | None = None
        self._found: Topics | None = None
        self._inferred = InferredColumns(context, index)

    @property
    def _source(self) -> KafkaSource:
        assert isinstance(self.read_plan.source, KafkaSource)
        return self.read_plan.source

    @property
    def _cluster(self) -> Topics:
        if self._found is None:
            self._found = stand_in(self._source) or Cluster(self._source)
        return self._found

    @property
    @override
    def declared(self) -> str:
        return self._source.beginning

    # positions

    @override
    def first(self) -> Position:
        try:
            return self._first()
        except RunError as error:
            # Nothing has begun: a wrong address is reported at once, without retries.
            raise RunError(error.what, where=error.where, fix=error.fix) from None

    def _first(self) -> Position:
        names = self._cluster.topics()
        logs = self._cluster.logs(names)
        absent = [name for name in names if name not in logs]
        if absent:
            raise self._cluster.missing(absent)
        if not logs:
            raise NotFound(
                f"{self._source.label()}: no topic matches the pattern yet.",
                where=self._source.origin,
                fix="check the pattern, which must match whole names, or make a first topic.",
            )
        offsets = self._starts(logs)
        return TopicsPosition({name: Topic(log.id, offsets[name]) for name, log in logs.items()}).as_json()

    def _starts(self, logs: Mapping[str, Log]) -> Mapping[str, tuple[int, ...]]:
        """By topic, the offsets where reading begins."""
        begun = self._source.first
        if isinstance(begun, datetime):
            return self._cluster.at(logs, logs, round(begun.timestamp() * 1000))
        if isinstance(begun, str):
            return {name: log.earliest if begun == "earliest" else log.latest for name, log in logs.items()}
        given = {topic or next(iter(logs)): dict(offsets) for topic, offsets in begun}
        for name, log in logs.items():
            self._refuse_offsets(name, given.get(name, {}), log)
        unknown = [name for name in given if name not in logs]
        if unknown or ("" in dict(begun) and len(logs) > 1):
            raise InputError(
                f"start({self._source.beginning}): {f'{unknown[0]!r} is not a topic of the source' if unknown else ''}"
                f"{'the offsets name no topic, and the source has several' if not unknown else ''}.",
                where=self._source.origin,
                fix='write {"orders": {0: 15}, "payments": {0: 7}}.',
            )
        return {name: tuple(given[name][number] for number in range(len(log.latest))) for name, log in logs.items()}

    def _refuse_offsets(self, name: str, given: Mapping[int, int], log: Log) -> None:
        partitions = set(range(len(log.latest)))
        wrong = sorted(partitions ^ set(given))
        if wrong:
            what = (
                f"partition {wrong[0]} of {name} is missing"
                if wrong[0] in partitions
                else (f"{name} has no partition {wrong[0]}")
            )
            raise InputError(
                f"start({self._source.beginning}): {what}: it has {len(partitions)}.",
                where=self._source.origin,
                fix="give an offset for each of its partitions.",
            )
        out = next((n for n in sorted(partitions) if not log.earliest[n] <= given[n] <= log.latest[n]), None)
        if out is not None:
            raise InputError(
                f"start({self._source.beginning}): partition {out} of {name} has the offsets {log.earliest[out]} to "
                f"{log.latest[out]}, and {given[out]} is none of them.",
                where=self._source.origin,
                fix="give one of these.",
            )

    def _logs(self, at: TopicsPosition) -> dict[str, Log]:
        """The current logs of the topics, including new topics of a pattern."""
        return self._cluster.logs(dict.fromkeys([*at.topics, *self._cluster.topics()]))

    def _verified(self, at: TopicsPosition, wanted: list[Range], logs: Mapping[str, Log]) -> None:
        try:
            verify(at, wanted, logs)
        except RecordsLost as problem:
            raise RecordsLost(problem.what, where=self._source.origin, fix=problem.fix) from None

    @override
    def freeze(self) -> None:
        self._frozen = self._cluster.logs(self._cluster.topics())

    @override
    def latest(self, after: Position) -> Position:
        at = TopicsPosition.parse(after)
        logs = self._frozen if self._frozen is not None else self._logs(at)
        self._verified(at, [] if self._skips else onward(at), logs)
        trigger = self.context.plan.trigger
        end = self._end(at, logs, trigger.max_rows if trigger is not None else None)
        self._tell(gone(at, logs))
        self.context.observer.lagging(self.index, self._lag(self._behind(at, logs)))
        return end.as_json() if ranges(at, end) or end.topics.keys() != at.topics.keys() else after

    def _end(self, at: TopicsPosition, logs: Mapping[str, Log], most: int | None) -> TopicsPosition:
        """The end of the batch after a position."""
        return advance(at, logs, most, skips=self._skips)

    @property
    def _skips(self) -> bool:
        return self._source.missing == "skip"

    @override
    def lost(self, span: Span) -> bool:
        """True if records of a planned span are gone, and the source goes on without them."""
        end = TopicsPosition.parse(span.end or {})
        logs = self._cluster.logs(end.topics)
        self._verified(end, [], logs)
        return self._skips and any(
            offsets.start < logs[offsets.topic].earliest[offsets.partition] for offsets in self._ranges(span)
        )

    def _tell(self, missing: list[Range]) -> None:
        for offsets in missing:
            self.context.observer.noted(
                f"{len(offsets):,} records of {offsets.topic}, partition {offsets.partition}, were deleted before they "
                f'were read, and are left out (.on_missing("skip")): offsets {offsets.start} to {offsets.end - 1}'
            )

    # lag

    def _behind(self, at: TopicsPosition, logs: Mapping[str, Log]) -> list[Range]:
        return ranges(at, advance(at, logs, skips=self._skips))

    @override
    def lag(self, at: Position) -> Lag | None:
        position = TopicsPosition.parse(at)
        lag = self._lag(self._behind(position, self._logs(position)))
        self.keep_lag(lag, every=KEPT_EVERY if self._frozen is None else 0.0)
        return lag

    def _lag(self, behind: list[Range]) -> Lag:
        oldest = self._cluster.oldest(behind) if behind else None
        seconds = max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
        return Lag(0, seconds, records=sum(map(len, behind)))

    # columns

    def _settled(self, topics: Iterable[str] | None = None) -> KafkaSource:
        """The source with the columns of its values.

        Args:
            topics: The topics whose schemas the columns follow; by default those that are there now.

        Raises:
            InputError: They cannot be inferred, or two columns have one name.
        """
        source, spark = self._source, self.context.spark
        if source.values.format == "avro":
            schema = source.values.avro if source.values.avro is not None else self._registered(topics)
            columns = kafka_avro.columns_of(spark, schema, source.origin)
            settled = source.with_value_columns(ddl(spark, columns), schema)
        elif source.values.inferred:
            settled = source.with_value_columns(ddl(spark, self._inferred.of(source, self._sample)))
        else:
            return source
        for problem in column_problems(settled, struct_of(str(settled.declared_schema)).names):
            raise problem
        return settled

    def _registered(self, topics: Iterable[str] | None) -> str:
        """The schema that the columns follow.

        It is looked up when the end of a batch is known: whoever has written a record has registered its schema before.
        """
        source = self._source
        assert source.values.registry is not None
        try:
            named = topics if topics is not None else self._cluster.topics()
            return kafka_avro.followed(source.values.registry, named, source.origin)
        except RunError as error:
            checkpoint = self.context.checkpoint
            if checkpoint is not None and checkpoint.identity() is not None:
                raise
            # Nothing has begun: a wrong address is reported at once, without retries.
            raise RunError(error.what, where=error.where, fix=error.fix) from None

    def _sample(self) -> DataFrame:
        """The records from which columns are inferred."""
        at = TopicsPosition.parse(self.first())
        wanted = sampled(at, self._cluster.logs(at.topics), self._source.values.sample)
        if not wanted:
            raise NotFound(
                f"{self._source.label()}: there is no record yet, from which columns could be inferred.",
                where=self._source.origin,
                fix='declare the columns: value("json", schema="id bigint, name string").',
            )
        return self._read(self.context.spark, at, wanted)

    @override
    def schema(self) -> StructType:
        return struct_of(str(self._settled().declared_schema))

    # rows

    @override
    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        once = span is None or not self._source.streaming
        span = span or self.current()
        wanted = self._ranges(span)
        if not wanted:
            return self.nothing(spark) if once else None
        end = TopicsPosition.parse(span.end or {})
        self._verified(end, wanted, self._cluster.logs(end.topics))
        return self._rows(self._loaded(spark, span, wanted), end, positioned=positioned)

    def _rows(self, records: DataFrame, end: TopicsPosition, *, positioned: bool) -> DataFrame:
        settled = self._settled(end.topics)
        self._inferred.keep()
        return kafka_rows.rows(records, settled, self.context.rejected_input, positioned=positioned)

    def _loaded(self, spark: SparkSession, span: Span, wanted: Iterable[Range]) -> DataFrame:
        return self._read(spark, TopicsPosition.parse(span.end or {}), wanted)

    def _read(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range]) -> DataFrame:
        other = stand_in(self._source)
        if other is not None:
            return other.records(spark, at, wanted, "headers" in dict(self._source.carried).values())
        return _loaded(spark, self._options(at, wanted))

    def _ranges(self, span: Span) -> list[Range]:
        assert span.start is not None
        assert span.end is not None
        return ranges(TopicsPosition.parse(span.start), TopicsPosition.parse(span.end))

    def _options(self, at: TopicsPosition, wanted: Iterable[Range]) -> dict[str, str]:
        """The options of Spark's reader for ranges of offsets."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for offsets in wanted:
            starts.setdefault(offsets.topic, {})[str(offsets.partition)] = offsets.start
            ends.setdefault(offsets.topic, {})[str(offsets.partition)] = offsets.end
        ids = ",".join(topic.id for topic in at.topics.values())
        group = hashlib.sha256(f"{self.context.plan.pipeline} {self.index} {ids}".encode()).hexdigest()[:16]
        return {
            **{f"kafka.{name}": value for name, value in (FETCHES | properties(self._source)).items()},
            "kafka.isolation.level": self._source.level,
            "kafka.allow.auto.create.topics": "false",
            # Executors keep consumers by this name for the next batch; no offset is stored under it.
            "kafka.group.id": f"helios-{group}",
            "assign": json.dumps({topic: sorted(map(int, found)) for topic, found in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "failOnDataLoss": "true",
            "includeHeaders": str("headers" in dict(self._source.carried).values()).lower(),
        }

    @override
    def confirm(self, span: Span) -> None:
        """Refuses records that may be those of another topic; Spark's reader tells of those that were gone.

        Raises:
            RecordsLost: A topic was made again.
        """
        end = TopicsPosition.parse(span.end or {})
        self._verified(end, [], self._cluster.logs(end.topics))

    @override
    def stream(self) -> DataFrame:
        return RowStream(self).df()


def _loaded(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    """The records of Spark's batch reader, by its second interface."""
    formats = str(spark.conf.get(V1_SOURCES))
    spark.conf.set(V1_SOURCES, ",".join(one for one in formats.split(",") if one.strip() != "kafka"))
    try:
        return spark.read.format("kafka").options(**options).load()
    finally:
        spark.conf.set(V1_SOURCES, formats)
