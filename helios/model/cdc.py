"""`Cdc.debezium(...)`: the changes of a database's table, as Debezium writes them to Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import columns_ddl, key_columns, one_of
from helios.model.flow import Source
from helios.model.kafka import KafkaSource
from helios.model.kafka_values import EXTRA, Extra
from helios.model.values import caller

Unit: TypeAlias = Literal["millis", "micros", "nanos"]
Decimals: TypeAlias = Literal["precise", "string"]

UNITS = ("millis", "micros", "nanos")
DECIMALS = ("precise", "string")

LOG, GONE = "__helios_log", "__helios_gone"
"""Hidden columns of changes: the position in the database's log, and whether the row is deleted."""


@dataclass(frozen=True, kw_only=True)
class CdcSource(Source):
    """The changes of a table. Created by `Cdc.debezium`.

    Attributes:
        kafka: The topic that has them.
        key: The key columns; empty where they are those of the records' own keys.
        extra: What happens to columns of a record that the declared schema lacks.
        time: The unit of times that are numbers, in records without a schema.
        decimals: How decimals are written in records without a schema.
    """

    kind: ClassVar[str] = "debezium"
    names_tables: ClassVar[bool] = True

    kafka: KafkaSource
    key: tuple[str, ...] = ()
    extra: str = "fail"
    time: str | None = None
    decimals: str | None = None

    def incremental(self, poll: float | str | timedelta = 60, *, max_rows: int | None = None) -> Self:
        """Follows the topic, as `KafkaSource.incremental` does."""
        followed = self.kafka.incremental(poll, max_rows=max_rows)
        return replace(self, kafka=followed, poll=followed.poll, max_rows=followed.max_rows)

    @property
    def carries_order(self) -> bool:
        return True

    @property
    def carried_keys(self) -> tuple[str, ...]:
        return self.key

    @property
    def quarantining(self) -> tuple[str, ...]:
        return self.kafka.quarantining

    @property
    def beginning(self) -> Any:
        return self.kafka.beginning

    @property
    def ledger_name(self) -> str:
        return self.kafka.ledger_name

    @property
    def service(self) -> str | None:
        return self.kafka.service

    @property
    def step_texts(self) -> tuple[str, ...]:
        given = {"key": self.key, "schema": self.declared_schema, "time": self.time, "decimals": self.decimals}
        more = [f"{name}={value!r}" for name, value in given.items() if value]
        more += [f"extra={self.extra!r}"] if self.extra != "fail" else []
        return (f"debezium({', '.join(more)})",)

    def details(self, format_version: int | None = None) -> Iterator[str]:
        yield from (line for line in self.kafka.details() if not line.startswith("values as"))
        keys = ", ".join(self.key) if self.key else "those of the records' keys"
        yield f"changes as Debezium writes them, in the order of the database's log; keys: {keys}"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.kafka.as_json(found), "value": "debezium", "key": list(self.key)}

    def label(self) -> str:
        return f"Cdc.debezium({self.kafka.label()})"


class Cdc:
    """Changes of databases as sources."""

    @staticmethod
    def debezium(
        source: KafkaSource,
        *,
        key: str | Sequence[str] | None = None,
        schema: str | Mapping[str, str] | None = None,
        extra: Extra = "fail",
        time: Unit | None = None,
        decimals: Decimals | None = None,
    ) -> CdcSource:
        """The rows of a table, from the envelopes that Debezium writes: inserts, updates, deletes and snapshots.

        The stream carries its own order and deletes: `.upsert()` after it needs neither `order_by` nor `delete_when`.
        The tables of several topics go, each with its own columns and key, to `Iceberg.mirror("catalog.namespace")`.

        Args:
            source: The topic of the table, without `.value` and `.metadata`.
            key: The key columns; by default those of the records' own keys.
            schema: Columns and Spark SQL types, as text or a mapping. By default they come from the schema part of
                the records, with every new column.
            extra: With `schema`, what happens to a record with other columns: "fail" takes it for a bad row, "ignore"
                leaves them out.
            time: Of records without a schema part: the unit of times that are numbers. PostgreSQL's and MySQL's
                microseconds are "micros" (precision 4 to 6), "millis" up to 3, and `time.precision.mode=connect`.
            decimals: Of records without a schema part: Debezium's `decimal.handling.mode`, "precise" or "string".

        Raises:
            DeclarationError: The source is no Kafka source, or says how its values are read.

        Examples:
            >>> from helios.model.kafka import Kafka
            >>> Cdc.debezium(Kafka.source("shop.public.orders")).label()
            'Cdc.debezium(Kafka.source(shop.public.orders))'
        """
        _refuse_columns(source)
        _refuse_options(schema, extra, time, decimals)
        named = (key,) if isinstance(key, str) else tuple(key or ())
        return CdcSource(
            kafka=source,
            key=key_columns(named, "key") if named else (),
            declared_schema=columns_ddl(schema),
            extra=extra,
            time=time,
            decimals=decimals,
            poll=source.poll,
            max_rows=source.max_rows,
        )


def _refuse_columns(source: KafkaSource) -> None:
    """Refuses what is no topic, or one whose columns are said already."""
    if not isinstance(source, KafkaSource):
        raise DeclarationError(
            f"Cdc.debezium() takes a source of Kafka, not {type(source).__name__}.",
            where=caller(),
            fix='write Cdc.debezium(Kafka.source("shop.public.orders").servers("broker:9092")).',
        )
    if source.values.format != "bytes" or source.carried:
        said = f".value({source.values.format!r})" if source.values.format != "bytes" else ".metadata()"
        raise DeclarationError(
            f"Cdc.debezium() makes the columns from Debezium's envelopes, and the source says {said}.",
            where=caller(),
            fix=f"leave {said} out; schema= declares columns.",
        )


def _refuse_options(schema: object, extra: str, time: str | None, decimals: str | None) -> None:
    """Refuses unknown words, and those about a schema that is not declared."""
    for value, known, what in ((time, UNITS, "time"), (decimals, DECIMALS, "decimals")):
        if value is not None:
            one_of(value, known, what)
    one_of(extra, EXTRA, "extra")
    if schema is None and (extra != "fail" or time is not None or decimals is not None):
        raise DeclarationError(
            "Cdc.debezium(): extra=, time= and decimals= say how values become the columns of a declared schema, "
            "and there is none.",
            where=caller(),
            fix="pass schema=, or leave them out: without it the schema part of the records says all that.",
        )
