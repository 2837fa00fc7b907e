"""`Iceberg.source(...)` and `Iceberg.sink(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from helios.model.sink import IcebergSink
from helios.model.source import IcebergSource
from helios.model.values import Identifier

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


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
