"""Reading: a source once, as a stream, or as the snapshot range of one batch."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError, LedgerError, NotFound, RunError
from helios.model.files import FilesSource
from helios.model.flow import Flow
from helios.model.iceberg import IcebergSource
from helios.model.memory import MemorySource
from helios.plan.plan import Plan, ReadPlan
from helios.spark.steps import POSITION, Scope, apply, quoted
from helios.spark.write import load_table, target_schema

BEFORE = "helios_before"
"""The mark of an offset in Spark's log that stands before its snapshot rather than at its end; Iceberg ignores it."""

NO_SNAPSHOT = -1
"""The snapshot id of Iceberg's streaming offset for a table without snapshots."""


@dataclass(frozen=True)
class Built:
    """A pipeline's rows, and what its expectations kept out.

    Attributes:
        df: The rows.
        rejected: Rows for the quarantine.
        counted: Counts of the rows that were left out, each known when the rows have been written.
    """

    df: DataFrame
    rejected: list[DataFrame] = field(default_factory=list)
    counted: list[Observation] = field(default_factory=list)

    def dropped(self) -> int:
        """How many rows were left out, once the rows have been written."""
        # Without waiting: Spark tells nothing of a part that it did not have to compute.
        found = [observation._jo.getOrEmpty() for observation in self.counted if observation._jo is not None]
        return sum(int(one.head()._2()) for one in found if one.nonEmpty())


def build(plan: Plan, rows: Callable[[int, ReadPlan], DataFrame]) -> Built:
    """The pipeline's DataFrame over the rows of its sources, which are numbered as in `plan.reads`."""
    numbered: Iterator[tuple[int, ReadPlan]] = iter(enumerate(plan.reads))

    def flow(declared: Flow) -> DataFrame:
        df = rows(*next(numbered))
        return apply(df, declared.steps, scope)

    scope = Scope(flow)
    return Built(flow(plan.stream), scope.rejected, scope.counted)


# once


def read_batch(spark: SparkSession, read: ReadPlan) -> DataFrame:
    """All rows of a source, as it is now."""
    return BATCH[type(read.source)](spark, read)


def read_state(spark: SparkSession, read: ReadPlan, snapshot: int | None, place: Place | None = None) -> DataFrame:
    """The rows of an Iceberg table at a snapshot, none at None, in the columns that the table has now.

    Spark gives a snapshot the columns of its own time; the later ones, found by their field ids, keep a reader's steps
    right after an ALTER TABLE.
    """
    assert read.table is not None
    if snapshot is None:
        return read_batch(spark, read).limit(0)
    table = source_table(spark, read)
    made = table.snapshot(snapshot)
    then = table.schemas().get(made.schemaId()) if made is not None else None
    df = spark.read.option("versionAsOf", snapshot).table(read.table.sql)
    if then is None or then.schemaId() == table.schema().schemaId():
        return place(df, df.columns) if place else df
    columns: list[Any] = []
    for column, now in zip(table.schema().columns(), target_schema(spark, table).fields, strict=True):
        old = then.findColumnName(column.fieldId())
        value = F.col(quoted(old)) if old is not None else F.lit(None)
        columns.append(value.cast(now.dataType).alias(now.name))
    return place(df, columns) if place else df.select(*columns)


def _iceberg(spark: SparkSession, read: ReadPlan) -> DataFrame:
    assert read.table is not None
    return spark.read.table(read.table.sql)


def _files(spark: SparkSession, read: ReadPlan) -> DataFrame:
    source = read.source
    assert isinstance(source, FilesSource)
    reader = spark.read.format(source.format).options(**source.reader_options())
    if source.declared_schema is not None:
        reader = reader.schema(source.declared_schema)
    elif source.format == "csv":
        reader = reader.option("inferSchema", "true")
    try:
        return reader.load(source.path)
    except AnalysisException as error:
        raise NotFound(
            f"{source.label()}: {str(error).splitlines()[0]}",
            where=source.origin,
            fix="check the path; for a folder that is still empty, pass schema=.",
        ) from error


