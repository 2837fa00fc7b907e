"""The plan of one pipeline: the compiled form of its sources, steps and target."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from itertools import takewhile
from typing import Any, NamedTuple

from helios.catalog.conf import shown_spark_conf
from helios.catalog.names import TableName
from helios.catalog.spec import Catalog
from helios.catalog.storage import Storage
from helios.errors import Origin
from helios.model import html
from helios.model.flow import Flow, Pipeline, Source, Stream, flows
from helios.model.modes import Mode
from helios.model.output import Output
from helios.model.partition import PartitionField
from helios.model.sink import IcebergSink
from helios.model.step import Step
from helios.plan.formats import UNREADABLE_BY
from helios.plan.native.engine import Engine
from helios.plan.properties import write_overrides
from helios.plan.scans import Backlog, Scan
from helios.plan.spill import Spill
from helios.plan.typing.aggregates import upserts_groups
from helios.plan.typing.determinism import nondeterministic_function
from helios.plan.typing.schema import Schema
from helios.plan.views import View, view_of
from helios.steps.dedupe import Dedupe
from helios.steps.watermark import Watermark
from helios.steps.where import Where
from helios.table.growth import Growth

VERSION = 1
"""The version of the formats that Helios writes into summaries, properties and checkpoints."""


class StoreFolder(NamedTuple):
    """A folder of files on an object store.

    Attributes:
        location: The folder's URI, with the scheme of Hadoop's file system.
        storage: The storage declared for the folder; None to use the storage of a catalog in the same bucket.
    """

    location: str
    storage: Storage | None


class ReadPath(Enum):
    """How rows reach the steps of a pipeline. Plans print the value, and checkpoints store it."""

    BATCH = "batch"
    RANGES = "snapshot ranges"
    STATEFUL = "stateful stream"

    @property
    def columnar(self) -> bool:
        """True if the columnar engine may run a batch: rows are read in bounded batches, and Spark keeps no state."""
        return self in (ReadPath.BATCH, ReadPath.RANGES)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """One source of a pipeline.

    Attributes:
        source: The declared source.
        table: The resolved table of an Iceberg source.
        uuid: The table's UUID; None if the catalog was not read, or the table does not exist yet.
        snapshot: The current snapshot of the branch that is read.
        schema: The columns of the source; None if they are known only at run.
        branch: The branch that is read or followed; None for main.
        state: The snapshot that `.as_of()`, `.at_snapshot()` or `.at_ref()` names; None without such a call. All
            rows of the snapshot are read; a followed source then reads the later commits.
        span: The snapshots `(after, to]` that a source of history reads; if `after` is None, all snapshots up to `to`.
        format_version: The format version of the table; None if `uuid` is None.
        scan: The files that the next scan opens; None if it was not planned, or has no predicates.
        backlog: The rows that the next run reads; None if the table is not followed, or the backlog was not looked up.
        store_folder: The folder of the source's files if they are on an object store; None otherwise.
        joined: For the right side of a join as of a time: the `as_of=` column and how rows are read, as text.
        renamed: Former and present name of each column that the source's table has renamed.
    """

    source: Source
    store_folder: StoreFolder | None = None
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
    joined: str | None = None
    renamed: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """The source's name in plans and commit summaries."""
        return self.table.text if self.table is not None else self.source.plan_name

    @property
    def ledger_name(self) -> str:
        """The source's name in positions and in a checkpoint's identity."""
        return self.table.text if self.table is not None else self.source.ledger_name

    @property
    def kind(self) -> str:
        """The kind of the source, such as `iceberg`, by which `helios.sources.kinds` finds its `SourceKind`."""
        return self.source.kind

    def as_json(self) -> dict[str, Any]:
        values = {
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
            **({"joined": self.joined} if self.joined is not None else {}),
            **self.source.as_json(values),
        }


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """The time between the batches of a stream and their size, each with the setting that decides it.

    Attributes:
        every: Seconds between batches.
        why: The setting that decides `every`.
        max_rows: The approximate maximum of rows in a batch; None if nothing bounds them.
        bound: The setting that decides `max_rows`; empty if `max_rows` is None.
        max_files: The maximum of files in a batch: the smallest `max_files=` of the followed sources, or None.
    """

    every: float
    why: str
    max_rows: int | None = None
    bound: str = ""
    max_files: int | None = None


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """The target, and how rows are written to it.

    Attributes:
        table: The resolved table. For `.route`, the prefix of the routed tables' names; for a mirror, its namespace.
        exists: Whether the table exists; None when the catalog was not read.
        format_version: The format version of the existing table, or of the new one.
        partitioning: The partition fields of the existing table, or of the new one.
        changes: The changes to the table that a run makes before it writes, as text.
        left_out: Columns that only `order_by` and `delete_when` use, and that are not stored.
        quarantine: The resolved table of rejected rows.
        growth: The history of the existing table.
        bytes: The size of the data files of the existing table; None if unknown.
        pipeline_names: The present and the former name of the pipeline; the table may have a record under either.
        notes: Notes on the rows of other pipelines and of earlier runs in the table.
    """

    table: TableName
    sink: IcebergSink | Output
    exists: bool | None
    uuid: str | None
    format_version: int
    partitioning: tuple[PartitionField, ...] | None
    file_format: str = "parquet"
    changes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    quarantine: TableName | None = None
    growth: Growth | None = None
    bytes: int | None = None
    pipeline_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def mode(self) -> Mode:
        return self.sink.mode

    @property
    def iceberg(self) -> IcebergSink:
        """The declared sink; only for pipelines that write tables."""
        sink = self.sink.iceberg
        assert sink is not None
        return sink

    @property
    def default_name(self) -> str:
        """The name of a pipeline without a declared name: its table, with the branch unless that is main."""
        return f"{self.table.text}@{self.sink.branch_name}" if self.sink.branch_name else self.table.text

    @property
    def makes_tables(self) -> bool:
        """True if the run may create tables: the table is missing or was not looked up, or the rows name the tables."""
        return self.iceberg.creates if self.sink.many_tables else not self.exists

    @property
    def unreadable_by(self) -> tuple[str, ...]:
        """The engines and libraries that cannot read a table of this format version."""
        return UNREADABLE_BY.get(self.format_version, ())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One compiled pipeline.

    Attributes:
        pipeline: The name of the pipeline.
        was: The declared former name of the pipeline; None if there is none.
        origin: The line that declares the pipeline.
        stream: The declared source with its steps.
        reads: The sources, in the order of the pipeline's flows.
        path: How rows reach the steps.
        why: The reason for `path`, as text.
        schema: The columns after the last step; None if they are known only at run.
        write: The target.
        trigger: The time between batches and their size; None for a batch pipeline.
        checkpoint: The location of the checkpoint.
        former_checkpoint: The location of the checkpoint under the former name; None without a former name, or if a
            location is declared.
        catalogs: The catalogs of the tables that the pipeline reads and writes.
        components: The jars that a run needs.
        declared: The pipeline as the script declares it.
        all_catalogs: All catalogs of the configuration and of the script, whether or not this pipeline uses them.
        engine: The engine that runs the pipeline.
        spill: The sorts and shuffles whose data goes to a local disk when it exceeds memory; None if there are none.
    """

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
    all_catalogs: tuple[Catalog, ...] = field(default=(), compare=False, repr=False)
    engine: Engine = field(default=Engine(), compare=False)
    spill: Spill | None = field(default=None, compare=False)

    @property
    def streaming(self) -> bool:
        return self.path is not ReadPath.BATCH

    @property
    def output_mode(self) -> str:
        """Spark's output mode: "update" emits a changed group again, for an upsert; otherwise "append"."""
        updates = self.path is ReadPath.STATEFUL and upserts_groups(self.stream, self.write.sink)
        return "update" if updates else "append"

    @property
    def view(self) -> View | None:
        """The materialized view that the pipeline maintains; None if it maintains none."""
        return view_of(self.declared)

    @property
    def fingerprint(self) -> str:
        """A digest of the declared steps and the route; the bodies of callables are not part of it."""
        import hashlib  # loads OpenSSL, which only a run needs

        routing = self.write.sink.routing
        text = "\n".join([*step_texts(self.stream), *([f"route({routing})"] if routing is not None else [])])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def state_texts(self) -> tuple[str, ...]:
        """The stateful steps and the sources on which the state in the checkpoint depends, as text."""
        if self.view is not None:
            # A changed step would be applied only to groups with changed rows.
            return (*step_texts(self.stream), *(read.name for read in self.reads))
        if self.path is not ReadPath.STATEFUL:
            return ()
        steps = [step for flow in flows(self.stream) for step in flow.steps]
        state = [self._state_text(s) for s in steps if s.traits.stateful or s.traits.shuffles]
        # Spark's state also depends on the output mode of the query.
        state += [self.output_mode] if self.output_mode != "append" else []
        return (*state, *(read.name for read in self.reads if read.source.streaming))

    def _state_text(self, step: Step) -> str:
        if isinstance(step, Watermark):
            return step.state_text
        by_time = isinstance(step, Dedupe) and step.within is not None
        return f"{step.text()} by event time" if by_time else step.text()

    def pushed_predicates(self, index: int) -> tuple[str, ...]:
        """The predicates that are pushed into the scan of a source: files without a matching row are not opened.

        The predicates are the conditions of the source's `.where(...)`, and of the `where` steps directly after the
        source. A nondeterministic condition is not pushed, because a repeated batch would open other files.

        Args:
            index: The index of the source in `reads`.
        """
        source = self.reads[index].source
        if not source.takes_predicates:
            return ()
        first = takewhile(lambda step: isinstance(step, Where), list(flows(self.stream))[index].steps)
        conditions = (*source.conditions, *(step.condition for step in first if isinstance(step, Where)))
        return tuple(condition for condition in conditions if nondeterministic_function(condition) is None)

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values; `helios plan --json` prints them."""
        write, table = self.write, self.write.sink.iceberg
        return {
            "pipeline": self.pipeline,
            "declared_at": str(self.origin),
            "sources": [
                {**read.as_json(), "pushed": list(self.pushed_predicates(index))}
                for index, read in enumerate(self.reads)
            ],
            "steps": [s.text() for s in self.stream.steps],
            "path": self.path.value,
            "why": self.why,
            "engine": self.engine.as_json(),
            "spill": asdict(self.spill) if self.spill else None,
            "schema": self.schema.as_json() if self.schema else None,
            "target": {
                "table": write.table.text,
                "kind": write.sink.kind,
                "delivery": "exactly once" if write.sink.target_kind.keeps_record else "at least once",
                "exists": write.exists,
                "mode": write.mode.text(),
                "branch": write.sink.branch_name,
                "format_version": write.format_version,
                "unreadable_by": list(write.unreadable_by),
                "partitioning": [str(f) for f in write.partitioning or ()],
                "properties": dict(table.properties) if table is not None else {},
                "writer": write_overrides(table, write.file_format) if table is not None else {},
                "snapshot_properties": dict(table.summary_entries) if table is not None else {},
                "changes": list(write.changes),
                "left_out": list(write.left_out),
                "routed_by": write.sink.routing,
                "mirrors": write.sink.mirrors,
                "quarantine": write.quarantine.text if write.quarantine else None,
                "audits": dict(table.audits) if table is not None else {},
                "maintenance": asdict(table.maintenance) if table is not None and table.maintenance else None,
                "retry": asdict(write.sink.retry_policy),
                "history": asdict(write.growth) if write.growth else None,
                "notes": list(write.notes),
            },
            "emits": self.output_mode if self.path is ReadPath.STATEFUL else None,
            "trigger": asdict(self.trigger) if self.trigger else None,
            "checkpoint": self.checkpoint,
            "spark_conf": {k: v for catalog in self.catalogs for k, v in shown_spark_conf(catalog).items()},
            "jars": list(self.components),
        }

    def __str__(self) -> str:
        return _renderer(self)

    def _repr_html_(self) -> str:
        head, *lines = str(self).splitlines()
        return html.table([], [(line[2:12].strip(), line[12:]) for line in lines], head)

    def to_json(self) -> str:
        return json.dumps(self.as_json(), indent=2)


_renderer: Callable[[Plan], str] = repr


def set_renderer(renderer: Callable[[Plan], str]) -> None:
    """Sets the function that `str(plan)` calls, of `helios.plan.text`, which this module cannot import."""
    global _renderer
    _renderer = renderer


def step_texts(flow: Flow) -> list[str]:
    """The transformations of a flow, as texts: equal texts mean equal transformations."""
    return [*flow.source.step_texts, *(step.text() for step in flow.steps)]
