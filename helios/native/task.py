"""One task: the engine processes a share of the batch, and reports its result as JSON."""

from __future__ import annotations

import json
import os
import sys
import zipimport
from collections.abc import Callable, Mapping

from helios.native import upsert
from helios.native.program import Misread, NotNative
from helios.native.storage import is_outside
from helios.native.work import InputFile, Share, Stores, TaskReport, Work

NONE: Stores = ({}, {})
SETTINGS = {
    # One task has one core.
    "POLARS_MAX_THREADS": "1",
    # Polars gives memory back after half a second: to get it again takes a task a sixth of its time. Spark ends workers
    # that are idle for a minute.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:-1",
}
"""The environment variables that Polars reads when it is first imported."""


def run(does: str, work: str, share: Share, name: str, stores: Stores = NONE) -> str:
    """Does a share of the work; its files are deleted if it fails.

    Args:
        does: What: a key of `TASKS`.
        work: What all tasks have in common, as JSON.
        share: What this one has alone.
        name: A name of its own for each try of a share.
        stores: PyIceberg's properties of the stores of the source and of the target, with secrets in clear.

    Returns:
        What the task tells, as JSON, or `refused`: why Spark must do it, or `misread`: why nobody can.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    try:
        import polars  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        return json.dumps({"refused": f"an executor cannot import {error.name}"})
    try:
        return json.dumps(TASKS[does](work, share, name, stores))
    except BaseException as error:
        reason = _refusal(error)
        if reason is None:
            raise
        return json.dumps({"misread" if isinstance(error, Misread) else "refused": reason})
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Forgets which archives were looked into for modules.

    Before each task Spark's worker has Python read the directories of these again (`importlib.invalidate_caches`), of
    pyspark's for each of its packages: a tenth of a second. They are found again when a module is looked for.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def write(text: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes the rows of files into the target.

    Args:
        text: The work.
        share: The files, as the fields of `InputFile`.
        name: A name of its own for each try of a share.
        stores: The stores of the source and of the target.

    Returns:
        As `files`, what Iceberg's metadata says of each written file, and how many rows expectations have `dropped`.
    """
    from helios.native.reader import Dropped, frames
    from helios.native.writer import TableWriter

    work = Work.parse(text)
    writer, dropped = TableWriter(work.target, f"{work.name}-{name}", stores[1]), Dropped()
    try:
        for file in share:
            for frame in frames(InputFile(*file), work, stores[0], dropped=dropped):
                writer.write(frame)
        return {"files": writer.close(), "dropped": dropped.rows}
    except BaseException:
        writer.abort()
        raise


TASKS: Mapping[str, Callable[[str, Share, str, Stores], TaskReport]] = {
    "write": write,
    "reduce": upsert.reduce,
    "match": upsert.match,
    "store": upsert.store,
}
"""By name: the tasks that there are."""


UNFORESEEN = (ValueError, TypeError, ArithmeticError, LookupError)
"""The unforeseen errors that a value may raise."""


def _refusal(error: BaseException) -> str | None:
    """The reason to leave a batch to Spark after an error: Spark reads the same files, and raises its own error."""
    import polars as pl
    import pyarrow as pa

    if isinstance(error, NotNative):
        return str(error)
    if isinstance(error, ImportError):
        return f"an executor cannot import {error.name}"
    failed = (pl.exceptions.PolarsError, pa.ArrowException, *UNFORESEEN)
    # What panics in Rust derives from nothing that could be imported.
    if isinstance(error, failed) or type(error).__name__ == "PanicException" or is_outside(error):
        return f"the engine failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None
