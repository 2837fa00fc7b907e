"""The doctor's checks behind a source of Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from helios.catalog.probe import reach
from helios.model.cdc import CdcSource
from helios.model.kafka import KafkaSource
from helios.model.kafka_values import Registry
from helios.model.topic_changes import TopicChanges
from helios.spark.sources.kafka_cluster import Cluster
from helios.table.registry import asked, latest
from helios.table.slots import look_at_slot

SOON = {"default.api.timeout.ms": "8000", "request.timeout.ms": "5000"}
"""The doctor waits 10 s for an answer."""


@dataclass(frozen=True)
class Look:
    """One look.

    Attributes:
        name: What is looked at.
        what: Looks, and returns what was seen.
        where: The address.
        remedy: The fix of a failure whose cause is unknown.
        needed: Whether nothing else can be seen where all such looks fail.
    """

    name: str
    what: Callable[[], str]
    where: str = ""
    remedy: str | None = None
    needed: bool = False


def kafka(source: KafkaSource) -> tuple[list[Look], list[Look]]:
    """The looks at a source that need no JVM, and those that do.

    Args:
        source: The source.
    """
    remedy = "check .servers(...), and that the brokers run."
    without = [
        Look(f"broker {one}", partial(_reached, one), one, remedy, needed=True) for one in dict.fromkeys(source.brokers)
    ]
    if source.values.registry is not None:
        registry = source.values.registry
        without.append(Look("schema registry", partial(_registry, source, registry), registry.url))
    quick = source.properties({**SOON, **dict(source.client)})
    if source.pattern is not None:
        return without, [Look(f"topics /{source.pattern}/", partial(_matching, quick))]
    return without, [Look(f"topic {topic}", partial(_topic, quick, topic)) for topic in source.topics]


def changes(source: TopicChanges) -> tuple[list[Look], list[Look]]:
    """The looks at the topic of changes, as those of `kafka`, and at the replication slot that is named.

    Args:
        source: The changes.
    """
    without, within = kafka(source.kafka)
    slot = source.replication if isinstance(source, CdcSource) else None
    if slot is not None:
        what = partial(look_at_slot, slot, source.origin)
        without.append(Look(f"replication slot {slot.name}", what))
    return without, within


def _reached(address: str) -> str:
    reach(f"kafka://{address.rpartition('://')[2]}")
    return address


def _registry(source: KafkaSource, registry: Registry) -> str:
    follows = source.values.format == "avro" and source.values.avro is None
    named = [registry.subject] if registry.subject is not None else [f"{topic}-value" for topic in source.topics]
    if not follows or not named:
        return f"{len(asked(registry, '/subjects', source.origin)):,} subjects"
    found = [(subject, latest(registry, subject, source.origin)) for subject in named]
    return "; ".join(f"{subject}: version {one.version}, id {one.id}" for subject, one in found)


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
