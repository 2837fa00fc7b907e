"""Describes folders of files without a JVM: their location, columns and problems."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from helios.catalog.conf import hadoop_uri
from helios.catalog.storages import STORAGES, storage_type_of
from helios.errors import DeclarationError, HeliosError, InputError, NotFound, near_miss
from helios.plan.context import Context, Surroundings
from helios.plan.nodes import ReadPlan, StoreFolder
from helios.plan.typing.schema import Column, Schema, from_arrow
from helios.plan.typing.types import UNKNOWN, quoted
from helios.sources.common.describe import declared_columns
from helios.sources.files.declare import METADATA as FILE_METADATA
from helios.sources.files.declare import FilesSource
from helios.table.file_names import data_files_below, is_glob, local_matches, overlap, split_glob

MAX_FOOTERS = 1000
"""The maximum number of footers that a check reads. For larger folders, only a run determines the columns."""

FOOTER_THREADS = 16
"""The threads that read footers. There are many, since each thread mostly waits for the disk."""


def local(path: str) -> str | None:
    """A path of the local file system, without its scheme; None for any other path."""
    if urlsplit(path).scheme not in ("", "file"):
        return None
    return path.removeprefix("file://").removeprefix("file:")


def parquet_columns(path: str) -> Schema | None:
    """The columns of all parquet files under a local path, united by name.

    A column whose types in the files differ has the type `unknown`. The result is None if there are no files or too
    many, if a file cannot be read, or if folders such as day=2026-01-01 add columns.
    """
    folder = local(path)
    files = list(islice(data_files_below(folder), MAX_FOOTERS + 1)) if folder is not None else []
    if not files or len(files) > MAX_FOOTERS:
        return None
    assert folder is not None
    base = folder if os.path.lexists(folder) else split_glob(folder)[0]
    if any("=" in os.path.relpath(os.path.dirname(file) or ".", base) for file in files):
        return None
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow
    import pyarrow.parquet

    try:
        with ThreadPoolExecutor(min(FOOTER_THREADS, len(files))) as pool:
            schemas = list(pool.map(pyarrow.parquet.read_schema, files))
    except (pyarrow.ArrowException, OSError):
        return None  # the run reports the file
    columns: dict[str, Column] = {}
    for column in (column for schema in schemas for column in from_arrow(schema).columns):
        known = columns.setdefault(column.name.lower(), column)
        if known.type != column.type:
            columns[column.name.lower()] = Column.of(known.name, UNKNOWN)
    return Schema(tuple(columns.values()))


def missing_path_error(source: FilesSource) -> NotFound | None:
    """The error for a local path that does not exist, since a run would stop at it; None for any other path."""
    path = local(source.path)
    if path is None or local_matches(path):
        return None
    parent, name = os.path.split(path.rstrip("/"))
    siblings = sorted(os.listdir(parent or ".")) if os.path.isdir(parent or ".") else []
    return nothing_there_error(source, f" {near_miss(name, siblings)}" if siblings and not is_glob(name) else "")


def nothing_there_error(source: FilesSource, hint: str = "") -> NotFound:
    """The error for a path that does not exist."""
    return NotFound(
        f"{source.label()}: there is nothing at {source.path}.{hint}",
        where=source.origin,
        fix="check the path; if its files arrive later, make the folder.",
    )


def store_folder(source: FilesSource, context: Context) -> StoreFolder | None:
    """The folder of a source, with its storage, if the path is on an object store; None for any other path."""
    kind, storage = storage_type_of(source.path), source.storage
    if isinstance(storage, str):
        storage = context.config.storage(storage, source.origin)
    if storage is not None and storage.type != kind:
        raise InputError(
            f"{source.label()}: the storage is of the kind {storage.type}, but the path is not.",
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
    problems: list[HeliosError] = _not_null_problems(source, schema)
    if schema is not None and source.metadata:
        names = [name for name, _ in source.metadata if schema.get(name) is not None]
        problems += [source.name_taken_error(name, "schema=") for name in names]
        schema = Schema(
            (*schema.columns, *(Column(name, FILE_METADATA[metadata_name]) for name, metadata_name in source.metadata))
        )
    if source.extra == "add" and not source.rescued:
        schema = None  # undeclared columns are known only when the files are read
    return ReadPlan(source=source, schema=schema), problems


def _not_null_problems(source: FilesSource, schema: Schema | None) -> list[HeliosError]:
    """At most one error, for columns that are declared NOT NULL, since readers of files do not check this."""
    names = [column.name for column in schema.columns if not column.nullable] if schema is not None else []
    if not names or source.declared_schema is None:
        return []
    step = f'expect({{"{names[0]} is there": "{quoted(names[0])} IS NOT NULL"}}, on_fail="quarantine")'
    return [
        DeclarationError(
            f"{source.label()}: its schema says that {', '.join(names)} must not be null, and readers of files do "
            "not check that.",
            where=source.origin,
            fix=f"leave NOT NULL out, and say what happens to rows without a value: {step}.",
        )
    ]


def overlaps(source: FilesSource, entry: Mapping[str, Any]) -> bool:
    """Returns True if a recorded entry belongs to a folder that overlaps with the folder of the source."""
    is_folder = "digest" in entry or "log" in (entry.get("place") or {})
    return is_folder and overlap(source.path, str(entry["source"]))
