"""`where`: keeps the rows for which a condition is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from helios.model.arguments import expression
from helios.model.expressions import SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits


@dataclass(frozen=True, kw_only=True)
class Where(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, passes_hidden=True, same_columns=True)

    condition: str

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (self.condition,)

    def text(self) -> str:
        return f"where({self.condition})"


def where(condition: SqlText) -> Transform:
    """Keeps the rows for which a SQL condition is true: `where("amount > 0")`, or `where(col("amount") > 0)`."""
    return as_step(Where(condition=expression(condition, "where")))
