"""A callable from DataFrame to DataFrame as a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from helios.model.step import Step, Traits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, kw_only=True)
class Call(Step):
    """An opaque callable from DataFrame to DataFrame; it is assumed to work row by row."""

    traits: ClassVar[Traits] = Traits(row_by_row=True, opaque=True)

    function: Function

    @classmethod
    def call(cls) -> str:
        """What messages call the step."""
        return "a callable"

    @property
    def name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__name__)

    def text(self) -> str:
        return f"call({self.name})"
