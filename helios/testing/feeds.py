"""Feeds, which replace the sources of a pipeline by tables, folders, topics or rows of the test's lake."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar
from zlib import crc32

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import InputError, NotFound
from helios.model.flow import Source
from helios.plan.typing.schema import Schema, from_ddl, from_pyiceberg, from_rows
from helios.sources.files.declare import FilesSource
from helios.sources.iceberg.declare import Between, IcebergSource
from helios.sources.kinds import source_kind
from helios.sources.memory.declare import MemorySource
from helios.sources.webhook.bodies import line_of, verified
from helios.sources.webhook.declare import WebhookSource
from helios.sources.webhook.signatures import Refused
from helios.testing.casts import arrow_schema, cast_rows, inferred
from helios.testing.diff import hidden
from helios.testing.files import write_file
from helios.testing.names import short_name
from helios.testing.records import as_bytes

if TYPE_CHECKING:
    import pyarrow as pa

__tracebackhide__ = hidden

MEMORY = "memory"
"""The name of a source of rows in memory, as a test feeds it."""


class Feed:
    """Replaces a source in a test, and receives the rows that the test feeds to the source.

    Attributes:
        name: The source's full name in the test.
        ordered: Whether the order of the rows matters, so that `invariant` does not shuffle the rows.
        named: Whether sources with the same name are the same source; otherwise the test numbers them.
        followed: Whether a pipeline follows the source.
    """

    ordered: ClassVar[bool] = False
    named: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.followed = False

    def prepare(self, rows: Any) -> list[Any]:
        """Checks and casts the rows of a batch, without delivering them.

        Raises:
            InputError: A row does not fit.
        """
        raise NotImplementedError

    def deliver(self, records: Sequence[Any]) -> None:
        """Delivers prepared rows, as one commit, file or range of offsets."""
        raise NotImplementedError

    def stand_in(self, source: Source) -> Source:
        """The source that a pipeline reads instead of the declared source."""
        raise NotImplementedError

    def ensure_readable(self) -> None:
        """Refuses a source that cannot be read yet.

        Raises:
            NotFound: The test has set neither rows nor columns.
        """

    def column_value(self, record: Any, column: str) -> Any:
        """The value of a column in a prepared row; None if it is unknown."""
        return record.get(column) if isinstance(record, Mapping) else None


class TableFeed(Feed):
    """Feeds a source that is a table. The table in the lake has the same full name."""

    def __init__(self, table: TableName, declared: str | None) -> None:
        super().__init__(table.text)
        self._table = table
        self._schema = from_ddl(declared) if declared is not None else None
        self._ranged = False  # whether a source reads a range of the table's history
        self._range: Between | None = None  # the range of the last batch

    @property
    def catalog(self) -> Catalog:
        return self._table.catalog

    def schema(self) -> Schema | None:
        """The declared columns, or else those of the table or of the first rows; None while unknown."""
        if self._schema is None and self.catalog.exists(self._table.name_in_catalog):
            self._schema = from_pyiceberg(self.catalog.load(self._table.name_in_catalog).iceberg.schema())
        return self._schema

    def declare(self, schema: Schema | None) -> None:
        """Sets the columns, unless they are known."""
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
            before = self._end_of_history() if self._ranged else None
            self._append(pa.Table.from_pylist(list(records), schema=arrow_schema(self.schema() or Schema(()))))
            if before is not None:
                self._range = Between(before, self._end_of_history())

    def _append(self, rows: pa.Table) -> None:
        self.catalog.load(self._table.name_in_catalog).iceberg.append(rows)

    def _end_of_history(self) -> int:
        """The newest snapshot. If the table has none, an empty snapshot is created first."""
        while (newest := self.catalog.load(self._table.name_in_catalog).current_snapshot()) is None:
            self._append(arrow_schema(self.schema() or Schema(())).empty_table())
        return newest.id

    def create(self) -> None:
        """Creates the table, if the columns are known and the table does not exist."""
        schema = self._schema
        if schema is None or self.catalog.exists(self._table.name_in_catalog):
            return
        namespace = ".".join(self._table.namespace)
        if namespace not in self.catalog.namespaces():
            self.catalog.create_namespace(namespace)
        self.catalog.create_table(self._table.name_in_catalog, arrow_schema(schema))

    def ensure_readable(self) -> None:
        self.create()
        if not self.catalog.exists(self._table.name_in_catalog):
            raise NotFound(
                f"the source {self.name} has no rows and no columns in this test.",
                fix=f'feed it rows, or declare it: lake.table("{self._table.name_in_catalog}", "id bigint, ...").',
            )
        if self._ranged and self._range is None:  # before the first batch, the range has no rows
            before = self._end_of_history()
            self._append(arrow_schema(self.schema() or Schema(())).empty_table())
            self._range = Between(before, self._end_of_history())

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, IcebergSource)
        if source.between_points is not None:  # the source then reads the rows that the test fed last
            self._ranged = True
            source = replace(source, between_points=self._range or source.between_points)
        # The name of a catalog (or None for the default catalog) already means one of the lake: see `Lake.context`.
        catalog = self.catalog if isinstance(source.catalog, Catalog) else source.catalog
        return replace(source, catalog=catalog, start=None, at=None, max_rows=None, max_files=None)


class FilesFeed(Feed):
    """Feeds a source of files. The files are written into a folder of the lake."""

    def __init__(self, source: FilesSource, folder: Path) -> None:
        super().__init__(source.path)
        self._source = source
        self._folder = folder
        self._files = 0

    def prepare(self, rows: Any) -> list[Any]:
        if isinstance(rows, str | bytes):
            return [rows]
        declared = self._source.declared_schema
        if declared is None or any(isinstance(row, str | bytes) for row in rows):
            return list(rows)
        return list(cast_rows(rows, from_ddl(declared), self.name))

    def deliver(self, records: Sequence[Any]) -> None:
        rows = [record for record in records if not isinstance(record, str | bytes)]
        texts = [record for record in records if isinstance(record, str | bytes)]
        contents = [rows, *texts] if rows else texts  # one file with all rows, then a file for each text
        for content in contents:
            self._files += 1
            write_file(self._folder, f"{self._files:06d}", self._source, content)

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, FilesSource)
        return replace(source, path=str(self._folder), storage=None, max_files=None)


class WebhookFeed(Feed):
    """Feeds a webhook source: writes deliveries as the receiver stores them.

    The receiver's own function checks the bodies. Signatures are not needed.
    """

    def __init__(self, source: WebhookSource, folder: Path) -> None:
        super().__init__(source.path)
        self._source = source
        self._folder = folder
        self._segments = 0

    def prepare(self, rows: Any) -> list[Any]:
        bodies = [rows] if isinstance(rows, str | bytes) else rows
        return [self._verified(body) for body in bodies]

    def _verified(self, content: Any) -> bytes:
        source, body = self._source, as_bytes(content) or b""
        declared = from_ddl(source.declared_schema) if source.declared_schema is not None else None
        try:
            return verified(body, declared, source.extra, source.fraction)
        except Refused as refused:
            raise InputError(f"{self.name}: the receiver refuses {content!r}: {refused.reason}.") from None

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
        open_segment = self._folder / f".open-{name}.json"
        open_segment.write_bytes(b"".join(line + b"\n" for line in lines))
        open_segment.rename(self._folder / f"{name}.json")

    def stand_in(self, source: Source) -> Source:
        assert isinstance(source, WebhookSource)
        return replace(source, folder=str(self._folder), max_files=None)


class MemoryFeed(Feed):
    """Feeds a source of rows in memory. The rows are those of the script, until a batch replaces them."""

    named: ClassVar[bool] = False

    def __init__(self, source: MemorySource, folder: Path) -> None:
        super().__init__(MEMORY)
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
        ddl = source.declared_schema or ", ".join(f"`{column.name}` {column.type}" for column in self._schema.columns)
        return replace(source, columns=names, rows=rows, declared_schema=ddl)


def feed_of(source: Source, folder: Path) -> Feed | None:
    """The feed that the kind of a source names; None if it names none.

    Args:
        folder: The parent of the folder for the feed's files.
    """
    name = source_kind(source).feed
    if name is None:
        return None
    own_folder = folder / _folder_of(source.label())
    own_folder.mkdir(parents=True, exist_ok=True)
    feed: Feed = resolve_name(name)(source, own_folder)
    return feed


def _folder_of(label: str) -> str:
    """The name of a source's folder; the checksum makes it unique for sources whose short names are equal."""
    plain = re.sub(r"[^\w.-]+", "_", short_name(label))[:80]
    return f"{plain}-{crc32(label.encode()):08x}"
