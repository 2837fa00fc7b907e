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
from helios.sources.kafka.start import Named, Start, beginning
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
"""The fields of a record beside its value, with the types of the columns."""


@dataclass(frozen=True, kw_only=True)
class KafkaSource(KafkaConnection, Source):
    """Kafka topics, read once or followed. Created by `Kafka.source`.

    Attributes:
        topics: Their names; none where a pattern chooses them.
        pattern: A regular expression that whole names match.
        first: Where reading begins: "earliest", "latest", a time, or offsets.
        values: How values are read.
        carried: Columns with what a record has beside its value: the column, and what it is.
        level: Whether records of transactions that are not committed are read.
        bad_row: What happens to records that do not parse.
        missing: What happens when records are gone before they are read.
    """

    kind: ClassVar[str] = "kafka"

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    first: str | datetime | Named = "earliest"
    values: Values = field(default_factory=Values)
    carried: tuple[tuple[str, str], ...] = ()
    level: str = "read_committed"
    bad_row: str = "fail"
    missing: str = "fail"

    def isolation(self, level: Isolation) -> Self:
        """Which records are read: "read_committed" (default) leaves out those of aborted and open transactions."""
        return replace(self, level=one_of(level, ISOLATIONS, "isolation"))

    # where and how it is read

    def start(self, at: Start) -> Self:
        """Where reading begins, when the pipeline first begins; a different value later is an error.

        Args:
            at: "earliest" (default): all records that are there, then later ones. "latest": later ones only. A time (a
                datetime, or ISO 8601 text): records from that time on. Offsets: `{0: 15, 1: 20}` for the partitions of
                one topic, `{"orders": {0: 15}}` for several.

        Raises:
            DeclarationError: It is none of these.
        """
        return replace(self, first=beginning(at))

    def incremental(self, poll: float | str | timedelta = 60, *, max_rows: int | None = None) -> Self:
        """Follows the topics: from the start on, every record, each once.

        Args:
            poll: How often to look for new records: seconds, text such as "30s", or a timedelta.
            max_rows: The most offsets of one batch, over all partitions.

        Examples:
            >>> Kafka.source("orders").servers("broker:9092").incremental(poll="5s").label()
            'Kafka.source(orders).incremental(poll=5 s)'
        """
        return replace(self, poll=duration(poll, "poll"), max_rows=count(max_rows, "max_rows"))

    # its columns

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
        """How the value of a record becomes columns.

        Args:
            format: "json": an object, whose fields become columns. "avro": a record in Avro's binary format, the same.
                "string": UTF-8 text in the column `value`. "bytes" (default): the column `value`, as it is.
            schema: Of JSON, columns and Spark SQL types: "id bigint, at timestamp", or a mapping. A field that a record
                lacks is null; a record without a value (a tombstone) has nulls in all of them. Without it the columns
                are inferred from the first records, when the pipeline first begins, and kept in its checkpoint. Of
                Avro, its JSON, or the path of an .avsc file; without it the columns follow the registry.
            extra: What happens to a record with fields that the schema lacks: "fail" takes it for one that does not
                parse, "ignore" leaves the fields out.
            sample: Of JSON without a schema, about how many records are looked at.
            timestamps: What a number of JSON counts, since 1970, where the schema has a timestamp: "s" (default), "ms"
                or "us". One outside of the years 1 to 9999 does not parse.
            registry: The address of a schema registry that speaks Confluent's protocol. Values begin with the byte 0
                and the id of their schema then; those of Avro are resolved from it, those of JSON go without.
            registry_login: A name and a password for basic authentication; the password is never shown.
            registry_subject: The subject that the columns follow; by default `TOPIC-value`.
            allow_http: Whether `http://` to another machine is allowed for the registry.

        Raises:
            DeclarationError: The format is unknown, or it and the others do not fit.
        """
        known = None
        if registry is not None:
            known = Registry.of(registry, registry_login, registry_subject, allow_http=allow_http)
        elif registry_login is not None or registry_subject is not None:
            raise DeclarationError(
                "registry_login= and registry_subject= need registry=.",
                where=caller(),
                fix='add registry="https://registry:8081".',
            )
        return replace(
            self, values=Values.of(format, schema, extra, sample, known, timestamps=timestamps)
        )._with_columns()

    def metadata(self, *names: str, **columns: str) -> Self:
        """Adds columns with what a record has beside its value.

        Args:
            names: "key" (binary), "topic", "partition", "offset", "timestamp", "timestamp_type" (0: the producer's, 1:
                the broker's) and "headers", each a column of that name.
            columns: The same under other names: `.metadata(event_time="timestamp")`.

        Raises:
            DeclarationError: A record has no such thing.
        """
        wanted = {**{name: name for name in names}, **columns}
        for what in wanted.values():
            one_of(what, METADATA, "metadata")
        return replace(self, carried=tuple({**dict(self.carried), **wanted}.items()))._with_columns()

    def with_metadata(self, *names: str, **columns: str) -> Self:
        """Adds columns with where and when each record came from, as other sources do; see `.metadata()`.

        Args:
            names: "_topic", "_partition" (in the column `_source_partition`, since Iceberg keeps `_partition`),
                "_offset", "_timestamp", "_timestamp_type", "_key" and "_headers".
            columns: The same under other names: `.with_metadata(sent="_timestamp")`.

        Raises:
            DeclarationError: There is no such thing.

        Examples:
            >>> Kafka.source("orders").servers("broker:9092").with_metadata("_topic", at="_offset").carried
            (('_topic', 'topic'), ('at', 'offset'))
        """
        wanted = metadata_columns(names, columns, [f"_{name}" for name in METADATA])
        return self.metadata(**{name: what[1:] for name, what in wanted})

    def _with_columns(self) -> Self:
        added = [f"`{name.replace('`', '``')}` {METADATA[what]}" for name, what in self.carried]
        columns = self.values.columns
        return replace(self, declared_schema=", ".join([columns, *added]) if columns is not None else None)

    def with_value_columns(self, columns: str, avro: str | None = None) -> Self:
        """The source with the columns that its values turned out to have.

        Args:
            columns: The columns, as DDL.
            avro: Of Avro, the schema that they are of.
        """
        return replace(self, values=replace(self.values, columns=columns, avro=avro))._with_columns()

    def on_bad_row(self, action: OnBadRow) -> Self:
        """Sets the policy for records whose value does not parse, or does not fit the schema.

        Args:
            action: "fail" (default) stops, with the topic, partition and offset. "quarantine" writes them, with key and
                value, to the quarantine of the sink. "drop" leaves the record out and counts it in `records_failed`.

        Raises:
            DeclarationError: There is no such action.
        """
        return replace(self, bad_row=one_of(action, ON_BAD_ROW, "on_bad_row"))

    def on_missing(self, action: OnMissing) -> Self:
        """Sets the policy for records that were deleted before they were read, as retention does.

        Args:
            action: "fail" (default) stops the run, and says how many. "skip" continues at the oldest record left:
                the run tells how many of which partition are gone.
        """
        return replace(self, missing=one_of(action, ON_MISSING, "on_missing"))

    # how it is shown

    @property
    def quarantining(self) -> tuple[str, ...]:
        return ('on_bad_row("quarantine")',) if self.bad_row == "quarantine" else ()

    @property
    def beginning(self) -> str:
        """Where reading begins, as text."""
        if isinstance(self.first, datetime):
            return self.first.isoformat().replace("+00:00", "Z")
        if isinstance(self.first, str):
            return self.first
        shown = [(f"{topic}: " if topic else "", offsets) for topic, offsets in self.first]
        return "; ".join(topic + ", ".join(f"{p}={o}" for p, o in offsets) for topic, offsets in shown)

    @property
    def subject(self) -> str:
        """The topics as messages name them."""
        return f"/{self.pattern}/" if self.pattern is not None else ", ".join(self.topics)

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
        carried = ", ".join(f"{name}={what!r}" for name, what in self.carried)
        return (self.values.text(), *([f"metadata({carried})"] if carried else []))

    def details(self, format_version: int | None = None) -> Iterator[str]:
        yield self.connected
        yield from self.values.details()
        if self.carried:
            yield "of each record: " + ", ".join(n if n == what else f"{what} as {n}" for n, what in self.carried)
        yield f"from {self.beginning} on, {self.level}"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "topics": list(self.topics),
            "pattern": self.pattern,
            "servers": list(self.brokers),
            "tls": self.encryption is not None,
            "sasl": self.login.mechanism if self.login is not None else None,
            "start": self.beginning,
            **self.values.as_json(),
            "metadata": dict(self.carried),
            "isolation": self.level,
            "on_bad_row": self.bad_row,
            "on_missing": self.missing,
        }

    def label(self) -> str:
        named = f"pattern={self.pattern!r}" if self.pattern is not None else ", ".join(self.topics)
        begun = f".start({self.beginning})" if self.first != "earliest" else ""
        rows = f", max_rows={self.max_rows}" if self.max_rows is not None else ""
        followed = f".incremental(poll={show_seconds(self.poll)}{rows})" if self.poll is not None else ""
        return f"Kafka.source({named}){begun}{followed}"


class Kafka:
    """Kafka topics as sources, and one as a sink."""

    @staticmethod
    def source(*topics: str, pattern: str | None = None) -> KafkaSource:
        """Topics to read; by default all records that are there, once.

        Args:
            topics: Their names, or lists of them as `*names`.
            pattern: Instead of names, a regular expression that whole names of topics match; topics that are made later
                are read too.

        Raises:
            DeclarationError: A name is none of a topic, or the pattern is not a regular expression.

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
        return KafkaSource(topics=tuple(dict.fromkeys(topics)), pattern=pattern)._with_columns()

    @staticmethod
    def sink(topic: str) -> KafkaSink:
        """A topic to write, at least once: a batch that is run again is produced again.

        Args:
            topic: Its name. The topic must be there.

        Raises:
            DeclarationError: The name is none of a topic.

        Examples:
            >>> Kafka.sink("big-orders").servers("broker:9092").key("customer").label()
            'Kafka.sink(big-orders)'
        """
        return KafkaSink(topic=topic_name(topic, f"Kafka.sink({topic!r})", "write to each topic by a sink of its own."))
