"""`cast`: changes the types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.steps.pairs import Pairs, column_pairs, shown


@dataclass(frozen=True, kw_only=True)
class Cast(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    types: Pairs

    def name_after(self, column: str) -> str | None:
        return None if column.lower() in (name.lower() for name, _ in self.types) else column

    def text(self) -> str:
        return f"cast({shown(self.types)})"


def cast(columns: Mapping[str, str] | None = None, /, **types: str) -> Transform:
    """Changes types, named as in Spark SQL: `cast(id="bigint", price="decimal(10,2)")`."""
    return as_step(Cast(types=column_pairs(columns, "cast", types)))
