"""Composes declared values into pipelines: `source >> step >> sink`. Every `>>` returns a new value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Never, NoReturn, overload

from helios.errors import DeclarationError
from helios.model.call import Call, Function
from helios.model.engine import engine
from helios.model.foreign import LikeDataFrame, LikeWriter
from helios.model.html import NotebookView
from helios.model.step import Node, Step
from helios.model.target import Target
from helios.model.values import Identifier, caller, is_pipeline_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from helios.catalog.spec import Catalog
    from helios.model.preview import Preview
    from helios.plan.nodes import Plan
    from helios.plan.typing.schema import Schema
    from helios.spark.run.run import PipelineRun

DEFAULT_POLL = 60.0
"""Seconds between two checks of a followed source for new data."""


@dataclass(frozen=True, kw_only=True)
class Transform(LikeDataFrame, Node):
    """A chain of steps without a source. It can be used in any number of pipelines."""

    steps: tuple[Step, ...]

    @overload
    def __rshift__(self, other: Transform) -> Transform: ...
    @overload
    def __rshift__(self, other: Function) -> Transform: ...
    def __rshift__(self, other: Any) -> Transform:
        following = as_transform(other)
        if following is None:
            raise misfit(self, other, "a transform takes another transform or a callable; a sink needs a source first")
        return Transform(steps=self.steps + following.steps)

    def __rrshift__(self, other: Function) -> Transform:
        first = as_transform(other)
        if first is None:
            raise misfit(other, self, "only a source, a stream or a step can come before a step")
        return Transform(steps=first.steps + self.steps)

    def text(self) -> str:
        return " >> ".join(s.text() for s in self.steps)


@dataclass(frozen=True, kw_only=True)
class Flow(NotebookView, LikeDataFrame, Node):
    """A flow of rows: a source, or a source followed by steps."""

    @property
    def source(self) -> Source:
        raise NotImplementedError

    @property
    def steps(self) -> tuple[Step, ...]:
        return ()

    @overload
    def __rshift__(self, other: Sink) -> Pipeline: ...
    @overload
    def __rshift__(self, other: Sequence[Sink]) -> Pipelines: ...
    @overload
    def __rshift__(self, other: Transform) -> Stream: ...
    @overload
    def __rshift__(self, other: Function) -> Stream: ...
    def __rshift__(self, other: Any) -> Any:
        stream = Stream(start=self.source, tail=self.steps, origin=self.origin)
        if isinstance(other, Sink):
            return Pipeline(stream=stream, sink=other)
        if isinstance(other, (list, tuple)):
            not_sinks = [value for value in other if not isinstance(value, Sink)]
            if not_sinks or not other:
                raise misfit(self, not_sinks[0] if not_sinks else other, "a fan-out is a list of sinks")
            return Pipelines(Pipeline(stream=stream, sink=sink) for sink in other)
        if (following := as_transform(other)) is None:
            raise misfit(self, other, "after a source comes a step, a callable from DataFrame to DataFrame, or a sink")
        return replace(stream, tail=stream.tail + following.steps)

    def text(self) -> str:
        return " >> ".join([self.source.label(), *(s.text() for s in self.steps)])

    def schema(self) -> Schema | None:
        """The columns of the flow, as a `helios.plan.typing.schema.Schema`; None if only a run knows them.

        Reads catalogs through PyIceberg, without a JVM.
        """
        return engine().schema(self)

    def preview(self, n: int = 20, spark: SparkSession | None = None) -> Preview:
        """Reads the first `n` rows as a batch; starts Spark, or uses the session that is passed."""
        return engine().preview(self, n, spark)


@dataclass(frozen=True, kw_only=True)
class Source(Flow):
    """A source of rows. Each kind of source has its own package in `helios.sources`.

    Attributes:
        kind: The kind of the source, as plans and commit summaries name it.
        comparable: Whether equal declarations read equal rows; rows in memory may differ.
        names_tables: Whether the rows may be changes of several tables; each row then names its table.
        commits_in_positions: Whether a row's position begins with the number of the row's commit (0 if unknown).
        poll: Seconds between checks for new data; None for a source that is read once.
        max_rows: The approximate limit of rows in a batch.
        max_files: The limit of files in a batch.
        conditions: SQL conditions; only rows that meet all of them are read.
        declared_schema: Columns and types as Spark SQL DDL; None if the script declares none.
    """

    kind: ClassVar[str] = ""
    comparable: ClassVar[bool] = True
    names_tables: ClassVar[bool] = False
    commits_in_positions: ClassVar[bool] = False

    poll: float | None = None
    max_rows: int | None = None
    max_files: int | None = None
    conditions: tuple[str, ...] = ()
    declared_schema: str | None = None

    @property
    def source(self) -> Source:
        return self

    @property
    def streaming(self) -> bool:
        """True if the source is followed, rather than read once."""
        return self.poll is not None

    @property
    def declared_start(self) -> Any:
        """The declared start of a followed source; None for the default."""
        return None

    @property
    def reads_changes(self) -> bool:
        """True if the source reads row-level changes, rather than rows."""
        return False

    @property
    def pairs_by_keys(self) -> bool:
        """True if the two images of a changed row are paired by keys, rather than by row lineage."""
        return False

    @property
    def carries_order(self) -> bool:
        """True if rows are changes with their order and deletes, so that an upsert declares neither."""
        return False

    @property
    def carried_keys(self) -> tuple[str, ...] | None:
        """The declared key columns of rows that carry their order; None if the rows themselves name their keys."""
        return ()

    @property
    def rebootstraps(self) -> bool:
        """True if the current state is read again when the history after the last batch has expired."""
        return False

    @property
    def takes_predicates(self) -> bool:
        """True if predicates are pushed to the scan, so that files without a matching row are not opened."""
        return False

    @property
    def why_no_past(self) -> str | None:
        """Why earlier states cannot be read, as a text that follows the source's name; None if they can be read."""
        return "keeps no earlier states"

    def in_folder(self, folder: str) -> Source | None:
        """This source for the files of another folder, read once; None for a source that reads no files."""
        return None

    def overlaps(self, folder: str) -> bool:
        """True if a folder is the source's own, lies in it or contains it; False for a source that reads no files."""
        return False

    @property
    def engine_columns_or_reason(self) -> tuple[str, ...] | str:
        """The columns that the columnar engine reads, () for all; or a text that says why it cannot read the source."""
        return f"it reads {self.label()}, and neither an Iceberg table nor files"

    @property
    def reference(self) -> tuple[Identifier, Catalog | str | None] | None:
        """The table that is read, and the catalog declared with the table; None for a source without a table."""
        return None

    @property
    def quarantining_calls(self) -> tuple[str, ...]:
        """The declared calls that quarantine rows or files."""
        return ()

    @property
    def jars(self) -> tuple[str, ...]:
        """Components of `helios.environment.coordinates` that this source needs besides the components of its kind."""
        return ()

    @property
    def plan_name(self) -> str:
        """The source's name in plans and commit summaries; a table has its resolved name instead."""
        return self.ledger_name

    @property
    def ledger_name(self) -> str:
        """The source's name in positions and in a checkpoint's identity; a table has its resolved name instead."""
        return self.label()

    @property
    def service(self) -> str | None:
        """The service that provides the rows, as messages name it; None for catalogs and storages."""
        return None

    @property
    def addresses(self) -> Mapping[str, str]:
        """The URLs of other services that the source calls, by name."""
        return {}

    @property
    def step_texts(self) -> tuple[str, ...]:
        """The transformations that the source itself makes, as texts. A changed text counts as a changed step."""
        return ()

    def details(self, format_version: int | None = None) -> Iterator[str]:
        """Lines of the plan below the source's label. `format_version` is that of the source's table, if known."""
        yield from ()

    def as_json(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The values that `plan --json` shows besides kind, name and schema; `found` has the results of compiling."""
        return {}

    def label(self) -> str:
        """The source as the plan shows it."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Stream(Flow):
    """A source followed by steps. It can be used in any number of pipelines."""

    start: Source
    tail: tuple[Step, ...] = ()

    @property
    def source(self) -> Source:
        return self.start

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.tail


@dataclass(frozen=True, kw_only=True)
class Sink(Target, LikeWriter, Node):
    """The target of rows, such as an Iceberg table, a topic or standard output."""

    def label(self) -> str:
        raise NotImplementedError

    def __rshift__(self, other: Never) -> NoReturn:
        raise misfit(self, other, "a sink ends a pipeline", fix="fan out with `stream >> [sink_a, sink_b]`.")

    def __rrshift__(self, other: Never) -> NoReturn:
        raise misfit(other, self, "only a source or a stream flows into a sink")


@dataclass(frozen=True, kw_only=True)
class Pipeline(NotebookView, Node):
    """A stream and its sink, ready to check, plan and run."""

    stream: Stream
    sink: Sink
    name: str | None = None
    was: str | None = None

    def named(self, name: str, *, was: str | None = None) -> Pipeline:
        """Sets the name of the pipeline, which identifies it in the ledger.

        Args:
            name: The name.
            was: The former name. The next run takes over the ledger record and the checkpoint of that name, once.

        Raises:
            DeclarationError: A name is empty, or has other characters than letters, digits, `_`, `-` and `.`.
        """
        for text, is_former in ((name, False), (was, True)):
            if text is not None and not is_pipeline_name(text, former=is_former):
                raise DeclarationError(
                    f"{text!r} is not a pipeline name.", where=caller(), fix="use letters, digits, '_', '-' and '.'."
                )
        return replace(self, name=name, was=was)

    def __rshift__(self, other: Never) -> NoReturn:
        raise misfit(self, other, "a pipeline is complete", fix="fan out with `stream >> [sink_a, sink_b]`.")

    def text(self) -> str:
        return f"{self.stream.text()} >> {self.sink.label()}"

    def schema(self) -> Schema | None:
        """The columns that reach the sink; None if only a run knows them."""
        return engine().schema(self.stream)

    def preview(self, n: int = 20, spark: SparkSession | None = None) -> Preview:
        """The first `n` rows that would reach the sink, as from `stream.preview()`; nothing is written."""
        return self.stream.preview(n, spark)

    def check(self) -> None:
        """Finds every problem without a JVM, and raises `CheckFailed` with all of them."""
        engine().check(self)

    def plan(self) -> Plan:
        """The plan of the next run, as a `helios.plan.Plan`: printable, comparable, and compiled without a JVM."""
        return engine().plan(self)

    def run(
        self,
        once: bool = False,
        spark: SparkSession | None = None,
        again: bool = False,
        beside: str | Sequence[str] = (),
    ) -> PipelineRun:
        """Starts the pipeline and returns its handle: `.stop()`, `.await_termination()`, `.status()`, `.metrics()`.

        Args:
            once: Process what is available now, then stop; by default follow the source.
            spark: A session, which is cloned and never altered; by default a new one is created.
            again: Append the inputs of a batch pipeline even if they were appended before, which duplicates their rows.
            beside: Pipelines that may write rows of the same source, or the same keys, into the same table, as with
                `helios run --beside`.
        """
        return engine().run(self, once, spark, again, [beside] if isinstance(beside, str) else list(beside))


class Pipelines(NotebookView, tuple[Pipeline, ...]):
    """The result of a fan-out: one pipeline per sink."""

    def __rshift__(self, other: Never) -> NoReturn:
        raise misfit(self, other, "pipelines are complete")


def as_step(step: Step) -> Transform:
    return Transform(steps=(step,))


def step(function: Function) -> Transform:
    """Wraps a callable in a step, so that it can come first: `step(clean) >> where("x > 0")`."""
    if not callable(function):
        raise DeclarationError(f"step({function!r}) is not callable.", where=caller(), fix="pass a function.")
    return as_step(Call(function=function))


def as_transform(other: Any) -> Transform | None:
    """Returns a transform unchanged, or a callable as a transform of one step; None for anything else."""
    if isinstance(other, Transform):
        return other
    is_function = callable(other) and not isinstance(other, type)
    return as_step(Call(function=other)) if is_function else None


def misfit(left: Any, right: Any, why: str, fix: str | None = None) -> DeclarationError:
    """The error for two values that do not compose."""
    fix = fix or "compose as `source >> step >> ... >> sink`."
    return DeclarationError(f"{describe(left)} >> {describe(right)} does not compose: {why}.", where=caller(), fix=fix)


def describe(value: Any) -> str:
    """A value as messages name it."""
    if isinstance(value, (Source, Sink)):
        return value.label()
    if isinstance(value, Transform):
        return value.text()
    if isinstance(value, Flow):
        return f"a stream from {value.source.label()}"
    if isinstance(value, Pipeline):
        return f"a pipeline into {value.sink.label()}"
    return f"the class {value.__name__}" if isinstance(value, type) else f"{type(value).__name__} {value!r}"


def flows(flow: Flow) -> Iterator[Flow]:
    """The flow itself, then the flows that its joins and unions read, depth first."""
    yield flow
    for step in flow.steps:
        if isinstance(inner := getattr(step, "other", None), Flow):
            yield from flows(inner)
