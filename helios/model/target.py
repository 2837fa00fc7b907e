"""The properties of a sink's target: its kind, and its capabilities."""

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
    """The kinds of targets. `helios.spark.sinks.kinds` names what writes each."""

    TABLE = auto()
    AUDITED = auto()
    ROUTED = auto()
    MIRROR = auto()
    ATOMIC_MIRROR = auto()
    OUTPUT = auto()

    @property
    def one_table(self) -> bool:
        """True if it is one table, whose name is known before a run."""
        return self in (TargetKind.TABLE, TargetKind.AUDITED)

    @property
    def keeps_record(self) -> bool:
        """True if it records its batches, so that each is written exactly once."""
        return self is not TargetKind.OUTPUT


@dataclass(frozen=True, kw_only=True)
class Target:
    """The properties of a sink's target; the defaults are those of a target that is not a table.

    Attributes:
        kind: The name of its kind, in plans.
        why: Why rows may reach it more than once; empty where each is written once.
        demands_exactly_once: Whether `.exactly_once()` was called.
        checkpoint_location: Where the progress of the pipeline is kept; None for the default.
    """

    kind: ClassVar[str] = ""
    why: ClassVar[str] = ""

    demands_exactly_once: bool = False
    checkpoint_location: str | None = None

    @property
    def target(self) -> TargetKind:
        return TargetKind.OUTPUT

    @property
    def iceberg(self) -> IcebergSink | None:
        """The sink itself if it writes tables, with its own fields; None for all other sinks."""
        return None

    @property
    def mirror(self) -> MirrorSink | None:
        """The sink itself if it is a mirror; None for all other sinks."""
        return None

    @property
    def mirrors(self) -> bool:
        """True if it writes the tables of a database, as `Iceberg.mirror` declares it."""
        return self.mirror is not None

    @property
    def many_tables(self) -> bool:
        """True if its rows name their target tables."""
        return self.target.keeps_record and not self.target.one_table

    @property
    def routing(self) -> str | None:
        """The expression whose values name the tables of its rows; None without one."""
        return None

    @property
    def branch_name(self) -> str | None:
        """The branch of its table that is written; None for main, and without a table."""
        return None

    @property
    def quarantine_table(self) -> Identifier | None:
        """The table of rejected rows; None without one."""
        return None

    @property
    def jars(self) -> tuple[str, ...]:
        """Components of `helios.environment.coordinates` that writing it needs, beside those of its catalog."""
        return ()

    @property
    def service(self) -> str | None:
        """The service that gets the rows, as messages name it; None for catalogs and storages."""
        return None

    def details(self) -> Iterator[str]:
        """Lines of the plan about how it is written."""
        yield from ()
