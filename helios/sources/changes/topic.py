"""The common base of the sources whose rows are the changes of a table, from a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Self

from helios.errors import DeclarationError
from helios.model.flow import Source
from helios.model.values import caller
from helios.sources.kafka.declare import KafkaSource


@dataclass(frozen=True, kw_only=True)
class TopicChanges(Source):
    """The changes of a table. The methods of `Cdc` create the concrete sources.

    Attributes:
        kafka: The Kafka source of the changes.
        key: The declared key columns.
    """

    call: ClassVar[str] = ""

    kafka: KafkaSource
    key: tuple[str, ...] = ()

    def incremental(self, poll: float | str | timedelta = 60, *, max_rows: int | None = None) -> Self:
        """Follows the topic, as `KafkaSource.incremental` does."""
        followed = self.kafka.incremental(poll, max_rows=max_rows)
        return replace(self, kafka=followed, poll=followed.poll, max_rows=followed.max_rows)

    @property
    def carries_order(self) -> bool:
        return True

    @property
    def carried_keys(self) -> tuple[str, ...] | None:
        return self.key

    @property
    def quarantining_calls(self) -> tuple[str, ...]:
        return self.kafka.quarantining_calls

    @property
    def declared_start(self) -> Any:
        return self.kafka.declared_start

    @property
    def ledger_name(self) -> str:
        return self.kafka.ledger_name

    @property
    def service(self) -> str | None:
        return self.kafka.service

    @property
    def jars(self) -> tuple[str, ...]:
        return self.kafka.jars

    @property
    def addresses(self) -> Mapping[str, str]:
        return self.kafka.addresses

    def label(self) -> str:
        return f"{self.call}({self.kafka.label()})"


def topic_source(source: KafkaSource, call: str) -> KafkaSource:
    """Returns the source unchanged; raises `DeclarationError` if it is not a `KafkaSource`."""
    if isinstance(source, KafkaSource):
        return source
    raise DeclarationError(
        f"{call}() takes a source of Kafka, not {type(source).__name__}.",
        where=caller(),
        fix=f'write {call}(Kafka.source("shop.public.orders").servers("broker:9092")).',
    )
