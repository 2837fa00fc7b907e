"""The interface to the topics of a source: a Kafka cluster, or in tests a stand-in without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from helios.errors import NotFound
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range, TopicsPosition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Topics(Protocol):
    """Queries about the topics of a source; `helios.sources.kafka.spark.cluster.Cluster` sends them to Kafka."""

    def topics(self) -> list[str]:
        """The names of the topics that the source reads."""

    def logs(self, names: Iterable[str]) -> dict[str, Log]:
        """The current logs of the topics that exist."""

    def missing_topics_error(self, names: Iterable[str]) -> NotFound:
        """The error for topics that do not exist."""

    def offsets_at(
        self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int
    ) -> dict[str, tuple[int, ...]]:
        """For each topic, the offset of each partition's first record at a time or later."""

    def oldest_timestamp(self, ranges: Sequence[Range]) -> int | None:
        """The smallest timestamp of the first records of ranges, in milliseconds; None if it is unknown."""


class StandIn(Topics, Protocol):
    """Topics without a broker; a test provides their records."""

    def records(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range], headers: bool) -> DataFrame:
        """The records of ranges, with the columns of Spark's Kafka reader."""

    def produce(self, topic: str, records: DataFrame) -> None:
        """Appends records, with the columns of Spark's Kafka writer, to a topic."""


STAND_INS: dict[str, Callable[[KafkaSource], StandIn]] = {}
"""The factories of stand-ins, by the address that a test declares as its broker."""


def stand_in(source: KafkaSource) -> StandIn | None:
    """The stand-in for the topics of a source; None if its brokers are real."""
    factory = STAND_INS.get(source.brokers[0]) if source.brokers else None
    return factory(source) if factory is not None else None
