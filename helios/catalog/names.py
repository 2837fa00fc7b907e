"""Names of tables in their catalogs."""

from __future__ import annotations

from dataclasses import dataclass

from helios.catalog.spec import Catalog
from helios.model.values import Identifier


@dataclass(frozen=True)
class TableName:
    """A table in its catalog.

    Examples:
        >>> name = TableName(Catalog.local(path="/data"), ("sales", "eu"), "orders")
        >>> name.text, name.within, name.sql
        ('local.sales.eu.orders', 'sales.eu.orders', '`local`.`sales`.`eu`.`orders`')
    """

    catalog: Catalog
    namespace: tuple[str, ...]
    table: str

    @property
    def text(self) -> str:
        """Dotted, catalog first; a part with a dot is in backticks."""
        return f"{self.catalog.name}.{self.within}"

    @property
    def within(self) -> str:
        """ "namespace.table", as the catalog's own operations take it."""
        return str(Identifier((*self.namespace, self.table)))

    @property
    def sql(self) -> str:
        """Every part in backticks, for Spark."""
        return ".".join(f"`{p.replace('`', '``')}`" for p in (self.catalog.name, *self.namespace, self.table))
