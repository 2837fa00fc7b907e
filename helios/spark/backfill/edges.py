"""Refuses a backfill if the changed script could move a row across an edge: into or out of its filter or a slice.

A row that moves out of the slices would be lost, and a row that moves into them would be there twice. So every plan
that wrote rows must compute the columns of the filter in the same way as the current script. Otherwise the filter must
cover all rows. In that case, and also if the column of the slices may have other values than before, the pipeline may
not commit a batch with other steps until the backfill has ended.
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
from helios.plan.derivation import derivation_of, why_values_may_differ
from helios.plan.nodes import Plan
from helios.spark.backfill.live import LivePosition
from helios.spark.backfill.writers import TargetRows
from helios.spark.checkpoint.files import Checkpoint
from helios.spark.iceberg import filters
from helios.spark.iceberg.history import History
from helios.spark.iceberg.validators import changes_rows
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable
from helios.table.plans import FOLDER, KeptPlan, lasting_fields

ROWS_STAY_OPTION = "--rows-stay"
CAST_ERROR = re.compile(r"CAST_INVALID_INPUT.*?The value '(?P<value>[^']*)' of the type .*? to \"(?P<type>\w+)")
"""Spark's error for a string that cannot be cast."""


def refuse_filter(spark: SparkSession, table: JavaTable, name: TableName, where: str) -> None:
    """Raises `InputError` for a filter by which Iceberg cannot delete rows."""
    if not filters.convertible(spark, table, name.sql, where):
        raise InputError(
            f"--where ({where}): Iceberg cannot replace rows of {name.text} by this filter.",
            fix="compare columns with values: day >= '2026-01-05', id IN (1, 2), k LIKE 'a%', k IS NULL; write a time "
            "as '2026-01-05 10:00:00'.",
        )


def cast_error(error: Exception, where: str) -> InputError | None:
    """The error to raise if Spark failed because a value of the filter cannot be cast; None for any other failure."""
    match = CAST_ERROR.search(str(error))
    if match is None or not re.search(f"(['\"]){re.escape(match['value'])}\\1", where):
        return None  # another failure, such as a cast of the script
    return InputError(
        f"--where ({where}): '{match['value']}' is not of type {match['type'].lower()}.",
        fix="write the value in the format of its column; a time as '2026-01-05 10:00:00'.",
    )


