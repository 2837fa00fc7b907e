"""`sql`: a query over the view `input`."""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame

from helios.spark.steps.steps import Scope
from helios.steps.sql import Sql

# All `sql` steps use the same view name. The view exists only while a query is analyzed, under this lock.
_VIEW_LOCK = threading.Lock()


def apply_step(df: DataFrame, step: Sql, scope: Scope) -> DataFrame:
    session = df.sparkSession
    with _VIEW_LOCK:
        df.createOrReplaceTempView("input")
        try:
            return session.sql(step.query)
        finally:
            session.catalog.dropTempView("input")
