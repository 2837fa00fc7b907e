"""Where the records of topics come from: a cluster, or what stands in for one in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from helios.errors import NotFound
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range, TopicsPosition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Topics(Protocol):
    """What a reader asks of the topics of a source; see `helios.sources.kafka.spark.cluster.Cluster`."""

    def topics(self) -> list[str]: ...

    def logs(self, names: Iterable[str]) -> dict[str, Log]: ...

    def missing(self, names: Iterable[str]) -> NotFound: ...

    def at(self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int) -> dict[str, tuple[int, ...]]: ...

    def oldest(self, ranges: Sequence[Range]) -> int | None: ...


class StandIn(Topics, Protocol):
    """Topics without a broker, whose records are given."""

    def records(self, spark: SparkSession, at: TopicsPosition, wanted: Iterable[Range], headers: bool) -> DataFrame:
        """The records of ranges, with the columns that Spark's reader of Kafka has."""


STAND_INS: dict[str, Callable[[KafkaSource], StandIn]] = {}
"""By the address of a broker that is none, what makes the topics of a source."""


def stand_in(source: KafkaSource) -> StandIn | None:
    """What stands in for the brokers of a source; None where these are real."""
    made = STAND_INS.get(source.brokers[0]) if source.brokers else None
    return made(source) if made is not None else None
