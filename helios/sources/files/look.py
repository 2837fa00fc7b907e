"""Folders of files without a JVM: whether they are there, and the columns of local parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import glob, has_magic
from itertools import islice
from urllib.parse import urlsplit

from helios.errors import NotFound, near_miss
from helios.plan.typing.schema import Column, Schema, from_arrow
from helios.plan.typing.types import UNKNOWN
from helios.sources.files.declare import FilesSource

MOST = 1000
"""How many footers a check reads; the columns of larger folders are known only at run."""

READERS = 16


def local(path: str) -> str | None:
    """A path of the local file system without its scheme; None for any other."""
    if urlsplit(path).scheme not in ("", "file"):
        return None
    return path.removeprefix("file://").removeprefix("file:")


def parquet_columns(path: str) -> Schema | None:
    """The columns of all parquet files under a local path, united by name.

    Returns:
        The columns, of `unknown` type where files differ; None where there are no files or too many, one of them cannot
        be read, or folders such as day=2026-01-01 add columns.
    """
    found = local(path)
    files = list(islice(_files(found), MOST + 1)) if found is not None else []
    if not files or len(files) > MOST or any("=" in os.path.relpath(file, os.path.dirname(path)) for file in files):
        return None
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow
    import pyarrow.parquet

    try:
        with ThreadPoolExecutor(min(READERS, len(files))) as pool:
            schemas = list(pool.map(pyarrow.parquet.read_schema, files))
    except (pyarrow.ArrowException, OSError):
        return None  # the run names the file
    columns: dict[str, Column] = {}
    for column in (column for schema in schemas for column in from_arrow(schema).columns):
        known = columns.setdefault(column.name.lower(), column)
        if known.type != column.type:
            columns[column.name.lower()] = Column.of(known.name, UNKNOWN)
    return Schema(tuple(columns.values()))


def nothing_at(source: FilesSource) -> NotFound | None:
    """The problem of a local path where nothing is; the run, which lists it, would stop there too."""
    path = local(source.path)
    if path is None or os.path.exists(path) or glob(path):
        return None
    around, name = os.path.split(path.rstrip("/"))
    beside = sorted(os.listdir(around or ".")) if os.path.isdir(around or ".") else []
    hint = f" {near_miss(name, beside)}" if beside and not has_magic(name) else ""
    return NotFound(
        f"{source.label()}: there is nothing at {source.path}.{hint}",
        where=source.origin,
        fix="check the path; for files that are still to come, make the folder.",
    )


def _files(path: str) -> Iterator[str]:
    """The files under a path, without hidden ones."""
    for hit in sorted(glob(path)):
        if os.path.isfile(hit):
            yield hit
        for folder, below, names in os.walk(hit):
            below[:] = sorted(name for name in below if not name.startswith((".", "_")))
            yield from (os.path.join(folder, name) for name in sorted(names) if not name.startswith((".", "_")))
