"""Queries a Kafka cluster through Kafka's Java clients: for topics, offsets, and the timestamps of records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from helios.errors import HeliosError, InputError, NotFound, RunError, near_miss
from helios.model.values import Secret
from helios.sources.kafka.client import LOGIN_MODULES, KafkaConnection, Tls
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_causes
from helios.spark.jvm.types.java import JavaList, JavaMap, JavaObject
from helios.spark.jvm.types.kafka import JavaAdmin, JavaConsumer, JavaListOffsets, JavaTopicPartition

T = TypeVar("T")

REQUEST_TIMEOUTS = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
"""The timeouts of one request. A run repeats failed requests, so it waits longer for an unreachable cluster."""

OLDEST_RECORD_TIMEOUT = 2.0
"""The seconds to wait for the oldest unread records. The smallest of their timestamps determines the lag in seconds."""

UNKNOWN_TOPIC_ERROR = "UnknownTopicOrPartitionException"
LOGIN_ERRORS = ("SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException")
PERMISSION_ERRORS = ("TopicAuthorizationException", "ClusterAuthorizationException", "GroupAuthorizationException")
"""The Java exceptions for an unknown topic, for a failed login, and for a missing permission."""

_ADMINS: dict[tuple[object, ...], JavaAdmin] = {}
"""One shared admin client for each cluster and JVM, since each client has its own thread and connections.

