"""The input and the output of a task, as plain values that travel as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from helios.native.program import Program

Share: TypeAlias = Iterable[Sequence[Any]]
"""The input of one task alone, as plain values."""
TaskReport: TypeAlias = dict[str, Any]
"""The report of a task, as JSON values."""
Stores: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]
"""PyIceberg's properties of the stores of a source and of a target, with secrets in clear; none for the local disk."""


@dataclass(frozen=True)
class InputFile:
    """A data file that a task reads.

    Attributes:
        path: Its path on the local disk, or its URI on a store.
        size: Its bytes.
        rows: Its rows, as the table's metadata counts them; None for a file of no table.
        location: What position deletes call it.
        deletes: The files of its deleted rows: path, and of a deletion vector where it begins and how long it is.
        group: Of a file of no table: which of the work's groups says what it calls its columns.
        begin: Where the part begins whose lines are read, of a file of lines.
        whole: The bytes of the whole file, of which `size` are read; 0 where they are all.
    """

    path: str
    size: int
    rows: int | None = None
    location: str = ""
    deletes: tuple[tuple[str, int | None, int], ...] = ()
    group: int | None = None
    begin: int = 0
    whole: int = 0


@dataclass(frozen=True)
class Text:
    """The format of the lines of files.

    Attributes:
        format: "csv" or "json".
        columns: The columns of the files with their Spark types, of a csv in order.
        separator: What stands between the fields of a csv.
        header: The first line of a csv; empty without one.
    """

    format: str
    columns: tuple[tuple[str, str], ...]
    separator: str = ","
    header: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Text:
        """The text of JSON values."""
        columns = tuple((name, kind) for name, kind in value["columns"])
        return cls(value["format"], columns, value["separator"], tuple(value["header"]))


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
class Sort:
    """A part of the sort order.

    Attributes:
        column: The column.
        descending: Whether the largest value comes first.
        nulls_last: Whether nulls come behind all values.
    """

    column: str
    descending: bool
    nulls_last: bool


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
        sort: The parts of its sort order; empty without one.
        sort_id: The id of that order.
        spread: Which rows Spark brings to one task before it writes: "apart" for none, "partitions" for those of each
            partition, "together" where a declared distribution or a sort order has it spread them over all tasks.
    """

    folder: str
    spec: int
    columns: tuple[Column, ...]
    partition: tuple[Partition, ...]
    codec: str
    level: int | None
    file_size: int
    group_size: int
    sort: tuple[Sort, ...] = ()
    sort_id: int = 0
    spread: str = "apart"


@dataclass(frozen=True)
class Work:
    """The common part of all tasks of a batch.

    Attributes:
        name: The beginning of the names of their files, of its own for each try of the batch.
        program: The steps.
        ids: The field ids of the columns that are read, by name.
        absent: Those of them that are null in files that were written before they came.
        target: The table that is written.
        groups: What the files of each group call the columns, with their Spark types; None where they lack them.
        texts: Of files of lines: what those of each group are.
    """

    name: str
    program: Program
    ids: dict[str, int]
    target: Target
    absent: tuple[str, ...] = ()
    groups: tuple[Mapping[str, Sequence[str] | None], ...] = ()
    texts: tuple[Text, ...] = ()

    def to_json(self) -> str:
        """The work as JSON."""
        plain = {
            "name": self.name,
            "ids": self.ids,
            "absent": self.absent,
            "target": asdict(self.target),
            "groups": self.groups,
            "texts": [asdict(text) for text in self.texts],
        }
        return json.dumps({**plain, "program": self.program.to_json()})

    @classmethod
    def parse(cls, text: str) -> Work:
        """The work of `to_json`."""
        fields = json.loads(text)
        target: dict[str, Any] = fields["target"]
        columns = tuple(Column(**column) for column in target.pop("columns"))
        partition = tuple(Partition(**field) for field in target.pop("partition"))
        sort = tuple(Sort(**part) for part in target.pop("sort"))
        made = Target(columns=columns, partition=partition, sort=sort, **target)
        program, groups = Program.parse(fields["program"]), tuple(fields["groups"])
        texts = tuple(map(Text.of_json, fields["texts"]))
        return cls(fields["name"], program, fields["ids"], made, tuple(fields["absent"]), groups, texts)
