"""Turns failures of Kafka sources into errors for the user: bad records, deleted records, a refusing registry."""

from __future__ import annotations

import re

from helios.errors import HeliosError, RunError
from helios.plan.nodes import Plan
from helios.sources.kafka.declare import KafkaSource
from helios.spark.iceberg.bad_rows import bad_row_error, row_in
from helios.spark.jvm.errors import REGISTRY_PREFIX

DELETED_RECORDS = re.compile(r"Could not read records in offset \[(\d+), \d+\) for topic partition (\S+)-(\d+)")
"""Spark's message about Kafka records that were deleted."""


def failure(error: BaseException, plan: Plan) -> HeliosError | None:
    """The error for the user, if a Kafka source has failed; None for any other error."""
    row = row_in(error)
    if row is not None and "at" in row:
        fix = row.get("fix", 'say what happens to such records: .on_bad_row("quarantine") or .on_bad_row("drop").')
        return bad_row_error(row, plan, row["at"], fix)
    return _deleted_meanwhile(error, plan) or _refused_by_registry(error, plan)


def _deleted_meanwhile(error: BaseException, plan: Plan) -> RunError | None:
    """The error of records that were deleted while a batch read them; None for any other error."""
    match = DELETED_RECORDS.search(str(error))
    if match is None:
        return None
    offset, topic, partition = match.groups()
    return RunError(
        f"{topic}, partition {partition}: records from offset {offset} on were deleted before the batch had read "
        "them; nothing of the batch was written.",
        where=plan.origin,
        fix="run again: the next run says how many records are lost. Keep records longer, and set max_rows=.",
    )


def _refused_by_registry(error: BaseException, plan: Plan) -> RunError | None:
    """The error of a schema registry that refused the request of a task; None for any other error."""
    _, separator, after = str(error).partition(REGISTRY_PREFIX)
    if not separator:
        return None
    message = after.splitlines()[0].split(" SQLSTATE:")[0]
    sources = [read.source for read in plan.reads if isinstance(read.source, KafkaSource)]
    of_registry = [s for s in sources if s.values.registry is not None and s.values.registry.url in message]
    where = of_registry[0].origin if of_registry else plan.origin
    fix = "check registry=, and give registry_login=(name, password) of a user who may read."
    return RunError(f"{message.rstrip('.')}.", where=where, fix=fix)
