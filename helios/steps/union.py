"""`union`: adds the rows of another flow, by column name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from helios.errors import DeclarationError
from helios.model.flow import Flow, Transform
from helios.model.step import Step, Traits
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Union(Step):
    traits: ClassVar[Traits] = Traits(keeps_rows=True, same_columns=True)

    other: Flow

    def text(self) -> str:
        return f"union({self.other.text()})"


def union(other: Flow) -> Transform:
    """Adds the rows of another source or stream, matched by column name: `union(Iceberg.source("ns.more"))`."""
    if not isinstance(other, Flow):
        raise DeclarationError(
            f"union() takes a source or a stream, not {type(other).__name__}.",
            where=caller(),
            fix='write union(Iceberg.source("ns.more")).',
        )
    return Transform(steps=(Union(other=other),))
