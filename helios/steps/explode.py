"""`explode`: makes a row of each element of an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from helios.model.arguments import texts
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits


@dataclass(frozen=True, kw_only=True)
class Explode(Step):
    traits: ClassVar[Traits] = Traits(row_by_row=True, generates=True)

    column: str
    as_: str
    keep_empty: bool = False

    @property
    def keeps_rows(self) -> bool:
        return self.keep_empty

    def name_after(self, column: str) -> str | None:
        return None if column.lower() == self.as_.lower() else column

    def text(self) -> str:
        return f"explode({self.column}, as_={self.as_}{', keep_empty=True' if self.keep_empty else ''})"


def explode(column: str, *, as_: str, keep_empty: bool = False) -> Transform:
    """Makes a row of each element of an array, with the other columns: `explode("items", as_="item")`.

    Args:
        column: The array. The column stays, unless `as_` has the same name.
        as_: The column of the element.
        keep_empty: Whether a row is kept, with a null element, if its array is empty or null. Otherwise the row is
            dropped, as in Spark.

    Raises:
        DeclarationError: A name is empty.
    """
    array, element = texts([column, as_], "explode")
    return as_step(Explode(column=array, as_=element, keep_empty=keep_empty))
