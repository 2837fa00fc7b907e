"""What the tests of Kafka share: a broker of the session, topics on it, and pipelines that read them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from py4j.java_gateway import JavaMember
from pyspark import SparkContext
from pyspark.sql import SparkSession

from helios import Kafka
from helios.sources.kafka.declare import KafkaSource
from helios.spark.jvm.classes import classes
from tests.services.kafka import Kafka as Broker
from tests.streaming.conftest import World, forget_commit, shared_spark, world

__all__ = ["World", "forget_commit", "shared_spark", "world"]

_NUMBERS = count()


class Topics:
    """Topics of a broker, made and written by Kafka's own clients in the JVM of the tests."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._jvm = classes()
        self._admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(self._map(self._servers))
        serializer = self._jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        self._serializers = serializer(), serializer()
        self._producer = self._made()

    @property
    def _servers(self) -> dict[str, str]:
        return {"bootstrap.servers": self.broker.servers}

    def _made(self, **more: str) -> Any:
        # One request at a time: where the first one to a new topic is too early, a broker takes the second one, and
        # then refuses the first as out of order until it expires.
        settings = self._servers | {"max.in.flight.requests.per.connection": "1"}
        config = self._map(settings | {name.replace("_", "."): value for name, value in more.items()})
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(config, *self._serializers)

    def _map(self, entries: Mapping[Any, Any]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in entries.items():
            made.put(key, value)
        return made

    def _list(self, *elements: Any) -> Any:
        made = self._jvm.java.util.ArrayList()
        for one in elements:
            made.add(one)
        return made

    def _partition(self, topic: str, number: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, number)

    # topics

    def make(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """A new topic; its settings with `_` for dots."""
        name = name or f"t{next(_NUMBERS)}"
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        new.configs(self._map({key.replace("_", "."): value for key, value in settings.items()}))
        self._admin.createTopics(self._list(new)).all().get()
        return name

    def delete(self, name: str) -> None:
        self._admin.deleteTopics(self._list(name)).all().get()

    def grow(self, name: str, partitions: int) -> None:
        to = self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        self._admin.createPartitions(self._map({name: to})).all().get()

    def purge(self, name: str, before: int, partition: int = 0) -> None:
        """Deletes the records before an offset, as retention does."""
        name_of_class = "z:org.apache.kafka.clients.admin.RecordsToDelete"  # its methods of this name confuse py4j
        to = JavaMember("beforeOffset", None, name_of_class, SparkContext._gateway._gateway_client)(before)
        self._admin.deleteRecords(self._map({self._partition(name, partition): to})).all().get()

    def await_record(self, name: str, seconds: float = 120) -> None:
        """Waits until a topic has a record."""
        self.await_records(1, name, seconds=seconds)

    def await_records(self, number: int, *names: str, seconds: float = 120) -> None:
        """Waits until topics have so many records in all."""
        admin = self._jvm.org.apache.kafka.clients.admin
        described = self._admin.describeTopics(self._list(*names)).allTopicNames().get()
        numbers = {name: range(described.get(name).partitions().size()) for name in names}
        partitions = [self._partition(name, number) for name in names for number in numbers[name]]
        wanted = self._map(dict.fromkeys(partitions, admin.OffsetSpec.latest()))
        until = time.monotonic() + seconds
        while sum(one.offset() for one in self._admin.listOffsets(wanted).all().get().values()) < number:
            assert time.monotonic() < until, f"{names} have no {number} records"
            time.sleep(0.2)

    # records

    def send(
        self,
        name: str,
        values: Iterable[object],
        partition: int = 0,
        *,
        producer: Any = None,
        key: bytes | None = None,
        at: int | None = None,
    ) -> None:
        """Writes records: bytes as they are, None for a tombstone, anything else as JSON; `at` is their time in ms."""
        producer = producer or self._producer
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        contents = [v if isinstance(v, bytes) or v is None else json.dumps(v).encode() for v in values]
        time = [at] if at is not None else []
        sent = [producer.send(record(name, partition, *time, key, content)) for content in contents]
        producer.flush()
        for one in sent:
            one.get()  # a record that the broker has refused is an error of the test

    def send_large(self, name: str, values: Iterable[object]) -> None:
        """Writes records that are larger than a producer's limit."""
        producer = self._made(max_request_size=str(64 << 20), buffer_memory=str(128 << 20))
        self.send(name, values, producer=producer)
        producer.close()

    def transaction(self, name: str, values: Sequence[object], end: str, partition: int = 0) -> Any:
        """Writes records in a transaction and ends it: "commit", "abort", or "none" to leave it open."""
        producer = self._made(transactional_id=f"x{next(_NUMBERS)}")
        producer.initTransactions()
        producer.beginTransaction()
        self.send(name, values, partition, producer=producer)
        if end != "none":
            getattr(producer, f"{end}Transaction")()
            producer.close()
        return producer

    def source(self, *names: str, **options: Any) -> KafkaSource:
        return Kafka.source(*names, **options).servers(self.broker.servers)

    def ids(self, *names: str, extra: Any = "fail") -> KafkaSource:
        """Topics of `{"id": ...}`, with the partition and offset of each record."""
        return self.source(*names).value("json", schema="id bigint", extra=extra).metadata("partition", "offset")

    def close(self) -> None:
        self._producer.close()
        self._admin.close()


@pytest.fixture(scope="session")
def _topics(shared_spark: SparkSession, kafka: Broker) -> Iterator[Topics]:
    made = Topics(kafka)
    yield made
    made.close()


@pytest.fixture
def topics(_topics: Topics) -> Topics:
    """Topics of the session's broker, which runs."""
    _topics.broker.start()
    return _topics


def numbered(start: int, end: int) -> list[dict[str, int]]:
    """Values `{"id": ...}`."""
    return [{"id": number} for number in range(start, end)]
