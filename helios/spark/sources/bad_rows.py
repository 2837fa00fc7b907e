"""Rows that do not parse, or whose values do not fit the declared types: what happens to them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from helios.model.files import FilesSource
from helios.model.source import POSITION
from helios.spark.jvm.errors import BAD_ROW
from helios.spark.jvm.sql import quoted
from helios.spark.sources.aside import Aside

TEXT = "_helios_bad_row"
"""The raw text of a bad row; null for a good one."""

WHY = "_helios_bad_why"
"""The reason why a row is bad."""

LINE = "_helios_line"
"""The line that a row comes from."""

FILE, BEGIN, MODIFIED = "_helios_file", "_helios_begin", "_helios_modified"
"""Where each row comes from: the path of its file, where in it its task begins, and its modification time.

Columns of their own, as Spark carries each only as far as somebody asks for it.
"""

ORIGIN = (FILE, BEGIN, MODIFIED)
HIDDEN = (TEXT, WHY, LINE, FILE)


def origin() -> list[Column]:
    """The columns `FILE`, `BEGIN` and `MODIFIED` of rows that Spark reads from files."""
    parts = {FILE: "file_path", BEGIN: "file_block_start", MODIFIED: "file_modification_time"}
    return [F.col(f"_metadata.{of}").alias(name) for name, of in parts.items()]


def origin_of_lines() -> list[Column]:
    """The same without a copy of the path in each row of the scan; directly behind it only."""
    modified = F.col("_metadata.file_modification_time").alias(MODIFIED)
    return [F.input_file_name().alias(FILE), F.input_file_block_start().alias(BEGIN), modified]


def path() -> Column:
    """The path of each row's file."""
    return F.col(FILE)


def uri() -> Column:
    """The same as `listing.as_uri` has it: Spark names a local file with one slash or three, as the format has it."""
    return F.regexp_replace(path(), "^file:/+", "file:///")


def modified() -> Column:
    """When each row's file was written."""
    return F.col(MODIFIED)


def position() -> Column:
    """The place of each row: later files, and in a file what stands later, come after others.

    Behind a reader's own partitions only, where the rows of a task are in their order.
    """
    file = F.struct(F.col(MODIFIED).alias("modified"), F.col(FILE).alias("path"), F.col(BEGIN).alias("begin"))
    return F.struct(file.alias("file"), F.monotonically_increasing_id().alias("row")).alias(POSITION)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Which rows are bad, and what becomes of them.

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


def kept(df: DataFrame, source: FilesSource, aside: Aside) -> DataFrame:
    """The good rows of files; the others go where the source says.

    Args:
        df: Rows with the hidden columns.
        source: The source.
        aside: Collects what is kept out.
    """
    if source.bad_row == "null":
        return df.drop(*HIDDEN)
    verdict = Verdict(
        bad=F.col(TEXT).isNotNull(),
        why=F.col(WHY),
        action=source.bad_row,
        place=F.struct(path().alias("file"), F.col(WHY).alias("why"), F.col(TEXT).alias("text")),
        payload=F.struct(path().alias("file"), F.col(TEXT).alias("text")),
        step=f"{source.label()}.on_bad_row",
        hidden=HIDDEN,
    )
    return judged(df, verdict, aside)


def judged(df: DataFrame, verdict: Verdict, aside: Aside) -> DataFrame:
    """The good rows, without the hidden columns; the others go where the verdict says.

    Args:
        df: Rows with the hidden columns.
        verdict: Which rows are bad.
        aside: Collects what is kept out.
    """
    bad, hidden = verdict.bad, verdict.hidden
    if verdict.action == "fail":
        raised = F.raise_error(F.concat(F.lit(BAD_ROW), F.to_json(verdict.place))).cast("boolean")
        return _seen(df, F.when(bad, raised).otherwise(False), hidden).drop(*hidden)
    counted = Observation() if verdict.action == "drop" else None
    df = _seen(df, bad, hidden, counted)
    if counted is not None:
        aside.counted.append(counted)
    else:
        payload, step = F.to_json(verdict.payload).alias("payload"), F.lit(verdict.step).alias("step")
        aside.rejected.append(df.where(bad).select(payload, verdict.why.alias("reason"), step))
    return df.where(~bad).drop(*hidden)


def _seen(df: DataFrame, bad: Column, hidden: Sequence[str], counted: Observation | None = None) -> DataFrame:
    """Rows whose every column is parsed, and every row of which is looked at, whatever the steps after them need.

    Spark parses only the columns that are asked for, and hands conditions of later steps to the parser: which rows are
    bad would depend on the pipeline. It does neither across an observation that names all columns.
    """
    columns = [F.col(quoted(name)).isNull() for name in df.columns if name not in hidden]
    asked = F.size(F.array(F.lit(True), *columns)) != 0  # always so, which Spark's optimizer does not see
    metric = F.count_if(bad & asked).alias("dropped")
    return df.observe(counted if counted is not None else f"helios {uuid.uuid4()}", metric)
