"""Failures of topics: bad records, records that are gone, and refusals of a schema registry, in words for the user."""

from __future__ import annotations

import re

from helios.errors import HeliosError, RunError
from helios.plan.nodes import Plan
from helios.spark.iceberg.bad_rows import bad_row, row_in
from helios.spark.jvm.errors import REGISTRY

LOST = re.compile(r"Could not read records in offset \[(\d+), \d+\) for topic partition (\S+)-(\d+)")
"""Spark's words for records of Kafka that are gone."""


def failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The failure of a record that a source cannot read; None for any other error."""
    row = row_in(error)
    if row is not None and "at" in row:
        fix = row.get("fix", 'say what happens to such records: .on_bad_row("quarantine") or "drop".')
        return bad_row(row, plan, row["at"], fix)
    return _lost(error, plan) or _refused_by_registry(error, plan)


def _lost(error: BaseException, plan: Plan) -> RunError | None:
    """The error for records that were deleted while a batch read them."""
    lost = LOST.search(str(error))
    if lost is None:
        return None
    return RunError(
        f"{lost[2]}, partition {lost[3]}: records from offset {lost[1]} on were deleted before the batch had read "
        "them; nothing of it was written.",
        where=plan.origin,
        fix="run again: the next run says how many are lost. Keep records longer, and batches short (max_rows=).",
    )


def _refused_by_registry(error: BaseException, plan: Plan) -> RunError | None:
    """The error for a schema registry's refusal of a task; None for any other error."""
    text = str(error)
    if REGISTRY not in text:
        return None
    said = text.split(REGISTRY, 1)[1].splitlines()[0].split(" SQLSTATE:")[0]
    where = next((read.source.origin for read in plan.reads if read.source.addresses), plan.origin)
    fix = "check registry=, and give registry_login=(name, password) of a user who may read."
    return RunError(f"{said.rstrip('.')}.", where=where, fix=fix)