def _memory(spark: SparkSession, read: ReadPlan) -> DataFrame:
    source = read.source
    assert isinstance(source, MemorySource)
    schema: Any = source.declared_schema or list(source.columns)
    return spark.createDataFrame(list(source.rows), schema)


BATCH: dict[type, Callable[[SparkSession, ReadPlan], DataFrame]] = {
    IcebergSource: _iceberg,
    FilesSource: _files,
    MemorySource: _memory,
}


def read_pinned(spark: SparkSession, read: ReadPlan) -> tuple[DataFrame, dict[str, Any]]:
    """All rows of a source, and what they are: by this two runs are told to have identical inputs."""
    source = read.source
    if read.table is not None:
        snapshot = head(spark, read)
        uuid = str(source_table(spark, read).uuid())
        return read_state(spark, read, snapshot), {"source": read.name, "uuid": uuid, "snapshot": snapshot}
    df = read_batch(spark, read)
    if isinstance(source, MemorySource):
        return df, {"source": "memory", "digest": _digest(repr((source.columns, source.rows)))}
    return df, {"source": read.name, "digest": _digest(json.dumps(_listing(spark, df)))}


def is_there(spark: SparkSession, read: ReadPlan, snapshot: int | None) -> bool:
    """Whether a table still has a snapshot."""
    return snapshot is None or source_table(spark, read).snapshot(snapshot) is not None


def head(spark: SparkSession, read: ReadPlan) -> int | None:
    """The current snapshot of a table; None for an empty one."""
    snapshot = source_table(spark, read).currentSnapshot()
    return int(snapshot.snapshotId()) if snapshot is not None else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _listing(spark: SparkSession, df: DataFrame) -> list[tuple[str, int, int]]:
    """Path, length and modification time of the files behind a DataFrame."""
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    listed = []
    for file in sorted(df.inputFiles()):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        status = path.getFileSystem(conf).getFileStatus(path)
        listed.append((file, int(status.getLen()), int(status.getModificationTime())))
    return listed


def source_table(spark: SparkSession, read: ReadPlan) -> Any:
    """Iceberg's table object of a source.

    Raises:
        NotFound: It is gone.
    """
    assert read.table is not None
    table = load_table(spark, read.table)
    if table is None:
        raise NotFound(f"table {read.name} does not exist.", where=read.source.origin)
    return table


# as a stream


def read_stream(spark: SparkSession, read: ReadPlan, *, max_rows: int | None = None) -> DataFrame:
    """A followed source as a streaming DataFrame."""
    source = read.source
    if isinstance(source, FilesSource):
        schema = source.declared_schema or read_batch(spark, read).schema
        # Spark's week would silently leave out a file that arrives with an older time stamp.
        options = {"maxFileAge": "36500d", **source.reader_options()}
        reader = spark.readStream.format(source.format).options(**options).schema(schema)
        if source.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files)
        return reader.load(source.path)
    assert read.table is not None
    stream = spark.readStream.format("iceberg")
    if max_rows is not None:
        stream = stream.option("streaming-max-rows-per-micro-batch", max_rows)
    return stream.load(read.table.sql)


def read_ticker(spark: SparkSession, reads: list[ReadPlan]) -> DataFrame:
    """A stream whose offsets are the sources' snapshots; its rows are never read.

    The offsets say which snapshots a batch covers, and the batch reads those itself: as a columnar batch, with the
    checks that Iceberg's row-by-row streaming reader leaves out.
    """
    ticker: DataFrame | None = None
    for read in reads:
        assert read.table is not None
        stream = (
            spark.readStream.format("iceberg")
            .option("streaming-skip-overwrite-snapshots", "true")
            .option("streaming-skip-delete-snapshots", "true")
            .load(read.table.sql)
            .select(F.lit(1).alias("tick"))
        )
        ticker = stream if ticker is None else ticker.union(stream)
    assert ticker is not None
    return ticker


