"""A step between source and sink: the base class, and what the planner and the runs need to know of each kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from helios.errors import Origin
from helios.model.values import caller


@dataclass(frozen=True, kw_only=True)
class Traits:
    """The properties of a kind of step. Planner and runs ask these, and name no kind.

    Attributes:
        row_by_row: The result of each row does not depend on other rows.
        keeps_rows: Each row gives at least one row, unless an expression generates rows or leaves some out.
        generates: A row may give several rows.
        judges: A row may fail the batch, or be dropped or quarantined with a reason.
        combines: The result of some rows is not a part of the result of all rows, as for an aggregate.
        stateful: It keeps state between the batches of a stream that Spark runs.
        shuffles: It sorts or shuffles, and may need a local disk.
        opaque: It sees all columns, also hidden ones, and may return any columns.
        passes_hidden: The hidden columns of a row (position, order, delete flag) stay valid.
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


@dataclass(frozen=True, kw_only=True)
class Node:
    """A declared value that knows the line that declared it."""

    origin: Origin = field(default_factory=caller, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class Step(Node):
    """One transformation; the concrete ones are in `helios.steps`."""

    traits: ClassVar[Traits]

    def __init_subclass__(cls, **given: object) -> None:
        super().__init_subclass__(**given)
        if "traits" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} has no traits: a step says what it does with rows.")

    @classmethod
    def call(cls) -> str:
        """The call that declares it."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def sql_texts(self) -> tuple[str, ...]:
        """The SQL that Spark evaluates for the rows: expressions or queries, but no names of columns and types."""
        return ()

    @property
    def file(self) -> str:
        """The name of its file, and of those with its columns and its lowering."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def keeps_rows(self) -> bool:
        """True if each row certainly gives at least one row, unless an expression generates rows."""
        return self.traits.keeps_rows

    def text(self) -> str:
        """The step as the plan shows it; two steps of one text are equal."""
        raise NotImplementedError


def kinds(having: Callable[[Traits], bool]) -> list[type[Step]]:
    """The kinds of steps with some traits, by name.

    Args:
        having: Whether the traits are those.
    """
    return sorted((kind for kind in Step.__subclasses__() if having(kind.traits)), key=lambda kind: kind.call())
