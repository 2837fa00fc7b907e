"""`rename`: changes the names of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from helios.model.arguments import check_mapping
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.steps.pairs import Pairs, column_pairs


@dataclass(frozen=True, kw_only=True)
class Rename(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    names: Pairs

    def name_after(self, column: str) -> str:
        """The new name of a column. As in Spark, the renames apply in order: a later one sees the new names.

        Examples:
            >>> Rename(names=(("a", "b"), ("b", "c"))).name_after("A")
            'c'
        """
        for old, new in self.names:
            column = new if column.lower() == old.lower() else column
        return column

    def text(self) -> str:
        return f"rename({', '.join(f'{old} -> {new}' for old, new in self.names)})"


def rename(names: Mapping[str, str]) -> Transform:
    """Renames columns: `rename({"old": "new"})`."""
    check_mapping(names, "rename", '{"old": "new"}')
    return as_step(Rename(names=column_pairs(names, "rename")))
