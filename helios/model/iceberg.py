"""`Iceberg.source(...)` and `Iceberg.sink(...)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from helios.errors import DeclarationError
from helios.model.flow import Sink, Source
from helios.model.partition import PartitionField, identity
from helios.model.values import Identifier, caller, duration, show_seconds

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog

DEFAULT_POLL = 60.0


@dataclass(frozen=True, kw_only=True)
class IcebergSource(Source):
    """An Iceberg table that is read, once or followed. Made by `Iceberg.source`."""

    table: Identifier
    catalog: Catalog | str | None = None
    poll: float | None = None

    @property
    def streaming(self) -> bool:
        return self.poll is not None

    def incremental(self, poll: float | str | timedelta = DEFAULT_POLL) -> Self:
        """Follows the table: the state now, then every later commit, each row once.

        Args:
            poll: How often to look for new snapshots: seconds, text such as "30s", or a timedelta.

        Examples:
            >>> Iceberg.source("sales.orders").incremental(poll="30s").label()
            'Iceberg.source(sales.orders).incremental(poll=30 s)'
        """
        return replace(self, poll=duration(poll, "poll"))

    def label(self) -> str:
        followed = f".incremental(poll={show_seconds(self.poll)})" if self.poll is not None else ""
        return f"Iceberg.source({self.table}){followed}"


@dataclass(frozen=True, kw_only=True)
class IcebergSink(Sink):
    """An Iceberg table that is written exactly once. Made by `Iceberg.sink`."""

    table: Identifier
    catalog: Catalog | str | None = None
    partitioning: tuple[PartitionField, ...] | None = None
    demands_exactly_once: bool = False
    creates: bool = True
    format: int = 2
    checkpoint_location: str | None = None
    flush_rows: int | None = None
    flush_every: float | None = None
    properties: tuple[tuple[str, str], ...] = ()
    stamps: tuple[tuple[str, str], ...] = ()

    def partition_by(self, *fields: PartitionField | str) -> Self:
        """How a new table is partitioned; an existing table with another spec is an error.

        Args:
            fields: `day("ts")`, `bucket(16, "id")`, or a bare column name for its identity.

        Raises:
            DeclarationError: A field that is no transform, or the same field twice.
        """
        spec = tuple(identity(f) if isinstance(f, str) else f for f in fields)
        for field in spec:
            if not isinstance(field, PartitionField):
                raise DeclarationError(
                    f"partition_by takes transforms or column names, not {field!r}.",
                    where=caller(),
                    fix='write partition_by(day("ts"), bucket(16, "id"), "country").',
                )
        names = [field.name for field in spec]
        if len(set(names)) != len(names) or not spec:
            raise DeclarationError("partition_by needs fields, each once.", where=caller())
        return replace(self, partitioning=spec)

    def append(self) -> Self:
        """Adds rows and changes none: the default."""
        return self

    def exactly_once(self) -> Self:
        """Makes `check` fail where a source or a step cannot keep it. Iceberg sinks are always written exactly once."""
        return replace(self, demands_exactly_once=True)

    def create(self, create: bool = True) -> Self:
        """Whether a missing table and namespace are created at the first write (the default)."""
        return replace(self, creates=create)

    def format_version(self, version: int) -> Self:
        """The Iceberg format of a new table: 2 (default) or 3.

        Raises:
            DeclarationError: Another version.
        """
        if version not in (2, 3):
            raise DeclarationError(f"format_version({version!r}): new tables are 2 or 3.", where=caller())
        return replace(self, format=version)

    def checkpoint(self, location: str) -> Self:
        """Where the pipeline's progress is kept: a path or URI on a file system that Spark can write."""
        if not isinstance(location, str) or not location.strip():
            raise DeclarationError(
                "checkpoint() needs a location.", where=caller(), fix='write checkpoint("/data/cp").'
            )
        return replace(self, checkpoint_location=location)

    def flush(self, rows: int | None = None, every: float | str | timedelta | None = None) -> Self:
        """The rhythm of commits.

        Args:
            rows: A soft bound on the rows of a batch, by whole files.
            every: The time between batches; default is the smallest `poll` of the sources, else 60 s.
        """
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
            raise DeclarationError(f"flush(rows={rows!r}) must be a positive number.", where=caller())
        return replace(
            self, flush_rows=rows, flush_every=duration(every, "every") if every is not None else self.flush_every
        )

    def table_properties(self, properties: Mapping[str, str]) -> Self:
        """Iceberg properties of a new table: `{"write.format.default": "avro"}`; an existing table keeps its own."""
        return replace(self, properties=_text_pairs(properties, "table_properties"))

    def snapshot_properties(self, properties: Mapping[str, str]) -> Self:
        """Entries of every commit's snapshot summary: `{"team": "sales"}`.

        Raises:
            DeclarationError: A key that Helios or Iceberg keeps for itself (`helios.*`, `total-records`, ...).
        """
        pairs = _text_pairs(properties, "snapshot_properties")
        for key, _ in pairs:
            if key in RESERVED_SUMMARY_KEYS or key.startswith(("added-", "deleted-", "removed-", "total-", "spark.")):
                raise DeclarationError(
                    f"snapshot_properties: {key!r} is kept by Iceberg or Spark.", where=caller(), fix="use another key."
                )
        return replace(self, stamps=pairs)

    def label(self) -> str:
        return f"Iceberg.sink({self.table})"


RESERVED_SUMMARY_KEYS = frozenset(
    {"operation", "changed-partition-count", "wap.id", "published-wap-id", "source-snapshot-id"}
)


def _text_pairs(properties: Mapping[str, str], what: str) -> tuple[tuple[str, str], ...]:
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise DeclarationError(
                f"{what}: {key!r}: {value!r} must both be text.", where=caller(), fix=f'write {{"{key}": "{value}"}}.'
            )
        if key.startswith("helios."):
            raise DeclarationError(f"{what}: {key!r} is kept by Helios.", where=caller(), fix="use another key.")
    return tuple(properties.items())


class Iceberg:
    """Iceberg tables as sources and sinks."""

    @staticmethod
    def source(table: str, catalog: Catalog | str | None = None) -> IcebergSource:
        """A table to read: by default its current snapshot, once.

        Args:
            table: `namespace.table` in the default catalog, or `catalog.namespace.table` with a declared catalog.
            catalog: The catalog, or its name; then all parts of `table` are namespace and table.

        Raises:
            DeclarationError: The name has a bad part.

        Examples:
            >>> Iceberg.source("sales.orders").label()
            'Iceberg.source(sales.orders)'
        """
        return IcebergSource(table=Identifier.parse(table), catalog=catalog)

    @staticmethod
    def sink(table: str, catalog: Catalog | str | None = None) -> IcebergSink:
        """A table to write, created from the stream's schema when it is missing.

        Args:
            table: As for `source`.
            catalog: As for `source`.

        Raises:
            DeclarationError: The name has a bad part.
        """
        return IcebergSink(table=Identifier.parse(table), catalog=catalog)
