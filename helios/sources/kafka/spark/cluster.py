"""A Kafka cluster, asked through Kafka's own Java clients: its topics, their offsets, and the age of records."""

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
from helios.sources.kafka.client import LOGINS, KafkaConnection, Tls
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.topics import Log, Range
from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.errors import java_causes
from helios.spark.jvm.types.java import JavaList, JavaMap, JavaObject
from helios.spark.jvm.types.kafka import JavaAdmin, JavaConsumer, JavaListOffsets, JavaTopicPartition

T = TypeVar("T")

PATIENCE = {"default.api.timeout.ms": "20000", "request.timeout.ms": "10000"}
"""How long a question waits for its answer; the run itself waits longer for a cluster that is away."""

LOOK = 2.0
"""Seconds for which the oldest records are waited for, to tell their age."""

UNKNOWN = "UnknownTopicOrPartitionException"

LOGIN = ("SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException")
FORBIDDEN = ("TopicAuthorizationException", "ClusterAuthorizationException", "GroupAuthorizationException")

_ADMINS: dict[tuple[object, ...], JavaAdmin] = {}
"""One client per cluster and JVM, as it has a thread and connections of its own."""


def properties(source: KafkaConnection) -> dict[str, str]:
    """The properties of Kafka's clients, secrets in plain text.

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
        name, password = (_quoted(text) for text in (login.username, login.password.reveal()))
        settings["sasl.mechanism"] = login.mechanism
        settings["sasl.jaas.config"] = f"{LOGINS[login.mechanism]} required username={name} password={password};"
    return settings | {name: value.reveal() if isinstance(value, Secret) else value for name, value in source.client}


def _pem(tls: Tls, source: KafkaConnection) -> dict[str, str]:
    """The certificates themselves, as executors may not have the files."""

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
    """A text in JAAS's quotes.

    Examples:
        >>> print(_quoted('a"b'))
        "a\\"b"
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Cluster:
    """The cluster of a source.

    Args:
        source: The source.
        label: What asks, in errors; by default the source.
    """

    def __init__(self, source: KafkaSource, label: str | None = None) -> None:
        self._source = source
        self._label = label or source.label()
        self._properties = properties(source)

    # topics

    def topics(self) -> list[str]:
        """The topics that the source names, or that its pattern matches now.

        Raises:
            RunError: The cluster does not answer, or refuses.
        """
        if self._source.pattern is None:
            return list(self._source.topics)
        known = self._asked(lambda admin: listed(admin.listTopics().names().get()))
        return sorted(name for name in known if re.fullmatch(self._source.pattern, name))

    def logs(self, names: Iterable[str]) -> dict[str, Log]:
        """The current logs of topics. Missing topics are left out.

        Raises:
            RunError: The cluster does not answer, or refuses.
        """
        described = {name: one for name in names if (one := self._described(name)) is not None}
        parts = [(name, number) for name, (_, count) in described.items() for number in range(count)]
        spec = classes().org.apache.kafka.clients.admin.OffsetSpec
        # The latest first: what is older than that may be deleted between the two looks, and is then missed.
        latest = self.offsets(dict.fromkeys(parts, spec.latest()))
        earliest = self.offsets(dict.fromkeys(parts, spec.earliest()))
        return {
            name: Log(
                id,
                tuple(earliest[name, number] for number in range(count)),
                tuple(max(latest[name, number], earliest[name, number]) for number in range(count)),
            )
            for name, (id, count) in described.items()
        }

    def _described(self, name: str) -> tuple[str, int] | None:
        """The id of a topic, and how many partitions it has; None if it is not there."""

        def ask(admin: JavaAdmin) -> tuple[str, int] | None:
            asked = admin.describeTopics(_list([name])).topicNameValues().get(name)
            assert asked is not None  # there is an answer for each question
            try:
                answer = asked.get()
            except Py4JJavaError as error:
                if any(cause.getClass().getSimpleName() == UNKNOWN for cause in java_causes(error)):
                    return None
                raise
            return str(answer.topicId().toString()), answer.partitions().size()

        return self._asked(ask)

    def missing(self, names: Iterable[str]) -> NotFound:
        """The error for topics that are not there, with the nearest ones."""
        known = self._asked(lambda admin: listed(admin.listTopics().names().get()))
        first, *more = names
        others = f" (nor are {', '.join(more)})" if more else ""
        return NotFound(
            f"topic {first!r} is not there on {self._brokers}{others}. {near_miss(first, known)}",
            where=self._source.origin,
            fix="check the name, or make the topic.",
        )

    # offsets

    def offsets(self, wanted: Mapping[tuple[str, int], JavaObject]) -> dict[tuple[str, int], int]:
        """The offsets that specifications mean, by topic and partition; -1 where there is none.

        Args:
            wanted: By topic and partition, an `org.apache.kafka.clients.admin.OffsetSpec`.

        Raises:
            RunError: The cluster does not answer, or refuses.
        """
        jvm = classes()
        level = getattr(jvm.org.apache.kafka.common.IsolationLevel, self._source.level.upper())
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(level)
        asked: JavaMap[JavaTopicPartition, JavaObject] = jvm.java.util.HashMap()
        parts = {part: _partition(*part) for part in wanted}
        for part, spec in wanted.items():
            asked.put(parts[part], spec)

        def ask(admin: JavaAdmin) -> dict[tuple[str, int], int]:
            listed: JavaListOffsets = admin.listOffsets(asked, options)
            return {part: int(listed.partitionResult(partition).get().offset()) for part, partition in parts.items()}

        return self._asked(ask) if wanted else {}

    def at(self, names: Iterable[str], logs: Mapping[str, Log], milliseconds: int) -> dict[str, tuple[int, ...]]:
        """By partition, the offset of the first record at a time or later; the end where there is none."""
        parts = [(name, number) for name in names for number in range(len(logs[name].latest))]
        spec = classes().org.apache.kafka.clients.admin.OffsetSpec
        offsets = self.offsets({part: spec.forTimestamp(milliseconds) for part in parts})
        return {
            name: tuple(
                offsets[name, number] if offsets[name, number] >= 0 else logs[name].latest[number]
                for number in range(len(logs[name].latest))
            )
            for name in names
        }

    # ages

    def oldest(self, ranges: Sequence[Range]) -> int | None:
        """The smallest timestamp of the first records of ranges, in milliseconds; None if none could be read.

        Raises:
            RunError: The cluster does not answer, or refuses.
        """
        jvm = classes()
        pending = {
            (offsets.topic, offsets.partition): _partition(offsets.topic, offsets.partition) for offsets in ranges
        }
        if not pending:
            return None
        deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        more = {
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "isolation.level": self._source.level,
            "auto.offset.reset": "none",
            "enable.auto.commit": "false",
            "max.poll.records": "1",
        }

        def ask(consumer: JavaConsumer) -> int | None:
            consumer.assign(_list(pending.values()))
            for offsets in ranges:
                consumer.seek(pending[offsets.topic, offsets.partition], offsets.start)
            found: int | None = None
            until = time.monotonic() + LOOK
            while pending and time.monotonic() < until:
                records = consumer.poll(jvm.java.time.Duration.ofMillis(200)).iterator()
                while records.hasNext():
                    record = records.next()
                    at = int(record.timestamp())
                    found = at if found is None else min(found, at)
                    part = pending.pop((str(record.topic()), int(record.partition())), None)
                    if part is not None:
                        consumer.pause(_list([part]))
            return found

        def consumed() -> int | None:
            made: JavaConsumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(_map(self._properties | more))
            try:
                return ask(made)
            finally:
                made.close()

        return self._guarded(consumed)

    # the client

    def _asked(self, ask: Callable[[JavaAdmin], T]) -> T:
        return self._guarded(lambda: ask(self._admin()))

    def _admin(self) -> JavaAdmin:
        key = (id(SparkContext._gateway), *sorted(self._properties.items()))
        if key not in _ADMINS:
            admin: JavaAdmin = classes().org.apache.kafka.clients.admin.Admin.create(_map(PATIENCE | self._properties))
            _ADMINS[key] = admin
        return _ADMINS[key]

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Py4JJavaError as error:
            raise self._failure(error) from error

    def _failure(self, error: Py4JJavaError) -> HeliosError:
        """The failure of a question, in words for the user."""
        causes = [(str(c.getClass().getSimpleName()), str(c.getMessage() or "")) for c in java_causes(error)]
        name, message = causes[-1]
        refusal = next(((n, m) for n, m in causes if n in (*LOGIN, *FORBIDDEN)), None)
        subject = self._label
        if refusal is not None and refusal[0] in LOGIN:
            return RunError(
                f"{subject}: {self._brokers} refuse the connection: {refusal[1]}.".replace("..", "."),
                where=self._source.origin,
                fix="check .sasl(...) and .tls(...) against the listener of that port.",
            )
        if refusal is not None:
            return RunError(
                f"{subject}: {self._brokers} do not permit it: {refusal[1]}.".replace("..", "."),
                where=self._source.origin,
                fix="give the principal DESCRIBE and READ on the topics.",
            )
        if name == "ConfigException" and "bootstrap urls" in message:
            return RunError(
                f"{subject}: no host of {self._brokers} is known ({message}).",
                where=self._source.origin,
                fix="check the hosts in .servers(...), and the DNS of this machine.",
            )
        if name == "TimeoutException":
            return RunError(
                f"{subject}: no broker answers at {self._brokers}: {message}.".replace("..", "."),
                where=self._source.origin,
                fix="check the addresses, that the brokers run, and that the port speaks what .tls() and .sasl() say.",
            )
        return RunError(f"{subject}: {name}: {message}", where=self._source.origin)

    @property
    def _brokers(self) -> str:
        return ", ".join(self._source.brokers)


def _partition(topic: str, number: int) -> JavaTopicPartition:
    made: JavaTopicPartition = classes().org.apache.kafka.common.TopicPartition(topic, number)
    return made


def _list(elements: Iterable[T]) -> JavaList[T]:
    made: JavaList[T] = classes().java.util.ArrayList()
    for element in elements:
        made.add(element)
    return made


def _map(entries: Mapping[str, str]) -> JavaMap[str, str]:
    made: JavaMap[str, str] = classes().java.util.HashMap()
    for key, value in entries.items():
        made.put(key, value)
    return made