def refuse_partial_history(table: Any, read: ReadPlan) -> None:
    """Iceberg's own stream begins at the oldest retained commit: refused unless that gives the whole table.

    Raises:
        InputError: The oldest snapshots have expired, or a commit was no append.
    """
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        if str(snapshot.operation()) not in ("append", "replace"):
            why = f"its snapshot {snapshot.snapshotId()} is a {snapshot.operation()}"
            break
        parent = snapshot.parentId()
        if parent is None:
            return
        snapshot = table.snapshot(parent)
        why = f"its snapshot {parent} has expired"
    else:
        if table.currentSnapshot() is None:
            return
    raise InputError(
        f"{read.name} cannot be followed from its beginning by a stateful or row-bounded pipeline: {why}.",
        where=read.source.origin,
        fix="read it once, without .incremental(), or split the stateless part into a pipeline of its own and follow "
        "its target.",
    )


# one batch's snapshots


@dataclass(frozen=True)
class Range:
    """The snapshots of one source that one batch reads: the state at `state`, then the commits in `(after, to]`."""

    state: int | None
    after: int | None
    to: int | None

    def as_json(self) -> dict[str, Any]:
        return {"state": self.state, "after": self.after, "to": self.to}


def range_of(
    table: Any, start: Mapping[str, Any], before: Mapping[str, Any] | None, end: Mapping[str, Any] | None
) -> Range:
    """The range between two of Spark's recorded offsets of a source.

    Args:
        table: The source's table object.
        start: Where the pipeline began: `{"snapshot": id or None, "state": whether that state is delivered}`.
        before: The offset that the batch before ended at.
        end: The offset that this batch ends at.
    """
    to = _snapshot(end)
    after = _passed(table, before)
    if to is None:
        return Range(state=None, after=None, to=None)
    if after is not None:
        return Range(state=None, after=after, to=to)
    begin = start["snapshot"]
    return Range(state=begin if start["state"] else None, after=begin, to=to)


def _passed(table: Any, offset: Mapping[str, Any] | None) -> int | None:
    """The last snapshot that an offset has behind it."""
    snapshot = _snapshot(offset)
    if snapshot is None or offset is None or not offset.get(BEFORE):
        return snapshot
    ahead = table.snapshot(snapshot)
    if ahead is None:
        raise expired(snapshot, str(table.name()))
    parent = ahead.parentId()
    return int(parent) if parent is not None else None


