"""The writer of each write mode: it validates a batch, and writes it into a transaction on the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any, Generic, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from helios.errors import Origin, RunError
from helios.model.columns import LOG_ORDER, POSITION
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
from helios.plan.typing.expression import parse
from helios.spark.checkpoint.upsert_state import DELETED, ORDER, UpsertState
from helios.spark.iceberg.merge_scope import MergeScope
from helios.spark.iceberg.transaction import Transaction
from helios.spark.jvm.sql import quoted
from helios.spark.native.batch import NativeBatch
from helios.spark.native.write import AddFiles, try_write
from helios.spark.sinks import log_order, merge, native_upsert
from helios.spark.sinks.alignment import SchemaAligner
from helios.spark.sinks.protocol import Write
from helios.spark.sinks.shared_keys import SharedKeys
from helios.spark.steps.build import Built

M_co = TypeVar("M_co", bound=Mode, covariant=True)


@dataclass(frozen=True, kw_only=True)
class ModeBatch(Generic[M_co]):
    """A batch for one table, and the mode in which it is written.

    Attributes:
        rows: The rows, with all columns of the steps.
        table: The table's name, for messages.
        where: The line of the sink.
        left_out: The columns of the rows that the table does not store.
        shared: The upsert states of other pipelines.
        aligner: Evolves the table's schema, and aligns the rows with it.
    """

    rows: Built
    number: int
    mode: M_co
    table: str
    where: Origin | None
    left_out: tuple[str, ...]
    upsert_state: UpsertState
    shared: SharedKeys
    aligner: SchemaAligner
    stored_columns: frozenset[tuple[str, DataType]] = frozenset()

    @property
    def df(self) -> DataFrame:
        return self.rows.df

    @property
    def native(self) -> NativeBatch | None:
        """The batch for the columnar engine; None if Spark computes the rows."""
        return self.rows.native

    def aligned(self) -> DataFrame:
        """The rows, aligned with the table's schema."""
        return self.aligner(self.df.drop(POSITION), ())


def stored_schema(df: DataFrame, mode: Mode, left_out: tuple[str, ...]) -> StructType:
    """The schema of a new table for a batch's rows."""
    hidden = {name.lower() for name in (*left_out, POSITION)}
    fields = [field for field in df.schema.fields if field.name.lower() not in hidden]
    if mode.added_columns:
        kind = df.select(F.expr(str(mode.order_by))).schema.fields[0].dataType
        fields += [StructField(name, kind) for name in mode.added_columns]
    return StructType(fields)


@contextmanager
def writer(batch: ModeBatch[Mode]) -> Iterator[Write]:
    """Validates a batch and yields its `Write`; the rows may be persisted meanwhile.

    Raises:
        RunError: The batch cannot be written in its mode.
    """
    with WRITERS[type(batch.mode)](batch) as write:
        yield write


@contextmanager
def _append(batch: ModeBatch[Append]) -> Iterator[Write]:
    native, stored = _native(batch)

    def write(pending: Transaction) -> None:
        if not native(pending, pending.append_files):
            pending.append(stored())

    yield write


def _native(batch: ModeBatch[Mode]) -> tuple[Callable[[Transaction, AddFiles], bool], Callable[[], DataFrame]]:
    """The two ways to write a batch: by the columnar engine, and by Spark.

    Returns:
        The columnar engine's writer, which returns False if Spark must write; and a function that returns the rows for
        Spark.
    """
    native = batch.native
    if native is None:
        stored = batch.aligned()
        return lambda pending, add: False, lambda: stored
    schema = batch.rows.schema
    columns = batch.aligner.evolved(StructType([field for field in schema.fields if field.name != POSITION]))
    return lambda pending, add: try_write(pending, native, schema, columns, add), cache(batch.aligned)


def _isolation(pending: Transaction) -> dict[str, str]:
    """The write options with which Iceberg rejects an overwrite if other writers have committed since the look-up."""
    seen = {"validate-from-snapshot-id": str(pending.base)} if pending.base is not None else {}
    return {"isolation-level": "serializable", **seen}


@contextmanager
def _overwrite(batch: ModeBatch[Overwrite]) -> Iterator[Write]:
    condition = batch.mode.filter
    if condition is not None:
        # The rows are checked before columns are added to the table.
        try:
            refuse_outside(batch.df, condition, batch.table, batch.where)
        except AnalysisException:  # the filter names a column that only the table has
            refuse_outside(batch.aligned(), condition, batch.table, batch.where)
    rows = batch.aligned()

    def write(pending: Transaction) -> None:
        if condition is not None:
            refuse_unordered_partitions(pending, condition, batch.table, batch.where)
        try:
            pending.overwrite(rows, condition or "true", _isolation(pending))
        except Py4JJavaError as error:
            if "some, but not all, rows match" not in str(error.java_exception.getMessage()):
                raise
            # The filter matches only some rows of a file. So one transaction deletes these rows and appends the batch.
            pending.begin()
            pending.delete(condition or "true")
            pending.append(rows)

    yield write


