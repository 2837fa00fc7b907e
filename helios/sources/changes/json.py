"""`Cdc.json(...)`: a change log of JSON records. Each record is a row with a column for the operation of the change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from helios.errors import DeclarationError
from helios.model.arguments import key_columns, one_of, text
from helios.model.values import caller
from helios.sources.changes.topic import TopicChanges, topic_source
from helios.sources.kafka.declare import KafkaSource

Operation: TypeAlias = Literal["insert", "update", "delete", "ignore"]

MEANINGS = ("insert", "update", "delete", "ignore")

OPERATIONS: Mapping[str, Operation] = {
    "c": "insert",
    "r": "insert",
    "i": "insert",
    "insert": "insert",
    "u": "update",
    "update": "update",
    "d": "delete",
    "delete": "delete",
}
"""The default meanings of the values of `op`, in lower case. A declared mapping replaces them all."""

CALL = "Cdc.json"


@dataclass(frozen=True, kw_only=True)
class ChangeLogSource(TopicChanges):
    """The changes of a change log. Created by `Cdc.json`.

    Attributes:
        op: The column or SQL expression of a change's operation.
        operations: Pairs of a value of `op`, in lower case, and its meaning.
        order: The expression by which changes are ordered; None for their offsets.
    """

    kind: ClassVar[str] = "change_log"
    call: ClassVar[str] = CALL

    op: str = "op"
    operations: tuple[tuple[str, str], ...] = tuple(OPERATIONS.items())
    order: str | None = None

    @property
    def op_column(self) -> str:
        """`op` as the name of a column, which rows do not keep. If `op` is an expression, no column has this name."""
        return self.op.strip().strip("`")

    @property
    def step_texts(self) -> tuple[str, ...]:
        declared = {"op": self.op, "key": self.key, "order": self.order}
        arguments = [f"{name}={value!r}" for name, value in declared.items() if value]
        if dict(self.operations) != OPERATIONS:
            arguments.append(f"operations={dict(self.operations)!r}")
        return (*self.kafka.step_texts, f"json({', '.join(arguments)})")

    def details(self, format_version: int | None = None) -> Iterator[str]:
        yield from self.kafka.details()
        by_meaning: dict[str, list[str]] = {}
        for value, meaning in self.operations:
            by_meaning.setdefault(meaning, []).append(value)
        meanings = [f"{meaning}: {', '.join(values)}" for meaning, values in by_meaning.items()]
        yield f"changes by {self.op}: {'; '.join(meanings)}"
        yield "ordered by " + (f"{self.order}, then offset" if self.order else "the offset in the key's own partition")
        if self.key:
            yield f"keys: {', '.join(self.key)}"

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        own = {"key": list(self.key), "op": self.op, "operations": dict(self.operations), "order": self.order}
        return {**self.kafka.as_json(found), **own}


def change_log(
    source: KafkaSource,
    op: str,
    key: str | Sequence[str] | None,
    order: str | None,
    operations: Mapping[str, Operation] | None,
) -> ChangeLogSource:
    """The declared source; see `Cdc.json`.

    Raises:
        DeclarationError: The source is not a topic of JSON, or `operations` is wrong: see `_operations`.
    """
    kafka = topic_source(source, CALL)
    if kafka.values.format == "bytes":  # the default
        kafka = kafka.value("json")
    elif kafka.values.format != "json":
        raise DeclarationError(
            f"Cdc.json() reads JSON, and the source sets .value({kafka.values.format!r}).",
            where=caller(),
            fix='write .value("json", schema="op string, id bigint"), or leave .value(...) out to infer the columns.',
        )
    key_names = (key,) if isinstance(key, str) else tuple(key or ())
    return ChangeLogSource(
        kafka=kafka,
        key=key_columns(key_names, "key") if key_names else (),
        op=text(op, "op="),
        operations=_operations(OPERATIONS if operations is None else operations),
        order=text(order, "order=") if order is not None else None,
        poll=kafka.poll,
        max_rows=kafka.max_rows,
    )


def _operations(operations: Mapping[str, Operation]) -> tuple[tuple[str, str], ...]:
    """Pairs of a value of `op`, in lower case, and its meaning.

    Raises:
        DeclarationError: A value has two meanings, or no value means an insert or an update.
    """
    meanings: dict[str, str] = {}
    for value, meaning in operations.items():
        lower = text(value, "operations=").lower()
        one_of(meaning, MEANINGS, "operations")
        if meanings.setdefault(lower, meaning) != meaning:
            raise DeclarationError(
                f"operations=: {value!r} means both {meanings[lower]} and {meaning}: case is ignored.",
                where=caller(),
                fix="give each value one meaning.",
            )
    if not {"insert", "update"} & set(meanings.values()):
        raise DeclarationError(
            "operations= has no value for an insert or an update.",
            where=caller(),
            fix='write operations={"A": "insert", "M": "update", "X": "delete"}.',
        )
    return tuple(meanings.items())
