"""`Iceberg.source(...)` and `Iceberg.sink(...)`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from helios.model.flow import Source
from helios.model.sink import IcebergSink
from helios.model.values import Identifier, duration, show_seconds

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
