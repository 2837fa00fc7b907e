"""One task: a share of the files goes through the program into files of the target."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from helios.native.program import NotNative
from helios.native.storage import is_outside
from helios.native.work import InputFile, Work

Stores = tuple[Mapping[str, str], Mapping[str, str]]
NONE: Stores = ({}, {})


def run(work_text: str, share: Iterable[Sequence[Any]], name: str, stores: Stores = NONE) -> str:
    """Does a share of the work; its files are deleted if it fails.

    Args:
        work_text: The work, as JSON.
        share: The files, as the fields of `InputFile`.
        name: A name of its own for each try of a share.
        stores: PyIceberg's properties of the stores of the source and of the target, with secrets in clear.

    Returns:
        As JSON `files`, what Iceberg's metadata says of each written file, or `refused`, why Spark must do it.
    """
    # One task has one core; Polars reads this when it is first imported.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    try:
        import polars  # noqa: F401

        from helios.native.reader import frames
        from helios.native.writer import TableWriter
    except ImportError as error:
        return json.dumps({"refused": f"an executor cannot import {error.name}"})
    work = Work.parse(work_text)
    writer = TableWriter(work.target, f"{work.name}-{name}", stores[1])
    try:
        for file in share:
            for frame in frames(InputFile(*file), work, stores[0]):
                writer.write(frame)
        return json.dumps({"files": writer.close()})
    except BaseException as error:
        writer.abort()
        reason = _refusal(error)
        if reason is None:
            raise
        return json.dumps({"refused": reason})


def _refusal(error: BaseException) -> str | None:
    """Why Spark must do the batch after an error: it reads the same files, and says what is wrong in its own words."""
    import polars as pl
    import pyarrow as pa

    if isinstance(error, NotNative):
        return str(error)
    if isinstance(error, ImportError):
        return f"an executor cannot import {error.name}"
    if isinstance(error, (pl.exceptions.PolarsError, pa.ArrowException)) or is_outside(error):
        return f"the engine failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None
