"""Programs of the engine: what a batch's steps do to the rows of a file, as plain values that travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class NotNative(Exception):
    """Why the engine does not do a batch, which Spark then does; the text goes on after "because"."""


@dataclass(frozen=True)
class Term:
    """An expression whose types are those of Spark's analyzed one: nothing is left to the engine's own coercion.

    Attributes:
        op: What it does, a key of `helios.native.engine.OPS`.
        kind: The Spark type of its value.
        args: Its operands.
        text: The name of a column, or the value of a literal as text; None for a null and where it has none.
    """

    op: str
    kind: str
    args: tuple[Term, ...] = ()
    text: str | None = None

    def as_json(self) -> list[Any]:
        """The expression as JSON values."""
        return [self.op, self.kind, [arg.as_json() for arg in self.args], self.text]

    @classmethod
    def of_json(cls, value: Sequence[Any]) -> Term:
        """The expression of `as_json`."""
        op, kind, args, text = value
        return cls(op, kind, tuple(map(cls.of_json, args)), text)


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which a condition is true."""

    condition: Term


@dataclass(frozen=True)
class Project:
    """Gives the rows these columns, in order."""

    columns: tuple[tuple[str, Term], ...]


@dataclass(frozen=True)
class Program:
    """Steps over the rows of a table.

    Attributes:
        read: The table's columns that the steps use, by name, with their Spark types.
        steps: The steps.
        columns: The columns that come out, with their Spark types.

    Examples:
        >>> one = Program((("a", "int"),), (Filter(Term("col", "boolean", text="a")),), (("a", "int"),))
        >>> Program.parse(one.to_json()) == one
        True
    """

    read: tuple[tuple[str, str], ...]
    steps: tuple[Filter | Project, ...]
    columns: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """The program as JSON."""
        steps = [
            {"filter": step.condition.as_json()}
            if isinstance(step, Filter)
            else {"project": [[name, term.as_json()] for name, term in step.columns]}
            for step in self.steps
        ]
        return json.dumps({"read": self.read, "steps": steps, "columns": self.columns})

    @classmethod
    def parse(cls, text: str) -> Program:
        """The program of `to_json`."""
        found = json.loads(text)
        steps: list[Filter | Project] = []
        for step in found["steps"]:
            if "filter" in step:
                steps.append(Filter(Term.of_json(step["filter"])))
            else:
                steps.append(Project(tuple((name, Term.of_json(term)) for name, term in step["project"])))
        pairs = [tuple((name, kind) for name, kind in found[key]) for key in ("read", "columns")]
        return cls(pairs[0], tuple(steps), pairs[1])
