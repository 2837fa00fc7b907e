"""The upsert states of other pipelines that write the same table.

Each pipeline keeps its upsert state in a folder that its record names (see helios.spark.checkpoint.upsert_state). If a
batch adds keys to the state, the pipeline stamps the batch's snapshot. When a batch of another pipeline begins, it
reads the states as of the batches that the table then has. If a later snapshot adds a key of that batch to a state, the
batch conflicts with that snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from helios.catalog.names import TableName
from helios.errors import RunError
from helios.plan.other_pipelines import other_records
from helios.plan.other_upserts import TOMBSTONES, can_share_remembered_keys, upsert_terms
from helios.spark.checkpoint.upsert_state import AT, DELETED, ORDER, UpsertState, locate_state, newest
from helios.spark.jvm.classes import classes
from helios.spark.jvm.sql import quoted
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.spark.sinks.stored_records import known_records
from helios.table.ledger import Record
from helios.table.refs import REPLAY

if TYPE_CHECKING:
    from helios.spark.sinks.context import SinkContext

KEYS_STAMP = "helios.keys"
"""The snapshot summary entry of a batch that adds keys to the upsert state: the folder with these keys."""


class SharedKeys:
    """The upsert states of other pipelines for one branch of a table; the branch None is main."""

    def __init__(self, context: SinkContext, name: TableName, branch: str | None) -> None:
        self._context = context
        self._name = name
        self._branch = branch
        self._terms = upsert_terms(context.plan) if context.keys_folder is not None else None

    def load(self, table: JavaTable, keys: tuple[str, ...], terms: Mapping[str, object] | None) -> DataFrame | None:
        """The newest row of each key in all these states, as of the batches that a table has; None if all are empty.

        Args:
            keys: The columns that identify a row: the key columns, and `ORDER` to keep every order of a key.
            terms: The key columns, the order and its type; None if orders are not compared.

        Raises:
            RunError: Another pipeline has orders of another type.
        """
        columns = [*dict.fromkeys((*keys, ORDER, DELETED)), AT]
        parts = []
        for name, record in self._others(table):
            state = self._state(name, record)
            rows = state.read(self._context.spark, record.landed, keys)
            if rows is not None and terms is not None:
                self._verify(name, state, terms)
            if rows is not None:
                parts.append(rows.select(*(F.col(quoted(column)).alias(column) for column in columns)))
        return newest(reduce(DataFrame.unionByName, parts), keys) if parts else None

    def has_keys(self, table: JavaTable) -> bool:
        """True if the state of another pipeline has any key, as of the batches that a table has."""
        return any(self._state(name, record).has_state(record.landed) for name, record in self._others(table))

    def conflict(
        self,
        table: JavaTable,
        base: int | None,
        snapshot: JavaSnapshot,
        narrow: Callable[[DataFrame], DataFrame] | None,
    ) -> str:
        """Why a later snapshot conflicts with a batch although Iceberg detects no conflict; empty if there is none.

        Args:
            base: The snapshot on which the batch is based. The keys that its ancestors added are known.
            narrow: Keeps the rows whose key is in the batch; None if any key is a conflict.
        """
        summary = snapshot.summary()
        folder, pipeline = summary.get(KEYS_STAMP), str(summary.get("helios.pipeline")).removesuffix(REPLAY)
        if folder is None or self._terms is None:
            return ""
        record = known_records(table).get(pipeline)
        if record is not None and not can_share_remembered_keys(self._terms, record.upserts):
            return ""
        if base is not None and classes().org.apache.iceberg.util.SnapshotUtil.isAncestorOf(
            table, base, snapshot.snapshotId()
        ):
            return ""
        try:
            if narrow is not None and narrow(self._context.spark.read.parquet(folder)).isEmpty():
                return ""
        except (Py4JError, PySparkException):  # unreadable keys may be keys of the batch
            pass
        return f"after this batch was looked up in the table, {pipeline} deleted keys of the batch or wrote newer rows"

    def _others(self, table: JavaTable) -> Iterator[tuple[str, Record]]:
        """The names and records of the other pipelines whose state must be compared."""
        if self._terms is None:
            return
        for name, record in other_records(known_records(table), self._context.plan).items():
            other_state = record.keys not in (
                None,
                self._context.keys_folder,
            )  # a pipeline and its replays share one state
            if other_state and record.branch == self._branch and can_share_remembered_keys(self._terms, record.upserts):
                yield name, record

    def _verify(self, name: str, state: UpsertState, terms: Mapping[str, object]) -> None:
        known = state.terms or terms
        if known["type"] != terms["type"]:
            plan = self._context.plan
            raise RunError(
                f"{name} remembers keys of {self._name.text} by {known['order']} of type {known['type']}, and "
                f"{plan.pipeline} by one of type {terms['type']}: the two cannot be compared; nothing was written.",
                where=plan.declared.sink.origin,
                fix="cast the order to one type in both pipelines, in a step before the sink.",
            )

    def _state(self, name: str, record: Record) -> UpsertState:
        context = self._context
        files, folder = locate_state(context.spark, context.checkpoint, self._name.text, record.keys)
        has_replay = partial(context.has_replay, self._name, (name, *record.formerly))
        remember_seconds = (record.upserts or {}).get(TOMBSTONES, context.remember_seconds)
        return UpsertState(files, folder, remember_seconds, has_replay)
