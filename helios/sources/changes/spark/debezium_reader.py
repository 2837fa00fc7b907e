"""Reads Debezium's changes: finds the columns and keys of the records, and the end of each batch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from typing_extensions import override

from helios.errors import CheckpointError, HeliosError, NotFound
from helios.model.mirror import MirrorSink
from helios.plan.checks.carried_order import former_names
from helios.sources.changes.debezium import CdcSource
from helios.sources.changes.slot_check import check_slot
from helios.sources.changes.spark import rows as debezium_rows
from helios.sources.changes.spark.tables import RECORDS
from helios.sources.changes.spark.topic import TopicChangesReader
from helios.sources.changes.spark.transactions import QUIET_SECONDS, end_of_transactions
from helios.sources.common.spark.context import SourceContext
from helios.sources.kafka.topics import Log, Range, TopicOffsets, TopicsPosition
from helios.table.positions import Span

SAMPLES = (200, 20_000, None)
"""How many of the newest records of each partition are read to find the columns and keys.

If these records have no columns and keys, the next number is tried; None reads all records.
"""


class DebeziumReader(TopicChangesReader):
    """Reads the changes of a table. For a mirror it returns the records, which the sink separates by table."""

    def __init__(self, context: SourceContext, index: int) -> None:
        super().__init__(context, index)
        self._known: tuple[StructType, tuple[str, ...]] | None = None
        self._earlier_logs: dict[str, Log] = {}

    @property
    @override
    def _changes_source(self) -> CdcSource:
        assert isinstance(self.read_plan.source, CdcSource)
        return self.read_plan.source

    @property
    def _mirrored(self) -> bool:
        return self.context.plan.write.sink.mirrors

    @property
    def _atomic(self) -> bool:
        """True if all tables of a mirror must be at one position of the database's log."""
        sink = self.context.plan.write.sink
        return isinstance(sink, MirrorSink) and sink.atomic

    # positions

    @override
    def freeze(self) -> None:
        super().freeze()
        self._note_unread_slot()
        if self._atomic and self._frozen is not None:
            self._earlier_logs = dict(self._frozen)
            time.sleep(QUIET_SECONDS)
            self._frozen = self._cluster.logs(self._earlier_logs)

    def _note_unread_slot(self) -> None:
        """Notes a problem of the replication slot: if nobody reads the slot, the database seems to have no changes."""
        slot = self._changes_source.replication_slot
        if slot is None:
            return
        try:
            check_slot(slot, None)
        except HeliosError as problem:
            self.context.observer.noted(f"the topics may lack changes: {problem}")

    @override
    def _end(self, at: TopicsPosition, logs: Mapping[str, Log], max_rows: int | None) -> TopicsPosition:
        if not self._atomic or not self._unread(at, logs):
            return super()._end(at, logs, max_rows)
        earlier_logs = self._earlier_logs
        if self._frozen is None:
            earlier_logs = dict(logs)
            time.sleep(QUIET_SECONDS)
            logs = self._logs(at)

        def read(end: TopicsPosition, wanted: Sequence[Range]) -> DataFrame:
            return self._records_of(self.context.spark, self.span(at.as_json(), end.as_json()), wanted)

        return end_of_transactions(at, earlier_logs, logs, read, max_rows=max_rows, skips_expired=self._skips_expired)

    # columns and keys

    @override
    def schema(self) -> StructType:
        if self._mirrored:
            return RECORDS
        declared = debezium_rows.declared_columns(self._changes_source)
        if declared is not None:
            return declared
        columns, _ = self._columns_and_keys()
        return columns

    def keys(self) -> tuple[str, ...]:
        """The key columns: the declared ones, or else those of the upsert, or else those of the records.

        Raises:
            NotFound: No record has a key yet.
        """
        plan = self.context.plan
        declared = self._changes_source.key or former_names(plan.write.mode.keys, plan.stream.steps)
        if declared:
            return declared
        _, keys = self._columns_and_keys()
        return keys

    def _columns_and_keys(self) -> tuple[StructType, tuple[str, ...]]:
        """The columns and keys of the newest records, or those that an earlier run has stored."""
        if self._known is None:
            self._known = self._from_newest_records() or self._from_checkpoint()
        if self._known is None:
            raise NotFound(
                f"{self._changes_source.label()}: there is no record yet to take the columns and the key from.",
                where=self._changes_source.origin,
                fix="start when Debezium has written its first record, or declare the columns and the key: "
                'Cdc.debezium(..., key="id", schema="id bigint, ...").',
            )
        return self._known

    def _from_newest_records(self) -> tuple[StructType, tuple[str, ...]] | None:
        """Finds the columns and keys in the newest records, and stores them; None if no record has any."""
        logs = self._cluster.logs(self._cluster.topics())
        declared = debezium_rows.declared_columns(self._changes_source)
        for sample in SAMPLES:
            offsets = {
                name: tuple(
                    max(earliest, latest - sample) if sample is not None else earliest
                    for earliest, latest in zip(log.earliest, log.latest, strict=True)
                )
                for name, log in logs.items()
            }
            start = TopicsPosition({name: TopicOffsets(log.id, offsets[name]) for name, log in logs.items()})
            end = TopicsPosition({name: TopicOffsets(log.id, log.latest) for name, log in logs.items()})
            records = self._records(self.context.spark, self.span(start.as_json(), end.as_json()))
            if records is None:
                return None
            versions = debezium_rows.table_versions(debezium_rows.events(records))
            columns = declared or debezium_rows.columns(versions.versions, self._changes_source)
            if versions.key_columns and columns.fields:
                self._store(columns, versions.key_columns)
                return columns, versions.key_columns
        return None

    @property
    def _file(self) -> str:
        return f"helios/debezium/{self.index}.json"

    def _store(self, columns: StructType, keys: tuple[str, ...]) -> None:
        files = self.context.checkpoint.files if self.context.checkpoint is not None else None
        text = json.dumps({"columns": columns.jsonValue(), "keys": keys})
        if files is not None and files.read(self._file) != text:
            files.write(self._file, text)

    def _from_checkpoint(self) -> tuple[StructType, tuple[str, ...]] | None:
        """The columns and keys that an earlier run has stored in the checkpoint; None if there are none."""
        checkpoint = self.context.checkpoint
        text = checkpoint.files.read(self._file) if checkpoint is not None else None
        if text is None:
            return None
        assert checkpoint is not None
        try:
            stored = json.loads(text)
            return StructType.fromJson(stored["columns"]), tuple(stored["keys"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.location}/{self._file}, the columns of a source, cannot be read ({error}).",
                where=self._changes_source.origin,
                fix="delete the file, and start when Debezium has written a record; or declare the columns and keys: "
                "Cdc.debezium(..., key=, schema=).",
            ) from error

    # rows

    @override
    def _rows(self, records: DataFrame, end: TopicsPosition, *, positioned: bool) -> DataFrame:
        if self._mirrored:
            return records
        changes = debezium_rows.events(records)
        versions = debezium_rows.table_versions(changes)
        known = self.schema() if not versions.versions else StructType([])
        rejected = self.context.rejected_input
        rows = debezium_rows.rows(
            changes, self._changes_source, versions, keys=self.keys(), known=known, rejected=rejected
        )
        return rows if self._ordered else debezium_rows.visible(rows)

    @override
    def empty(self, spark: SparkSession) -> DataFrame:
        empty = super().empty(spark)
        return debezium_rows.with_null_order(empty) if self._ordered and not self._mirrored else empty

    def _records(self, spark: SparkSession, span: Span) -> DataFrame | None:
        """The records of a span; None if the span is empty."""
        wanted = self._ranges(span)
        return self._records_of(spark, span, wanted) if wanted else None
