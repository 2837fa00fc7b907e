"""What will run: the compiled form of one pipeline."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import takewhile
from typing import Any

from helios.catalog.conf import shown_spark_conf
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.errors import Origin
from helios.model.flow import Flow, Pipeline, Source, Stream, flows
from helios.model.modes import Mode
from helios.model.partition import PartitionField
from helios.model.sink import IcebergSink
from helios.model.steps import STATEFUL, Join, Sql, Where
from helios.plan.properties import presented
from helios.plan.typing.aggregates import upserts_groups
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.schema import Schema
from helios.plan.views import View, view_of

VERSION = 1
"""The version of everything that Helios writes into summaries, properties and checkpoints."""


class ReadPath(Enum):
    """How a pipeline's rows reach its steps; the value is what the plan prints."""

    BATCH = "batch"
    RANGES = "snapshot ranges"
    MICRO_BATCHES = "micro-batches"
    STREAM = "stateful stream"


@dataclass(frozen=True, kw_only=True)
class Scan:
    """What the next scan of a table opens, of all that its snapshots have.

    Attributes:
        files: Files that may hold wanted rows; None where they were not looked at.
        of_files: All of them.
        partitions: The partitions of those files.
        of_partitions: All of them; 0 of a table that has none.
        bytes: The size of the files.
    """

    files: int | None = None
    of_files: int = 0
    partitions: int | None = None
    of_partitions: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What a followed table has ready for the next run: a state perhaps, then commits.

    Attributes:
        state: The snapshot whose state comes first.
        state_rows: Its rows.
        state_files: Its data files.
        since: The snapshot after which commits are read; None for all.
        snapshots: How many commits are read.
        rows: The rows that they added.
        files: The files that they added, or touched where changes are read.
        begun: How many files of the state, or of the first commit, were read already.
        lost: Whether what comes after `since` cannot be told: it has expired, or was rolled back.
    """

    state: int | None = None
    state_rows: int = 0
    state_files: int = 0
    since: int | None = None
    snapshots: int = 0
    rows: int = 0
    files: int = 0
    begun: int = 0
    lost: bool = False


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """One source of a pipeline.

    Attributes:
        source: The declared source.
        table: The resolved table of an Iceberg source.
        uuid: The table's UUID, when the catalog could be read.
        snapshot: The snapshot that is current, on the branch that is read.
        schema: The columns that it gives; None where only a run can tell.
        branch: The branch that is read or followed; None for main.
        state: The snapshot whose state is read, or begun with, where the source names one.
        span: The snapshots `(after, to]` of a source that reads history; `after` is None for all up to `to`.
        format_version: The format version of the table, when the catalog could be read.
        scan: What the next scan opens, where it was looked at and predicates leave files out.
        backlog: What waits for the next run, where it was looked at and the table is followed.
    """

    source: Source
    table: TableName | None = None
    uuid: str | None = None
    snapshot: int | None = None
    schema: Schema | None = None
    branch: str | None = None
    state: int | None = None
    span: tuple[int | None, int] | None = None
    format_version: int | None = None
    scan: Scan | None = field(default=None, compare=False)
    backlog: Backlog | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The source's name in plans and stamps."""
        return self.table.text if self.table is not None else self.source.plan_name

    @property
    def ledger_name(self) -> str:
        """The source's name in positions and in a checkpoint's identity."""
        return self.table.text if self.table is not None else self.source.ledger_name

    @property
    def kind(self) -> str:
        """The kind of the source, as in `helios.plan.sources.SOURCES`."""
        return self.source.kind

    def as_json(self) -> dict[str, Any]:
        """The source for programs."""
        found = {
            "format_version": self.format_version,
            "branch": self.branch,
            "state": self.state,
            "span": list(self.span) if self.span else None,
            "scan": asdict(self.scan) if self.scan else None,
            "backlog": asdict(self.backlog) if self.backlog else None,
        }
        return {
            "kind": self.kind,
            "name": self.name,
            "followed": self.source.streaming,
            "uuid": self.uuid,
            "snapshot": self.snapshot,
            "schema": self.schema.as_json() if self.schema else None,
            **self.source.as_json(found),
        }


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The rhythm of a stream and the size of its batches, each with the setting that decided it.

    Attributes:
        every: Seconds between batches.
        why: What decided that.
        max_rows: About how many rows a batch has at most; None where nothing bounds them.
        bound: What decided that; empty when nothing did.
        max_files: How many files of followed tables a batch has at most, as the smallest `max_files=` says.
    """

    every: float
    why: str
    max_rows: int | None = None
    bound: str = ""
    max_files: int | None = None


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """The target and how rows get there.

    Attributes:
        table: The resolved table; with `.route` the one whose name the routed tables begin with.
        sink: What was declared.
        exists: Whether the table is there; None when no catalog was looked at.
        uuid: Its UUID, when it is.
        format_version: Its own, or that of the table to be made.
        partitioning: Its own, or that of the table to be made.
        file_format: Of its data files.
        changes: What a run will alter before it writes, as text.
        left_out: Columns that serve only `order_by` and `delete_when`, and are not stored.
        quarantine: The resolved table of rows that fail.
    """

    table: TableName
    sink: IcebergSink
    exists: bool | None
    uuid: str | None
    format_version: int
    partitioning: tuple[PartitionField, ...] | None
    file_format: str = "parquet"
    changes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    quarantine: TableName | None = None

    @property
    def mode(self) -> Mode:
        return self.sink.mode

    @property
    def identity(self) -> str:
        """The name of a pipeline that was given none: its table, and its branch beside main."""
        return f"{self.table.text}@{self.sink.branch_name}" if self.sink.branch_name else self.table.text


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
    neighbours: tuple[Catalog, ...] = field(default=(), compare=False, repr=False)

    @property
    def streaming(self) -> bool:
        return self.path is not ReadPath.BATCH

    @property
    def output_mode(self) -> str:
        """What a streaming aggregate emits: "update" gives each changed group again, for an upsert; else "append"."""
        updates = self.path is ReadPath.STREAM and upserts_groups(self.stream, self.write.sink)
        return "update" if updates else "append"

    @property
    def view(self) -> View | None:
        """The materialized view that the pipeline keeps, if it does."""
        return view_of(self.declared)

    @property
    def fingerprint(self) -> str:
        """Changes when a declared step or the route changes; the bodies of callables are not compared."""
        routing = self.write.sink.routing
        text = "\n".join([*step_texts(self.stream), *([f"route({routing})"] if routing is not None else [])])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def state(self) -> tuple[str, ...]:
        """What a stateful pipeline's checkpoint depends on, as text: its keyed steps, joins and sources."""
        if self.view is not None:
            # Groups that do not change keep what the steps made of them.
            return (*step_texts(self.stream), *(read.name for read in self.reads))
        if self.path is not ReadPath.STREAM:
            return ()
        steps = [step for flow in flows(self.stream) for step in flow.steps]
        keyed = [s.text() for s in steps if isinstance(s, (*STATEFUL, Join, Sql))]
        # Spark keeps a query's output mode with its checkpoint.
        keyed += [self.output_mode] if self.output_mode != "append" else []
        return (*keyed, *(read.name for read in self.reads if read.source.streaming))

    def pushed(self, index: int) -> tuple[str, ...]:
        """The predicates that a source's scan takes, so that files which cannot match are not opened.

        Those of its `.where(...)`, and of the `where` steps that stand first behind it. Changes are told of whole
        files, and what depends on the clock is not the same for the next batch.

        Args:
            index: The source's place in `reads`.
        """
        source = self.reads[index].source
        if not source.takes_predicates:
            return ()
        first = takewhile(lambda step: isinstance(step, Where), list(flows(self.stream))[index].steps)
        told = (*source.conditions, *(step.condition for step in first if isinstance(step, Where)))
        return tuple(condition for condition in told if nondeterministic_function(condition) is None)

    def as_json(self) -> dict[str, Any]:
        """The plan for programs; `helios plan --json` prints it."""
        write = self.write
        return {
            "pipeline": self.pipeline,
            "declared_at": str(self.origin),
            "sources": [
                {**read.as_json(), "pushed": list(self.pushed(index))} for index, read in enumerate(self.reads)
            ],
            "steps": [s.text() for s in self.stream.steps],
            "path": self.path.value,
            "why": self.why,
            "schema": self.schema.as_json() if self.schema else None,
            "target": {
                "table": write.table.text,
                "exists": write.exists,
                "mode": write.mode.text(),
                "branch": write.sink.branch_name,
                "format_version": write.format_version,
                "partitioning": [str(f) for f in write.partitioning or ()],
                "properties": dict(write.sink.properties),
                "writer": presented(write.sink, write.file_format),
                "snapshot_properties": dict(write.sink.stamps),
                "changes": list(write.changes),
                "left_out": list(write.left_out),
                "routed_by": write.sink.routing,
                "quarantine": write.quarantine.text if write.quarantine else None,
                "audits": dict(write.sink.audits),
                "maintenance": asdict(write.sink.maintenance) if write.sink.maintenance else None,
                "retry": asdict(write.sink.retrying),
            },
            "emits": self.output_mode if self.path is ReadPath.STREAM else None,
            "trigger": asdict(self.trigger) if self.trigger else None,
            "checkpoint": self.checkpoint,
            "spark_conf": {k: v for catalog in self.catalogs for k, v in shown_spark_conf(catalog).items()},
            "jars": list(self.components),
        }

    def __str__(self) -> str:
        return _renderer(self)

    def to_json(self) -> str:
        return json.dumps(self.as_json(), indent=2)


_renderer: Callable[[Plan], str] = repr


def rendered_by(renderer: Callable[[Plan], str]) -> None:
    """Sets what gives a plan's text: the renderer stands above the nodes, and `helios.plan` brings it in."""
    global _renderer
    _renderer = renderer


def step_texts(flow: Flow) -> list[str]:
    """What makes a flow's rows of its table's, as the texts by which two plans are compared."""
    return [*flow.source.step_texts, *(step.text() for step in flow.steps)]