def refuse_unordered_partitions(pending: Transaction, condition: str, table: str, where: Origin | None) -> None:
    """Rejects a filter over a column whose partitions are not in the order of its values."""
    unordered = pending.unordered_columns()
    if not unordered:
        return
    from sqlglot import exp

    columns = parse(condition, f"overwrite({condition!r})", where).find_all(exp.Column)
    # The first part of a name may be the table's name, as in `target.id`, so each name is also compared without it.
    names = {".".join(part.name for part in column.parts[first:]).lower() for column in columns for first in (0, 1)}
    if unordered & names:
        name = min(unordered & names)
        raise RunError(
            f"overwrite({condition!r}): {table} has values of {name} whose partition has overflowed, and Iceberg would "
            "replace other rows than the filter selects; nothing was written.",
            where=where,
            fix=f"replace the rows by their keys, with .upsert(...), or select them by a column other than {name}.",
        )


def refuse_outside(df: DataFrame, condition: str, table: str, where: Origin | None) -> None:
    """Rejects rows that do not match a filter.

    Raises:
        RunError: There is such a row.
        AnalysisException: The filter names a column that the rows lack.
    """
    outside = df.where(~F.coalesce(F.expr(condition), F.lit(False))).limit(1).collect()
    if outside:
        raise RunError(
            f"overwrite({condition!r}): the batch for {table} has a row that does not match the filter: "
            f"{merge.shown(outside[0].asDict())}; nothing was written.",
            where=where,
            fix=f"drop such rows with where({condition!r}).",
        )


@contextmanager
def _overwrite_partitions(batch: ModeBatch[OverwritePartitions]) -> Iterator[Write]:
    native, stored = _native(batch)

    def write(pending: Transaction) -> None:
        if pending.has_former_partitioning():
            raise RunError(
                f"{batch.table} has files of a former partitioning: overwrite_partitions() replaces only partitions of "
                "the current one, and would leave rows of these files beside the new ones; nothing was written.",
                where=batch.where,
                fix="rewrite these files first, with Spark's CALL system.rewrite_data_files(table => '...', options => "
                "map('rewrite-all', 'true')), or select the rows to replace with .overwrite(\"...\").",
            )
        if not native(pending, pending.replace_partitions):
            pending.overwrite_partitions(stored(), _isolation(pending))

    yield write


@contextmanager
def _delete(batch: ModeBatch[Delete]) -> Iterator[Write]:
    keys = batch.mode.keys
    rows = batch.df.select(*map(quoted, keys)).distinct()
    on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in keys)
    text = f"MERGE INTO target t USING batch s ON {on} WHEN MATCHED THEN DELETE"
    with _persisted(rows):
        scope = merge.validate_keys(rows, batch.mode, batch.table, batch.where)
        yield lambda pending: pending.sql(text, rows, scope)


@contextmanager
def _merge_sql(batch: ModeBatch[MergeSql]) -> Iterator[Write]:
    with _persisted(batch.df.drop(POSITION)) as rows:
        yield lambda pending: pending.sql(batch.mode.query, rows)


@contextmanager
def _upsert(batch: ModeBatch[Upsert]) -> Iterator[Write]:
    native = native_upsert.upsert(batch, batch.native) if batch.native is not None else None
    with ExitStack() as stack:
        by_merge: Write | None = None

        def write(pending: Transaction) -> None:
            nonlocal by_merge
            # After one attempt with Spark's MERGE, later attempts use the MERGE, too.
            if by_merge is None and native is not None and not _has_state(batch, pending) and native(pending):
                return
            if by_merge is None:
                by_merge = stack.enter_context(_spark_merge(batch))
            by_merge(pending)

        if native is None:
            by_merge = stack.enter_context(_spark_merge(batch))
        yield write


def _has_state(batch: ModeBatch[Upsert], pending: Transaction) -> bool:
    """True if this or another pipeline has upsert state, which the columnar engine does not support.

    From this call on, keys that other pipelines add to their states are a conflict.
    """
    _watch_other_states(batch, pending, None)
    has_own = bool(batch.mode.order_by) and batch.upsert_state.began_with_keys
    return has_own or batch.shared.has_keys(pending.table)


def _watch_other_states(
    batch: ModeBatch[Upsert], pending: Transaction, narrow: Callable[[DataFrame], DataFrame] | None
) -> None:
    """Makes the commit conflict with keys that other pipelines add to their upsert states meanwhile.

    `narrow` keeps the rows whose key is in the batch; it is None if any key is a conflict.
    """
    # The closure does not refer to the transaction, because that would be a cycle.
    shared, table, base = batch.shared, pending.table, pending.base
    pending.watch.conflict_reason = lambda snapshot: shared.conflict(table, base, snapshot, narrow)


