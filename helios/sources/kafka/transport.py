"""The topics of a source: those of a cluster, or a stand-in without a broker in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from helios.errors import NotFound
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range, TopicsPosition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Topics(Protocol):
    """The topics of a source, as a reader needs them; see `helios.sources.kafka.spark.cluster.Cluster`."""

    def topics(self) -> list[str]: ...

    def logs(self, names: Iterable[str]) -> dict[str, Log]: ...

    def missing(self, names: Iterable[str]) -> NotFound: ...

    def at(self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int) -> dict[str, tuple[int, ...]]: ...

    def oldest(self, ranges: Sequence[Range]) -> int | None: ...


class StandIn(Topics, Protocol):
    """Topics without a broker, whose records a test provides."""

    def records(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range], headers: bool) -> DataFrame:
        """The records of ranges, with the columns that Spark's reader of Kafka has."""

    def produce(self, topic: str, records: DataFrame) -> None:
        """Appends records to a topic, with the columns that Spark's writer of Kafka takes."""


STAND_INS: dict[str, Callable[[KafkaSource], StandIn]] = {}
"""The factories of stand-ins, by the address that a test declares as its broker."""


def stand_in(source: KafkaSource) -> StandIn | None:
    """The stand-in for the topics of a source; None if its brokers are real."""
    factory = STAND_INS.get(source.brokers[0]) if source.brokers else None
    return factory(source) if factory is not None else None