def retained(table: Any, offset: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The same place in the history by a snapshot that is still there; None when the history behind it is broken.

    Iceberg's stream loads the snapshot of its last offset, and fails when that has expired, although nothing that it
    has yet to read is lost: the end of a snapshot is also the beginning of the next one.
    """
    if table.snapshot(offset["snapshot_id"]) is not None:
        return offset
    if offset.get(BEFORE):
        return None
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        parent = snapshot.parentId()
        if parent is not None and int(parent) == offset["snapshot_id"]:
            place = {"snapshot_id": int(snapshot.snapshotId()), "position": 0, "scan_all_files": False}
            return {**offset, **place, BEFORE: True}
        snapshot = table.snapshot(parent) if parent is not None else None
    return None


def expired(snapshot: int, source: str) -> LedgerError:
    return LedgerError(
        f"snapshot {snapshot} of {source} has expired before it was read.",
        fix="what it added can no longer be told apart: empty the target and begin anew under a new name, and keep "
        "snapshots longer than the pipeline may stand still.",
    )


def before(spark: SparkSession, read: ReadPlan, snapshot: int) -> dict[str, Any]:
    """Iceberg's streaming offset from which its stream takes a first step over a snapshot."""
    made = source_table(spark, read).snapshot(snapshot)
    # A commit that adds no file is a step only when all of the table's files count.
    adds = made is not None and int(made.summary().get("added-data-files") or 0) > 0
    return {"version": 1, "snapshot_id": snapshot, "position": 0, "scan_all_files": not adds}


def _snapshot(offset: Mapping[str, Any] | None) -> int | None:
    if offset is None or offset["snapshot_id"] == NO_SNAPSHOT:
        return None
    return int(offset["snapshot_id"])


def read_range(spark: SparkSession, read: ReadPlan, span: Range, *, positioned: bool = False) -> DataFrame | None:
    """The rows of a range; None when it adds none.

    Args:
        spark: The session.
        read: The source.
        span: Its snapshots.
        positioned: Whether each row is to say where it stood, in the hidden column `POSITION`.

    Raises:
        LedgerError: A snapshot of the range has expired, or the source was rolled back.
        RunError: A commit of the range rewrote or deleted rows.
    """
    if span.to is None:
        return None
    assert read.table is not None
    table = source_table(spark, read)
    state, after = span.state, span.after
    appended = list(_appends(table, span, read))
    if state is None and after is None:
        # The table was empty when the pipeline began: its first commit is a state, all later ones are a range.
        if not appended:
            return None
        state = after = appended.pop()
    parts = []
    place = _positions(spark, read, span.to) if positioned else None
    if state is not None:
        parts.append(read_state(spark, read, state, place))
    if appended:
        reader = spark.read.option("start-snapshot-id", after).option("end-snapshot-id", span.to)
        rows = reader.table(read.table.sql)
        parts.append(place(rows, rows.columns) if place else rows)
    if len(parts) == 2:
        return parts[0].unionByName(parts[1], allowMissingColumns=True)
    return parts[0] if parts else None


Place: TypeAlias = "Callable[[DataFrame, Sequence[str | Column]], DataFrame]"


def _positions(spark: SparkSession, read: ReadPlan, snapshot: int) -> Place:
    """Adds to rows of a table where they stand: the commit's sequence number, the file, and the place in it."""
    assert read.table is not None
    entries = spark.read.option("versionAsOf", snapshot).table(f"{read.table.sql}.entries").where("status < 2")
    known = F.broadcast(
        entries.select(
            F.col("data_file.file_path").alias("__helios_file"), F.col("sequence_number").alias("__helios_seq")
        )
    )

    def place(rows: DataFrame, columns: Sequence[str | Column]) -> DataFrame:
        picked = [quoted(c) if isinstance(c, str) else c for c in columns]
        placed = rows.select(*picked, F.col("_file").alias("__helios_at"), F.col("_pos").alias("__helios_pos"))
        joined = placed.join(known, F.col("__helios_at") == F.col("__helios_file"), "left")
        position = F.struct("__helios_seq", "__helios_at", "__helios_pos").alias(POSITION)
        names = placed.columns[: len(columns)]
        return joined.select(*map(quoted, names), position)

    return place


def lag(
    spark: SparkSession, read: ReadPlan, start: Mapping[str, Any], stood: Mapping[str, Any] | None
) -> tuple[int, float]:
    """How many snapshots of a table its reader has yet to deliver, and the age of the oldest of them in seconds.

    Raises:
        LedgerError: A snapshot in between has expired, or the source was rolled back.
        RunError: A commit in between rewrote or deleted rows.
    """
    table = source_table(spark, read)
    latest = table.currentSnapshot()
    if latest is None:
        return 0, 0.0
    span = range_of(table, start, stood, {"snapshot_id": latest.snapshotId()})
    waiting = [table.snapshot(one) for one in _appends(table, span, read)]
    state = table.snapshot(span.state) if span.state is not None else None
    if state is not None and int(state.summary().get("total-data-files") or 0) > 0:
        waiting.append(state)
    oldest = min((int(one.timestampMillis()) for one in waiting), default=None)
    return len(waiting), max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0


def _appends(table: Any, span: Range, read: ReadPlan) -> Iterator[int]:
    """The appending commits of a range, newest first."""
    current = span.to
    while current is not None and current != span.after:
        snapshot = table.snapshot(current)
        if snapshot is None:
            raise expired(current, read.name)
        operation = str(snapshot.operation())
        if operation in ("overwrite", "delete"):
            raise RunError(
                f"snapshot {current} of {read.name} is a {operation} commit: an incremental read carries appended rows "
                "only.",
                where=read.source.origin,
                fix="append to the source, or read it once, without .incremental().",
            )
        if operation == "append":
            yield current
        parent = snapshot.parentId()
        current = int(parent) if parent is not None else None
    if current is None and span.after is not None:
        raise LedgerError(
            f"{read.name} was rolled back or replaced: snapshot {span.after}, where the pipeline stood, is no longer "
            "in its history.",
            where=read.source.origin,
            fix="roll the source forward again, or begin anew under a new name.",
        )
