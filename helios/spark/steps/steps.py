"""Applies declared steps to a DataFrame: each step by the function `apply_step` of the file with its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.model.columns import IS_DELETE, LOG_ORDER, POSITION
from helios.model.flow import Flow
from helios.model.step import Step
from helios.sources.common.spark.past import Past
from helios.spark.jvm.sql import JSON_TIMES, quoted, refusal

HIDDEN = (POSITION, LOG_ORDER, IS_DELETE)
"""The columns that Helios adds to rows, and that steps pass on unchanged."""


@dataclass(frozen=True)
class AsOfSide:
    """The right side of an as-of join.

    Attributes:
        past: The earlier states of its source; None if only its columns are needed.
        at_snapshot: Returns its rows at a snapshot, after its steps.
        stateful: Whether the pipeline runs as one stateful stream, which Spark plans only once.
    """

    current: DataFrame
    past: Past | None
    at_snapshot: Callable[[int], DataFrame]
    stateful: bool = False


@dataclass(frozen=True)
class Scope:
    """The context that steps need besides their rows.

    Attributes:
        read: Reads another flow: the other side of a join or union.
        rejected: Collects the rows for the quarantine, as `payload`, `reason` and `step`.
        counted: Collects the counts of rows that expectations drop.
        read_as_of: Reads the other side of an as-of join; None if there is no such join.
    """

    read: Callable[[Flow], DataFrame]
    rejected: list[DataFrame] = field(default_factory=list)
    counted: list[Observation] = field(default_factory=list)
    read_as_of: Callable[[Flow], AsOfSide] | None = None


def apply(df: DataFrame, steps: Iterable[Step], scope: Scope) -> DataFrame:
    """Applies steps in order.

    Raises:
        InputError: Spark refuses an expression, or a callable fails or does not return a DataFrame.
    """
    for step in steps:
        try:
            df = import_module(f"helios.spark.steps.{step.module_name}").apply_step(df, step, scope)
        except AnalysisException as error:
            raise refusal(step.text(), error, step.origin) from error
    return df


PAYLOAD = {"ignoreNullFields": "false", **JSON_TIMES}
"""The options of `to_json` for payloads."""


def payload(df: DataFrame) -> Column:
    """A row as JSON, nulls included."""
    columns = [quoted(name) for name in df.columns if name not in HIDDEN]
    return F.to_json(F.struct(*columns), PAYLOAD)


def rejected(df: DataFrame, reason: Column, step: str) -> DataFrame:
    """Rejected rows in the form of the quarantine: `payload`, `reason` and `step`."""
    return df.select(payload(df).alias("payload"), reason.alias("reason"), F.lit(step).alias("step"))
