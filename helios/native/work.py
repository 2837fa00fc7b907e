"""What a task gets and gives, as plain values that travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from helios.native.program import Program

Share: TypeAlias = Iterable[Sequence[Any]]
"""What one task has alone, as plain values."""
Told: TypeAlias = dict[str, Any]
"""What a task tells, as JSON values."""


@dataclass(frozen=True)
class InputFile:
    """A data file that a task reads.

    Attributes:
        path: Its path on the local disk.
        size: Its bytes.
        rows: Its rows, as the table's metadata counts them.
        location: What position deletes call it.
        deletes: The files of its deleted rows: path, and of a deletion vector where it begins and how long it is.
    """

    path: str
    size: int
    rows: int
    location: str = ""
    deletes: tuple[tuple[str, int | None, int], ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of the table that is written.

    Attributes:
        name: Its name.
        id: Its field id.
        kind: Its Spark type.
        required: Whether it takes no null.
        metrics: What the table's configuration keeps of it: none, counts, truncate(n) or full.
    """

    name: str
    id: int
    kind: str
    required: bool
    metrics: str


@dataclass(frozen=True)
class Partition:
    """A field of the partition spec.

    Attributes:
        name: Its name.
        source: The column that it is made of.
        kind: The Spark type of that column.
        transform: What it is made by, as Iceberg writes it, such as `bucket[16]`.
    """

    name: str
    source: str
    kind: str
    transform: str


@dataclass(frozen=True)
class Target:
    """The table that is written.

    Attributes:
        folder: Where its data files go.
        spec: The id of its partition spec.
        columns: Its columns, in order.
        partition: The fields of the spec, in order.
        codec: The compression, as Arrow names it.
        level: The level of it; None for the codec's own.
        file_size: The bytes of a file at which the next one begins.
        group_size: The bytes in memory of a row group.
    """

    folder: str
    spec: int
    columns: tuple[Column, ...]
    partition: tuple[Partition, ...]
    codec: str
    level: int | None
    file_size: int
    group_size: int


@dataclass(frozen=True)
class Work:
    """What all tasks of a batch have in common.

    Attributes:
        name: The beginning of the names of their files, of its own for each try of the batch.
        program: The steps.
        ids: The field ids of the columns that are read, by name.
        absent: Those of them that are null in files that were written before they came.
        target: The table that is written.
    """

    name: str
    program: Program
    ids: dict[str, int]
    target: Target
    absent: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The work as JSON."""
        plain = {"name": self.name, "ids": self.ids, "absent": self.absent, "target": asdict(self.target)}
        return json.dumps({**plain, "program": self.program.to_json()})

    @classmethod
    def parse(cls, text: str) -> Work:
        """The work of `to_json`."""
        found = json.loads(text)
        target: dict[str, Any] = found["target"]
        columns = tuple(Column(**column) for column in target.pop("columns"))
        partition = tuple(Partition(**field) for field in target.pop("partition"))
        made = Target(columns=columns, partition=partition, **target)
        return cls(found["name"], Program.parse(found["program"]), found["ids"], made, tuple(found["absent"]))
