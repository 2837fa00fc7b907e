"""Separates bad rows from the good rows of a source: bad rows fail the batch, go to the quarantine, or are dropped."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.sources.common.spark.run_state import RejectedInput
from helios.spark.jvm.errors import BAD_ROW_PREFIX
from helios.spark.jvm.sql import quoted

TEXT = "_helios_bad_row"
"""The raw text of a bad row; null for a good one."""

WHY = "_helios_bad_why"
"""The reason why a row is bad."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Says which rows are bad, and what happens to them.

    Attributes:
        action: "fail", "quarantine" or "drop".
        place: The location and the text of a bad row, for the error message, as a struct.
        payload: The part of a bad row that the quarantine keeps, as a struct.
        step: The call in the script that declares the policy, as the quarantine shows it.
        hidden: The columns that exist only to find bad rows. The good rows are returned without them.
    """

    bad: Column
    why: Column
    action: str
    place: Column
    payload: Column
    step: str
    hidden: tuple[str, ...]


def without_bad_rows(df: DataFrame, verdict: Verdict, rejected: RejectedInput) -> DataFrame:
    """The good rows of `df`, without the hidden columns.

    Bad rows are handled by the policy of the verdict; `rejected` collects them, or their count.
    """
    bad, hidden = verdict.bad, verdict.hidden
    if verdict.action == "fail":
        raised = F.raise_error(F.concat(F.lit(BAD_ROW_PREFIX), F.to_json(verdict.place))).cast("boolean")
        return _fully_parsed(df, F.when(bad, raised).otherwise(False), hidden).drop(*hidden)
    drop_count = Observation() if verdict.action == "drop" else None
    df = _fully_parsed(df, bad, hidden, drop_count)
    if drop_count is not None:
        rejected.drop_counts.append(drop_count)
    else:
        payload, step = F.to_json(verdict.payload).alias("payload"), F.lit(verdict.step).alias("step")
        rejected.rejected_rows.append(df.where(bad).select(payload, verdict.why.alias("reason"), step))
    return df.where(~bad).drop(*hidden)


def _fully_parsed(
    df: DataFrame, bad: Column, hidden: Sequence[str], drop_count: Observation | None = None
) -> DataFrame:
    """Makes Spark parse every column of every row, even those that the later steps do not need.

    Spark usually parses only the columns that later steps use, and pushes the filters of these steps into the parser.
    Which bad rows are found would then depend on the later steps. An observation of all columns stops both
    optimizations.
    """
    columns = [F.col(quoted(name)).isNull() for name in df.columns if name not in hidden]
    uses_all = F.size(F.array(F.lit(True), *columns)) != 0  # always true, but Spark's optimizer cannot prove it
    metric = F.count_if(bad & uses_all).alias("dropped")
    return df.observe(drop_count if drop_count is not None else f"helios {uuid.uuid4()}", metric)
