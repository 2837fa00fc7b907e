"""`select`: keeps only the given columns and expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.arguments import expression_texts, listed
from helios.model.expressions import SqlText
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller
from helios.steps.pairs import Pairs

_COLUMN_AND_ALIAS = re.compile(r"\s*(`[^`]+`|\w+)(?:\s+(?:as\s+)?(`[^`]+`|\w+))?\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Select(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    expressions: tuple[str, ...]

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return self.expressions

    @property
    def unchanged(self) -> Pairs:
        """The columns that are selected without a change, each with its new name."""
        matches = (_COLUMN_AND_ALIAS.fullmatch(text) for text in self.expressions)
        return tuple((match[1].strip("`"), (match[2] or match[1]).strip("`")) for match in matches if match)

    def name_after(self, column: str) -> str | None:
        """The name under which a column is selected, without a change.

        Examples:
            >>> Select(expressions=("`order day` AS day", "upper(id) AS id")).name_after("Order Day")
            'day'
            >>> Select(expressions=("`order day` AS day", "upper(id) AS id")).name_after("id")
        """
        if any(text.strip() == "*" for text in self.expressions):
            return column  # an alias is a copy
        names = [name for old, name in self.unchanged if old.lower() == column.lower()]
        return next((name for name in names if name.lower() == column.lower()), names[-1] if names else None)

    def text(self) -> str:
        return f"select({', '.join(self.expressions)})"


def select(*expressions: SqlText | Sequence[SqlText]) -> Transform:
    """Keeps columns, or SQL expressions with an alias: `select("id", "price * qty AS total")`."""
    if not listed(expressions):
        raise DeclarationError("select() needs at least one column.", where=caller(), fix='write select("id").')
    return as_step(Select(expressions=expression_texts(listed(expressions), "select")))
