"""`drop`: removes columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.arguments import listed, texts
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Drop(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, keeps_rows=True, passes_hidden=True)

    columns: tuple[str, ...]

    def name_after(self, column: str) -> str | None:
        return None if column.lower() in map(str.lower, self.columns) else column

    def text(self) -> str:
        return f"drop({', '.join(self.columns)})"


def drop(*columns: str | Sequence[str]) -> Transform:
    """Drops columns: `drop("tmp")`."""
    if not listed(columns):
        raise DeclarationError("drop() needs at least one column.", where=caller(), fix='write drop("tmp").')
    return as_step(Drop(columns=texts(listed(columns), "drop")))
