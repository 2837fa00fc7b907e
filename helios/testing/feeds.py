"""What stands in for each source of a pipeline in a test: a table, a folder, a topic or rows of the test's own lake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import InputError, NotFound
from helios.model.flow import Source
from helios.plan.typing.schema import Schema, from_ddl, from_pyiceberg, from_rows
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.topic import TopicChanges
from helios.sources.files.declare import FilesSource
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.kafka.declare import KafkaSource
from helios.sources.memory.declare import MemorySource
from helios.sources.webhook.bodies import line_of, verified
from helios.sources.webhook.declare import WebhookSource
from helios.sources.webhook.signatures import Refused
from helios.testing.casts import arrow_schema, cast_rows, inferred
from helios.testing.files import write_file
from helios.testing.names import short_name
from helios.testing.records import Record, as_bytes, envelope

MEMORY = "memory"
"""The name of rows in memory in a test."""
LOG_BEGIN = 1000
"""The position in the log of a test's database before its first change."""


class Feed:
    """What a test gives to a source.

    Attributes:
        name: The source's full name in the test.
        ordered: Whether its rows have an order that means something, so that they are not shuffled.
        followed: Whether a pipeline follows it.
    """

    ordered: ClassVar[bool] = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.followed = False

    def prepare(self, rows: Any) -> list[Any]:
        """The rows of a batch, checked and cast; nothing is delivered yet.

        Raises:
            InputError: A row does not fit.
        """
        raise NotImplementedError

    def deliver(self, records: Sequence[Any]) -> None:
        """Gives prepared rows to the source, as one commit, file or range of offsets."""
        raise NotImplementedError

    def stand_in(self, source: Source) -> Source:
        """The source that is read instead of a declared one."""
        raise NotImplementedError

    def ensure_readable(self) -> None:
        """Refuses a source that could not be read, as the test has said nothing of it.

        Raises:
            NotFound: Its columns are not known.
        """

    def at(self, record: Any, column: str) -> Any:
        """The value of a column of a prepared row; None where it is not known."""
        return record.get(column) if isinstance(record, Mapping) else None


class TableFeed(Feed):
    """A table of the lake, in the catalog that has the name of the source's catalog."""

    def __init__(self, table: TableName, declared: str | None) -> None:
        super().__init__(table.text)
        self._table = table
        self._schema = from_ddl(declared) if declared is not None else None

    @property
    def catalog(self) -> Catalog:
        return self._table.catalog

    def schema(self) -> Schema | None:
        """The columns: the declared ones, those of the table, or those of the first rows."""
        if self._schema is None and self.catalog.exists(self._table.within):
            self._schema = from_pyiceberg(self.catalog.load(self._table.within).iceberg.schema())
        return self._schema

    def declare(self, schema: Schema | None) -> None:
        """Sets the columns, where nothing else says them."""
        self._schema = self._schema or schema

    def prepare(self, rows: Any) -> list[Any]:
        schema = self.schema()
        if schema is None:
            schema = self._schema = inferred(rows, self.name)
        return cast_rows(rows, schema, self.name)

    def deliver(self, records: Sequence[Any]) -> None:
        import pyarrow as pa

        self.create()
        if records:
            table = self.catalog.load(self._table.within).iceberg
            table.append(pa.Table.from_pylist(list(records), schema=arrow_schema(self.schema() or Schema(()))))

    def create(self) -> None:
        """Makes the table, if its columns are known and it is not there."""
        schema = self._schema
        if schema is None or self.catalog.exists(self._table.within):
            return
        namespace = ".".join(self._table.namespace)
        if namespace not in self.catalog.namespaces():
            self.catalog.create_namespace(namespace)
        self.catalog.create_table(self._table.within, arrow_schema(schema))

    def ensure_readable(self) -> None:
        self.create()
        if not self.catalog.exists(self._table.within):
            raise NotFound(
                f"the source {self.name} has no rows and no columns in this test.",
                fix=f'give it rows, or declare it: lake.table("{self._table.within}", "id bigint, ...").',
            )

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, IcebergSource)
        if source.between_points is not None:
            raise InputError(
                f"{source.label()} reads a range of the table's history, which a test does not have.",
                where=source.origin,
                fix="test the steps behind it over the table itself.",
            )
        # A name, or None for the default catalog, means a catalog of the lake already: see `Lake.context`.
        catalog = self.catalog if isinstance(source.catalog, Catalog) else source.catalog
        return replace(source, catalog=catalog, start=None, at=None, max_rows=None, max_files=None)


