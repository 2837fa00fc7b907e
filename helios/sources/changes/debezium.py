"""`Cdc.debezium(...)` and `Cdc.json(...)`: the changes of a database's table, as they are written to Kafka."""

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
    """The changes of a table, from envelopes. Created by `Cdc.debezium`.

    Attributes:
        extra: What happens to columns of a record that the declared schema lacks.
        time: The unit of times that are numbers, in records without a schema.
        decimals: How decimals are written in records without a schema.
        replication: The replication slot by which Debezium reads the database.
    """

    kind: ClassVar[str] = "debezium"
    call: ClassVar[str] = "Cdc.debezium"
    names_tables: ClassVar[bool] = True

    extra: str = "fail"
    time: str | None = None
    decimals: str | None = None
    replication: Slot | None = None

    def slot(self, name: str, database: str, *, password: str | Secret | None = None) -> Self:
        """Names the replication slot of PostgreSQL by which Debezium reads, for `helios doctor` to look at.

        A run with `--once` tells in a line that nobody reads it. One that goes on does not ask the database: where a
        slot is lost, its topics merely become silent.

        Args:
            name: Debezium's `slot.name`.
            database: `postgresql://user@host:port/database`; any user may see slots. A server that is not on this
                machine must have TLS and a certificate for its name, unless `?sslmode=` says `disable`, `prefer` or
                `require`, as PostgreSQL means them; `?sslrootcert=` is a file of authorities.
            password: The password, such as `os.environ["PGPASSWORD"]`; it is never shown.

        Raises:
            DeclarationError: The name or the address is wrong.

        Examples:
            >>> from helios.sources.kafka.declare import Kafka
            >>> changes = Cdc.debezium(Kafka.source("shop.public.orders"))
            >>> changes.slot("debezium", "postgresql://helios@db-1:5432/shop").replication.address
            'db-1:5432/shop'
        """
        return replace(self, replication=Slot.of(name, database, password))

    @property
    def carried_keys(self) -> tuple[str, ...] | None:
        return self.key or None

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
        if self.replication is not None:
            yield f"replication slot {self.replication.name} of {self.replication.address}, for `helios doctor`"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.kafka.as_json(found), "value": "debezium", "key": list(self.key)}


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
            >>> from helios.sources.kafka.declare import Kafka
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

    @staticmethod
    def json(
        source: KafkaSource,
        op: str = "op",
        *,
        key: str | Sequence[str] | None = None,
        order: str | None = None,
        operations: Mapping[str, Operation] | None = None,
    ) -> ChangeLogSource:
        """The rows of a table, from records that are rows in JSON, with a column that says what happened to them.

        The stream carries its own order and deletes: `.upsert("id")` after it needs neither `order_by` nor
        `delete_when`. The column of the operation is not among the stream's columns.

        Args:
            source: The topic of the table. `.value("json", schema=...)` declares its columns, by default they are
                inferred; `.metadata(...)` adds what else a record has.
            op: The column that says what a change does, or an SQL expression such as "metadata.operation". A value
                that `operations` lacks makes a bad record.
            key: The key columns; by default those of the upsert.
            order: The column whose largest value marks the newest change of a key, or an SQL expression; ties go to
                the later offset. By default changes go by their position in the partition: then all changes of a key
                must be in one partition, as they are where the key is the record's key.
            operations: What the values of `op` mean, without regard to case: "insert", "update", "delete", or "ignore"
                for records that are left out. By default "c", "r", "i", "insert"; "u", "update"; "d", "delete".

        Raises:
            DeclarationError: The source is no Kafka source of JSON, or `operations` cannot be told apart.

        Examples:
            >>> from helios.sources.kafka.declare import Kafka
            >>> Cdc.json(Kafka.source("orders").value("json", schema="op string, id bigint")).label()
            'Cdc.json(Kafka.source(orders))'
        """
        return change_log(source, op, key, order, operations)


def _refuse_columns(source: KafkaSource) -> None:
    """Refuses a source that is not a topic, or whose columns are declared already."""
    topic_source(source, "Cdc.debezium")
    if source.values.format != "bytes" or source.carried:
        said = f".value({source.values.format!r})" if source.values.format != "bytes" else ".metadata()"
        raise DeclarationError(
            f"Cdc.debezium() makes the columns from Debezium's envelopes, and the source sets {said}.",
            where=caller(),
            fix=f"leave {said} out; schema= declares columns.",
        )


def _refuse_options(schema: object, extra: str, time: str | None, decimals: str | None) -> None:
    """Refuses unknown options, and those that need a declared schema."""
    for value, known, what in ((time, UNITS, "time"), (decimals, DECIMALS, "decimals")):
        if value is not None:
            one_of(value, known, what)
    one_of(extra, EXTRA, "extra")
    if schema is None and (extra != "fail" or time is not None or decimals is not None):
        raise DeclarationError(
            "Cdc.debezium(): extra=, time= and decimals= apply to a declared schema, and none is declared.",
            where=caller(),
            fix="pass schema=, or leave them out: without it the schema part of the records decides.",
        )
