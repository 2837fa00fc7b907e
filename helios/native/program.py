"""Programs of the engine: the steps of a pipeline over the rows of a file, as values that are sent as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


class NotNative(Exception):
    """Spark must run a batch instead of the engine. The message is the reason, as it follows "because"."""


class Misread(NotNative):
    """A file's types contradict the table's types, so that Spark would misread the file. The message names both."""


def decimal_digits(kind: str) -> tuple[int, int]:
    """The precision and the scale of a decimal type.

    Examples:
        >>> decimal_digits("decimal(9,2)")
        (9, 2)
    """
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def refuse_wildcard(name: str) -> None:
    """Refuses a column whose name Polars would mistake for a pattern of names.

    Raises:
        NotNative: The name begins with ^ and ends with $, or is *.

    Examples:
        >>> refuse_wildcard("price $")
        >>> refuse_wildcard("^x$")
        Traceback (most recent call last):
            ...
        helios.native.program.NotNative: the name of the column ^x$ is a pattern of names
    """
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise NotNative(f"the name of the column {name} is a pattern of names")


@dataclass(frozen=True)
class Term:
    """An expression with the types and casts of Spark's analyzer. The engine adds no casts.

    Attributes:
        op: The operator, a key of `helios.native.engine.OPS`.
        kind: The Spark type of the value.
        text: The name of a column, or the value of a literal as text; None for a null and for other operators.
    """

    op: str
    kind: str
    args: tuple[Term, ...] = ()
    text: str | None = None

    def as_json(self) -> list[Any]:
        return [self.op, self.kind, [arg.as_json() for arg in self.args], self.text]

    @classmethod
    def of_json(cls, value: Sequence[Any]) -> Term:
        """The inverse of `as_json`."""
        op, kind, args, text = value
        return cls(op, kind, tuple(map(cls.of_json, args)), text)


@dataclass(frozen=True)
class Filter:
    """Keeps the rows for which a condition is true."""

    condition: Term


@dataclass(frozen=True)
class Expectation:
    """Keeps the rows for which a condition is true, and counts the others.

    `refusal` is the reason why Spark must write a batch with a failing row. An empty reason means that failing rows are
    only dropped and counted.
    """

    condition: Term
    refusal: str = ""


@dataclass(frozen=True)
class Project:
    """Computes the columns of the result, in order."""

    columns: tuple[tuple[str, Term], ...]


Operation: TypeAlias = Filter | Expectation | Project


@dataclass(frozen=True)
class Program:
    """Steps over the rows of files, which may belong to a table.

    Attributes:
        read: The columns of the files that the steps use, with their Spark types.
        columns: The columns after the steps, with their Spark types.

    Examples:
        >>> program = Program((("a", "int"),), (Filter(Term("col", "boolean", text="a")),), (("a", "int"),))
        >>> Program.parse(program.to_json()) == program
        True
    """

    read: tuple[tuple[str, str], ...]
    steps: tuple[Operation, ...]
    columns: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        return json.dumps({"read": self.read, "steps": list(map(_as_json, self.steps)), "columns": self.columns})

    @classmethod
    def parse(cls, text: str) -> Program:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        read, columns = (tuple((name, kind) for name, kind in fields[key]) for key in ("read", "columns"))
        return cls(read, tuple(map(_of_json, fields["steps"])), columns)

    def stages(self) -> list[tuple[Operation, ...]]:
        """Splits the steps into groups that run one after the other. Each expectation is a group by itself.

        The first group, which may be empty, has the steps before all expectations.

        Examples:
            >>> column = Term("col", "boolean", text="a")
            >>> steps = (Expectation(column), Filter(column), Filter(column), Expectation(column))
            >>> [len(stage) for stage in Program((), steps, ()).stages()]
            [0, 1, 2, 1]
        """
        groups: list[list[Operation]] = [[]]
        for step in self.steps:
            if isinstance(step, Expectation):
                groups += [[step], []]
            else:
                groups[-1].append(step)
        first, *later = groups
        return [tuple(first), *(tuple(group) for group in later if group)]


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
