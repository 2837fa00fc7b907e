"""The source kind of `Kafka.source`."""

from __future__ import annotations

from helios.errors import HeliosError
from helios.plan.context import Surroundings
from helios.plan.nodes import ReadPlan
from helios.sources.common.describe import declared_columns
from helios.sources.common.kind import SourceKind
from helios.sources.kafka.checks import topic_problems
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import TopicsPosition

OUTAGES = (
    r"Timed out waiting for a node assignment|Call\(callName=\w+, .* timed out|Failed to update metadata after"
    r"|before the position for partition|Cannot fetch record for offset"
    r"|not present in metadata after|Expiring \d+ record\(s\) for"
)
"""A pattern of messages of Kafka's clients and of Spark's reader: the brokers do not answer."""


def _describe(source: KafkaSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source)
    return ReadPlan(source=source, schema=schema), topic_problems(source, schema)


KAFKA = SourceKind(
    declared=KafkaSource,
    reader="helios.sources.kafka.spark.reader:KafkaReader",
    position=TopicsPosition,
    describe=_describe,
    jars=("kafka",),
    lag="helios.table.lags:lag_last_seen",
    failures="helios.sources.kafka.spark.failures:failure",
    outages=OUTAGES,
    doctor_checks="helios.sources.kafka.spark.doctor_checks:kafka",
    read_reason="stateless over topics: each batch reads its range of offsets",
    units="records",
)