The key has the id of the JVM's gateway, and the properties of the client.
"""


def revealed_properties(source: KafkaConnection) -> dict[str, str]:
    """The properties of Kafka's clients, with secrets in plain text.

    Raises:
        InputError: A file of certificates cannot be read.
    """
    tls, login = source.encryption, source.login
    protocol = ("SASL_" if login is not None else "") + ("SSL" if tls is not None else "PLAINTEXT")
    settings = {"bootstrap.servers": ",".join(source.brokers)}
    if protocol != "PLAINTEXT":
        settings["security.protocol"] = protocol
    if tls is not None:
        settings |= _pem(tls, source)
    if login is not None:
        name, password = _quoted(login.username), _quoted(login.password.reveal())
        settings["sasl.mechanism"] = login.mechanism
        settings["sasl.jaas.config"] = f"{LOGIN_MODULES[login.mechanism]} required username={name} password={password};"
    return settings | {
        name: value.reveal() if isinstance(value, Secret) else value for name, value in source.client_settings
    }


def _pem(tls: Tls, source: KafkaConnection) -> dict[str, str]:
    """The properties for TLS, with the text of the certificates, since executors may not have the files."""

    def content(path: str) -> str:
        try:
            return Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"tls(): {path} cannot be read: {error}.", where=source.origin, fix="give a file in the PEM format."
            ) from error

    settings: dict[str, str] = {}
    if tls.ca is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": content(tls.ca)}
    if tls.certificate is not None and tls.key is not None:
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": content(tls.certificate)}
        settings["ssl.keystore.key"] = content(tls.key)
    if tls.key_password is not None:
        settings["ssl.key.password"] = tls.key_password.reveal()
    return settings


def _quoted(text: str) -> str:
    """A text in quotes, as a JAAS configuration needs it.

    Examples:
        >>> print(_quoted('a"b'))
        "a\\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Cluster:
    """The Kafka cluster of a source. The methods raise RunError if the cluster does not answer, or refuses a request.

    Args:
        label: The name of the source in errors; by default `source.label()`.
    """

    def __init__(self, source: KafkaSource, label: str | None = None) -> None:
        self._source = source
        self._label = label or source.label()
        self._properties = revealed_properties(source)

    # topics

    def topics(self) -> list[str]:
        """The topics that the source names; or the existing topics that the source's pattern matches."""
        if self._source.pattern is None:
            return list(self._source.topics)
        known = self._request(lambda admin: listed(admin.listTopics().names().get()))
        return sorted(name for name in known if re.fullmatch(self._source.pattern, name))

    def logs(self, names: Iterable[str]) -> dict[str, Log]:
        """The current logs of topics, by name. Topics that do not exist are left out."""
        described = {name: description for name in names if (description := self._described(name)) is not None}
        partitions = [(name, number) for name, (_, count) in described.items() for number in range(count)]
        spec = classes().org.apache.kafka.clients.admin.OffsetSpec
        # The latest offsets are requested first. If Kafka deletes records before the second request, `earliest` is
        # after the deleted records, and may be greater than `latest`.
        latest = self.offsets(dict.fromkeys(partitions, spec.latest()))
        earliest = self.offsets(dict.fromkeys(partitions, spec.earliest()))
        return {
            name: Log(
                id,
                tuple(earliest[name, number] for number in range(count)),
                tuple(max(latest[name, number], earliest[name, number]) for number in range(count)),
            )
            for name, (id, count) in described.items()
        }

    def _described(self, name: str) -> tuple[str, int] | None:
        """The id of a topic and the number of its partitions; None if the topic does not exist."""

        def ask(admin: JavaAdmin) -> tuple[str, int] | None:
            future = admin.describeTopics(_list([name])).topicNameValues().get(name)
            assert future is not None  # the client returns a future for each requested name
            try:
                answer = future.get()
            except Py4JJavaError as error:
                if any(cause.getClass().getSimpleName() == UNKNOWN_TOPIC_ERROR for cause in java_causes(error)):
                    return None
                raise
            return str(answer.topicId().toString()), answer.partitions().size()

        return self._request(ask)

    def missing_topics_error(self, names: Iterable[str]) -> NotFound:
        """The error for topics that do not exist. The error suggests an existing topic with a similar name."""
        known = self._request(lambda admin: listed(admin.listTopics().names().get()))
        first, *more = names
        others = f" (nor do {', '.join(more)})" if more else ""
        return NotFound(
            f"topic {first!r} does not exist on {self._brokers}{others}. {near_miss(first, known)}",
            where=self._source.origin,
            fix="check the name, or create the topic.",
        )

    # offsets

    def offsets(self, wanted: Mapping[tuple[str, int], JavaObject]) -> dict[tuple[str, int], int]:
        """The offset that fits each specification, by topic and partition; -1 if no record fits.

        Args:
            wanted: An `org.apache.kafka.clients.admin.OffsetSpec` for each topic and partition.
        """
        jvm = classes()
        level = getattr(jvm.org.apache.kafka.common.IsolationLevel, self._source.isolation_level.upper())
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        specs: JavaMap[JavaTopicPartition, JavaObject] = jvm.java.util.HashMap()
        partitions = {key: _partition(*key) for key in wanted}
        for key, spec in wanted.items():
            specs.put(partitions[key], spec)

        def ask(admin: JavaAdmin) -> dict[tuple[str, int], int]:
            answer: JavaListOffsets = admin.listOffsets(specs, options)
            return {key: int(answer.partitionResult(value).get().offset()) for key, value in partitions.items()}

        return self._request(ask) if wanted else {}

    def offsets_at(
        self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int
    ) -> dict[str, tuple[int, ...]]:
        """For each partition of each topic, the offset of the first record with this timestamp or a later one.

        For a partition without such a record, this is the offset of the partition's end.

        Args:
            logs: The logs of the topics.
            milliseconds: The timestamp, in milliseconds since 1970.
        """
        partitions = [(name, number) for name in names for number in range(len(logs[name].latest))]
        spec = classes().org.apache.kafka.clients.admin.OffsetSpec
        offsets = self.offsets({part: spec.forTimestamp(milliseconds) for part in partitions})
        return {
            name: tuple(
                offsets[name, number] if offsets[name, number] >= 0 else logs[name].latest[number]
                for number in range(len(logs[name].latest))
            )
            for name in names
        }

    # ages

    def oldest_timestamp(self, ranges: Sequence[Range]) -> int | None:
        """The smallest timestamp of the ranges' first records, in milliseconds; None if no record was read in time."""
        jvm = classes()
        pending = {(part.topic, part.partition): _partition(part.topic, part.partition) for part in ranges}
        if not pending:
            return None
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "isolation.level": self._source.isolation_level,
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            "max.poll.records": "1",
        }

        def smallest_timestamp(consumer: JavaConsumer) -> int | None:
            consumer.assign(_list(pending.values()))
            for part in ranges:
                consumer.seek(pending[part.topic, part.partition], part.start)
            timestamps: list[int] = []
            end = time.monotonic() + OLDEST_RECORD_TIMEOUT
            while pending and time.monotonic() < end:
                records = consumer.poll(jvm.java.time.Duration.ofMillis(200)).iterator()
                while records.hasNext():
                    record = records.next()
                    timestamps.append(int(record.timestamp()))
                    partition = pending.pop((str(record.topic()), int(record.partition())), None)
                    if partition is not None:
                        consumer.pause(_list([partition]))
            return min(timestamps, default=None)

        def with_consumer() -> int | None:
            properties = _map(self._properties | settings)
            consumer: JavaConsumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
            try:
                return smallest_timestamp(consumer)
            finally:
                consumer.close()

        return self._guarded(with_consumer)

    # the client

    def _request(self, ask: Callable[[JavaAdmin], T]) -> T:
        return self._guarded(lambda: ask(self._admin()))

    def _admin(self) -> JavaAdmin:
        key = (id(SparkContext._gateway), *sorted(self._properties.items()))
        if key not in _ADMINS:
            admin: JavaAdmin = classes().org.apache.kafka.clients.admin.Admin.create(
                _map(REQUEST_TIMEOUTS | self._properties)
            )
            _ADMINS[key] = admin
        return _ADMINS[key]

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Py4JJavaError as error:
            raise self._failure(error) from error

    def _failure(self, error: Py4JJavaError) -> HeliosError:
        causes = [
            (str(c.getClass().getSimpleName()), str(c.getMessage() or "").rstrip(".")) for c in java_causes(error)
        ]
        innermost, message = causes[-1]
        refusals = (*LOGIN_ERRORS, *PERMISSION_ERRORS)
        refusal, reason = next(((name, text) for name, text in causes if name in refusals), (None, ""))
        what, fix = f"{innermost}: {message}.", None
        if refusal in LOGIN_ERRORS:
            what = f"{self._brokers} refuse the login: {reason}."
            fix = "check .sasl(...) and .tls(...) against the listener of that port."
        elif refusal is not None:
            what = f"{self._brokers} do not permit the request: {reason}."
            fix = "grant the user DESCRIBE and READ on the topics."
        elif innermost == "ConfigException" and "bootstrap urls" in message:
            what = f"none of the hosts in {self._brokers} can be resolved ({message})."
            fix = "check the hosts in .servers(...), and the DNS of this machine."
        elif innermost == "TimeoutException":
            what = f"no broker answers at {self._brokers}: {message}."
            fix = "check the addresses, that the brokers run, and that .tls() and .sasl() fit the port."
        return RunError(f"{self._label}: {what}", where=self._source.origin, fix=fix)

    @property
    def _brokers(self) -> str:
        return ", ".join(self._source.brokers)


def _partition(topic: str, number: int) -> JavaTopicPartition:
    partition: JavaTopicPartition = classes().org.apache.kafka.common.TopicPartition(topic, number)
    return partition


def _list(elements: Iterable[T]) -> JavaList[T]:
    java_list: JavaList[T] = classes().java.util.ArrayList()
    for element in elements:
        java_list.add(element)
    return java_list


def _map(entries: Mapping[str, str]) -> JavaMap[str, str]:
    java_map: JavaMap[str, str] = classes().java.util.HashMap()
    for key, value in entries.items():
        java_map.put(key, value)
    return java_map
