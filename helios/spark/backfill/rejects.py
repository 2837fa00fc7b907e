"""Checks the rejected rows of a backfill: the current script must reject exactly the rows that are in the quarantine.

If the script accepts a row that is in the quarantine, the backfill adds it, and a replay would add it a second time. If
the script rejects a row that is not in the quarantine, the row would be lost. So the script must also accept the rows
that were replayed, since these are no longer in the quarantine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from helios.errors import InputError
from helios.model.values import counted
from helios.plan.nodes import Plan
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import tables
from helios.spark.replay.checks import ReplayChecks
from helios.spark.replay.replay import SOURCE_SUFFIXES
from helios.spark.sinks.quarantined import batch_condition
from helios.table.commits import Commit
from helios.table.ledger import Record

PAYLOAD = "payload"
"""The column by which rejected rows are compared: the row as JSON. The texts of expectations may have changed."""


class Rejects:
    """Compares the rows that the script rejects with the pipeline's quarantine, which a backfill only reads."""

    def __init__(self, plan: Plan, spark: SparkSession, checkpoint: Checkpoint) -> None:
        self._plan, self._spark, self._checkpoint = plan, spark, checkpoint

    def refuse_difference(self, rejected: Sequence[DataFrame], commit: Commit | None = None) -> None:
        """Raises an `InputError` if the rows that the script rejects differ from those in the quarantine.

        Args:
            rejected: The rows that the current script rejects: of the batch, or of all that the pipeline has read.
            commit: The commit of the batch whose rejected rows are compared; None for all batches.
        """
        if self._plan.write.quarantine is None:
            return
        not_rejected = self._quarantined(commit).exceptAll(self._payloads(rejected)).count()
        if not_rejected:
            raise self._error(
                f"the current script does not reject {counted(not_rejected, 'row')} of {self._name}, or rejects them "
                "with other values, and a replay would add them a second time",
                "replay them first, with `helios quarantine replay`, or delete them with `helios quarantine clear`; if "
                "they still fail, leave the steps before the expectation as they were.",
            )
        self.refuse_new(rejected)

    def refuse_replayed(self, commit: Commit, replays: Sequence[Commit]) -> None:
        """Raises if rejected rows of a batch were replayed: the commit of a replay has added them already.

        Raises:
            InputError: Rows were replayed, or the quarantine's history no longer shows whether they were.
        """
        fix = "repair its rows by a filter: --where."
        batch = f"batch {commit.batch} (snapshot {commit.snapshot})"
        for replay, entry in ((each, entry) for each in replays for entry in each.reads):
            name = self._plan.write.quarantine
            replayed_at = entry.position.snapshot if entry.position is not None else None  # of the quarantine
            table = tables.load_table(self._spark, name) if name is not None and entry.source == name.text else None
            if replayed_at is None or table is None or table.snapshot(replayed_at) is None:
                raise self._error(f"snapshot {replay.snapshot} replayed rejected rows, maybe of {batch}", fix)
            count = self._quarantined(commit, replayed_at).exceptAll(self._quarantined(commit)).count()
            if count:
                rows = f"{counted(count, 'rejected row')} of {batch}"
                raise self._error(f"snapshot {replay.snapshot} replayed {rows}, which would be added twice", fix)

    def refuse_new(self, rejected: Sequence[DataFrame]) -> None:
        """Raises an `InputError` if the script rejects rows that are not in the quarantine."""
        new = self._payloads(rejected).exceptAll(self._quarantined()).count() if rejected else 0
        if new:
            raise self._error(
                f"the current script rejects {counted(new, 'row')} that are not in {self._name} and would be lost",
                "use where() to drop rows that the table should no longer have, and keep expectations as they were.",
            )

    @property
    def _name(self) -> str:
        return self._plan.write.quarantine.text if self._plan.write.quarantine is not None else "the quarantine"

    def _error(self, why: str, fix: str) -> InputError:
        return InputError(f"{self._plan.pipeline} cannot be backfilled: {why}.", where=self._plan.origin, fix=fix)

    def _payloads(self, rejected: Sequence[DataFrame]) -> DataFrame:
        rows = [df.select(PAYLOAD) for df in rejected]
        return reduce(DataFrame.unionAll, rows) if rows else self._no_payloads()

    def _no_payloads(self) -> DataFrame:
        return self._spark.createDataFrame([], "payload string")

    def _quarantined(self, commit: Commit | None = None, at: int | None = None) -> DataFrame:
        """The payloads of the pipeline's quarantined rows.

        Rows of an unfinished batch, and rows that a source itself rejected, are left out.

        Args:
            commit: The commit of the batch that rejected the rows; None for all batches.
            at: The snapshot of the quarantine; None for the rows as they are now.
        """
        name = self._plan.write.quarantine
        table = tables.load_table(self._spark, name) if name is not None else None
        if name is None or table is None:
            return self._no_payloads()
        read = self._spark.read.option("versionAsOf", at) if at is not None else self._spark.read
        rows = read.table(name.sql).where(F.col("pipeline").isin(list(self._plan.write.pipeline_names)))
        unfinished = ReplayChecks(self._plan, self._spark, self._checkpoint, table).unfinished_batch_condition()
        rows = rows.where(f"NOT coalesce({unfinished}, false)") if unfinished is not None else rows
        if commit is not None:
            rows = rows.where(batch_condition(Record(checkpoint="", batch=commit.batch or 0, position=commit.position)))
        of_sources = [F.col("step").endswith(end) for end in SOURCE_SUFFIXES]
        return rows.where(~reduce(lambda a, b: a | b, of_sources)).select(PAYLOAD)
