"""Runs one task: the engine processes one share of the batch, and reports the result as JSON."""

from __future__ import annotations

import json
import os
import sys
import zipimport
from collections.abc import Callable, Mapping

from helios.native import upsert
from helios.native.program import Misread, NotNative
from helios.native.storage import is_storage_error
from helios.native.work import InputFile, Share, Stores, TaskReport, Work

NO_STORES: Stores = ({}, {})
SETTINGS = {
    # One task has one core.
    "POLARS_MAX_THREADS": "1",
    # With this value, Polars's allocator keeps freed memory. By default, the allocator returns freed memory to the
    # system after half a second. Requesting memory again takes a sixth of a task's time. The system gets the memory
    # back when the worker ends. Spark ends a worker that is idle for a minute.
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:-1",
}
"""The environment variables that Polars reads when it is first imported."""


def run(kind: str, work: str, share: Share, name: str, stores: Stores = NO_STORES) -> str:
    """Does a share of the work. If the task fails, the files that the task wrote are deleted.

    Args:
        kind: The kind of task: a key of `TASKS`.
        work: The input that all tasks have in common, as JSON.
        name: The name of new files. No other attempt at any share uses the same name.
        stores: PyIceberg's properties of the stores of the source and of the target, with secrets in clear text.

    Returns:
        The task's report as JSON. If the task cannot do its share, the report has only one field. `refused` is the
        reason why Spark must do the work. `misread` is the reason why neither the engine nor Spark reads a file
        correctly.
    """
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    try:
        import polars  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        return json.dumps({"refused": f"an executor cannot import {error.name}"})
    try:
        return json.dumps(TASKS[kind](work, share, name, stores))
    except BaseException as error:
        reason = _refusal(error)
        if reason is None:
            raise
        return json.dumps({"misread" if isinstance(error, Misread) else "refused": reason})
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Drops Python's cached importers of zip archives.

    Before each task, Spark's worker calls `importlib.invalidate_caches`. Then each cached importer reads the directory
    of its archive again. The archive of PySpark has an importer for each package; together the importers take a tenth
    of a second. Without cached importers, nothing is read again. Python makes a new importer when it next looks for a
    module in the archive.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def write(work_json: str, share: Share, name: str, stores: Stores) -> TaskReport:
    """Writes the rows of files into the target.

    Args:
        share: The files, as the fields of `InputFile`.

    Returns:
        `files`, the Iceberg metadata of the written files; and `dropped`, the number of rows that expectations dropped.
    """
    from helios.native.reader import Dropped, frames
    from helios.native.writer import TableWriter

    work, (source_store, target_store) = Work.parse(work_json), stores
    writer, dropped = TableWriter(work.target, f"{work.name}-{name}", target_store), Dropped()
    try:
        for file in share:
            for frame in frames(InputFile(*file), work, source_store, dropped=dropped):
                writer.write(frame)
        return {"files": writer.close(), "dropped": dropped.rows}
    except BaseException:
        writer.abort()
        raise


TASKS: Mapping[str, Callable[[str, Share, str, Stores], TaskReport]] = {
    "write": write,
    "reduce": upsert.reduce,
    "match": upsert.match,
    "save": upsert.save,
}

UNFORESEEN = (ValueError, TypeError, ArithmeticError, LookupError)
"""The exceptions of Python that an unexpected value may cause in the engine. Spark then writes the batch."""


def _refusal(error: BaseException) -> str | None:
    """The reason to leave a batch to Spark after an error; None if the error must be raised.

    If a batch is left to Spark, Spark reads the same files. If Spark cannot read them either, it raises its own error.
    """
    import polars as pl
    import pyarrow as pa

    if isinstance(error, NotNative):
        return str(error)
    if isinstance(error, ImportError):
        return f"an executor cannot import {error.name}"
    failed = (pl.exceptions.PolarsError, pa.ArrowException, *UNFORESEEN)
    # A panic in Rust raises a class that cannot be imported, so it is recognized by its name.
    if isinstance(error, failed) or type(error).__name__ == "PanicException" or is_storage_error(error):
        return f"the engine failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None
