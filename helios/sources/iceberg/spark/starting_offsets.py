"""Resolves the starting offsets of followed Iceberg tables at the first start; the checkpoint then keeps them."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from helios.errors import LedgerError
from helios.plan.nodes import ReadPlan
from helios.sources.iceberg.declare import IcebergSource
from helios.sources.iceberg.history import resolve_snapshots
from helios.sources.iceberg.offsets import IcebergOffset
from helios.sources.iceberg.spark.snapshot import source_table
from helios.spark.checkpoint.files import StartEntry
from helios.spark.iceberg import tables


def declared(source: IcebergSource) -> str:
    """The declared start as text, which also says if row-level changes are followed."""
    start = source.start if source.start is not None else "current"
    text = str(source.at) if source.at is not None else f"start={start!r}"
    return f"{text}, by its changes" if source.changed is not None else text


def refuse_replaced(read: ReadPlan, entry: StartEntry) -> None:
    """Raises `LedgerError` if the table is not the table with which the pipeline started."""
    if entry["uuid"] != read.uuid:
        raise LedgerError(
            f"{read.name} was replaced by another table since the pipeline's first start.",
            where=read.source.origin,
            fix="restore the table, refill the target with `helios run --full-refresh`, or give the pipeline a new "
            "name and a new target.",
        )


def begin(spark: SparkSession, read: ReadPlan) -> tuple[ReadPlan, IcebergOffset]:
    """Resolves the branch and the starting offset of a table.

    Raises:
        InputError: The declared start does not exist.
    """
    source = read.source
    assert isinstance(source, IcebergSource)
    assert read.table is not None
    if source.at is not None or isinstance(source.start, int):
        resolved = resolve_snapshots(source, read.table.catalog.load(read.table.name_in_catalog))
        read = replace(read, branch=resolved.branch)
        if source.at is not None:
            return read, IcebergOffset(snapshot=resolved.state, files=0, state=True)
        return read, IcebergOffset(snapshot=int(str(source.start)))
    table = source_table(spark, read)
    newest = tables.head(table, read.branch)
    if newest is None:
        return read, IcebergOffset(sequence=int(table.operations().current().lastSequenceNumber()))
    if source.start == "latest":
        return read, IcebergOffset(snapshot=int(newest.snapshotId()))
    oldest = newest
    while source.start == "earliest" and (id := oldest.parentId()) is not None:
        parent = table.snapshot(id)
        if parent is None:
            break
        oldest = parent
    return read, IcebergOffset(snapshot=int(oldest.snapshotId()), files=0, state=True)
