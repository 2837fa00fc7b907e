"""Names of tables in their catalogs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from helios.model.values import Identifier

if TYPE_CHECKING:
    from helios.catalog.spec import Catalog


@dataclass(frozen=True)
class TableName:
    """A table in its catalog.

    Examples:
        >>> from helios import Catalog
        >>> name = TableName(Catalog.local(path="/data"), ("sales", "eu"), "orders")
        >>> name.text, name.within, name.sql
        ('local.sales.eu.orders', 'sales.eu.orders', '`local`.`sales`.`eu`.`orders`')
    """

    catalog: Catalog
    namespace: tuple[str, ...]
    table: str

    @property
    def text(self) -> str:
        """The dotted name with the catalog first; a part with a dot is in backticks."""
        return f"{self.catalog.name}.{self.within}"

    @property
    def prefix(self) -> str:
        """The prefix of the names of routed tables, if this name is their declared target."""
        return f"{self.text}_"

    @property
    def within(self) -> str:
        """ "namespace.table", as the catalog's own operations take it."""
        return str(Identifier((*self.namespace, self.table)))

    @property
    def sql(self) -> str:
        """The name for Spark, with each part in backticks."""
        return f"`{self.catalog.name}`.{self.sql_within}"

    @property
    def sql_within(self) -> str:
        """The name for Spark, without the catalog."""
        return ".".join(f"`{part.replace('`', '``')}`" for part in (*self.namespace, self.table))


@dataclass(frozen=True)
class OutputName(TableName):
    """The name of a target that is not a table. Its namespace is the kind of target; its catalog stores the progress.

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
    """The tables of a namespace, as one target; the field `table` is ignored.

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
        """The name of a table in this namespace."""
        return TableName(self.catalog, self.namespace, name)


def file_name(text: str, also: str = "") -> str:
    """A table's or pipeline's name as the name of a file or folder; other characters become `_`.

    Args:
        text: The name.
        also: Characters that stay, besides letters, digits and `_-.`.

    Examples:
        >>> file_name("local.a.my table@b"), file_name("local.a.t@b", also="@")
        ('local.a.my_table_b', 'local.a.t@b')
    """
    return "".join(c if c.isalnum() or c in f"_-.{also}" else "_" for c in text)
