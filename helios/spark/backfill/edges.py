"""The edges of a filter: a backfill is refused where a row may have crossed one.

A row that the mended script moves out of the slices would be gone, and one that it moves into them would be there
twice. So each column of the filter, and of the cut, must come of the same steps in all plans that have written rows.
Else the filter must cover all rows, and no batch of other steps may come meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from helios.catalog.names import TableName
from helios.errors import InputError
from helios.model.values import counted
from helios.plan.edges import derived, may_move
from helios.plan.nodes import Plan
from helios.spark.backfill.live import Standing
from helios.spark.backfill.writers import Target
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import filters
from helios.spark.iceberg.history import History
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.table.plans import FOLDER, KeptPlan, lasting

STAYS = "--rows-stay"
MALFORMED = re.compile(r"CAST_INVALID_INPUT.*?The value '(?P<value>[^']*)' of the type .*? to \"(?P<kind>\w+)")
"""Spark's error for a text that cannot be cast."""


def refuse_filter(spark: SparkSession, table: JavaTable, name: TableName, where: str) -> None:
    """Rejects a filter by which Iceberg cannot delete.

    Raises:
        InputError: It is one.
    """
    if not filters.convertible(spark, table, name.sql, where):
        raise InputError(
            f"--where ({where}): Iceberg cannot replace the rows of {name.text} by it.",
            fix="compare columns with values: day >= '2026-01-05', id IN (1, 2), k LIKE 'a%', k IS NULL; write a time "
            "as '2026-01-05 10:00:00'.",
        )


def of_filter(error: Exception, where: str) -> InputError | None:
    """The error for a value of a filter that Spark cannot cast; None for any other failure."""
    found = MALFORMED.search(str(error))
    if found is None or found["value"] not in where:
        return None
    return InputError(
        f"--where ({where}): '{found['value']}' is not of type {found['kind'].lower()}.",
        fix="write the value as its column has it; a time as '2026-01-05 10:00:00'.",
    )


@dataclass(kw_only=True)
class Edges:
    """Looks whether rows may cross the edges of a filter or of its slices.

    Attributes:
        plan: The pipeline, compiled from the current script.
        spark: The session.
        table: Iceberg's table object of the target.
        target: The rows of the target.
        checkpoints: The folders with kept plans: of the pipeline, and of its backfills.
        own: The names of the pipeline, of its replays and of its backfills.
        where: The filter.
        columns: The columns that the filter names.
        cut: The column by which it is cut; None without a cut.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
        trusted: Whether the user says that no row crosses an edge.
        still: Whether no batch of other steps may come until the backfill is done.
        began: The last batch when the backfill began.
    """

    plan: Plan
    spark: SparkSession
    table: JavaTable
    target: Target
    checkpoints: Sequence[Checkpoint]
    own: frozenset[str]
    where: str
    columns: Sequence[str]
    cut: str | None
    trusts_expired: bool
    trusted: bool
    still: bool = field(default=False, init=False)
    began: int = field(default=-1, init=False)

    def refuse(self, rows: DataFrame, standing: Standing, head: JavaSnapshot | None) -> None:
        """Rejects a filter over whose edges rows may have moved.

        Args:
            rows: All rows that the script gives of what the pipeline has read, as the target stores them.
            standing: How far the pipeline has come.
            head: The head of the target.

        Raises:
            InputError: It is one; says which columns may have other values, and how many rows lie outside.
        """
        self.began = standing.batch
        expired = self._expired(head)
        if self.trusted or (expired is not None and not self.trusts_expired):  # which each slice refuses
            return
        written = (
            self._written(head)
            if expired is None
            else (
                f"snapshot {expired} and those before it have expired, so that nothing tells which steps wrote "
                "their rows"
            )
        )
        why = written if isinstance(written, str) else may_move(written, self._now, self.columns)
        if why:
            self.still = True
            there = self.target.rows("true", head)
            held, given = self._outside(there) if there is not None else 0, self._outside(rows)
            if held or given:
                raise InputError(
                    f"rows may have moved over the edge of {self.where}, and would be gone or there twice: {why}. "
                    f"Outside of it are {counted(held, 'row')} of the table, and {counted(given, 'row')} that the "
                    "script gives now; nothing was written.",
                    where=self.plan.origin,
                    fix=f"name all rows in --where, nulls too, or a column that is as before; or pass {STAYS} if the "
                    "mended script moves no row over this edge.",
                )
        elif self.cut is not None and not isinstance(written, str):
            self.still = bool(may_move(written, self._now, [self.cut]))

    def refuse_newer(self, standing: Standing) -> None:
        """Rejects batches that came since the backfill began, where their rows may cross an edge.

        Raises:
            InputError: There are such batches.
        """
        if not self.still or standing.batch == self.began or self._equal(standing):
            return
        raise InputError(
            f"{self.plan.pipeline} has written batch {standing.batch} meanwhile by the steps with which it runs, "
            "and the script as it is may put its rows into other slices; the slices before this one are repaired.",
            where=self.plan.origin,
            fix="stop the pipeline, or start it again with the script as it is, and start the backfill again; or pass "
            f"{STAYS} if the mended script moves no row from one slice to another.",
        )

    def _equal(self, standing: Standing) -> bool:
        """True if the running pipeline certainly gives the rows of the script as it is."""
        columns = [*self.columns, *([self.cut] if self.cut is not None else [])]
        return standing.record.steps == self.plan.fingerprint and not derived(self._now, columns).why

    @property
    def _now(self) -> dict[str, object]:
        """The plan as it would be kept."""
        plan = lasting(self.plan.as_json(), self.plan.state)
        return json.loads(json.dumps(plan, default=str))  # type: ignore[no-any-return]

    def _written(self, head: JavaSnapshot | None) -> list[dict[str, object]] | str:
        """The plans that have written rows of the pipeline; as text why they are not known."""
        stamped: dict[str, int] = {}
        for snapshot in History(self.table, head):
            if changes_rows(snapshot) and snapshot.summary().get("helios.pipeline") in self.own:
                stamped.setdefault(str(snapshot.summary().get("helios.steps")), int(snapshot.snapshotId()))
        kept = self._kept()
        found: list[dict[str, object]] = []
        for steps, by in stamped.items():
            plans = [dict(one.plan) for one in kept if one.steps == steps]
            if not plans and steps != self.plan.fingerprint:
                return f"the plan by which snapshot {by} was written is not kept"
            found += plans
        return found

    def _outside(self, rows: DataFrame) -> int:
        """How many rows do not meet the filter; nulls do not."""
        # Not filtered by the opposite, which Spark fails to push down for some filters.
        return rows.count() - rows.where(self.where).count()

    def _expired(self, head: JavaSnapshot | None) -> int | None:
        history = History(self.table, head)
        return history.expired if list(history) else None

    def _kept(self) -> list[KeptPlan]:
        texts = [
            checkpoint.files.read(f"{FOLDER}/{name}")
            for checkpoint in self.checkpoints
            for name in checkpoint.files.names(FOLDER)
            if name.endswith(".json")
        ]
        parsed = [KeptPlan.parse(text) for text in texts if text is not None]
        return [one for one in parsed if one is not None]
