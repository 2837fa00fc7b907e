"""The values that compiling a pipeline depends on: the configuration, the catalogs, and the other pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.config import Config, resolve
from helios.errors import NotFound, Origin
from helios.model.values import Identifier
from helios.plan.typing.schema import Schema


@dataclass(frozen=True)
class Context:
    """The configuration and the catalogs with which names are resolved.

    Attributes:
        catalogs: The catalogs that the script declares, by name.
        offline: Whether catalogs must not be read.
    """

    config: Config
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)
    offline: bool = False

    def resolve(self, name: Identifier, catalog: Catalog | str | None, where: Origin) -> TableName:
        """The table with a name.

        Args:
            name: The name as the user wrote it.
            catalog: The catalog that was declared with the name.

        Raises:
            NotFound: The catalog is not declared.
        """
        return resolve(name, catalog, self.catalogs, self.config, where)


class WrittenTables(Protocol):
    """The tables that are written by the pipelines of one compilation."""

    def __contains__(self, table: object) -> bool: ...

    def columns(self, table: TableName) -> Schema | None:
        """The columns of a table that a pipeline will create; None if they are known only at run."""


class _NoTables:
    def __contains__(self, table: object) -> bool:
        return False

    def columns(self, table: TableName) -> Schema | None:
        return None


NO_TABLES: WrittenTables = _NoTables()


@dataclass(frozen=True)
class Surroundings:
    """The context for describing a source.

    Attributes:
        produced: The tables that are written by the pipelines of the same compilation; they may not exist yet.
        mirrored: Whether the sink is a mirror. Then the rows may be changes of several tables.
    """

    context: Context
    produced: WrittenTables = NO_TABLES
    mirrored: bool = False


class Unsettled(NotFound):
    """The problem of a followed source whose declared start, such as a snapshot, does not exist.

    The problem does not stop a pipeline with a checkpoint, which continues from there.
    """
