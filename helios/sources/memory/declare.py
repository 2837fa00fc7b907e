"""`Memory.source(...)` and `Memory.sink(...)`: rows in memory, for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from helios.errors import DeclarationError, NotFound, near_miss
from helios.model.arguments import columns_ddl, shown
from helios.model.engine import engine
from helios.model.flow import Source
from helios.model.output import MEMORY_ROWS, MemorySink, memory_name
from helios.model.values import caller

if TYPE_CHECKING:
    from typing_extensions import TypeIs


@dataclass(frozen=True, kw_only=True)
class MemorySource(Source):
    """Rows in memory, which are read once. `Memory.source` creates it."""

    kind: ClassVar[str] = "memory"
    comparable: ClassVar[bool] = False

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...] = field(repr=False)

    @property
    def plan_name(self) -> str:
        return self.label()

    @property
    def ledger_name(self) -> str:
        return "memory"  # rows in memory have no name of their own

    def label(self) -> str:
        return f"Memory.source({len(self.rows)} rows)"


class Frame(Protocol):
    """A table with Arrow's stream interface: from pyarrow, pandas or Polars."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def _is_frame(rows: object) -> TypeIs[Frame]:
    return hasattr(type(rows), "__arrow_c_stream__")


class Memory:
    """Rows in memory as a source and as a sink, for tests."""

    @staticmethod
    def source(
        rows: Sequence[Mapping[str, Any]] | Sequence[Sequence[Any]] | Frame,
        schema: str | Mapping[str, str] | None = None,
    ) -> MemorySource:
        """Reads rows once.

        Args:
            rows: Mappings from column to value, tuples in the order of `schema`, or a frame of pandas, Polars or
                pyarrow. Times without a zone are in UTC.
            schema: Columns and Spark SQL types ("id bigint, name string", or a mapping). Tuples and an empty list
                need a schema. By default, the schema is inferred from mappings, or is the frame's.

        Raises:
            DeclarationError: The columns are not clear from the rows, or Spark does not support a type of the frame.

        Examples:
            >>> Memory.source([{"id": 1}, {"id": 2}]).label()
            'Memory.source(2 rows)'
        """
        ddl = columns_ddl(schema)
        if _is_frame(rows):
            frame_schema, frame_rows = engine().rows_of_frame(rows, ddl)
            return MemorySource(columns=(), rows=frame_rows, declared_schema=frame_schema)
        if not isinstance(rows, Collection) or isinstance(rows, (str, bytes, Mapping)):
            raise DeclarationError(
                f"Memory.source takes a list of rows, not {shown(rows)[:80]}.",
                where=caller(),
                fix="put it in a list: [row]." if isinstance(rows, Mapping) else 'pass rows as dicts: [{"id": 1}].',
            )
        mappings = [row for row in rows if isinstance(row, Mapping)]
        if len(mappings) == len(rows) and mappings:
            columns = tuple(dict.fromkeys(name for row in mappings for name in row))
            values = tuple(tuple(row.get(name) for name in columns) for row in mappings)
            return MemorySource(columns=columns, rows=values, declared_schema=ddl)
        if ddl is None or mappings:
            raise DeclarationError(
                "Memory.source: the columns are not clear from the rows.",
                where=caller(),
                fix='pass rows as dicts, or schema="id bigint, name string".',
            )
        return MemorySource(columns=(), rows=tuple(tuple(row) for row in rows), declared_schema=ddl)

    @staticmethod
    def sink(name: str) -> MemorySink:
        """Keeps the rows of a run in this process; `Memory.rows(name)` returns them.

        Each run reads its sources from their start, and replaces the rows of the previous run.

        Args:
            name: The name for `Memory.rows`.

        Raises:
            DeclarationError: The name has a character that is not a letter, a digit, `_`, `-` or `.`.

        Examples:
            >>> Memory.sink("big_orders").label()
            'Memory.sink(big_orders)'
        """
        return MemorySink(held_as=memory_name(name))

    @staticmethod
    def rows(name: str) -> list[dict[str, Any]]:
        """The rows that `Memory.sink(name)` keeps, batch by batch, each as a dict.

        Args:
            name: The name of the sink.

        Raises:
            NotFound: No pipeline of this process has written to a sink of this name.
        """
        if name not in MEMORY_ROWS:
            raise NotFound(
                f"Memory.rows({name!r}): no pipeline of this process has written to it. {near_miss(name, MEMORY_ROWS)}",
                where=caller(),
                fix="run the pipeline first, in this process.",
            )
        return MEMORY_ROWS[name].rows()
