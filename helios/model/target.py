"""The kind and the capabilities of a sink's target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

from helios.model.values import Identifier

if TYPE_CHECKING:
    from helios.model.mirror import MirrorSink
    from helios.model.sink import IcebergSink


class TargetKind(Enum):
    """The kinds of targets. `helios.spark.sinks.kinds` has the writer for each kind."""

    TABLE = auto()
    AUDITED = auto()
    ROUTED = auto()
    MIRROR = auto()
    ATOMIC_MIRROR = auto()
    OUTPUT = auto()

    @property
    def one_table(self) -> bool:
        """True if the target is one table, whose name is known before a run."""
        return self in (TargetKind.TABLE, TargetKind.AUDITED)

    @property
    def keeps_record(self) -> bool:
        """True if the target records its batches, so that each batch is written exactly once."""
        return self is not TargetKind.OUTPUT


@dataclass(frozen=True, kw_only=True)
class Target:
    """The base class of sinks: the properties of the target. The defaults fit a target that is not a table.

    Attributes:
        kind: The kind of the sink, as plans name it.
        repeats_because: Why a row may be delivered more than once; empty if each row is written once.
        demands_exactly_once: Whether `.exactly_once()` was called.
        checkpoint_location: The location of the pipeline's checkpoint; None for the default.
    """

    kind: ClassVar[str] = ""
    repeats_because: ClassVar[str] = ""

    demands_exactly_once: bool = False
    checkpoint_location: str | None = None

    @property
    def target_kind(self) -> TargetKind:
        return TargetKind.OUTPUT

    @property
    def iceberg(self) -> IcebergSink | None:
        """The sink itself if it writes tables; None for all other sinks."""
        return None

    @property
    def mirror(self) -> MirrorSink | None:
        """The sink itself if it is a mirror; None for all other sinks."""
        return None

    @property
    def mirrors(self) -> bool:
        """True if the sink writes the tables of a database, as `Iceberg.mirror` does."""
        return self.mirror is not None

    @property
    def many_tables(self) -> bool:
        """True if each row names its target table."""
        return self.target_kind.keeps_record and not self.target_kind.one_table

    @property
    def routing(self) -> str | None:
        """The expression whose value names the table of a row; None without `.route`."""
        return None

    @property
    def branch_name(self) -> str | None:
        """The branch that is written; None for main, and for sinks without a table."""
        return None

    @property
    def quarantine_table(self) -> Identifier | None:
        """The table of rejected rows; None without `.quarantine`."""
        return None

    @property
    def jars(self) -> tuple[str, ...]:
        """Components of `helios.environment.coordinates` that the sink needs besides the components of its catalog."""
        return ()

    @property
    def service(self) -> str | None:
        """The service that gets the rows, as messages name it; None for catalogs and storages."""
        return None

    def details(self) -> Iterator[str]:
        """Lines of the plan that describe how the target is written."""
        yield from ()
