"""The checks of `helios doctor` for brokers, topics and a schema registry."""

from __future__ import annotations

from functools import partial

from helios.catalog.probe import reach
from helios.sources.common.doctor_check import DoctorCheck
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.registry import get_json, latest_schema
from helios.sources.kafka.spark.cluster import Cluster
from helios.sources.kafka.values import Registry

MOST_SHOWN = 5
"""A check names at most this many partitions or topics."""

CHECK_TIMEOUTS = {"default.api.timeout.ms": "8000", "request.timeout.ms": "5000"}
"""The timeouts of the clients; none is longer than the doctor waits for a check (`PROBE_SECONDS`)."""


def kafka(source: KafkaSource) -> tuple[list[DoctorCheck], list[DoctorCheck]]:
    """The checks of a source that need no JVM, and those that need one."""
    fix = "check .servers(...), and that the brokers run."
    without_jvm = [
        DoctorCheck(f"broker {broker}", partial(_reach_broker, broker), broker, fix, required_by_jvm_checks=True)
        for broker in dict.fromkeys(source.brokers)
    ]
    if source.values.registry is not None:
        registry = source.values.registry
        without_jvm.append(DoctorCheck("schema registry", partial(_registry_text, source, registry), registry.url))
    with_timeouts = source.properties({**CHECK_TIMEOUTS, **dict(source.client_settings)})
    if source.pattern is not None:
        return without_jvm, [DoctorCheck(f"topics /{source.pattern}/", partial(_matching_topics, with_timeouts))]
    return without_jvm, [
        DoctorCheck(f"topic {topic}", partial(_topic_text, with_timeouts, topic)) for topic in source.topics
    ]


def _reach_broker(address: str) -> str:
    reach(f"kafka://{address.rpartition('://')[2]}")
    return address


def _registry_text(source: KafkaSource, registry: Registry) -> str:
    """The schemas that the columns follow, or else the number of subjects, as text."""
    follows = source.values.format == "avro" and source.values.avro is None
    subjects = [registry.subject] if registry.subject is not None else [f"{topic}-value" for topic in source.topics]
    if not follows or not subjects:
        return f"{len(get_json(registry, '/subjects', source.origin)):,} subjects"
    schemas = [(subject, latest_schema(registry, subject, source.origin)) for subject in subjects]
    return "; ".join(f"{subject}: version {schema.version}, id {schema.id}" for subject, schema in schemas)


def _topic_text(source: KafkaSource, topic: str) -> str:
    """The partitions and offsets of a topic, as text."""
    cluster = Cluster(source)
    log = cluster.logs([topic]).get(topic)
    if log is None:
        raise cluster.missing_topics_error([topic])
    bounds = list(zip(log.earliest, log.latest, strict=True))
    shown = ", ".join(f"{first} to {end}" for first, end in bounds[:MOST_SHOWN])
    shown += ", ..." if len(bounds) > MOST_SHOWN else ""
    count = f"{len(bounds)} partition{'s' if len(bounds) > 1 else ''}"
    return f"{count}, offsets {shown} ({sum(end - first for first, end in bounds):,} in all)"


def _matching_topics(source: KafkaSource) -> str:
    names = Cluster(source).topics()
    shown = ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
    return f"{len(names)} topics: {shown}" if names else "none matches yet"
