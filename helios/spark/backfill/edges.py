"""The edges of a filter: a backfill is refused if the changed script may move a row across one.

A row that moves out of the slices would be lost, and one that moves into them would be there twice. So the columns of
the filter and of the cut must be derived by the same steps in every plan that wrote rows. Otherwise the filter must
cover all rows, and the pipeline may commit no batch of other steps until the backfill is done.
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
from helios.plan.edges import derivation_of, why_values_may_differ
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
"""Spark's error for a string that cannot be cast."""


def refuse_filter(spark: SparkSession, table: JavaTable, name: TableName, where: str) -> None:
    """Rejects a filter that Iceberg cannot evaluate.

    Raises:
        InputError: Iceberg cannot delete rows by it.
    """
    if not filters.convertible(spark, table, name.sql, where):
        raise InputError(
            f"--where ({where}): Iceberg cannot replace the rows of {name.text} by it.",
            fix="compare columns with values: day >= '2026-01-05', id IN (1, 2), k LIKE 'a%', k IS NULL; write a time "
            "as '2026-01-05 10:00:00'.",
        )


def cast_error(error: Exception, where: str) -> InputError | None:
    """The error that a value of a filter cannot be cast; None for any other failure."""
    found = MALFORMED.search(str(error))
    if found is None or found["value"] not in where:
        return None
    return InputError(
        f"--where ({where}): '{found['value']}' is not of type {found['kind'].lower()}.",
        fix="write the value as its column has it; a time as '2026-01-05 10:00:00'.",
    )


@dataclass(kw_only=True)
class Edges:
    """Checks whether rows may cross the edges of a filter or of its slices.

    Attributes:
        plan: The pipeline, compiled from the current script.
        spark: The session.
        table: Iceberg's table object of the target.
        target: The rows of the target.
        checkpoints: The checkpoints that keep plans: of the pipeline, and of its backfills.
        own: The names under which the pipeline, its replays and its backfills commit.
        where: The filter.
        columns: The columns that the filter names.
        cut: The column by which the filter is cut into slices; None without a cut.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
        trusted: Whether the user vouches that no row crosses an edge.
        bars_batches: Whether a batch of other steps ends the backfill.
        batch_at_start: The pipeline's last batch when the backfill began.
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
    bars_batches: bool = field(default=False, init=False)
    batch_at_start: int = field(default=-1, init=False)

    def refuse(self, rows: DataFrame, standing: Standing, head: JavaSnapshot | None) -> None:
        """Rejects a filter if rows may have moved across its edges.

        Args:
            rows: All rows that the current script produces from what the pipeline read, as the target stores them.
            standing: How far the pipeline has come.
            head: The head of the target.

        Raises:
            InputError: Rows may have moved; names the columns that may differ, and counts the rows outside.
        """
        self.batch_at_start = standing.batch
        expired = self._expired(head)
        if self.trusted or (expired is not None and not self.trusts_expired):  # expiry is refused slice by slice
            return
        written = (
            self._past_plans(head)
            if expired is None
            else (
                f"snapshot {expired} and those before it have expired, so that nothing tells which steps wrote "
                "their rows"
            )
        )
        why = written if isinstance(written, str) else why_values_may_differ(written, self._plan_now, self.columns)
        if why:
            self.bars_batches = True
            current = self.target.rows("true", head)
            held, given = self._outside(current) if current is not None else 0, self._outside(rows)
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
            self.bars_batches = bool(why_values_may_differ(written, self._plan_now, [self.cut]))

    def refuse_newer(self, standing: Standing) -> None:
        """Rejects batches that were committed since the backfill began, if their rows may cross an edge.

        Raises:
            InputError: There are such batches.
        """
        if not self.bars_batches or standing.batch == self.batch_at_start or self._runs_same_steps(standing):
            return
        raise InputError(
            f"{self.plan.pipeline} has written batch {standing.batch} meanwhile by the steps with which it runs, "
            "and the script as it is may put its rows into other slices; the slices before this one are repaired.",
            where=self.plan.origin,
            fix="stop the pipeline, or start it again with the script as it is, and start the backfill again; or pass "
            f"{STAYS} if the mended script moves no row from one slice to another.",
        )

    def _runs_same_steps(self, standing: Standing) -> bool:
        """True if the running pipeline certainly produces the same rows as the current script."""
        columns = [*self.columns, *([self.cut] if self.cut is not None else [])]
        return standing.record.steps == self.plan.fingerprint and not derivation_of(self._plan_now, columns).why

    @property
    def _plan_now(self) -> dict[str, object]:
        """The current plan, in the form in which checkpoints keep plans."""
        plan = lasting(self.plan.as_json(), self.plan.state)
        return json.loads(json.dumps(plan, default=str))  # type: ignore[no-any-return]

    def _past_plans(self, head: JavaSnapshot | None) -> list[dict[str, object]] | str:
        """The plans that wrote the pipeline's rows; a text says why if one of them is unknown."""
        stamped: dict[str, int] = {}  # a snapshot of each fingerprint
        for snapshot in History(self.table, head):
            if changes_rows(snapshot) and snapshot.summary().get("helios.pipeline") in self.own:
                stamped.setdefault(str(snapshot.summary().get("helios.steps")), int(snapshot.snapshotId()))
        kept = self._kept_plans()
        found: list[dict[str, object]] = []
        for steps, snapshot_id in stamped.items():
            plans = [dict(plan.plan) for plan in kept if plan.steps == steps]
            if not plans and steps != self.plan.fingerprint:
                return f"the plan by which snapshot {snapshot_id} was written is not kept"
            found += plans
        return found

    def _outside(self, rows: DataFrame) -> int:
        """The number of rows that the filter does not select; it does not select rows for which it is null."""
        # Not counted by NOT (filter): Spark fails to push down the negation of some filters.
        return rows.count() - rows.where(self.where).count()

    def _expired(self, head: JavaSnapshot | None) -> int | None:
        """The newest snapshot that has expired; None if none has."""
        history = History(self.table, head)
        return history.expired if list(history) else None

    def _kept_plans(self) -> list[KeptPlan]:
        texts = [
            checkpoint.files.read(f"{FOLDER}/{name}")
            for checkpoint in self.checkpoints
            for name in checkpoint.files.names(FOLDER)
            if name.endswith(".json")
        ]
        parsed = [KeptPlan.parse(text) for text in texts if text is not None]
        return [plan for plan in parsed if plan is not None]
