"""The interface through which a `Catalog` value calls its operations.

This layer must not import the operations, which are in a higher layer: `helios/__init__.py` provides a loader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from helios.errors import HeliosError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

    from helios.catalog.spec import Catalog
    from helios.model.partition import PartitionField
    from helios.table.snapshots import Table


class Operations(Protocol):
    """The operations behind the methods of `Catalog`, implemented by the module `helios.catalog.operations`."""

    def namespaces(self, catalog: Catalog) -> list[str]: ...

    def tables(self, catalog: Catalog, namespace: str) -> list[str]: ...

    def exists(self, catalog: Catalog, table: str) -> bool: ...

    def load(self, catalog: Catalog, table: str) -> Table: ...

    def create_namespace(self, catalog: Catalog, namespace: str) -> None: ...

    def create_table(
        self,
        catalog: Catalog,
        table: str,
        schema: pa.Schema | Schema,
        partition_by: Sequence[PartitionField | str] = ...,
    ) -> Table: ...

    def drop_table(self, catalog: Catalog, table: str) -> None: ...


_loader: Callable[[], Operations] | None = None


def provide(loader: Callable[[], Operations]) -> None:
    """Sets the function that loads the operations at their first use; `helios/__init__.py` calls this."""
    global _loader
    _loader = loader


def operations() -> Operations:
    """The operations, loaded at the first call."""
    if _loader is None:
        raise HeliosError("No catalog operations are provided.", fix="import helios, not only helios.catalog.")
    return _loader()