class FilesFeed(Feed):
    """A folder of the lake."""

    def __init__(self, source: FilesSource, folder: Path) -> None:
        super().__init__(source.path)
        self._source = source
        self._folder = folder
        self._files = 0
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, rows: Any) -> list[Any]:
        if isinstance(rows, str | bytes):
            return [rows]
        declared = self._source.declared_schema
        texts = [one for one in rows if isinstance(one, str | bytes)]
        if texts or declared is None:
            return list(rows)
        return list(cast_rows(rows, from_ddl(declared), self.name))

    def deliver(self, records: Sequence[Any]) -> None:
        rows = [one for one in records if not isinstance(one, str | bytes)]
        texts = [one for one in records if isinstance(one, str | bytes)]
        contents = [rows, *texts] if rows else texts  # one file with all rows, then a file for each text
        for content in contents:
            self._files += 1
            write_file(self._folder, f"{self._files:06d}", self._source, content)

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, FilesSource)
        return replace(source, path=str(self._folder), storage=None, max_files=None)


class WebhookFeed(Feed):
    """Deliveries that a receiver has stored.

    Their bodies are verified as the receiver verifies them; a signature is not asked for.
    """

    def __init__(self, source: WebhookSource, folder: Path) -> None:
        super().__init__(source.path)
        self._source = source
        self._folder = folder
        self._segments = 0
        folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, rows: Any) -> list[Any]:
        return [self._verified(body) for body in ([rows] if isinstance(rows, str | bytes) else rows)]

    def _verified(self, given: Any) -> bytes:
        source, body = self._source, as_bytes(given) or b""
        declared = from_ddl(source.declared_schema) if source.declared_schema is not None else None
        try:
            return verified(body, declared, source.extra, source.fraction)
        except Refused as refused:
            raise InputError(f"{self.name}: the receiver refuses {given!r}: {refused.reason}.") from None

    def deliver(self, records: Sequence[Any]) -> None:
        if not records:
            return
        self._segments += 1
        name = f"{self._segments:06d}"
        has_columns = self._source.declared_schema is not None
        lines = [
            line_of(f"test-{name}-{number}", datetime.now(UTC), body, columns=has_columns)
            for number, body in enumerate(records)
        ]
        hidden = self._folder / f".open-{name}.json"
        hidden.write_bytes(b"".join(line + b"\n" for line in lines))
        hidden.rename(self._folder / f"{name}.json")

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, WebhookSource)
        return replace(source, folder=str(self._folder), max_files=None)


class MemoryFeed(Feed):
    """Rows in memory: each batch has its own. Until the test gives some, they are those of the script."""

    def __init__(self, source: MemorySource, name: str) -> None:
        super().__init__(name)
        self._source = source
        declared = source.declared_schema
        self._schema = from_ddl(declared) if declared is not None else from_rows(source.columns, source.rows)
        self._rows: list[dict[str, Any]] | None = None

    def prepare(self, rows: Any) -> list[Any]:
        return list(cast_rows(rows, self._schema, self.name))

    def deliver(self, records: Sequence[Any]) -> None:
        self._rows = list(records)

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, MemorySource)
        if self._rows is None:
            return source
        names = self._schema.names
        rows = tuple(tuple(row.get(name) for name in names) for row in self._rows)
        ddl = source.declared_schema or ", ".join(f"`{c.name}` {c.type}" for c in self._schema.columns)
        return replace(source, columns=names, rows=rows, declared_schema=ddl)


