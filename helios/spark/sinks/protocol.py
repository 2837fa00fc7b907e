"""The protocol of sinks: find a batch, stage its rows, commit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from helios.spark.iceberg.transaction import Transaction
from helios.spark.maintenance.maintain import Upkeep
from helios.spark.sinks.options import Commit
from helios.spark.steps.build import Built
from helios.table.ledger import Record
from helios.table.positions import Batch, Span

Write: TypeAlias = Callable[[Transaction], None]
"""Writes a batch into a transaction on its table; called again where a conflict is tried again."""


@dataclass(frozen=True)
class Absent:
    """The sink holds nothing of the batch."""


@dataclass(frozen=True)
class Partial:
    """The sink holds a part of the batch; `stage` and `commit` bring the rest.

    Attributes:
        tables: The tables or branches that hold their part.
    """

    tables: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The sink holds the batch.

    Attributes:
        commit: The commit that brought it.
    """

    commit: Commit


Outcome: TypeAlias = Absent | Partial | Found


@dataclass(frozen=True)
class Staged:
    """A batch that is ready to be committed.

    Attributes:
        batch: The batch.
        rows: Its rows.
        write: Writes it into one table; None where `parts` are written.
        parts: Batches of several tables, each found or staged when its turn comes.
        adds: Whether it adds rows, rather than taking the place of others only.
    """

    batch: Batch
    rows: Built
    write: Write | None = None
    parts: Sequence[Part] = ()
    adds: bool = True


class Part(Protocol):
    """What one table gets of a batch."""

    def commit(self) -> Commit | None: ...


class Sink(Protocol):
    """Where batches go.

    `find` is the only exactly-once decision: a batch that it finds is not written again.
    """

    transactional: bool
    """Whether a batch and its record are committed together, or not at all."""

    def number(self, spans: Sequence[Span]) -> int:
        """The number of a batch pipeline's next batch: that of the last one where identical inputs are not appended."""

    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up.

        Raises:
            HeliosError: The sink cannot tell, or was changed so that the batch must not be written.
        """

    def stage(self, batch: Batch, rows: Built) -> AbstractContextManager[Staged]:
        """Validates a batch and writes what must be there before its commit; rows may stay in memory meanwhile."""

    def commit(self, staged: Staged) -> Commit | None:
        """Commits a staged batch with its stamps and its record; None when it changes nothing."""

    def last(self) -> Record | None:
        """The last batch that is there; None where there is none, or none for all tables together."""

    def maintain(self) -> list[Upkeep]:
        """The maintenance that is due between two batches; returns what was done."""
