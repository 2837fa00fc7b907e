"""Rows that a source keeps out of a batch: they fail it, go into the quarantine, or are counted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.sources.common.spark.aside import RejectedInput
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
        why: What is wrong with it.
        action: "fail", "quarantine" or "drop".
        place: Of a bad row, what its error says, as a struct.
        payload: Of a bad row, what the quarantine keeps, as a struct.
        step: The call that says what becomes of them.
        hidden: Columns that the rows have for this alone.
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
        verdict: Which rows are bad.
        aside: Collects the bad rows.
    """
    bad, hidden = verdict.bad, verdict.hidden
    if verdict.action == "fail":
        raised = F.raise_error(F.concat(F.lit(BAD_ROW), F.to_json(verdict.place))).cast("boolean")
        return _seen(df, F.when(bad, raised).otherwise(False), hidden).drop(*hidden)
    counted = Observation() if verdict.action == "drop" else None
    df = _seen(df, bad, hidden, counted)
    if counted is not None:
        rejected.counted.append(counted)
    else:
        payload, step = F.to_json(verdict.payload).alias("payload"), F.lit(verdict.step).alias("step")
        rejected.rejected.append(df.where(bad).select(payload, verdict.why.alias("reason"), step))
    return df.where(~bad).drop(*hidden)


def _seen(df: DataFrame, bad: Column, hidden: Sequence[str], counted: Observation | None = None) -> DataFrame:
    """Rows of which Spark parses every column and every row, whatever the later steps need.

    Spark parses only the columns that are asked for, and hands conditions of later steps to the parser: which rows are
    bad would depend on the pipeline. It does neither across an observation that names all columns.
    """
    columns = [F.col(quoted(name)).isNull() for name in df.columns if name not in hidden]
    asked = F.size(F.array(F.lit(True), *columns)) != 0  # always so, which Spark's optimizer does not see
    metric = F.count_if(bad & asked).alias("dropped")
    return df.observe(counted if counted is not None else f"helios {uuid.uuid4()}", metric)
