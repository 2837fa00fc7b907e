"""Turns failures to read the data files of tables into errors for the user."""

from __future__ import annotations

import re

from helios.errors import RunError
from helios.plan.nodes import Plan
from helios.sources.common.spark.failures import damaged_file_error
from helios.spark.iceberg.file_metadata import CODECS, THREE_LEVELS, no_codec

CODEC = re.compile(r"Class \S*?(\w+)Codec was not found")
"""Parquet's message for a codec that none of Spark's jars has."""

TWO_LEVELS = re.compile(r"Should not read definition, past page end|Can't read value in column \[[^\]]*\] repeated ")
"""Iceberg's and parquet's messages for lists of two levels, or for a damaged file."""


def failure(error: BaseException, plan: Plan) -> RunError | None:
    """The error for the user, if a data file cannot be read; None for any other error."""
    return damaged_file_error(error, plan) or _table_failure(str(error), plan)


def _table_failure(text: str, plan: Plan) -> RunError | None:
    """The error for a data file in one of the plan's tables. It names all tables, since Iceberg names no table."""
    codec = CODEC.search(text)
    if codec is not None:
        what, how = f"with data {no_codec(codec[1].lower())}", CODECS
    elif TWO_LEVELS.search(text) is not None:
        what, how = "that is damaged, or has a list of two levels, which Iceberg does not read.", THREE_LEVELS
    else:
        return None
    tables = dict.fromkeys([*(read.name for read in plan.reads if read.table is not None), plan.write.table.text])
    return RunError(
        f"{plan.pipeline}: {' or '.join(tables)} has a file {what}",
        where=plan.origin,
        fix=f"replace the file by one that is written {how}: `TABLE.files` lists the files of a table.",
    )