@contextmanager
def _spark_merge(batch: ModeBatch[Upsert]) -> Iterator[Write]:
    """The write of an upsert as a MERGE by Spark."""
    mode = batch.mode
    keys = mode.keys
    rows = merge.marked(batch.df, mode)
    if mode.order_by == LOG_ORDER:
        rows = log_order.in_log_order(rows, keys)
    if mode.order_by:
        rows = merge.newest(rows, keys, *([ORDER] if mode.history else []))
    rows = rows.drop(POSITION)
    if mode.history:
        rows = rows.withColumns({VALID_FROM: F.col(ORDER), VALID_TO: F.lit(None).cast(rows.schema[ORDER].dataType)})
    with _persisted(rows) as rows:
        scope = merge.validate_keys(rows, mode, batch.table, batch.where)
        stream_columns = {c.lower() for c in rows.columns if c not in merge.HELPERS and c not in batch.left_out}
        aligned = batch.aligner(rows.drop(*batch.left_out), merge.HELPERS)
        write = _write_versions if mode.history else _write_newest
        yield write(batch, aligned, stream_columns, scope)


def _write_newest(batch: ModeBatch[Upsert], rows: DataFrame, stream_columns: set[str], scope: MergeScope) -> Write:
    """The write of each key's newest row; `stream_columns` are in lower case."""
    mode = batch.mode
    keys = mode.keys
    columns = [c for c in rows.columns if c not in merge.HELPERS]
    # If the order is a column of the target, the MERGE compares it there; otherwise the upsert state has it by key.
    order = (mode.order_by or "").strip("` ").lower()
    stored = next((c for c in columns if c.lower() == order and order in stream_columns), None)
    terms = merge.ordering_terms(rows, mode)
    if mode.order_by and (mode.delete_when or stored is None or batch.upsert_state.began_with_keys):
        batch.upsert_state.verify_terms(terms, batch.table, batch.where)
        known = batch.upsert_state.load(rows.sparkSession, batch.number, keys)
        rows = merge.drop_late(rows, known, keys, changes=mode.order_by == LOG_ORDER)
        remembered = rows if stored is None else rows.where(DELETED)
        batch.upsert_state.save(remembered, batch.number, keys)
    newer = f"(t.{quoted(stored)} IS NULL OR s.{ORDER} >= t.{quoted(stored)})" if stored is not None else "TRUE"
    # A column that the stream lacks keeps its value in an existing row.
    updated = [c for c in columns if c.lower() in stream_columns]
    text = merge.merge_text(keys, updated, columns, newer=newer, deletes=mode.delete_when is not None)

    def write(pending: Transaction) -> None:
        _watch_other_states(batch, pending, scope.narrow)
        known = batch.shared.load(pending.table, keys, terms)
        pending.sql(text, merge.drop_late(rows, known, keys), scope)

    return write


def _write_versions(batch: ModeBatch[Upsert], rows: DataFrame, stream_columns: set[str], scope: MergeScope) -> Write:
    """The write of all versions of each key."""
    mode = batch.mode
    columns = [c for c in rows.columns if c not in merge.HELPERS]
    remembered = None
    # The state has all deletes of a key, not only the newest: the first delete after a late row ends its version.
    key_and_order, terms = (*mode.keys, ORDER), merge.ordering_terms(rows, mode)
    if mode.delete_when or batch.upsert_state.began_with_keys:
        batch.upsert_state.verify_terms(terms, batch.table, batch.where)
        remembered = batch.upsert_state.load(rows.sparkSession, batch.number, key_and_order)
        batch.upsert_state.save(rows.where(DELETED), batch.number, key_and_order)
    text = merge.merge_text((*mode.keys, VALID_FROM), columns, columns, newer="TRUE", deletes=True)

    def write(pending: Transaction) -> None:
        _watch_other_states(batch, pending, scope.narrow)
        shared = batch.shared.load(pending.table, key_and_order, terms)
        known = [state for state in (remembered, shared) if state is not None]
        deletes = reduce(DataFrame.unionByName, known) if known else None
        pending.sql(text, merge.versions(rows, pending.read(), mode.keys, deletes), scope)

    return write


@contextmanager
def _groups(batch: ModeBatch[Groups]) -> Iterator[Write]:
    with _persisted(batch.df) as rows:
        aligned = batch.aligner(rows, (DELETED,))
        columns = [c for c in aligned.columns if c != DELETED]
        text = merge.merge_text(batch.mode.keys, columns, columns, newer="TRUE", deletes=True, equal="<=>")
        yield lambda pending: pending.sql(text, aligned)


@contextmanager
def _persisted(df: DataFrame) -> Iterator[DataFrame]:
    """Persists rows that are read more than once."""
    persisted = df.persist()
    try:
        yield persisted
    finally:
        persisted.unpersist()


WRITERS: Mapping[type[Mode], Callable[[ModeBatch[Any]], AbstractContextManager[Write]]] = {
    Append: _append,
    Overwrite: _overwrite,
    OverwritePartitions: _overwrite_partitions,
    Upsert: _upsert,
    Delete: _delete,
    MergeSql: _merge_sql,
    Groups: _groups,
}
"""The context manager that validates a batch and yields its `Write`, by mode."""
