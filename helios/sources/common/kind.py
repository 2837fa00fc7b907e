"""The descriptor of a kind of source: plans, runs and commands such as `status` use it, and name no kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from helios.errors import HeliosError
from helios.model.flow import Source
from helios.sources.common.position import SourcePosition

if TYPE_CHECKING:
    from helios.model.sink import IcebergSink
    from helios.plan.context import Context, Surroundings
    from helios.plan.nodes import Plan, ReadPath, ReadPlan, StoreFolder

    Described: TypeAlias = tuple[ReadPlan, list[HeliosError]]

WHY_SPANS = "stateless: each batch reads the new spans of its sources as batches"


def _described(source: Source, around: Surroundings) -> Described:
    from helios.sources.common.describe import describe

    return describe(source, around)


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source. A simple one needs only `declared` and `reader`.

    Attributes:
        declared: The type of the declared source; its `kind` is the name of the kind.
        reader: The class of its reader on Spark, as "module:Class"; a `helios.sources.common.spark.protocol.Source`.
        position: The class of the source's positions, as the reader writes them.
        describe: Returns a source's columns, and its problems; may raise a single problem as an `InputError`.
        jars: Components of `helios.environment.coordinates` that the kind needs beside those of catalogs.
        rereadable: Whether a span that is read again returns the same rows; `.exactly_once()` requires this.
        counts_rows: Whether the number of rows is known before they are read, so that `max_rows` can limit a batch.
        absent: The problem that `helios check` reports if the data does not exist; None if the data exists, or
            is checked elsewhere.
        problems: The problems of a pipeline that reads the source into a table.
        lag: The function that computes a pipeline's lag without a JVM, as "module:function": it takes the pipeline, its
            recorded position, the view of the status, and a list for notes; it returns a `Lag`, or None if unknown.
        backlog: Adds the waiting data to a read of a plan; it takes the plan and the read's number, and returns None
            if nothing is added.
        failures: The function that turns an error of the reader into one for the user, as "module:function": it takes
            the error and the plan, and returns None for any other error.
        outages: The messages of its client while the service does not answer, as a regular expression.
        beside: The companion of a pipeline that follows this kind, as "module:function": it takes sources and a
            callable for log lines, and returns a context manager of the URLs that it serves.
        looks: The checks of `helios doctor`, as "module:function": it takes a source, and returns the checks that need
            no JVM, and those that do.
        why: The reason for reading spans in a stateless pipeline, as the plan prints it.
        units: The units that a batch does not split, such as files.
        place: The location of the source's files, if that is an object store; may raise an `InputError`.
        same: Whether a recorded entry with another name may belong to the same source.
        entry: The field that only recorded entries of this kind have, with an empty value.
        again: The function that finds a row that a batch has read, as "module:function": it takes the span, the columns
            of a key, the source as its plan shows it, and the view of the status, and returns an `Again`; None if
            rows cannot be read again.
        logged: Whether a log in the checkpoint has what was read: a lost checkpoint cannot be resumed without it.
    """

    declared: type[Source]
    reader: str
    position: type[SourcePosition] | None = None
    describe: Callable[[Any, Surroundings], Described] = _described
    jars: tuple[str, ...] = ()
    rereadable: bool = True
    counts_rows: bool = True
    absent: Callable[[Any], HeliosError | None] = lambda source: None
    problems: Callable[[IcebergSink, ReadPlan, ReadPath], list[HeliosError]] = lambda sink, read, path: []
    lag: str | None = None
    backlog: Callable[[Plan, int], ReadPlan | None] = lambda plan, index: None
    failures: str | None = None
    outages: str | None = None
    beside: str | None = None
    looks: str | None = None
    why: str = WHY_SPANS
    units: str = "files"
    place: Callable[[Any, Context], StoreFolder | None] = lambda source, context: None
    same: Callable[[Any, Mapping[str, Any]], bool] = lambda source, entry: False
    entry: Mapping[str, Any] = field(default_factory=dict)
    again: str | None = None
    logged: bool = False

    @property
    def name(self) -> str:
        """Its name in plans and for entry points."""
        return self.declared.kind
