"""Errors for calls that users know from PySpark; each names the call to write in Helios."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from helios.errors import DeclarationError, near_miss
from helios.model.values import caller

STEP_CALLS: Mapping[str, str] = {
    "filter": '>> where("amount > 0")',
    "withColumn": '>> with_columns(total="price * qty")',
    "withColumns": '>> with_columns(total="price * qty")',
    "withColumnRenamed": '>> rename({"old": "new"})',
    "withColumnsRenamed": '>> rename({"old": "new"})',
    "selectExpr": '>> select("id", "price * qty AS total")',
    "groupBy": '>> aggregate(["country"], n="count(*)")',
    "groupby": '>> aggregate(["country"], n="count(*)")',
    "agg": '>> aggregate(["country"], n="count(*)")',
    "dropDuplicates": '>> dedupe("id")',
    "drop_duplicates": '>> dedupe("id")',
    "distinct": '>> sql("SELECT DISTINCT * FROM input")',
    "dropDuplicatesWithinWatermark": '>> watermark("ts", "10 minutes") >> dedupe("id", within="1 day")',
    "withWatermark": '>> watermark("ts", "10 minutes")',
    "unionAll": ">> union(other)",
    "unionByName": ">> union(other)",
    "dropna": '>> where("amount IS NOT NULL")',
    "na": """>> with_columns(name="coalesce(name, '')")""",
    "fillna": """>> with_columns(name="coalesce(name, '')")""",
    "orderBy": '.sort_by("ts") of the sink, for the order in its files',
    "sort": '.sort_by("ts") of the sink, for the order in its files',
    "transform": ">> function, since any callable from DataFrame to DataFrame is a step",
    "writeTo": '>> Iceberg.sink("namespace.table")',
    "write": '>> Iceberg.sink("namespace.table")',
    "writeStream": '>> Iceberg.sink("namespace.table")',
    "show": ".preview(20)",
    "printSchema": ".schema()",
    "collect": ".preview(20), or a Memory.sink",
    "toPandas": ".preview(20).to_pandas()",
}
"""Methods of a DataFrame, each with what to write in Helios instead."""

SINK_CALLS: Mapping[str, str] = {
    "order_by": 'it as an argument: .upsert("id", order_by="updated_at")',
    "delete_when": """it as an argument: .upsert("id", delete_when="op = 'd'")""",
    "history": 'it as an argument: .upsert("id", order_by="updated_at", history=True)',
    "tombstones": 'it as an argument: .upsert("id", tombstones="7d")',
    "partitionBy": '.partition_by(day("ts"), bucket(16, "id"))',
    "partitionedBy": '.partition_by(day("ts"), bucket(16, "id"))',
    "sortBy": '.sort_by("ts")',
    "merge": '.upsert("id"), or your own MERGE by .merge_sql("MERGE INTO target USING batch ON ...")',
    "mode": ".append(), .overwrite() or .upsert(...)",
    "outputMode": ".append(), .overwrite() or .upsert(...)",
    "trigger": '.flush(every="1m")',
    "checkpointLocation": '.checkpoint("s3://bucket/checkpoint")',
    "option": ".table_properties({...})",
    "tableProperty": ".table_properties({...})",
}
"""Calls of a DataFrameWriter, and arguments that users write as calls, each with what to write instead."""


class UnknownCall(DeclarationError, AttributeError):
    """A method that a declared value does not have."""


class LikeDataFrame:
    """Base of flows and steps: refuses a method that only a DataFrame has, and names the step that does the same."""

    if not TYPE_CHECKING:  # type checkers do not see it, so they report unknown names

        def __getattr__(self, name: str) -> NoReturn:
            _refuse(self, name, STEP_CALLS)


class LikeWriter:
    """Base of sinks: refuses a method that only a DataFrameWriter has, and names the call to use."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            _refuse(self, name, SINK_CALLS)


def _refuse(value: Any, name: str, known: Mapping[str, str]) -> NoReturn:
    """Raises the error for a method that does not exist.

    Raises:
        UnknownCall: The message names the call that does the same, or the method with the most similar name.
        AttributeError: The name begins with `_`, or a property of that name has failed.
    """
    if name.startswith("_"):
        raise AttributeError(f"{type(value).__name__!r} object has no attribute {name!r}", name=name, obj=value)
    if hasattr(type(value), name):  # a property, which has raised an AttributeError
        raise AttributeError(f"{type(value).__name__}.{name} is not known yet", name=name, obj=value)
    try:
        receiver = value.label() if hasattr(type(value), "label") else value.text()
    except AttributeError:
        receiver = type(value).__name__
    fix = known.get(name)
    # Not every sink has the method that the fix calls.
    called = re.match(r"(?:it as an argument: )?\.(\w+)\(", fix or "")
    if fix is not None and (called is None or hasattr(type(value), called[1])):
        raise UnknownCall(f"{receiver} has no .{name}().", where=caller(), fix=f"write {fix}.")
    methods = [m for m in dir(type(value)) if not m.startswith("_") and callable(getattr(type(value), m, None))]
    raise UnknownCall(f"{receiver} has no .{name}(). {near_miss(name, methods)}", where=caller())
