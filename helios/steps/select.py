"""`select`: keeps only the given columns and expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.arguments import expression_texts, listed
from helios.model.expressions import SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Select(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    expressions: tuple[str, ...]

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return self.expressions

    def text(self) -> str:
        return f"select({', '.join(self.expressions)})"


def select(*expressions: SqlText | Sequence[SqlText]) -> Transform:
    """Keeps columns, or SQL expressions with an alias: `select("id", "price * qty AS total")`."""
    if not listed(expressions):
        raise DeclarationError("select() needs at least one column.", where=caller(), fix='write select("id").')
    return as_step(Select(expressions=expression_texts(listed(expressions), "select")))
