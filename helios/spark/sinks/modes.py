"""The write modes: how each brings a batch into the transaction on its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from helios.errors import Origin, RunError
from helios.model.modes import (
    VALID_FROM,
    VALID_TO,
    Append,
    Delete,
    Groups,
    MergeSql,
    Mode,
    Overwrite,
    OverwritePartitions,
    Upsert,
)
from helios.model.source import POSITION
from helios.spark.checkpoint.upsert_state import DELETED, ORDER, UpsertState
from helios.spark.iceberg.transaction import MergeScope, Transaction
from helios.spark.jvm.sql import quoted
from helios.spark.sinks import merge

Write: TypeAlias = Callable[[Transaction], None]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch on its way into one table.

    Attributes:
        df: Its rows, with every column that the steps gave.
        number: Its number.
        mode: How it is written.
        table: The table's name, for messages.
        where: The line of the sink.
        left_out: Columns that are not stored.
        memory: What is remembered of the keys.
        fit: Brings the table to columns that are to be stored, and those to the table; the helper columns stay.
    """

    df: DataFrame
    number: int
    mode: Any
    table: str
    where: Origin | None
    left_out: tuple[str, ...]
    memory: UpsertState
    fit: Callable[[DataFrame, tuple[str, ...]], DataFrame]

    def stored(self) -> DataFrame:
        """The rows as the table takes them."""
        return self.fit(self.df.drop(POSITION), ())


def stored_schema(df: DataFrame, mode: Mode, left_out: tuple[str, ...]) -> StructType:
    """The columns of a new table for a batch's rows."""
    hidden = {name.lower() for name in (*left_out, POSITION)}
    fields = [field for field in df.schema.fields if field.name.lower() not in hidden]
    if isinstance(mode, Upsert) and mode.history:
        kind = df.select(F.expr(str(mode.order_by))).schema.fields[0].dataType
        fields += [StructField(name, kind) for name in (VALID_FROM, VALID_TO)]
    return StructType(fields)


@contextmanager
def writer(batch: Batch) -> Iterator[Write]:
    """Looks a batch over, and gives what writes it into a transaction; the rows may be kept in memory meanwhile.

    Raises:
        RunError: The batch cannot be written in its mode.
    """
    with WRITERS[type(batch.mode)](batch) as write:
        yield write


@contextmanager
def _append(batch: Batch) -> Iterator[Write]:
    rows = batch.stored()
    yield lambda pending: pending.append(rows)


def _unseen(pending: Transaction) -> dict[str, str]:
    """Write options under which Iceberg refuses an overwrite of commits that came after the batch was looked up."""
    seen = {"validate-from-snapshot-id": str(pending.base)} if pending.base is not None else {}
    return {"isolation-level": "serializable", **seen}


@contextmanager
def _overwrite(batch: Batch) -> Iterator[Write]:
    condition = batch.mode.filter
    if condition is not None:
        # Before the table gets columns for the rows.
        try:
            refuse_outside(batch.df, condition, batch.table, batch.where)
        except AnalysisException:  # it names a column that only the table has
            refuse_outside(batch.stored(), condition, batch.table, batch.where)
    rows = batch.stored()

    def write(pending: Transaction) -> None:
        try:
            pending.overwrite(rows, condition or "true", _unseen(pending))
        except Py4JJavaError as error:
            if "some, but not all, rows match" not in str(error.java_exception.getMessage()):
                raise
            # Files that the filter cuts through: their rows are deleted, then the batch is added, in one transaction.
            pending.begin()
            pending.sql(f"DELETE FROM target WHERE {condition}")
            pending.append(rows)

    yield write


def refuse_outside(df: DataFrame, condition: str, table: str, where: Origin | None) -> None:
    """Refuses rows that a filter does not name.

    Raises:
        RunError: There is one.
        AnalysisException: The filter names a column that the rows lack.
    """
    outside = df.where(~F.coalesce(F.expr(condition), F.lit(False))).limit(1).collect()
    if outside:
        raise RunError(
            f"overwrite({condition!r}): the batch for {table} has a row that the filter does not name: "
            f"{merge.shown(outside[0].asDict())}; nothing was written.",
            where=where,
            fix=f"leave such rows out with where({condition!r}).",
        )


@contextmanager
def _overwrite_partitions(batch: Batch) -> Iterator[Write]:
    rows = batch.stored()
    yield lambda pending: pending.overwrite_partitions(rows, _unseen(pending))


