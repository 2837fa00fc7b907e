"""Rows that a source keeps out of a batch: they fail the batch, go into the quarantine, or are dropped and counted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.sources.common.spark.run_state import RejectedInput
from helios.spark.jvm.errors import BAD_ROW
from helios.spark.jvm.sql import quoted

TEXT = "_helios_bad_row"
"""The raw text of a bad row; null for a good one."""

WHY = "_helios_bad_why"
"""The reason why a row is bad."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The bad rows, and the policy for them.

    Attributes:
        bad: Whether a row is bad.
        why: The reason why a row is bad.
        action: "fail", "quarantine" or "drop".
        place: The place and text of a bad row for the error message, as a struct.
        payload: The part of a bad row that the quarantine keeps, as a struct.
        step: The call that declares the policy, for the quarantine.
        hidden: The columns that exist only for this decision; the result leaves them out.
    """

    bad: Column
    why: Column
    action: str
    place: Column
    payload: Column
    step: str
    hidden: tuple[str, ...]


def judged(df: DataFrame, verdict: Verdict, rejected: RejectedInput) -> DataFrame:
    """The good rows, without the hidden columns; bad rows are handled by the verdict's policy.

    Args:
        df: Rows with the hidden columns.
        verdict: The bad rows, and the policy.
        rejected: Collects the bad rows, or their count.
    """
    bad, hidden = verdict.bad, verdict.hidden
    if verdict.action == "fail":
        raised = F.raise_error(F.concat(F.lit(BAD_ROW), F.to_json(verdict.place))).cast("boolean")
        return _fully_parsed(df, F.when(bad, raised).otherwise(False), hidden).drop(*hidden)
    counted = Observation() if verdict.action == "drop" else None
    df = _fully_parsed(df, bad, hidden, counted)
    if counted is not None:
        rejected.counted.append(counted)
    else:
        payload, step = F.to_json(verdict.payload).alias("payload"), F.lit(verdict.step).alias("step")
        rejected.rejected.append(df.where(bad).select(payload, verdict.why.alias("reason"), step))
    return df.where(~bad).drop(*hidden)


def _fully_parsed(df: DataFrame, bad: Column, hidden: Sequence[str], counted: Observation | None = None) -> DataFrame:
    """Rows of which Spark parses every column and every row, whatever the later steps need.

    Spark usually parses only the columns that later steps use, and pushes their filters into the parser. The pipeline
    would then decide which rows are bad. An observation that names all columns stops both optimizations.
    """
    columns = [F.col(quoted(name)).isNull() for name in df.columns if name not in hidden]
    uses_all = F.size(F.array(F.lit(True), *columns)) != 0  # always true, but Spark's optimizer cannot know
    metric = F.count_if(bad & uses_all).alias("dropped")
    return df.observe(counted if counted is not None else f"helios {uuid.uuid4()}", metric)
