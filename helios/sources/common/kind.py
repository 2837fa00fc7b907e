"""`SourceKind`, the descriptor of a kind of source.

Plans, runs, and commands such as `helios status` take everything that depends on the kind of a source from its
descriptor. So they work with every kind, including the kinds of other packages.
"""

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

SPANS_REASON = "stateless: each batch reads what is new in its sources"


def _described(source: Source, around: Surroundings) -> Described:
    from helios.sources.common.describe import describe

    return describe(source, around)


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source. A simple kind needs only `declared` and `reader`.

    Attributes:
        declared: The class of the declared source; the class attribute `kind` is the name of the kind.
        reader: The class of the reader on Spark, as "module:Class"; a `helios.sources.common.spark.protocol.Source`.
        position: The class of the source's positions, as the reader writes them.
        describe: Returns the planned read of a source, which has its columns, and a list of the source's problems; may
            raise a single problem as an `InputError`.
        jars: The components of `helios.environment.coordinates` that the kind needs besides those of the catalogs.
        rereadable: Whether reading the same span twice returns the same rows; `.exactly_once()` requires this.
        counts_rows: Whether the number of rows is known before they are read, so that `max_rows` can limit a batch.
        absent: Returns the problem that `helios check` reports if the data does not exist; None if the data exists, or
            if another check looks for it.
        problems: Returns the problems of a pipeline that reads the source into a table.
        lag: The function that computes the lag of a pipeline without a JVM, as "module:function". It takes the
            pipeline's name, its recorded position, a `helios.table.view.View` of the tables and checkpoints, and a
            list to which it may append notes. It returns a `Lag`, or None if the lag is unknown.
        backlog: Takes a plan and the number of a read. Returns this read with its backlog, which is the data that
            waits to be read; None if the backlog of the kind is unknown.
        failures: The function that turns an error of the reader into an error for the user, as "module:function". It
            takes the error and the plan, and returns None for an error that it does not know.
        outages: A regular expression for the messages of the source's client while its service does not answer.
        companion: The function that starts a service next to a pipeline that follows this kind, such as the receiver of
            webhooks, as "module:function". It takes the sources and a callable for log lines, and returns a context
            manager of the URLs that the service serves.
        doctor_checks: The function that returns the checks of `helios doctor`, as "module:function". It takes a source,
            and returns two lists of `DoctorCheck`: the checks that need no JVM, and those that do.
        read_reason: The text with which a plan explains how a stateless pipeline reads this kind.
        units: The plural name of the units that a batch never splits, such as files.
        store_folder: Returns the location of the source's files if they are on an object store, otherwise None; may
            raise an `InputError`.
        overlaps: Returns True if an entry may belong to a source although their names differ, as the names of
            overlapping folders do. An entry is the part of a ledger record's position that belongs to one source.
        empty_entry: A field that only entries of this kind have, with an empty value. An entry with this field stands
            for a source of which no position is recorded yet, when `overlaps` compares two sources.
        lookup: The function that looks up the rows with a key that a batch has read, as "module:function". It takes the
            span of the batch, the values of the key by column, the source as its plan shows it, and a
            `helios.table.view.View` of the tables and checkpoints. It returns a `SourceLookup`. None if the rows of
            this kind cannot be read a second time.
        feed: The class that replaces the source in tests of pipelines, as "module:Class"; a
            `helios.testing.feeds.Feed`. Its arguments are the source and an empty folder. Without it, a test of such a
            pipeline is refused.
        logged: Whether only a log in the checkpoint lists the data that was read, so that a pipeline whose checkpoint
            is lost cannot resume.
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
    companion: str | None = None
    doctor_checks: str | None = None
    read_reason: str = SPANS_REASON
    units: str = "files"
    store_folder: Callable[[Any, Context], StoreFolder | None] = lambda source, context: None
    overlaps: Callable[[Any, Mapping[str, Any]], bool] = lambda source, entry: False
    empty_entry: Mapping[str, Any] = field(default_factory=dict)
    lookup: str | None = None
    feed: str | None = None
    logged: bool = False

    @property
    def name(self) -> str:
        """The name of the kind in plans and for entry points."""
        return self.declared.kind
