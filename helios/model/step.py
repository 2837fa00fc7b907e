"""The base class of steps, and the traits by which the planner and the runs treat a step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from helios.errors import Origin
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The properties of a kind of step. The planner and the runs decide by traits, not by the class of a step.

    Attributes:
        row_by_row: The result of each row does not depend on other rows.
        keeps_rows: Each row yields at least one row, unless an expression generates rows: it may generate none.
        generates: A row may yield several rows.
        judges: A row may fail the batch, or be dropped or quarantined with a reason.
        combines: The result depends on all rows together, as for an aggregate.
        stateful: The step keeps state between the batches of a stream that Spark runs.
        shuffles: The step sorts or shuffles, and may need a local disk.
        opaque: The step sees all columns, also hidden ones, and may return any columns.
        passes_hidden: The hidden columns of a row (position, order, delete flag) stay valid.
        same_columns: The columns of the result are those of the rows before it, with the same names and values.
    """

    row_by_row: bool = False
    keeps_rows: bool = False
    generates: bool = False
    judges: bool = False
    combines: bool = False
    stateful: bool = False
    shuffles: bool = False
    opaque: bool = False
    passes_hidden: bool = False
    same_columns: bool = False


@dataclass(frozen=True, kw_only=True)
class Node:
    """A declared value with its origin, the line of the script that declares it."""

    origin: Origin = field(default_factory=caller, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Step(Node):
    """One transformation of rows. `helios.steps` has the concrete steps."""

    traits: ClassVar[Traits]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "traits" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} has no traits: a step says what it does with rows.")

    @classmethod
    def call(cls) -> str:
        """The name of the function that declares the step."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        """The SQL that Spark evaluates for the rows: expressions and queries, no bare names of columns and types."""
        return ()

    @property
    def module_name(self) -> str:
        """The name of the step's module, and of the modules that infer its columns and run it in Spark."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def keeps_rows(self) -> bool:
        """True if each row yields at least one row, unless an expression generates rows."""
        return self.traits.keeps_rows

    def name_after(self, column: str) -> str | None:
        """The name after the step of a column whose values the step keeps; None if it drops or may change the column.

        A step of another kind than `same_columns` that keeps the values of some columns overrides this.
        """
        return column if self.traits.same_columns else None

    def text(self) -> str:
        """The step as the plan shows it. Steps with the same text are the same step."""
        raise NotImplementedError


def step_kinds(accepts: Callable[[Traits], bool]) -> list[type[Step]]:
    """The kinds of steps for whose traits `accepts` returns True, sorted by name."""
    return sorted((kind for kind in Step.__subclasses__() if accepts(kind.traits)), key=lambda kind: kind.call())
