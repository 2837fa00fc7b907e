"""The context for compiling pipelines."""

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
    """The configuration and the catalogs that names are resolved with.

    Attributes:
        config: The configuration that applies to the script.
        catalogs: The catalogs that the script declares, by name.
        offline: Whether catalogs may not be read.
    """

    config: Config
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)
    offline: bool = False

    def resolve(self, name: Identifier, catalog: Catalog | str | None, where: Origin) -> TableName:
        """The table that a name means.

        Args:
            name: The name as it was written.
            catalog: The catalog that was given with it.
            where: The line that wrote the name.

        Raises:
            NotFound: The catalog is not declared.
        """
        return resolve(name, catalog, self.catalogs, self.config, where)


class Writers(Protocol):
    """The tables that the pipelines of one call write."""

    def __contains__(self, table: object) -> bool: ...

    def columns(self, table: TableName) -> Schema | None:
        """The columns that a table which does not exist will have; None where they are known only at run."""


class _Nothing:
    """No table is written."""

    def __contains__(self, table: object) -> bool:
        return False

    def columns(self, table: TableName) -> Schema | None:
        return None


NOTHING: Writers = _Nothing()


@dataclass(frozen=True)
class Surroundings:
    """The context for describing a source.

    Attributes:
        context: The configuration and the catalogs.
        produced: The tables that pipelines of the same call write, which may not exist yet.
        mirrored: Whether the rows may be changes of several tables, which go to tables of their own.
    """

    context: Context
    produced: Writers = NOTHING
    mirrored: bool = False


class Unsettled(NotFound):
    """A start that does not exist, or no longer; a pipeline that has begun continues without it."""
