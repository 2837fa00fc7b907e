"""Handles rows of files that do not parse or do not fit the declared types, and records the location of each row."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from helios.model.columns import POSITION
from helios.sources.common.spark import rejects
from helios.sources.common.spark.run_state import RejectedInput
from helios.sources.files.declare import FilesSource

LINE = "_helios_line"
"""The column with the line or record from which a row was parsed, as text."""

FILE, BEGIN, MODIFIED = "_helios_file", "_helios_begin", "_helios_modified"
"""The columns with the location of each row: the path of its file, the start of its split, and the file's time.

They are separate columns, so that Spark can prune those that no step uses.
"""

ORIGIN = (FILE, BEGIN, MODIFIED)
HIDDEN = (rejects.TEXT, rejects.WHY, LINE, FILE)


def origin() -> list[Column]:
    """The columns `FILE`, `BEGIN` and `MODIFIED` of rows that Spark reads from files."""
    fields = {FILE: "file_path", BEGIN: "file_block_start", MODIFIED: "file_modification_time"}
    return [F.col(f"_metadata.{field}").alias(name) for name, field in fields.items()]


def origin_of_lines() -> list[Column]:
    """The columns of `origin`, valid only directly after the scan, which then does not copy the path into each row."""
    modified = F.col("_metadata.file_modification_time").alias(MODIFIED)
    return [F.input_file_name().alias(FILE), F.input_file_block_start().alias(BEGIN), modified]


def path() -> Column:
    return F.col(FILE)


def uri() -> Column:
    """The path as `listing.as_uri` writes it. Spark writes one or three slashes before a local path."""
    return F.regexp_replace(path(), "^file:/+", "file:///")


def modified() -> Column:
    return F.col(MODIFIED)


def position() -> Column:
    """The position of each row, which orders the rows of a batch: older files first, then by the lines of a file.

    The column is valid only directly after the reader, while the rows of a task are still in the order of the file.
    """
    file = F.struct(F.col(MODIFIED).alias("modified"), F.col(FILE).alias("path"), F.col(BEGIN).alias("begin"))
    return F.struct(file.alias("file"), F.monotonically_increasing_id().alias("row")).alias(POSITION)


def good_rows(df: DataFrame, source: FilesSource, rejected: RejectedInput) -> DataFrame:
    """The good rows of files, without the hidden columns. Bad rows are handled as `.on_bad_row` declares."""
    if source.bad_row == "null":
        return df.drop(*HIDDEN)
    verdict = rejects.Verdict(
        bad=F.col(rejects.TEXT).isNotNull(),
        why=F.col(rejects.WHY),
        action=source.bad_row,
        place=F.struct(path().alias("file"), F.col(rejects.WHY).alias("why"), F.col(rejects.TEXT).alias("text")),
        payload=F.struct(path().alias("file"), F.col(rejects.TEXT).alias("text")),
        step=f"{source.label()}.on_bad_row",
        hidden=HIDDEN,
    )
    return rejects.without_bad_rows(df, verdict, rejected)
