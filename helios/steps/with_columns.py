"""`with_columns`: adds or replaces columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from helios.model.expressions import SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.steps.pairs import Pairs, column_pairs, expressions, shown


@dataclass(frozen=True, kw_only=True)
class WithColumns(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    columns: Pairs

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return expressions(self.columns)

    def name_after(self, column: str) -> str | None:
        return None if column.lower() in (name.lower() for name, _ in self.columns) else column

    def text(self) -> str:
        return f"with_columns({shown(self.columns)})"


def with_columns(columns: Mapping[str, SqlText] | None = None, /, **expressions: SqlText) -> Transform:
    """Adds or replaces columns: `with_columns(total="price * qty")`.

    A column is given as SQL text, as above, or as an expression: `with_columns(total=col("price") * col("qty"))`. Use a
    mapping for names that are not Python identifiers: `with_columns({"unit price": "price / qty"})`.
    """
    return as_step(WithColumns(columns=column_pairs(columns, "with_columns", expressions)))
