"""What will run: the compiled form of one pipeline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from helios.catalog.conf import shown_spark_conf
from helios.catalog.spec import Catalog
from helios.config import TableName
from helios.errors import Origin
from helios.model.files import FilesSource
from helios.model.flow import Flow, Pipeline, Source, Stream, flows
from helios.model.iceberg import IcebergSource
from helios.model.partition import PartitionField
from helios.model.steps import STATEFUL, Join, Sql
from helios.plan.schema import Schema

VERSION = 1
"""The version of everything that Helios writes into summaries, properties and checkpoints."""


class ReadPath(Enum):
    """How a pipeline's rows reach its steps; the value is what the plan prints."""

    BATCH = "batch"
    RANGES = "snapshot ranges"
    MICRO_BATCHES = "micro-batches"
    STREAM = "stateful stream"


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """One source of a pipeline.

    Attributes:
        source: The declared source.
        table: The resolved table of an Iceberg source.
        uuid: The table's UUID, when the catalog could be read.
        schema: Its columns; None where only a run can tell.
    """

    source: Source
    table: TableName | None = None
    uuid: str | None = None
    snapshot: int | None = None
    schema: Schema | None = None

    @property
    def name(self) -> str:
        """The source as the ledger knows it."""
        if self.table is not None:
            return self.table.text
        return self.source.path if isinstance(self.source, FilesSource) else self.source.label()

    @property
    def kind(self) -> str:
        if isinstance(self.source, IcebergSource):
            return "iceberg"
        return "files" if isinstance(self.source, FilesSource) else "memory"


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The rhythm of a stream, in seconds, and which setting decided it."""

    every: float
    why: str


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """The target and how rows get there."""

    table: TableName
    mode: str
    exists: bool | None
    uuid: str | None
    creates: bool
    format_version: int
    partitioning: tuple[PartitionField, ...] | None
    properties: tuple[tuple[str, str], ...]
    stamps: tuple[tuple[str, str], ...]
    max_rows: int | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One compiled pipeline."""

    pipeline: str
    was: str | None
    origin: Origin
    stream: Stream
    reads: tuple[ReadPlan, ...]
    path: ReadPath
    why: str
    schema: Schema | None
    write: WritePlan
    trigger: Trigger | None
    checkpoint: str
    former_checkpoint: str | None
    catalogs: tuple[Catalog, ...]
    components: tuple[str, ...]
    declared: Pipeline

    @property
    def streaming(self) -> bool:
        return self.path is not ReadPath.BATCH

    @property
    def fingerprint(self) -> str:
        """Changes when a declared step changes; the bodies of callables are not compared."""
        text = "\n".join(step_texts(self.stream))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def state(self) -> tuple[str, ...]:
        """What a stateful stream's checkpoint depends on, as text: its keyed steps, joins and sources."""
        if self.path is not ReadPath.STREAM:
            return ()
        steps = [step for flow in flows(self.stream) for step in flow.steps]
        keyed = [s.text() for s in steps if isinstance(s, (*STATEFUL, Join, Sql))]
        return (*keyed, *(read.name for read in self.reads if read.source.streaming))

    def as_json(self) -> dict[str, Any]:
        """The plan for programs; `helios plan --json` prints it."""
        write = self.write
        return {
            "pipeline": self.pipeline,
            "declared_at": str(self.origin),
            "sources": [
                {
                    "kind": read.kind,
                    "name": read.name,
                    "followed": read.source.streaming,
                    "uuid": read.uuid,
                    "snapshot": read.snapshot,
                    "schema": read.schema.as_json() if read.schema else None,
                }
                for read in self.reads
            ],
            "steps": [s.text() for s in self.stream.steps],
            "path": self.path.value,
            "why": self.why,
            "schema": self.schema.as_json() if self.schema else None,
            "target": {
                "table": write.table.text,
                "exists": write.exists,
                "mode": write.mode,
                "format_version": write.format_version,
                "partitioning": [str(f) for f in write.partitioning or ()],
                "properties": dict(write.properties),
                "snapshot_properties": dict(write.stamps),
            },
            "trigger": {"every": self.trigger.every, "why": self.trigger.why} if self.trigger else None,
            "checkpoint": self.checkpoint,
            "spark_conf": {k: v for catalog in self.catalogs for k, v in shown_spark_conf(catalog).items()},
            "jars": list(self.components),
        }

    def __str__(self) -> str:
        from helios.plan.text import render

        return render(self)

    def to_json(self) -> str:
        return json.dumps(self.as_json(), indent=2)


def step_texts(flow: Flow) -> list[str]:
    """The steps of a flow, as the texts by which two plans are compared."""
    return [step.text() for step in flow.steps]
