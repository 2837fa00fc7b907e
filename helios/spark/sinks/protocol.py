"""The `Sink` protocol: find a batch, stage its rows, commit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from helios.spark.iceberg.transaction import Transaction
from helios.spark.maintenance.upkeep import MaintenanceResult
from helios.spark.sinks.options import Commit
from helios.spark.steps.build import Built
from helios.table.ledger import Record, Starts
from helios.table.positions import Batch, Span

Write: TypeAlias = Callable[[Transaction], None]
"""Writes a batch into a transaction on its table; called again for each retry."""


@dataclass(frozen=True)
class Absent:
    """The sink contains no part of the batch."""


@dataclass(frozen=True)
class Partial:
    """The sink contains a part of the batch; `stage` and `commit` write the rest.

    Attributes:
        tables: The tables or branches that already contain their part.
    """

    tables: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """The sink contains the batch."""

    commit: Commit


Outcome: TypeAlias = Absent | Partial | Found


@dataclass(frozen=True)
class Staged:
    """A batch that is ready to be committed.

    Attributes:
        write: Writes the batch into its table; None if `parts` write it, or if there is nothing to write.
        parts: The parts of the batch, one per table, if the sink has several tables.
        adds_rows: Whether the batch adds rows; False if it only removes rows.
        has_rejects: Whether the quarantine has rows of the batch. The batch is then committed even without other rows.
    """

    batch: Batch
    rows: Built
    write: Write | None = None
    parts: Sequence[Part] = ()
    adds_rows: bool = True
    has_rejects: bool = False


class Part(Protocol):
    """The part of a batch for one table."""

    def commit(self) -> Commit | None: ...


class Sink(Protocol):
    """The target of a pipeline's batches.

    `find` alone decides whether a batch is written: a batch that it finds is not written again. Each sink also defines
    `stage` and `commit`. The defaults of the other methods suit a sink without a ledger record.
    """

    transactional: bool = False
    """True if a batch and its ledger record are committed together, or not at all."""

    def number(self, spans: Sequence[Span]) -> int:
        """The number of a batch pipeline's next batch. An append keeps the last number if the inputs are the same."""
        return 0

    def find(self, batch: Batch) -> Outcome:
        """Looks a batch up.

        Raises:
            HeliosError: The outcome cannot be determined, or the target was changed and must not be written.
        """

    def stage(self, batch: Batch, rows: Built) -> AbstractContextManager[Staged]:
        """Validates a batch and writes its rejected rows; its rows may be persisted until the context ends."""

    def commit(self, staged: Staged) -> Commit | None:
        """Commits a staged batch with its stamps and its record; None if it changes nothing."""

    def reopen(self, batch: Batch) -> None:
        """Called before an unwritten batch runs again: the batch may then reject other rows than before."""
        return

    def store_starts(self, starts: Starts) -> None:
        """Stores the starting positions of the sources before the first batch, if the target can."""
        return

    def last(self) -> Record | None:
        """The record of the last batch; None if there is none, or if each of several tables has its own record."""
        return None

    def maintain(self) -> list[MaintenanceResult]:
        """Runs the maintenance that is due between two batches; returns its results."""
        return []
