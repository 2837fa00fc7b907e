"""The quarantine: rows that failed an expectation, a key or a route, with payload, reason, position and batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.config import TableName
from helios.errors import CheckpointError
from helios.plan.plan import Plan
from helios.spark import write as writing
from helios.spark.checkpoint import Checkpoint
from helios.spark.ledger import Ledger, Record, Terms, reads

NAMES = ("pipeline", "batch", "step", "reason", "position", "payload", "at")
COLUMNS = "pipeline string, batch bigint, step string, reason string, position string, payload string, at timestamp"
"""Of a quarantine table: `payload` is the row as JSON, `position` what its batch read, `step` the expectation."""


class Quarantine:
    """The quarantine table of a pipeline, written exactly once per batch as any target is.

    Args:
        plan: The pipeline.
        name: The table.
        spark: The session.
        checkpoint: The pipeline's checkpoint.
        verify: Refuses to go on without the pipeline's lease.
    """

    def __init__(
        self, plan: Plan, name: TableName, spark: SparkSession, checkpoint: Checkpoint, verify: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._name = name
        self._spark = spark
        self._checkpoint = checkpoint
        self._verify = verify
        self._ledger: Ledger | None = None

    @classmethod
    def of(
        cls, plan: Plan, spark: SparkSession, checkpoint: Checkpoint, verify: Callable[[], None]
    ) -> Quarantine | None:
        """The pipeline's quarantine; None when it declares none."""
        return cls(plan, plan.write.quarantine, spark, checkpoint, verify) if plan.write.quarantine else None

    def write(self, rejected: Sequence[DataFrame], number: int, position: Mapping[str, Any]) -> int:
        """Writes the rows that a batch sets aside, once; returns how many were written now."""
        if not rejected:
            return 0
        ledger = self._open()
        if not self._plan.streaming:
            record = ledger.load()
            same = record is not None and reads(record.position) == reads(position)
            number = record.batch + (0 if same else 1) if record is not None else 0
        if ledger.find(number, position, planned=True) is not None:
            return 0
        rows = reduce(DataFrame.unionByName, rejected).withColumns(
            {
                "pipeline": F.lit(self._plan.pipeline),
                "batch": F.lit(number).cast("bigint"),
                "position": F.lit(json.dumps(position)),
                "at": F.current_timestamp(),
            }
        )
        rows = rows.select(*NAMES).persist()
        try:
            if rows.isEmpty():
                return 0
            terms = Terms(before=self._verify, retry=self._plan.write.sink.retrying)
            commit = ledger.commit(rows.sparkSession, lambda pending: pending.append(rows), number, position, terms)
        finally:
            rows.unpersist()
        return commit.rows if commit is not None and not commit.again else 0

    def _open(self) -> Ledger:
        if self._ledger is None:
            identity = self._checkpoint.identity()
            assert identity is not None
            claim = Record(checkpoint=identity.id, steps=self._plan.fingerprint)
            table = writing.load_table(self._spark, self._name)
            if table is None:
                key = Ledger(None, self._plan.pipeline, identity.id, "").key
                schema = self._spark.createDataFrame([], COLUMNS).schema
                table = writing.create_table(
                    self._spark, self._name, schema, {"format-version": "2", key: claim.as_json()}
                )
            missing = {"payload", "reason", "position", "batch"} - set(writing.target_schema(self._spark, table).names)
            if missing:
                raise CheckpointError(
                    f"{self._name.text} is no quarantine table: it lacks {', '.join(sorted(missing))}.",
                    where=self._plan.declared.sink.origin,
                    fix="give .quarantine() a table of its own; it is created.",
                )
            ledger = Ledger(table, self._plan.pipeline, identity.id, self._plan.fingerprint)
            record = ledger.load()
            if record is None or record.checkpoint != identity.id:
                ledger.claim(claim)
            self._ledger = ledger
        return self._ledger
