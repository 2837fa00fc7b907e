"""Programs of the engine: the steps of a batch over the rows of a file, as values that travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


class NotNative(Exception):
    """The reason why Spark runs a batch instead of the engine; the text follows "because"."""


class Misread(NotNative):
    """A file does not hold what its table's schema says, and Spark would misread it, too; names both."""


def refuse_pattern(name: str) -> None:
    """Refuses a column whose name Polars would take for a pattern of names.

    Raises:
        NotNative: It begins with ^ and ends with $, or is *.

    Examples:
        >>> refuse_pattern("price $")
        >>> refuse_pattern("^x$")
        Traceback (most recent call last):
            ...
        helios.native.program.NotNative: the name of the column ^x$ is a pattern of names
    """
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise NotNative(f"the name of the column {name} is a pattern of names")


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
class Expectation:
    """Keeps the rows for which a condition is true, and counts the others.

    Attributes:
        condition: The condition.
        refusal: Why Spark must do a batch with a row that does not meet it; empty where such rows are left out and
            counted.
    """

    condition: Term
    refusal: str = ""


@dataclass(frozen=True)
class Project:
    """Gives the rows these columns, in order."""

    columns: tuple[tuple[str, Term], ...]


Operation: TypeAlias = Filter | Expectation | Project


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
    steps: tuple[Operation, ...]
    columns: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        """The program as JSON."""
        return json.dumps({"read": self.read, "steps": list(map(_as_json, self.steps)), "columns": self.columns})

    @classmethod
    def parse(cls, text: str) -> Program:
        """The program of `to_json`."""
        fields = json.loads(text)
        pairs = [tuple((name, kind) for name, kind in fields[key]) for key in ("read", "columns")]
        return cls(pairs[0], tuple(map(_of_json, fields["steps"])), pairs[1])

    def stages(self) -> list[tuple[Operation, ...]]:
        """The steps, in groups that are computed one after the other; each expectation is a group of its own.

        The first group, which may be empty, stands in front of all expectations.

        Examples:
            >>> keeps, tells = Filter(Term("col", "boolean", text="a")), Expectation(Term("col", "boolean", text="a"))
            >>> [len(stage) for stage in Program((), (tells, keeps, keeps, tells), ()).stages()]
            [0, 1, 2, 1]
        """
        groups: list[list[Operation]] = [[]]
        for step in self.steps:
            if isinstance(step, Expectation):
                groups += [[step], []]
            else:
                groups[-1].append(step)
        return [tuple(stage) for place, stage in enumerate(groups) if stage or not place]


def _as_json(step: Operation) -> dict[str, Any]:
    if isinstance(step, Filter):
        return {"filter": step.condition.as_json()}
    if isinstance(step, Expectation):
        return {"expect": step.condition.as_json(), "refusal": step.refusal}
    return {"project": [[name, term.as_json()] for name, term in step.columns]}


def _of_json(step: Mapping[str, Any]) -> Operation:
    if "filter" in step:
        return Filter(Term.of_json(step["filter"]))
    if "expect" in step:
        return Expectation(Term.of_json(step["expect"]), step["refusal"])
    return Project(tuple((name, Term.of_json(term)) for name, term in step["project"]))
