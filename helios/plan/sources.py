"""The kinds of sources: one row each, with what the compiler and the run need to know about the kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from helios.catalog.conf import hadoop_uri
from helios.catalog.storages import STORAGES, kind_of
from helios.errors import DeclarationError, HeliosError, InputError
from helios.files.names import overlap
from helios.model.cdc import CdcSource
from helios.model.change_log import ChangeLogSource
from helios.model.files import METADATA as FILE_METADATA
from helios.model.files import FilesSource
from helios.model.flow import Source
from helios.model.kafka import KafkaSource
from helios.model.memory import MemorySource
from helios.model.source import IcebergSource
from helios.model.webhook import METADATA as WEBHOOK_METADATA
from helios.model.webhook import WebhookSource
from helios.plan import iceberg_source
from helios.plan.checks.changes import change_log_problems, one_table
from helios.plan.checks.topics import topic_problems
from helios.plan.context import Context, Surroundings
from helios.plan.folders import nothing_at, parquet_columns
from helios.plan.nodes import Place, Plan, ReadPlan
from helios.plan.typing.schema import Column, Schema, from_ddl, from_rows
from helios.plan.typing.types import SparkType, quoted

Described: TypeAlias = tuple[ReadPlan, list[HeliosError]]
"""How a source is read, and the problems with that."""

WHY_SPANS = "stateless: each batch reads the new spans of its sources as batches"


def describe(source: Source, around: Surroundings) -> Described:
    """A source whose columns are declared, or known only at run.

    Raises:
        InputError: The declared columns do not parse.
    """
    return ReadPlan(source=source, schema=_declared(source)), []


class SourceRow(NamedTuple):
    """A kind of source.

    Attributes:
        reader: The class that reads it on Spark, as "module:Class"; a `helios.spark.sources.protocol.Source`.
        describe: How it is read, and the problems with that; may raise a single problem as an `InputError`.
        jars: Components of `helios.environment.coordinates` that it needs beside those of catalogs.
        rereadable: Whether a span that is read again gives the same rows; `.exactly_once()` demands it.
        counts_rows: Whether rows are counted before they are read, so that they can bound a batch.
        absent: The problem of data that is not there, as `helios check` tells it; None if it is there, or is looked for
            elsewhere.
        beside: What runs beside a pipeline that follows this kind, as "module:function": it takes sources and
            what takes its lines, and gives a context manager of the URLs that it serves.
        looks: What `helios doctor` looks at behind this kind, as "module:function": it takes a source, and gives the
            looks that need no JVM, and those that do.
        why: Why a stateless pipeline that follows this kind reads spans, as the plan says it.
        units: What a batch of it is cut between.
        place: Where its files are, if that is an object store; may raise an `InputError`.
        same: Whether its rows may be those of an entry of a position that goes by another name.
        entry: What tells its entries from those of other kinds.
    """

    reader: str
    describe: Callable[[Any, Surroundings], Described] = describe
    jars: tuple[str, ...] = ()
    rereadable: bool = True
    counts_rows: bool = True
    absent: Callable[[Any], HeliosError | None] = lambda source: None
    beside: str | None = None
    looks: str | None = None
    why: str = WHY_SPANS
    units: str = "files"
    place: Callable[[Any, Context], Place | None] = lambda source, context: None
    same: Callable[[Any, Mapping[str, Any]], bool] = lambda source, entry: False
    entry: Mapping[str, Any] = MappingProxyType({})


def _declared(source: Source) -> Schema | None:
    """The declared columns of a source; None where it declares none.

    Raises:
        DeclarationError: They are no columns, or text of a bounded length, which no reader of Spark bounds.
    """
    if source.declared_schema is None:
        return None
    schema = from_ddl(source.declared_schema, source.origin)
    for column in schema.columns:
        bounded = _bounded(column.kind)
        if bounded is not None:
            has = "is" if bounded == column.kind else "holds"
            raise DeclarationError(
                f"{source.label()}: {column.name} {has} {bounded}, and sources have text of any length.",
                where=source.origin,
                fix="declare string; a length is a condition of an expect, such as "
                f'expect({{"it fits": "length({quoted(column.name)}) <= {bounded.numbers[0]}"}}).',
            )
    return schema


def _bounded(kind: SparkType) -> SparkType | None:
    """A type that is, or has in it, text of a bounded length; None without one."""
    if kind.name in ("char", "varchar"):
        return kind
    return next((found for part in kind.parts if (found := _bounded(part)) is not None), None)


def _files_at(source: FilesSource, context: Context) -> Place | None:
    kind, storage = kind_of(source.path), source.storage
    if isinstance(storage, str):
        storage = context.config.storage(storage, source.origin)
    if storage is not None and storage.type != kind:
        raise InputError(
            f"{source.label()}: the storage is of the kind {storage.type}, and the path is not.",
            where=source.origin,
            fix=f"write the path as {STORAGES[storage.type].example}.",
        )
    return Place(hadoop_uri(source.path), storage) if kind not in (None, "local") else None


def _files(source: FilesSource, around: Surroundings) -> Described:
    schema = _declared(source)
    if schema is None and source.format == "parquet":
        schema = parquet_columns(source.path)
    elif schema is not None and source.rescued:
        schema = Schema((*schema.columns, Column(source.rescued, "string")))
    problems: list[HeliosError] = _required(source, schema)
    if schema is not None and source.metadata:
        problems += [source.taken(name, "schema=") for name, _ in source.metadata if schema.get(name) is not None]
        schema = Schema((*schema.columns, *(Column(name, FILE_METADATA[what]) for name, what in source.metadata)))
    if source.extra == "add" and not source.rescued:
        schema = None  # what else the files have is known when they are read
    return ReadPlan(source=source, schema=schema), problems


def _required(source: FilesSource, schema: Schema | None) -> list[HeliosError]:
    """The problem of declared columns that must not be null: readers of files do not look."""
    names = [column.name for column in schema.columns if not column.nullable] if schema is not None else []
    if not names or source.declared_schema is None:
        return []
    where = f'expect({{"{names[0]} is there": "{quoted(names[0])} IS NOT NULL"}}, on_fail="quarantine")'
    return [
        DeclarationError(
            f"{source.label()}: its schema says that {', '.join(names)} must not be null, and files are read without "
            "looking at that.",
            where=source.origin,
            fix=f"leave NOT NULL out, and say what happens to rows without a value: {where}.",
        )
    ]


def _same_files(source: FilesSource, entry: Mapping[str, Any]) -> bool:
    is_folder = "digest" in entry or "log" in (entry.get("place") or {})
    return is_folder and overlap(source.path, str(entry["source"]))


def _memory(source: MemorySource, around: Surroundings) -> Described:
    return ReadPlan(source=source, schema=_declared(source) or from_rows(source.columns, source.rows)), []


def _kafka(source: KafkaSource, around: Surroundings) -> Described:
    schema = _declared(source)
    return ReadPlan(source=source, schema=schema), topic_problems(source, schema)


def _debezium(source: CdcSource, around: Surroundings) -> Described:
    schema = _declared(source)
    problems = topic_problems(source.kafka, schema or Schema(()))
    return ReadPlan(source=source, schema=schema), [*problems, *([] if around.mirrored else one_table(source))]


def _change_log(source: ChangeLogSource, around: Surroundings) -> Described:
    columns = _declared(source.kafka)
    problems = [*topic_problems(source.kafka, columns), *one_table(source), *change_log_problems(source, columns)]
    if columns is not None:
        columns = Schema(tuple(one for one in columns.columns if one.name.lower() != source.op_column.lower()))
    return ReadPlan(source=source, schema=columns), problems


def _webhook(source: WebhookSource, around: Surroundings) -> Described:
    schema = _declared(source) or Schema((Column("body", "string"),))
    if source.extra == "add":
        return ReadPlan(source=source), []  # what else the bodies have is known when they are read
    added = tuple(Column(name, WEBHOOK_METADATA[name]) for name in source.metadata)
    return ReadPlan(source=source, schema=Schema((*added, *schema.columns))), []


TOPICS = SourceRow(
    reader="helios.spark.sources.kafka:KafkaReader",
    describe=_kafka,
    jars=("kafka",),
    looks="helios.spark.sources.looks:kafka",
    why="stateless over topics: each batch reads its range of offsets as a batch",
    units="records",
)

SOURCES: dict[type[Source], SourceRow] = {
    IcebergSource: SourceRow(
        reader="helios.spark.sources.iceberg:IcebergReader",
        describe=iceberg_source.describe,
        why="stateless over Iceberg: each batch reads its snapshots as a columnar batch",
    ),
    FilesSource: SourceRow(
        reader="helios.spark.sources.files:FilesReader",
        describe=_files,
        place=_files_at,
        same=_same_files,
        entry=MappingProxyType({"digest": ""}),
        counts_rows=False,
        absent=nothing_at,
        why="stateless over a folder: each batch reads the files that the source's log names",
    ),
    KafkaSource: TOPICS,
    CdcSource: TOPICS._replace(
        reader="helios.spark.sources.debezium:DebeziumReader",
        describe=_debezium,
        looks="helios.spark.sources.looks:changes",
    ),
    ChangeLogSource: TOPICS._replace(
        reader="helios.spark.sources.change_log:ChangeLogReader",
        describe=_change_log,
        looks="helios.spark.sources.looks:changes",
    ),
    WebhookSource: SourceRow(
        reader="helios.spark.sources.webhook:WebhookReader",
        describe=_webhook,
        counts_rows=False,
        beside="helios.webhooks:receiving",
        why="stateless over stored deliveries: each batch reads the segments that the source's log names",
    ),
    MemorySource: SourceRow(reader="helios.spark.sources.memory:MemoryReader", describe=_memory),
}
"""By the type of the declared source."""


def absent(plans: Iterable[Plan]) -> list[HeliosError]:
    """A problem for each source of the pipelines whose data is not there."""
    sources = {read.source.origin: read.source for plan in plans for read in plan.reads}.values()
    return [problem for source in sources if (problem := row_of(source).absent(source)) is not None]


def row_of(source: Source) -> SourceRow:
    """The row of a source.

    Raises:
        DeclarationError: Its kind is unknown.
    """
    row = SOURCES.get(type(source))
    if row is None:
        raise DeclarationError(
            f"{type(source).__name__} is no kind of source that Helios knows.",
            where=source.origin,
            fix=f"use one of {', '.join(sorted(kind.kind for kind in SOURCES))}.",
        )
    return row