@dataclass
class Topics:
    """The topics of a lake.

    Attributes:
        broker: The address under which their stand-in is found.
        logs: By topic and partition, the records.
        changes: How many changes of databases there are.
    """

    broker: str
    logs: dict[str, list[list[Record]]]
    changes: int = 0

    def make(self, name: str) -> list[list[Record]]:
        """The partitions of a topic, which is made if it is not there."""
        return self.logs.setdefault(name, [[]])


class TopicFeed(Feed):
    """A topic whose records are the test's."""

    ordered = True

    def __init__(self, topic: str, source: Source, topics: Topics, keys: Sequence[str] = ()) -> None:
        super().__init__(topic)
        self._source = source
        self._topics = topics
        self._keys = source.key if isinstance(source, TopicChanges) and source.key else tuple(keys)
        topics.make(topic)

    def prepare(self, rows: Any) -> list[Any]:
        given = [rows] if isinstance(rows, bytes | str) else rows
        return [self._record(one) for one in given]

    def _record(self, given: Any) -> Record:
        if not isinstance(self._source, CdcSource):
            return Record.of(given)
        self._topics.changes += 1
        with_schema = self._source.declared_schema is None
        position = LOG_BEGIN + self._topics.changes
        return envelope(given, keys=self._keys, topic=self.name, number=position, with_schema=with_schema)

    def deliver(self, records: Sequence[Any]) -> None:
        log = self._topics.make(self.name)
        for record in records:
            while len(log) <= record.partition:
                log.append([])
            log[record.partition].append(record)

    def stand_in(self, source: Source) -> Source:
        return with_broker(source, self._topics.broker)

    def at(self, record: Any, column: str) -> Any:
        import json

        try:
            return json.loads(record.value)[column]
        except (TypeError, ValueError, KeyError):
            return None


def with_broker(source: Source, broker: str) -> Source:
    """The same source of topics, or of their changes, read from the beginning, from the test's broker at an address."""
    if isinstance(source, TopicChanges):
        changed = replace(source, kafka=_of_broker(source.kafka, broker), max_rows=None)
        return replace(changed, replication=None) if isinstance(changed, CdcSource) else changed
    assert isinstance(source, KafkaSource)
    return _of_broker(source, broker)


def _of_broker(source: KafkaSource, broker: str) -> KafkaSource:
    if source.values.registry is not None:
        raise InputError(
            f"{source.label()} asks a schema registry, which a test does not have.",
            where=source.origin,
            fix="test the pipeline with .value(...) without registry=.",
        )
    plain = replace(source, brokers=(broker,), login=None, encryption=None, client=())
    return replace(plain, first="earliest", max_rows=None)


def kafka_source_of(source: Source) -> KafkaSource | None:
    """The Kafka source: the source itself, or the one from which it reads changes; None if there is none."""
    kafka = source.kafka if isinstance(source, TopicChanges) else source
    return kafka if isinstance(kafka, KafkaSource) else None


def is_topic(name: str, source: Source) -> bool:
    """True if the pattern of a source matches a name."""
    kafka = kafka_source_of(source)
    return kafka is not None and kafka.pattern is not None and re.fullmatch(kafka.pattern, name) is not None


def feed_of(source: Source, folder: Path, memory: str) -> Feed | None:
    """What stands in for a source of files, of deliveries or of rows in memory; None for any other.

    Args:
        source: The source.
        folder: Where its files are put, in a folder of their own.
        memory: The name of rows in memory, which have none of their own.
    """
    match source:
        case FilesSource():
            return FilesFeed(source, folder / _folder_of(source.path))
        case WebhookSource():
            return WebhookFeed(source, folder / _folder_of(source.path))
        case MemorySource():
            return MemoryFeed(source, memory)
    return None


def _folder_of(path: str) -> str:
    """The name of the folder for a path; the checksum keeps paths with the same last part apart."""
    return f"{short_name(path)}-{crc32(path.encode()):08x}"
