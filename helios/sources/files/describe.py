"""Folders of files without a JVM: their location, and their columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from glob import glob, has_magic
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from helios.catalog.conf import hadoop_uri
from helios.catalog.storages import STORAGES, kind_of
from helios.errors import DeclarationError, HeliosError, InputError, NotFound, near_miss
from helios.plan.context import Context, Surroundings
from helios.plan.nodes import ReadPlan, StoreFolder
from helios.plan.typing.schema import Column, Schema, from_arrow
from helios.plan.typing.types import UNKNOWN, quoted
from helios.sources.common.describe import declared_columns
from helios.sources.files.declare import METADATA as FILE_METADATA
from helios.sources.files.declare import FilesSource
from helios.table.file_names import overlap

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
    folder = local(path)
    files = list(islice(_files(folder), MOST + 1)) if folder is not None else []
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
    """The problem of a local path that does not exist, at which a run would stop."""
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


def place_of(source: FilesSource, context: Context) -> StoreFolder | None:
    kind, storage = kind_of(source.path), source.storage
    if isinstance(storage, str):
        storage = context.config.storage(storage, source.origin)
    if storage is not None and storage.type != kind:
        raise InputError(
            f"{source.label()}: the storage is of the kind {storage.type}, and the path is not.",
            where=source.origin,
            fix=f"write the path as {STORAGES[storage.type].example}.",
        )
    return StoreFolder(hadoop_uri(source.path), storage) if kind not in (None, "local") else None


def describe(source: FilesSource, around: Surroundings) -> tuple[ReadPlan, list[HeliosError]]:
    schema = declared_columns(source)
    if schema is None and source.format == "parquet":
        schema = parquet_columns(source.path)
    elif schema is not None and source.rescued:
        schema = Schema((*schema.columns, Column(source.rescued, "string")))
    problems: list[HeliosError] = _required(source, schema)
    if schema is not None and source.metadata:
        problems += [source.taken(name, "schema=") for name, _ in source.metadata if schema.get(name) is not None]
        schema = Schema((*schema.columns, *(Column(name, FILE_METADATA[what]) for name, what in source.metadata)))
    if source.extra == "add" and not source.rescued:
        schema = None  # what else the files have is known when they are read
    return ReadPlan(source=source, schema=schema), problems


def _required(source: FilesSource, schema: Schema | None) -> list[HeliosError]:
    """The problem of declared columns that must not be null: readers of files do not check that."""
    names = [column.name for column in schema.columns if not column.nullable] if schema is not None else []
    if not names or source.declared_schema is None:
        return []
    where = f'expect({{"{names[0]} is there": "{quoted(names[0])} IS NOT NULL"}}, on_fail="quarantine")'
    return [
        DeclarationError(
            f"{source.label()}: its schema says that {', '.join(names)} must not be null, and readers of files do "
            "not check that.",
            where=source.origin,
            fix=f"leave NOT NULL out, and say what happens to rows without a value: {where}.",
        )
    ]


def is_same(source: FilesSource, entry: Mapping[str, Any]) -> bool:
    is_folder = "digest" in entry or "log" in (entry.get("place") or {})
    return is_folder and overlap(source.path, str(entry["source"]))
