"""Rows of files that do not parse, or whose values do not fit the declared types: what happens to them."""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.model.files import FilesSource
from helios.spark.jvm.errors import BAD_ROW
from helios.spark.jvm.sql import quoted
from helios.spark.sources.aside import Aside

TEXT = "_helios_bad_row"
"""The raw text of a bad row; null for a good one."""

WHY = "_helios_bad_why"
"""What is wrong with it."""

FILE = "_helios_file"
"""The file of each row."""

HIDDEN = (TEXT, WHY, FILE)


def kept(df: DataFrame, source: FilesSource, aside: Aside) -> DataFrame:
    """The good rows; the others go where the source says.

    Args:
        df: Rows with the hidden columns.
        source: The source.
        aside: Collects what is kept out.
    """
    bad = F.col(TEXT).isNotNull()
    if source.bad_row == "null":
        return df.drop(*HIDDEN)
    if source.bad_row == "fail":
        place = F.to_json(F.struct(F.col(FILE).alias("file"), F.col(WHY).alias("why"), F.col(TEXT).alias("text")))
        raised = F.raise_error(F.concat(F.lit(BAD_ROW), place)).cast("boolean")
        return _seen(df, F.when(bad, raised).otherwise(False)).drop(*HIDDEN)
    counted = Observation() if source.bad_row == "drop" else None
    df = _seen(df, bad, counted)
    if counted is not None:
        aside.counted.append(counted)
    else:
        payload = F.to_json(F.struct(F.col(FILE).alias("file"), F.col(TEXT).alias("text"))).alias("payload")
        step = F.lit(f"{source.label()}.on_bad_row").alias("step")
        aside.rejected.append(df.where(bad).select(payload, F.col(WHY).alias("reason"), step))
    return df.where(~bad).drop(*HIDDEN)


def _seen(df: DataFrame, bad: Column, counted: Observation | None = None) -> DataFrame:
    """Rows whose every column is parsed, and every row of which is looked at, whatever the steps after them need.

    Spark parses only the columns that are asked for, and hands conditions of later steps to the parser: which rows are
    bad would depend on the pipeline. It does neither across an observation that names all columns.
    """
    columns = [F.col(quoted(name)).isNull().cast("bigint") for name in df.columns if name not in HIDDEN]
    asked = reduce(lambda a, b: a + b, columns, F.lit(1)) != 0  # always so, which Spark's optimizer does not see
    metric = F.count_if(bad & asked).alias("dropped")
    return df.observe(counted if counted is not None else f"helios {uuid.uuid4()}", metric)
