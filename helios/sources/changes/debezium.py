"""`Cdc.debezium(...)` and `Cdc.json(...)`: the changes of a database's table, from a Kafka topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import columns_ddl, key_columns, one_of
from helios.model.values import Secret, caller
from helios.sources.changes.json import ChangeLogSource, Operation, change_log
from helios.sources.changes.slot import Slot
from helios.sources.changes.topic import TopicChanges, topic_source
from helios.sources.kafka.declare import KafkaSource
from helios.sources.kafka.values import EXTRA, Extra

Unit: TypeAlias = Literal["millis", "micros", "nanos"]
Decimals: TypeAlias = Literal["precise", "string"]

UNITS = ("millis", "micros", "nanos")
DECIMALS = ("precise", "string")


@dataclass(frozen=True, kw_only=True)
class CdcSource(TopicChanges):
    """The changes of a table, from Debezium's envelopes. Created by `Cdc.debezium`.

    Attributes:
        extra: The policy for columns that the declared schema lacks.
        time: The unit of times that are stored as numbers, for records without a schema part.
        decimals: The form of decimals, for records without a schema part.
        replication_slot: The replication slot from which Debezium reads.
    """

    kind: ClassVar[str] = "debezium"
    call: ClassVar[str] = "Cdc.debezium"
    names_tables: ClassVar[bool] = True

    extra: str = "fail"
    time: str | None = None
    decimals: str | None = None
    replication_slot: Slot | None = None

    def slot(self, name: str, database: str, *, password: str | Secret | None = None) -> Self:
        """Names the PostgreSQL replication slot from which Debezium reads, so that `helios doctor` checks the slot.

        A run with `--once` reports a slot that nobody reads. A run without `--once` does not query the database: it
        sees a lost slot only as topics without new records.

        Args:
            name: Debezium's `slot.name`.
            database: `postgresql://user@host:port/database`; any user may see slots. A server that is not on this
                machine must have TLS and a certificate for its name, unless `?sslmode=` says `disable`, `prefer` or
                `require`, as PostgreSQL defines them. `?sslrootcert=` names a file of trusted certificates.
            password: The password, such as `os.environ["PGPASSWORD"]`; it is never shown.

        Raises:
            DeclarationError: The name or the address is wrong.

        Examples:
            >>> from helios.sources.kafka.declare import Kafka
            >>> changes = Cdc.debezium(Kafka.source("shop.public.orders"))
            >>> changes.slot("debezium", "postgresql://helios@db-1:5432/shop").replication_slot.address
            'db-1:5432/shop'
        """
        return replace(self, replication_slot=Slot.of(name, database, password))

    @property
    def carried_keys(self) -> tuple[str, ...] | None:
        return self.key or None

    @property
    def step_texts(self) -> tuple[str, ...]:
        declared = {"key": self.key, "schema": self.declared_schema, "time": self.time, "decimals": self.decimals}
        arguments = [f"{name}={value!r}" for name, value in declared.items() if value]
        if self.extra != "fail":
            arguments.append(f"extra={self.extra!r}")
        return (f"debezium({', '.join(arguments)})",)

    def details(self, format_version: int | None = None) -> Iterator[str]:
        yield from (line for line in self.kafka.details() if not line.startswith("values as"))
        keys = ", ".join(self.key) if self.key else "the fields of the records' keys"
        yield f"changes as Debezium writes them, in the order of the database's log; keys: {keys}"
        if self.replication_slot is not None:
            slot = self.replication_slot
            yield f"replication slot {slot.name} of {slot.address}, for `helios doctor`"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.kafka.as_json(found), "value": "debezium", "key": list(self.key)}


class Cdc:
    """Creates sources of database changes."""

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
        """The changes of a table, from the envelopes that Debezium writes: inserts, updates, deletes and snapshots.

        The rows carry their order and deletes: an `.upsert()` needs neither `order_by` nor `delete_when`. For
        the topics of several tables, use `Iceberg.mirror("catalog.namespace")`: each table keeps its columns and key.

        Args:
            source: The topic of the table, without `.value` and `.metadata`.
            key: The key columns; by default the fields of the records' keys.
            schema: Columns and Spark SQL types, as text or a mapping. By default the columns come from the schema part
                of the records, and new columns are added.
            extra: With `schema`, the policy for records with other columns: "fail" makes them bad rows, "ignore" leaves
                the columns out.
            time: The unit of times that are stored as numbers, for records without a schema part. "micros" is the unit
                of PostgreSQL's and MySQL's times of precision 4 to 6. "millis" is the unit of times of precision up to
                3, and of all times with `time.precision.mode=connect`.
            decimals: Debezium's `decimal.handling.mode`, "precise" or "string", for records without a schema part.

        Raises:
            DeclarationError: The source is not a Kafka source, or declares how its values are read. Or an option is
                unknown, or needs `schema`.

        Examples:
            >>> from helios.sources.kafka.declare import Kafka
            >>> Cdc.debezium(Kafka.source("shop.public.orders")).label()
            'Cdc.debezium(Kafka.source(shop.public.orders))'
        """
        _refuse_columns(source)
        _refuse_options(schema, extra, time, decimals)
        key_names = (key,) if isinstance(key, str) else tuple(key or ())
        return CdcSource(
            kafka=source,
            key=key_columns(key_names, "key") if key_names else (),
            declared_schema=columns_ddl(schema),
            extra=extra,
            time=time,
            decimals=decimals,
            poll=source.poll,
            max_rows=source.max_rows,
        )

    @staticmethod
    def json(
        source: KafkaSource,
        op: str = "op",
        *,
        key: str | Sequence[str] | None = None,
        order: str | None = None,
        operations: Mapping[str, Operation] | None = None,
    ) -> ChangeLogSource:
        """The changes of a table, from JSON records: a record is a row with a column for the operation of the change.

        The rows carry their order and deletes: an `.upsert("id")` needs neither `order_by` nor `delete_when`.
        The rows do not keep the column of the operation.

        Args:
            source: The topic of the table. `.value("json", schema=...)` declares its columns; by default they are
                inferred. `.metadata(...)` adds metadata of the records.
            op: The column of the operation, or an SQL expression such as "metadata.operation". A record whose
                operation is not among `operations` is bad.
            key: The key columns; by default those of the upsert.
            order: The column, or an SQL expression, whose largest value marks the newest change of a key. Among equal
                values the later offset wins. By default changes are ordered by their offsets: then all changes of a key
                must be in one partition, as they are if the key is the record's key.
            operations: The meaning of each value of `op`, in any case: "insert", "update", "delete", or "ignore" for
                records that are left out. By default "c", "r", "i", "insert"; "u", "update"; "d", "delete".

        Raises:
            DeclarationError: The source is not a Kafka source of JSON. Or a value of `operations` has two meanings, or
                none means an insert or an update.

        Examples:
            >>> from helios.sources.kafka.declare import Kafka
            >>> Cdc.json(Kafka.source("orders").value("json", schema="op string, id bigint")).label()
            'Cdc.json(Kafka.source(orders))'
        """
        return change_log(source, op, key, order, operations)


def _refuse_columns(source: KafkaSource) -> None:
    """Refuses a source that is not a topic, or that declares columns itself."""
    topic_source(source, "Cdc.debezium")
    if source.values.format != "bytes" or source.metadata_pairs:
        call = f".value({source.values.format!r})" if source.values.format != "bytes" else ".metadata()"
        raise DeclarationError(
            f"Cdc.debezium() makes the columns from Debezium's envelopes, but the source sets {call}.",
            where=caller(),
            fix=f"leave {call} out; schema= declares columns.",
        )


def _refuse_options(schema: object, extra: str, time: str | None, decimals: str | None) -> None:
    """Refuses unknown options, and options that lack the declared schema that they need."""
    if time is not None:
        one_of(time, UNITS, "time")
    if decimals is not None:
        one_of(decimals, DECIMALS, "decimals")
    one_of(extra, EXTRA, "extra")
    if schema is None and (extra != "fail" or time is not None or decimals is not None):
        raise DeclarationError(
            "Cdc.debezium(): extra=, time= and decimals= apply to a declared schema, and none is declared.",
            where=caller(),
            fix="pass schema=, or leave them out: without schema=, the schema part of the records decides.",
        )
