"""The looks of `helios doctor` at brokers, topics and a registry."""

from __future__ import annotations

from functools import partial

from helios.catalog.probe import reach
from helios.sources.common.look import Look
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.registry import asked, latest
from helios.sources.kafka.spark.cluster import Cluster
from helios.sources.kafka.values import Registry

SOON = {"default.api.timeout.ms": "8000", "request.timeout.ms": "5000"}
"""The doctor waits 10 s for an answer."""


def kafka(source: KafkaSource) -> tuple[list[Look], list[Look]]:
    """The looks at a source that need no JVM, and those that do.

    Args:
        source: The source.
    """
    remedy = "check .servers(...), and that the brokers run."
    without = [
        Look(f"broker {broker}", partial(_reached, broker), broker, remedy, needed=True)
        for broker in dict.fromkeys(source.brokers)
    ]
    if source.values.registry is not None:
        registry = source.values.registry
        without.append(Look("schema registry", partial(_registry, source, registry), registry.url))
    quick = source.properties({**SOON, **dict(source.client)})
    if source.pattern is not None:
        return without, [Look(f"topics /{source.pattern}/", partial(_matching, quick))]
    return without, [Look(f"topic {topic}", partial(_topic, quick, topic)) for topic in source.topics]


def _reached(address: str) -> str:
    reach(f"kafka://{address.rpartition('://')[2]}")
    return address


def _registry(source: KafkaSource, registry: Registry) -> str:
    follows = source.values.format == "avro" and source.values.avro is None
    named = [registry.subject] if registry.subject is not None else [f"{topic}-value" for topic in source.topics]
    if not follows or not named:
        return f"{len(asked(registry, '/subjects', source.origin)):,} subjects"
    found = [(subject, latest(registry, subject, source.origin)) for subject in named]
    return "; ".join(f"{subject}: version {schema.version}, id {schema.id}" for subject, schema in found)


def _topic(source: KafkaSource, topic: str) -> str:
    cluster = Cluster(source)
    log = cluster.logs([topic]).get(topic)
    if log is None:
        raise cluster.missing([topic])
    ends = list(zip(log.earliest, log.latest, strict=True))
    shown = ", ".join(f"{first} to {behind}" for first, behind in ends[:5]) + (", ..." if len(ends) > 5 else "")
    count = f"{len(ends)} partition{'s' if len(ends) > 1 else ''}"
    return f"{count}, offsets {shown} ({sum(behind - first for first, behind in ends):,} in all)"


def _matching(source: KafkaSource) -> str:
    names = Cluster(source).topics()
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} topics: {shown}" if names else "none matches yet"
