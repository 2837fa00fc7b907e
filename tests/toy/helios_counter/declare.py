"""The source as a user declares it: the numbers from 1 to the one that a file has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from helios.model.flow import Source


@dataclass(frozen=True, kw_only=True)
class CounterSource(Source):
    """The numbers from 1 on, in the column `id`.

    Attributes:
        path: The file whose text is the last number.
    """

    kind: ClassVar[str] = "counter"

    path: str
    declared_schema: str | None = "id bigint"

    def incremental(self, poll: float = 1, *, max_rows: int | None = None) -> Self:
        return replace(self, poll=poll, max_rows=max_rows)

    def label(self) -> str:
        return f"CounterSource({self.path})"
