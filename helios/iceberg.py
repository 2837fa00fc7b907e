"""`Iceberg.source(...)`, `Iceberg.sink(...)` and `Iceberg.mirror(...)`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from helios.model.arguments import flag
from helios.model.mirror import ANY_TABLE, MirrorSink, checked_name_pattern
from helios.model.modes import Upsert
from helios.model.sink import IcebergSink
from helios.model.values import Identifier, duration
from helios.sources.iceberg.declare import IcebergSource

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


class Iceberg:
    """Iceberg tables as sources and sinks."""

    @staticmethod
    def source(table: str, catalog: Catalog | str | None = None) -> IcebergSource:
        """A table to read: by default its current snapshot, once.

        Args:
            table: `namespace.table` in the default catalog, or `catalog.namespace.table` with a declared catalog.
            catalog: The catalog, or its name; if it is given, `table` contains no catalog.

        Raises:
            DeclarationError: A part of the name is invalid.

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
            DeclarationError: A part of the name is invalid.
        """
        return IcebergSink(table=Identifier.parse(table), catalog=catalog)

    @staticmethod
    def mirror(
        namespace: str,
        catalog: Catalog | str | None = None,
        *,
        names: str = "{table}",
        atomic: bool = False,
        tombstones: float | str | timedelta = "7d",
    ) -> MirrorSink:
        """A sink that mirrors all tables of a database, for the changes that `Cdc.debezium(...)` reads.

        Each table of the database has a target table, with its columns and its key. The target table is created with
        the first change of the table. New columns are added with the first change that has them.

        Args:
            namespace: `namespace` in the default catalog, or `catalog.namespace` with a declared catalog.
            catalog: The catalog, or its name; if it is given, `namespace` contains no catalog.
            names: The pattern of the target tables' names, such as `"{schema}_{table}"`. `{table}`, `{schema}` and
                `{db}` stand for the names in the database, and `{prefix}` for the prefix of Debezium's topics. The run
                stops if two tables get the same name.
            atomic: Whether all tables of a batch change in one commit of the catalog.
            tombstones: How long a delete is remembered, so that an older change does not restore the key.

        Raises:
            DeclarationError: A part of the namespace is invalid, or `names` does not contain `{table}`.

        Examples:
            >>> Iceberg.mirror("local.shop").label()
            'Iceberg.mirror(local.shop)'
        """
        return MirrorSink(
            table=Identifier.parse(f"{namespace}.{ANY_TABLE}"),
            catalog=catalog,
            mode=Upsert(tombstones=duration(tombstones, "tombstones")),
            names=checked_name_pattern(names),
            atomic=flag(atomic, "mirror(atomic=)"),
        )