@dataclass(kw_only=True)
class Edges:
    """Refuses a backfill if the changed script could move a row across an edge of the filter or of a slice.

    Attributes:
        plan: The pipeline, compiled from the current script.
        table: Iceberg's table object of the target.
        target: The rows of the target, and their writers.
        checkpoints: The checkpoints that keep plans: of the pipeline, and of its backfills.
        own: The names under which the pipeline, its replays and its backfills commit.
        columns: The columns that the filter `where` names.
        cut: The column by which the filter is cut into slices; None without a cut.
        trusts_expired: Whether rows whose commits have expired count as the pipeline's own.
        rows_stay: Whether the user has confirmed, with --rows-stay, that no row crosses an edge.
        needs_same_steps: Whether the backfill fails if the pipeline commits a batch with other steps.
        batch_at_start: The pipeline's last batch when the backfill began.
    """

    plan: Plan
    spark: SparkSession
    table: JavaTable
    target: TargetRows
    checkpoints: Sequence[Checkpoint]
    own: frozenset[str]
    where: str
    columns: Sequence[str]
    cut: str | None
    trusts_expired: bool
    rows_stay: bool
    needs_same_steps: bool = field(default=False, init=False)
    batch_at_start: int = field(default=-1, init=False)

    def refuse(self, rows: DataFrame, live_position: LivePosition, head: JavaSnapshot | None) -> None:
        """Rejects a filter if rows may have moved across its edges.

        Args:
            rows: All rows that the current script produces from what the pipeline read, as the target stores them.

        Raises:
            InputError: Rows may have moved, and there are rows outside of the filter.
        """
        self.batch_at_start = live_position.batch
        expired = self._expired(head)
        if self.rows_stay or (expired and not self.trusts_expired):  # `refuse_foreign` rejects this case
            return
        plans_or_problem = (
            self._past_plans(head)
            if not expired
            else (f"{expired} and those before it have expired, so that nothing tells which steps wrote their rows")
        )
        if isinstance(plans_or_problem, str):
            why = plans_or_problem
        else:
            why = why_values_may_differ(plans_or_problem, self._present_plan, self.columns)
        if why:
            self.needs_same_steps = True
            present = self.target.rows("true", head)
            stored, computed = self._outside(present) if present is not None else 0, self._outside(rows)
            if stored or computed:
                raise InputError(
                    f"rows may have moved into or out of {self.where}, and would be lost or stored twice: {why}. So "
                    "the filter must select all rows, and some are outside of it. There, the table has "
                    f"{counted(stored, 'row')}, and the current script computes {counted(computed, 'row')}; nothing "
                    "was written.",
                    where=self.plan.origin,
                    fix=f"write a --where that covers all rows, nulls too, or names only columns that are computed as "
                    f"before; or pass {ROWS_STAY_OPTION} if the fixed script moves no row into or out of the filter.",
                )
        elif self.cut is not None and not isinstance(plans_or_problem, str):
            self.needs_same_steps = bool(why_values_may_differ(plans_or_problem, self._present_plan, [self.cut]))

    def refuse_newer(self, live_position: LivePosition) -> None:
        """Raises `InputError` if rows of batches that were committed since the backfill began could cross an edge."""
        has_new_batch = live_position.batch != self.batch_at_start
        if not (self.needs_same_steps and has_new_batch) or self._runs_same_steps(live_position):
            return
        raise InputError(
            f"{self.plan.pipeline} has written batch {live_position.batch} meanwhile with the steps of its running "
            "script, and the current script may put the rows of this batch into other slices; the slices so far are "
            "repaired.",
            where=self.plan.origin,
            fix="stop the pipeline, or restart it with the current script, and start the backfill again; or pass "
            f"{ROWS_STAY_OPTION} if the fixed script moves no row from one slice to another.",
        )

    def _runs_same_steps(self, live_position: LivePosition) -> bool:
        """True if the running pipeline certainly produces the same rows as the current script."""
        columns = [*self.columns, *([self.cut] if self.cut is not None else [])]
        return (
            live_position.record.steps == self.plan.fingerprint and not derivation_of(self._present_plan, columns).why
        )

    @property
    def _present_plan(self) -> dict[str, object]:
        """The current plan, in the form in which checkpoints keep plans."""
        plan = lasting_fields(self.plan.as_json(), self.plan.state_texts)
        return json.loads(json.dumps(plan, default=str))  # type: ignore[no-any-return]

    def _past_plans(self, head: JavaSnapshot | None) -> list[dict[str, object]] | str:
        """The plans that wrote the pipeline's rows; if a plan is unknown, a text that says which."""
        snapshot_of: dict[str, int] = {}  # by the fingerprint of the plan that wrote the snapshot
        for snapshot in History(self.table, head):
            if changes_rows(snapshot) and snapshot.summary().get("helios.pipeline") in self.own:
                snapshot_of.setdefault(str(snapshot.summary().get("helios.steps")), int(snapshot.snapshotId()))
        kept = self._kept_plans()
        past_plans: list[dict[str, object]] = []
        for fingerprint, snapshot_id in snapshot_of.items():
            plans = [dict(plan.plan) for plan in kept if plan.steps == fingerprint]
            if not plans and fingerprint != self.plan.fingerprint:
                return f"the plan by which snapshot {snapshot_id} was written is not kept"
            past_plans += plans
        return past_plans

    def _outside(self, rows: DataFrame) -> int:
        """The number of rows that the filter does not select, such as rows for which the filter is null."""
        # Not counted by NOT (filter): Spark fails to push down the negation of some filters.
        return rows.count() - rows.where(self.where).count()

    def _expired(self, head: JavaSnapshot | None) -> str:
        """The newest snapshot that has expired, as text; empty if none has."""
        history = History(self.table, head)
        return history.lost if list(history) else ""  # the iteration sets `history.lost`

    def _kept_plans(self) -> list[KeptPlan]:
        texts = [
            checkpoint.files.read(f"{FOLDER}/{name}")
            for checkpoint in self.checkpoints
            for name in checkpoint.files.names(FOLDER)
            if name.endswith(".json")
        ]
        parsed = [KeptPlan.parse(text) for text in texts if text is not None]
        return [plan for plan in parsed if plan is not None]
