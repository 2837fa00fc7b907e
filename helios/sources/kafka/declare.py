"""`Kafka.source(...)`: the records of Kafka topics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import TimestampUnit, count, metadata_columns, one_of, text
from helios.model.flow import Source
from helios.model.values import Secret, caller, duration, show_seconds
from helios.sources.kafka.client import KafkaConnection, topic_name
from helios.sources.kafka.sink import KafkaSink
from helios.sources.kafka.start import OffsetsByTopic, Start, checked_start
from helios.sources.kafka.values import SAMPLE, Extra, Registry, ValueFormat, Values

OnBadRow: TypeAlias = Literal["fail", "quarantine", "drop"]
OnMissing: TypeAlias = Literal["fail", "skip"]
Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

ON_BAD_ROW = ("fail", "quarantine", "drop")
ON_MISSING = ("fail", "skip")
ISOLATIONS = ("read_committed", "read_uncommitted")

METADATA = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
"""The fields of a record, except its value, with the types of their columns."""


@dataclass(frozen=True, kw_only=True)
class KafkaSource(KafkaConnection, Source):
    """Kafka topics, read once or followed. Created by `Kafka.source`.

    Attributes:
        topics: The names of the topics; empty if the source has a pattern.
        pattern: A regular expression that matches whole topic names.
        starts_at: Where reading starts: "earliest", "latest", a time, or offsets.
        values: How values are read.
        metadata_pairs: The metadata columns: pairs of a column and a field of the record.
        isolation_level: The isolation level, which decides whether records of uncommitted transactions are read.
        bad_row: The policy for records that do not parse.
        missing: The policy for records that are deleted before they are read.
    """

    kind: ClassVar[str] = "kafka"

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    starts_at: str | datetime | OffsetsByTopic = "earliest"
    values: Values = field(default_factory=Values)
    metadata_pairs: tuple[tuple[str, str], ...] = ()
    isolation_level: str = "read_committed"
    bad_row: str = "fail"
    missing: str = "fail"

    def isolation(self, level: Isolation) -> Self:
        """Sets the isolation level: "read_committed" (default) leaves out records of aborted and open transactions."""
        return replace(self, isolation_level=one_of(level, ISOLATIONS, "isolation"))

    # start and trigger

    def start(self, at: Start) -> Self:
        """Sets where the first run of the pipeline starts to read; a different value later is an error.

        Args:
            at: "earliest" (default): all present records, then later ones. "latest": later records only. A time (a
                datetime, or ISO 8601 text): records from that time on. Offsets: `{0: 15, 1: 20}` for the partitions of
                one topic, `{"orders": {0: 15}}` for several topics.

        Raises:
            DeclarationError: The value is none of these.
        """
        return replace(self, starts_at=checked_start(at))

    def incremental(self, poll: float | str | timedelta = 60, *, max_rows: int | None = None) -> Self:
        """Follows the topics: reads every record from the start on, each once.

        Args:
            poll: How often to look for new records: seconds, text such as "30s", or a timedelta.
            max_rows: The most offsets that one batch reads, of all partitions together.

        Examples:
            >>> Kafka.source("orders").servers("broker:9092").incremental(poll="5s").label()
            'Kafka.source(orders).incremental(poll=5 s)'
        """
        return replace(self, poll=duration(poll, "poll"), max_rows=count(max_rows, "max_rows"))

    # columns

    def value(
        self,
        format: ValueFormat,
        *,
        schema: str | Path | Mapping[str, Any] | None = None,
        extra: Extra = "fail",
        sample: int = SAMPLE,
        timestamps: TimestampUnit = "s",
        registry: str | None = None,
        registry_login: tuple[str, str | Secret] | None = None,
        registry_subject: str | None = None,
        allow_http: bool = False,
    ) -> Self:
        """Sets how the value of a record becomes columns.

        Args:
            format: "json": an object, whose fields become columns. "avro": a record in Avro's binary format, whose
                fields become columns. "string": UTF-8 text in the column `value`. "bytes" (default): the bytes in the
                column `value`.
            schema: For JSON: columns and Spark SQL types, "id bigint, at timestamp" or a mapping. A field that a record
                lacks is null; in a record without a value (a tombstone) all fields are null. Without a schema, the
                first run infers the columns from the first records, and keeps them in the checkpoint. For Avro: the
                schema's JSON, or the path of an .avsc file. Without a schema, the columns follow the registry's
                latest schema.
            extra: The policy for fields that the schema lacks: "fail" makes the record bad, "ignore" leaves the fields
                out.
            sample: For JSON without a schema: about how many records are read to infer the columns.
            timestamps: The unit of JSON numbers in columns of timestamps, counted from 1970: "s" (default), "ms" or
                "us". A time outside of the years 1 to 9999 does not parse.
            registry: The address of a schema registry with Confluent's protocol. Values then begin with the byte 0 and
                the id of their schema. Avro values are read with that schema; JSON values do not need it.
            registry_login: A name and a password for basic authentication; the password is never shown.
            registry_subject: The subject that the columns follow; by default `TOPIC-value`.
            allow_http: Whether `http://` to another machine is allowed for the registry.

        Raises:
            DeclarationError: The format is unknown, or does not take one of the other arguments.
        """
        declared_registry = None
        if registry is not None:
            declared_registry = Registry.of(registry, registry_login, registry_subject, allow_http=allow_http)
        elif registry_login is not None or registry_subject is not None or allow_http:
            raise DeclarationError(
                "registry_login=, registry_subject= and allow_http= need registry=.",
                where=caller(),
                fix='add registry="https://registry:8081".',
            )
        values = Values.of(format, schema, extra, sample, declared_registry, timestamps=timestamps)
        return replace(self, values=values)._with_declared_schema()

    def metadata(self, *names: str, **columns: str) -> Self:
        """Adds metadata of each record as columns.

        Args:
            names: "key" (binary), "topic", "partition", "offset", "timestamp", "timestamp_type" (0: the producer's, 1:
                the broker's) and "headers", each a column of this name.
            columns: The same metadata under other column names: `.metadata(event_time="timestamp")`.

        Raises:
            DeclarationError: A name is not one of these.
        """
        wanted = {**{name: name for name in names}, **columns}
        for field_name in wanted.values():
            one_of(field_name, METADATA, "metadata")
        return replace(
            self, metadata_pairs=tuple({**dict(self.metadata_pairs), **wanted}.items())
        )._with_declared_schema()

    def with_metadata(self, *names: str, **columns: str) -> Self:
        """Adds metadata of each record as columns, with names as in other sources; see `.metadata()`.

        Args:
            names: "_topic", "_partition" (in the column `_source_partition`, since Iceberg reserves `_partition`),
                "_offset", "_timestamp", "_timestamp_type", "_key" and "_headers".
            columns: The same metadata under other column names: `.with_metadata(sent="_timestamp")`.

        Raises:
            DeclarationError: A name is not one of these.

        Examples:
            >>> Kafka.source("orders").servers("broker:9092").with_metadata("_topic", at="_offset").metadata_pairs
            (('_topic', 'topic'), ('at', 'offset'))
        """
        wanted = metadata_columns(names, columns, [f"_{name}" for name in METADATA])
        return self.metadata(**{column: field_name.removeprefix("_") for column, field_name in wanted})

    def _with_declared_schema(self) -> Self:
        """Declares the columns of values and metadata as the schema; None if the columns of values are unknown."""
        metadata = [
            f"`{column.replace('`', '``')}` {METADATA[field_name]}" for column, field_name in self.metadata_pairs
        ]
        columns = self.values.columns
        return replace(self, declared_schema=", ".join([columns, *metadata]) if columns is not None else None)

    def with_value_columns(self, columns: str, avro: str | None = None) -> Self:
        """The source with the columns of its values, once they are known.

        Args:
            columns: The columns, as DDL.
            avro: For Avro: the schema of the columns, as JSON.
        """
        return replace(self, values=replace(self.values, columns=columns, avro=avro))._with_declared_schema()

    def on_bad_row(self, action: OnBadRow) -> Self:
        """Sets the policy for records whose value does not parse, or does not fit the schema.

        Args:
            action: "fail" (default) stops the run, and names the topic, partition and offset. "quarantine" writes the
                record to the quarantine of the sink. "drop" leaves it out and counts it in `records_failed`.
        """
        return replace(self, bad_row=one_of(action, ON_BAD_ROW, "on_bad_row"))

    def on_missing(self, action: OnMissing) -> Self:
        """Sets the policy for records that were deleted before they were read, as retention does.

        Args:
            action: "fail" (default) stops the run, and says how many records are gone. "skip" continues at the oldest
                record that is left, and reports how many records of each partition are gone.
        """
        return replace(self, missing=one_of(action, ON_MISSING, "on_missing"))

    # texts

    @property
    def quarantining_calls(self) -> tuple[str, ...]:
        return ('on_bad_row("quarantine")',) if self.bad_row == "quarantine" else ()

    @property
    def declared_start(self) -> str:
        """The declared start, as text."""
        if isinstance(self.starts_at, datetime):
            return self.starts_at.isoformat().replace("+00:00", "Z")
        if isinstance(self.starts_at, str):
            return self.starts_at
        topics: list[str] = []
        for topic, pairs in self.starts_at:
            offsets = ", ".join(f"{partition}={offset}" for partition, offset in pairs)
            topics.append(f"{topic}: {offsets}" if topic else offsets)
        return "; ".join(topics)

    @property
    def ledger_name(self) -> str:
        return f"kafka:{f'/{self.pattern}/' if self.pattern is not None else ','.join(sorted(self.topics))}"

    @property
    def service(self) -> str:
        return self.cluster

    @property
    def jars(self) -> tuple[str, ...]:
        return ("avro",) if self.values.format == "avro" else ()

    @property
    def addresses(self) -> dict[str, str]:
        registry = self.values.registry
        return {"the schema registry": registry.url} if registry is not None else {}

    @property
    def step_texts(self) -> tuple[str, ...]:
        metadata = ", ".join(f"{column}={field_name!r}" for column, field_name in self.metadata_pairs)
        return (self.values.text(), *([f"metadata({metadata})"] if metadata else []))

    def details(self, format_version: int | None = None) -> Iterator[str]:
        yield self.connection_text
        yield from self.values.details()
        if self.metadata_pairs:
            pairs = self.metadata_pairs
            columns = (column if column == field_name else f"{field_name} as {column}" for column, field_name in pairs)
            yield f"of each record: {', '.join(columns)}"
        yield f"from {self.declared_start} on, {self.isolation_level}"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "topics": list(self.topics),
            "pattern": self.pattern,
            "servers": list(self.brokers),
            "tls": self.encryption is not None,
            "sasl": self.login.mechanism if self.login is not None else None,
            "start": self.declared_start,
            **self.values.as_json(),
            "metadata": dict(self.metadata_pairs),
            "isolation": self.isolation_level,
            "on_bad_row": self.bad_row,
            "on_missing": self.missing,
        }

    def label(self) -> str:
        topics = f"pattern={self.pattern!r}" if self.pattern is not None else ", ".join(self.topics)
        start = f".start({self.declared_start})" if self.starts_at != "earliest" else ""
        rows = f", max_rows={self.max_rows}" if self.max_rows is not None else ""
        followed = f".incremental(poll={show_seconds(self.poll)}{rows})" if self.poll is not None else ""
        return f"Kafka.source({topics}){start}{followed}"


class Kafka:
    """Kafka topics as a source, and a topic as a sink."""

    @staticmethod
    def source(*topics: str, pattern: str | None = None) -> KafkaSource:
        """Reads topics; by default all present records, once.

        Args:
            topics: The names of the topics.
            pattern: Instead of names: a regular expression that matches whole topic names. Topics that are created
                later are read, too.

        Raises:
            DeclarationError: A name cannot be that of a topic, or the pattern is not a regular expression.

        Examples:
            >>> Kafka.source("orders", "payments").label()
            'Kafka.source(orders, payments)'
        """
        if bool(topics) == (pattern is not None):
            raise DeclarationError(
                "Kafka.source() needs topics, or else a pattern.",
                where=caller(),
                fix='write Kafka.source("orders"), or Kafka.source(pattern="orders-.*").',
            )
        several = 'for several topics, give Kafka.source("a", "b") or a pattern: Kafka.source(pattern="a-.*").'
        for topic in topics:
            topic_name(topic, f"Kafka.source({topic!r})", several)
        if pattern is not None:
            try:
                re.compile(text(pattern, "pattern="))
            except re.error as error:
                raise DeclarationError(
                    f"Kafka.source(pattern={pattern!r}) is not a regular expression: {error}.", where=caller()
                ) from None
        return KafkaSource(topics=tuple(dict.fromkeys(topics)), pattern=pattern)._with_declared_schema()

    @staticmethod
    def sink(topic: str) -> KafkaSink:
        """Writes to a topic, at least once: a batch that runs again is produced again.

        Args:
            topic: The name of the topic, which must exist.

        Raises:
            DeclarationError: The name cannot be that of a topic.

        Examples:
            >>> Kafka.sink("big-orders").servers("broker:9092").key("customer").label()
            'Kafka.sink(big-orders)'
        """
        return KafkaSink(
            topic=topic_name(topic, f"Kafka.sink({topic!r})", "write to each topic with a sink of its own.")
        )
