"""The late rows of a batch, which a window or `dedupe` drops because the watermark has passed them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from helios.errors import DeclarationError
from helios.model.flow import Flow
from helios.plan.typing.late import LateRule
from helios.spark.steps.aggregate import window_time
from helios.spark.steps.dedupe import event_time, watermark_columns
from helios.spark.steps.steps import Scope, apply, rejected
from helios.steps.aggregate import Aggregate


def late_rows(rows: DataFrame, rule: LateRule, watermark: int) -> DataFrame:
    """The late rows of a batch, in the form of the quarantine.

    A row is late if the end of its window, or its event time if there is no window, is not after the watermark. If
    windows overlap, one window that has ended is enough. Spark's operators drop rows by the same rule
    (`WatermarkSupport.watermarkExpression`).

    Args:
        rows: The rows of the batch's source.
        watermark: The watermark of the previous batch, by which Spark drops rows, in milliseconds since 1970.
    """
    df = apply(rows, rule.before, Scope(_refuse_other_flow))
    time = _time(df, rule)
    micros = F.unix_micros(time)
    end = _first_end(micros, rule.step) if isinstance(rule.step, Aggregate) else micros
    watermark_micros = F.lit(watermark * 1000)
    reason = F.concat(
        F.lit("late: "),
        time.cast("string"),
        _window_end_text(end, rule),
        F.lit(", and the watermark is at "),
        F.timestamp_micros(watermark_micros).cast("string"),
    )
    return rejected(df.where(end <= watermark_micros), reason, rule.watermark.text())


def _time(df: DataFrame, rule: LateRule) -> Column:
    if isinstance(rule.step, Aggregate):
        return window_time(df, rule.step).cast("timestamp")
    fields = watermark_columns(df)
    if len(fields) != 1 or isinstance(fields[0].dataType, StructType):
        raise DeclarationError(
            f"{rule.watermark.text()}: the rows that reach {rule.step.text()} do not have exactly one column of event "
            "times.",
            where=rule.watermark.origin,
            fix="keep the watermark's column, or leave on_late= out.",
        )
    return event_time(fields[0]).cast("timestamp")


def _first_end(micros: Column, step: Aggregate) -> Column:
    """The end of the first window that a time lies in; for a session, its end if no other row extends the session."""
    assert step.window is not None
    _, size, slide = step.window
    width = round(size * 1000) * 1000
    if step.session:
        return micros + F.lit(width)
    every = round((slide or size) * 1000) * 1000
    before = micros - F.lit(width)  # windows begin at multiples of `every`; the first window begins after `before`
    return before - F.pmod(before, F.lit(every)) + F.lit(every) + F.lit(width)


def _window_end_text(end: Column, rule: LateRule) -> Column:
    if not isinstance(rule.step, Aggregate):
        return F.lit("")
    kind = "session" if rule.step.session else "window"
    return F.concat(F.lit(f", whose {kind} ended at "), F.timestamp_micros(end).cast("string"))


def _refuse_other_flow(flow: Flow) -> DataFrame:
    raise AssertionError(f"a step before the window or dedupe reads another flow: {flow.text()}")