@contextmanager
def _delete(batch: Batch) -> Iterator[Write]:
    keys = batch.mode.keys
    rows = batch.df.select(*map(quoted, keys)).distinct()
    on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    text = f"MERGE INTO target t USING batch s ON {on} WHEN MATCHED THEN DELETE"
    with _kept(rows):
        reach = merge.look_over(rows, batch.mode, batch.table, batch.where)
        yield lambda pending: pending.sql(text, rows, reach)


@contextmanager
def _merge_sql(batch: Batch) -> Iterator[Write]:
    with _kept(batch.df.drop(POSITION)) as rows:
        yield lambda pending: pending.sql(batch.mode.query, rows)


@contextmanager
def _upsert(batch: Batch) -> Iterator[Write]:
    mode: Upsert = batch.mode
    keys = mode.keys
    rows = merge.marked(batch.df, mode)
    if mode.order_by:
        rows = merge.newest(rows, keys, *([ORDER] if mode.history else []))
    rows = rows.drop(POSITION)
    if mode.history:
        rows = rows.withColumns({VALID_FROM: F.col(ORDER), VALID_TO: F.lit(None).cast(rows.schema[ORDER].dataType)})
    with _kept(rows) as rows:
        reach = merge.look_over(rows, mode, batch.table, batch.where)
        given = [c for c in rows.columns if c not in merge.HELPERS and c not in batch.left_out]
        fitted = batch.fit(rows.drop(*batch.left_out), merge.HELPERS)
        write = _write_versions if mode.history else _write_newest
        yield write(batch, fitted, {name.lower() for name in given}, reach)


def _write_newest(batch: Batch, rows: DataFrame, given: set[str], reach: MergeScope) -> Write:
    mode: Upsert = batch.mode
    keys = mode.keys
    columns = [c for c in rows.columns if c not in merge.HELPERS]
    # An order that the target stores is compared there; else every key's order is remembered.
    stored = next((c for c in columns if mode.order_by and c.lower() == mode.order_by.strip("` ").lower()), None)
    stored = None if stored is not None and stored.lower() not in given else stored
    if mode.order_by and (mode.delete_when or stored is None):
        batch.memory.verify_terms(merge.terms(rows, mode), batch.table, batch.where)
        rows = merge.without_late(rows, batch.memory, batch.number, keys)
        touched = rows if stored is None else rows.where(DELETED)
        batch.memory.save(touched, batch.number, keys)
    newer = f"(t.{quoted(stored)} IS NULL OR s.{ORDER} >= t.{quoted(stored)})" if stored is not None else "TRUE"
    # A column that the stream does not carry keeps its value in a row that is there.
    updated = [c for c in columns if c.lower() in given]
    text = merge.merge_text(keys, updated, columns, newer=newer, deletes=mode.delete_when is not None)
    return lambda pending: pending.sql(text, rows, reach)


def _write_versions(batch: Batch, rows: DataFrame, given: set[str], reach: MergeScope) -> Write:
    mode: Upsert = batch.mode
    columns = [c for c in rows.columns if c not in merge.HELPERS]
    remembered = None
    if mode.delete_when:
        # Every delete, not the newest alone: a late row is ended by the first one behind it.
        each = (*mode.keys, ORDER)
        batch.memory.verify_terms(merge.terms(rows, mode), batch.table, batch.where)
        remembered = batch.memory.load(rows.sparkSession, batch.number, each)
        batch.memory.save(rows.where(DELETED), batch.number, each)
    text = merge.merge_text((*mode.keys, VALID_FROM), columns, columns, newer="TRUE", deletes=True)
    return lambda pending: pending.sql(text, merge.versions(rows, pending.read(), mode.keys, remembered), reach)


@contextmanager
def _groups(batch: Batch) -> Iterator[Write]:
    with _kept(batch.df) as rows:
        fitted = batch.fit(rows, (DELETED,))
        columns = [c for c in fitted.columns if c != DELETED]
        text = merge.merge_text(batch.mode.keys, columns, columns, newer="TRUE", deletes=True, equal="<=>")
        yield lambda pending: pending.sql(text, fitted)


@contextmanager
def _kept(df: DataFrame) -> Iterator[DataFrame]:
    """Rows that are looked at more than once, computed once."""
    kept = df.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


WRITERS: dict[type[Mode], Any] = {
    Append: _append,
    Overwrite: _overwrite,
    OverwritePartitions: _overwrite_partitions,
    Upsert: _upsert,
    Delete: _delete,
    MergeSql: _merge_sql,
    Groups: _groups,
}
"""By mode: a context that looks a batch over and gives what writes it."""
