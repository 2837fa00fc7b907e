"""`sql`: runs a query over the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from helios.model.arguments import texts
from helios.model.flow import Transform, as_step
from helios.model.step import Step, Traits


@dataclass(frozen=True, kw_only=True)
class Sql(Step):
    traits: ClassVar[Traits] = Traits(shuffles=True, opaque=True)

    query: str

    @property
    def sql_texts(self) -> tuple[str, ...]:
        return (self.query,)

    def text(self) -> str:
        return f"sql({' '.join(self.query.split())})"


def sql(query: str) -> Transform:
    """A query over the stream, called `input`: `sql("SELECT id, count(*) AS n FROM input GROUP BY id")`."""
    return as_step(Sql(query=texts([query], "sql")[0]))
