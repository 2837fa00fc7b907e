"""The input and the report of a task, as plain values that are sent as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from helios.native.program import Program

Share: TypeAlias = Iterable[Sequence[Any]]
"""The input of one task, as plain values."""
TaskReport: TypeAlias = dict[str, Any]
"""The report of a task, as JSON values."""
Stores: TypeAlias = tuple[Mapping[str, str], Mapping[str, str]]
"""PyIceberg's properties of the stores of a source and of a target, with secrets in clear text; empty for the local
disk."""


@dataclass(frozen=True)
class InputFile:
    """A data file that a task reads.

    Attributes:
        path: The path on the local disk, or the URI on a store.
        size: The number of bytes that the task reads: the file, or a part of a csv or JSON file.
        rows: The number of rows according to the table's metadata; None for a file that belongs to no table.
        location: The location by which position deletes name the file.
        deletes: The path, offset and length of each deletion vector or delete file; a delete file has no offset.
        group: The index of the file's group in `Work.groups`; None for a file of a table.
        begin: The offset at which the part begins.
        file_size: The size of the file if the task reads a part; otherwise 0.
    """

    path: str
    size: int
    rows: int | None = None
    location: str = ""
    deletes: tuple[tuple[str, int | None, int], ...] = ()
    group: int | None = None
    begin: int = 0
    file_size: int = 0


@dataclass(frozen=True)
class LinesFormat:
    """The format of the lines of csv and JSON files.

    Attributes:
        format: "csv" or "json".
        columns: The columns of the files with their Spark types; for a csv, in the order of the fields.
        header: The fields of the first line of a csv; empty without a header.
    """

    format: str
    columns: tuple[tuple[str, str], ...]
    separator: str = ","
    header: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> LinesFormat:
        columns = tuple((name, kind) for name, kind in value["columns"])
        return cls(value["format"], columns, value["separator"], tuple(value["header"]))


@dataclass(frozen=True)
class Column:
    """A column of the table that is written.

    Attributes:
        id: The field id.
        kind: The Spark type.
        required: Whether a null is refused.
        metrics: The metrics mode in the table's configuration: none, counts, truncate(n) or full.
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
        source: The source column.
        kind: The Spark type of the source column.
        transform: The transform in Iceberg's notation, such as `bucket[16]`.
    """

    name: str
    source: str
    kind: str
    transform: str


@dataclass(frozen=True)
class Sort:
    """A column of the sort order."""

    column: str
    descending: bool
    nulls_last: bool


@dataclass(frozen=True)
class Target:
    """The table that is written.

    Attributes:
        folder: The folder of the data files.
        spec: The id of the partition spec.
        columns: The columns, in order.
        partition: The fields of the partition spec, in order.
        codec: Arrow's name of the compression codec.
        level: The compression level; None for the codec's default.
        file_size: The number of bytes after which a task ends a file and begins the next.
        group_size: The bytes in memory of a row group.
        sort: The columns of the sort order; empty without a sort order.
        spread: How Spark would shuffle the rows before it writes: "apart" for no shuffle, so that each task writes the
            rows that it has; "partitions" if the rows of a partition meet in one task; "together" if a declared
            distribution or a sort order shuffles all rows.
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
    """The input that all tasks of a batch have in common.

    Attributes:
        name: The prefix of the names of new files. Each attempt at the batch has a new name.
        ids: The field ids of the columns that are read, by name.
        absent: The columns that are null in a file without them, because the file is older than the column.
        groups: For each group of files, the stored name and Spark type of each column; None for a missing column.
        line_formats: The format of the lines of each group of csv or JSON files; empty for parquet files.
    """

    name: str
    program: Program
    ids: dict[str, int]
    target: Target
    absent: tuple[str, ...] = ()
    groups: tuple[Mapping[str, Sequence[str] | None], ...] = ()
    line_formats: tuple[LinesFormat, ...] = ()

    def to_json(self) -> str:
        plain = {
            "name": self.name,
            "ids": self.ids,
            "absent": self.absent,
            "target": asdict(self.target),
            "groups": self.groups,
            "line_formats": [asdict(lines_format) for lines_format in self.line_formats],
        }
        return json.dumps({**plain, "program": self.program.to_json()})

    @classmethod
    def parse(cls, text: str) -> Work:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        target_fields: dict[str, Any] = fields["target"]
        columns = tuple(Column(**column) for column in target_fields.pop("columns"))
        partition = tuple(Partition(**field) for field in target_fields.pop("partition"))
        sort = tuple(Sort(**part) for part in target_fields.pop("sort"))
        target = Target(columns=columns, partition=partition, sort=sort, **target_fields)
        program, groups = Program.parse(fields["program"]), tuple(fields["groups"])
        line_formats = tuple(map(LinesFormat.of_json, fields["line_formats"]))
        return cls(fields["name"], program, fields["ids"], target, tuple(fields["absent"]), groups, line_formats)
