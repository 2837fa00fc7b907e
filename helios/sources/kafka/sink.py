"""`Kafka.sink(...)`: a Kafka topic to which rows are written, at least once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self, TypeAlias

from helios.errors import DeclarationError, HeliosError
from helios.model.arguments import one_of, text
from helios.model.output import Output
from helios.model.values import caller
from helios.sources.kafka.client import KafkaConnection
from helios.sources.kafka.connection import connection_problems

SinkFormat: TypeAlias = Literal["json", "string", "bytes"]
FORMATS = ("json", "string", "bytes")


@dataclass(frozen=True, kw_only=True)
class KafkaSink(KafkaConnection, Output):
    """A Kafka topic. Created by `Kafka.sink`.

    Attributes:
        topic: The name of the topic.
        key_expression: The SQL expression of a record's key; None for records without a key.
        format: The format of a record's value.
        value_expression: The SQL expression of a record's value; not used for JSON.
    """

    kind: ClassVar[str] = "kafka"
    writer: ClassVar[str] = "helios.sources.kafka.spark.writer:KafkaWriter"
    outlives_process: ClassVar[bool] = True
    repeats_because: ClassVar[str] = "a batch that is run again is produced again"

    topic: str
    key_expression: str | None = None
    format: str = "json"
    value_expression: str = "value"

    def problems(self) -> Iterable[HeliosError]:
        return connection_problems(self, self.label())

    def key(self, expression: str) -> Self:
        """Sets the key of a record; Kafka chooses the partition by the key.

        Args:
            expression: A Spark SQL expression. Bytes stay as they are, and other plain values become text.
        """
        return replace(self, key_expression=text(expression, "key()"))

    def value(self, format: SinkFormat, expression: str | None = None) -> Self:
        """Sets the value of a record.

        Args:
            format: "json" (default): an object of all columns. "string" and "bytes": the value of the expression.
            expression: For "string" and "bytes": a Spark SQL expression of text or bytes; by default the column
                `value`. A null makes a record without a value (a tombstone).

        Raises:
            DeclarationError: The format is unknown, or an expression is given for JSON.
        """
        one_of(format, FORMATS, "value")
        if format == "json" and expression is not None:
            raise DeclarationError(
                'value("json") takes all columns, and no expression.',
                where=caller(),
                fix='choose columns with select(...) before the sink, or write value("string", "to_json(...)").',
            )
        return replace(self, format=format, value_expression=text(expression, "value()") if expression else "value")

    def checkpoint(self, location: str) -> Self:
        """Sets the folder for the progress of the pipeline; by default in the warehouse of the default catalog."""
        return replace(self, checkpoint_location=text(location, "checkpoint()"))

    @property
    def name(self) -> str:
        return self.topic

    @property
    def jars(self) -> tuple[str, ...]:
        return ("kafka",)

    @property
    def service(self) -> str:
        return self.cluster

    def details(self) -> Iterator[str]:
        yield self.connection_text
        key = f"keys {self.key_expression}" if self.key_expression is not None else "without keys"
        expression = "" if self.format == "json" else f" of {self.value_expression}"
        yield f"values as {self.format}{expression}, {key}; acknowledged by all replicas in sync"

    def label(self) -> str:
        return f"Kafka.sink({self.topic})"
