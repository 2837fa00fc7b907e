"""Sinks that are not tables. They do not record their batches, so rows are delivered at least once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from helios.errors import DeclarationError, HeliosError
from helios.model.arguments import count, text
from helios.model.flow import Sink
from helios.model.modes import Append, Mode
from helios.model.retry import Retry
from helios.model.sink import Evolution
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Output(Sink):
    """A sink without a record of its batches: it cannot tell whether a repeated batch was already delivered.

    Attributes:
        outlives_process: Whether the rows outlive the process. If they do, the pipeline's progress is kept, too.
        writer: The class that delivers its rows on Spark, as "module:Class", like `OutputWriter`.
        repeats_because: Why a row may be delivered more than once.
        mode: The write mode: every row is appended.
        evolution: How the columns of the rows may change; by default as in a table.
        retry_policy: The retry policy: how long a run waits for an unreachable service.
    """

    outlives_process: ClassVar[bool] = False
    writer: ClassVar[str]
    repeats_because: ClassVar[str] = "a batch that is run again is delivered again"
    mode: ClassVar[Mode] = Append()
    evolution: ClassVar[Evolution] = Evolution()
    retry_policy: ClassVar[Retry] = Retry()

    @property
    def name(self) -> str:
        """The name of the target, such as a topic."""
        raise NotImplementedError

    def problems(self) -> Iterable[HeliosError]:
        """The problems of the sink's own settings."""
        return ()

    def exactly_once(self) -> Self:
        """Makes `check` fail: only an Iceberg table records which batches it contains."""
        return replace(self, demands_exactly_once=True)


@dataclass(frozen=True, kw_only=True)
class MemorySink(Output):
    """Rows in the memory of this process. Created by `Memory.sink`."""

    kind: ClassVar[str] = "memory"
    writer: ClassVar[str] = "helios.spark.sinks.output:MemoryWriter"
    repeats_because: ClassVar[str] = "each run starts from the beginning"

    held_as: str

    @property
    def name(self) -> str:
        return self.held_as

    def label(self) -> str:
        return f"Memory.sink({self.held_as})"


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Output):
    """Rows on standard output. Created by `Console.sink`."""

    kind: ClassVar[str] = "console"
    writer: ClassVar[str] = "helios.spark.sinks.output:ConsoleWriter"
    repeats_because: ClassVar[str] = (
        "each run starts from the beginning, and a batch that is run again is printed again"
    )

    rows: int = 20

    @property
    def name(self) -> str:
        return "stdout"

    def details(self) -> Iterator[str]:
        yield f"the first {self.rows:,} rows of each batch, and how many more there are"

    def label(self) -> str:
        return "Console.sink()" if self.rows == 20 else f"Console.sink(rows={self.rows})"


class Console:
    """Standard output as a sink, to look at a stream."""

    @staticmethod
    def sink(rows: int = 20) -> ConsoleSink:
        """Prints the rows of each batch.

        Args:
            rows: The most rows of a batch that are printed. Below them, the number of the other rows is printed.

        Raises:
            DeclarationError: `rows` is not a positive whole number.

        Examples:
            >>> Console.sink().label()
            'Console.sink()'
        """
        return ConsoleSink(rows=count(rows, "rows"))


@dataclass
class MemoryRows:
    """The rows that pipelines have written under one name.

    Attributes:
        batches: Rows by pipeline, then by the number of the batch. A repeated batch replaces the rows of that number.
    """

    batches: dict[str, dict[int, list[dict[str, Any]]]] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """All rows, batch by batch."""
        return [row for batches in self.batches.values() for number in sorted(batches) for row in batches[number]]


MEMORY_ROWS: dict[str, MemoryRows] = {}
"""The rows of each `Memory.sink` in this process, by its name."""


def memory_name(name: str) -> str:
    """Returns the name of a sink in memory unchanged, after a check.

    Raises:
        DeclarationError: The name is empty, or has other characters than letters, digits, `_`, `-` and `.`.
    """
    if not all(c.isalnum() or c in "_-." for c in text(name, "Memory.sink()")):
        raise DeclarationError(
            f"Memory.sink({name!r}): a name has letters, digits, '_', '-' and '.'.",
            where=caller(),
            fix='write Memory.sink("orders").',
        )
    return name
