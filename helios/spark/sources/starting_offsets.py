"""Where a pipeline first begins to follow its tables: settled at the first start, and kept in the checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from helios.errors import CheckpointError, LedgerError
from helios.model.source import IcebergSource
from helios.plan.history import settle
from helios.plan.nodes import ReadPlan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.sources.offsets import Place, head
from helios.spark.sources.snapshot import source_table


def declared(source: IcebergSource) -> str:
    """What the user said about the beginning, and about what is followed."""
    start = f"start={source.start!r}" if source.start is not None else "start='current'"
    followed = ", by its changes" if source.changed is not None else ""
    return (str(source.at) if source.at is not None else start) + followed


def beginnings(spark: SparkSession, checkpoint: Checkpoint, reads: Sequence[ReadPlan]) -> list[tuple[ReadPlan, Place]]:
    """The followed tables on their branches, and where each is first read from; written down when nothing is yet.

    Raises:
        CheckpointError: Another beginning was declared when the pipeline first began.
        LedgerError: A table was replaced by another one.
        InputError: The beginning is not there.
    """
    known = checkpoint.start()
    reads = [replace(read, uuid=str(source_table(spark, read).uuid())) for read in reads]
    if known is None:
        begun = [_begin(spark, read) for read in reads]
        checkpoint.write_start(
            [
                {"declared": _declared(read), "branch": read.branch, "uuid": read.uuid, "place": place.as_json()}
                for read, place in begun
            ]
        )
        return begun
    for entry, read in zip(known, reads, strict=True):
        said = entry["declared"]
        if said != _declared(read):
            raise CheckpointError(
                f"{read.name} has been followed from {said}; the pipeline now says {_declared(read)}, which counts "
                "only when a pipeline first begins.",
                where=read.source.origin,
                fix="put it back, begin anew with `helios run --full-refresh`, or give the pipeline a new name and a "
                "new target.",
            )
        if entry["uuid"] != read.uuid:
            raise LedgerError(
                f"{read.name} was replaced by another table since the pipeline first began.",
                where=read.source.origin,
                fix="restore the table, fill the target anew with `helios run --full-refresh`, or give the pipeline a "
                "new name and a new target.",
            )
    return [
        (replace(read, branch=entry["branch"]), Place.parse(entry["place"]))
        for entry, read in zip(known, reads, strict=True)
    ]


def _declared(read: ReadPlan) -> str:
    assert isinstance(read.source, IcebergSource)
    return declared(read.source)


def _begin(spark: SparkSession, read: ReadPlan) -> tuple[ReadPlan, Place]:
    source = read.source
    assert isinstance(source, IcebergSource)
    assert read.table is not None
    if source.at is not None or isinstance(source.start, int):
        found = settle(source, read.table.catalog.load(read.table.within))
        read = replace(read, branch=found.branch)
        if source.at is not None:
            return read, Place(snapshot=found.state, files=0, state=True)
        return read, Place(snapshot=int(str(source.start)))
    table = source_table(spark, read)
    newest = head(table, read.branch)
    if newest is None:
        return read, Place()
    if source.start == "latest":
        return read, Place(snapshot=int(newest.snapshotId()))
    oldest = newest
    while source.start == "earliest" and oldest.parentId() is not None:
        parent = table.snapshot(oldest.parentId())
        if parent is None:
            break
        oldest = parent
    return read, Place(snapshot=int(oldest.snapshotId()), files=0, state=True)
