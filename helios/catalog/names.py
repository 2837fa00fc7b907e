"""The names of tables and other targets, each with its catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.model.values import Identifier

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


@dataclass(frozen=True)
class TableName:
    """The name of a table, with the table's catalog.

    Examples:
        >>> from helios import Catalog
        >>> name = TableName(Catalog.local(path="/data"), ("sales", "eu"), "orders")
        >>> name.text, name.name_in_catalog, name.sql
        ('local.sales.eu.orders', 'sales.eu.orders', '`local`.`sales`.`eu`.`orders`')
    """

    catalog: Catalog
    namespace: tuple[str, ...]
    table: str

    @property
    def text(self) -> str:
        """The dotted name with the catalog first; a part with a dot is in backticks."""
        return f"{self.catalog.name}.{self.name_in_catalog}"

    @property
    def prefix(self) -> str:
        """The prefix of the tables that a routed sink writes, if this is the name of the declared target."""
        return f"{self.text}_"

    @property
    def name_in_catalog(self) -> str:
        """The name without the catalog, "namespace.table", as the catalog's methods take it."""
        return str(Identifier((*self.namespace, self.table)))

    @property
    def sql(self) -> str:
        """The name for Spark, with each part in backticks."""
        return f"`{self.catalog.name}`.{self.sql_name_in_catalog}"

    @property
    def sql_name_in_catalog(self) -> str:
        """The name for Spark, without the catalog."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in (*self.namespace, self.table))


@dataclass(frozen=True)
class OutputName(TableName):
    """The name of a target that is not a table. The namespace is the kind of target; the catalog stores the progress.

    Examples:
        >>> from helios import Catalog
        >>> OutputName(Catalog.memory("m"), ("kafka",), "orders").text
        'kafka:orders'
    """

    @property
    def text(self) -> str:
        return f"{'.'.join(self.namespace)}:{self.table}"


@dataclass(frozen=True)
class Namespace(TableName):
    """A namespace as a target: all its tables. The field `table` is ignored.

    Examples:
        >>> from helios import Catalog
        >>> tables = Namespace(Catalog.memory("m"), ("shop", "eu"), "*")
        >>> tables.text, tables.of("orders").text
        ('m.shop.eu', 'm.shop.eu.orders')
    """

    @property
    def text(self) -> str:
        return f"{self.catalog.name}.{Identifier(self.namespace)}"

    @property
    def prefix(self) -> str:
        return f"{self.text}."

    def of(self, name: str) -> TableName:
        return TableName(self.catalog, self.namespace, name)


def file_name(text: str, also: str = "") -> str:
    """Makes the name of a file or folder from the name of a table or pipeline.

    Letters, digits, `_-.` and the characters of `also` are kept; others become `_`.

    Examples:
        >>> file_name("local.a.my table@b"), file_name("local.a.t@b", also="@")
        ('local.a.my_table_b', 'local.a.t@b')
    """
    return "".join(c if c.isalnum() or c in f"_-.{also}" else "_" for c in text)
