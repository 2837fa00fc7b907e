"""Keeps the columns of a followed folder in the checkpoint, so that a restart opens only files that are new."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql.types import StructType

from helios.errors import CheckpointError
from helios.sources.common.file import File
from helios.sources.common.spark.context import SourceContext
from helios.sources.files.declare import FilesSource
from helios.sources.files.folder_position import FolderPosition
from helios.sources.files.log import FileLog, FileStats
from helios.sources.files.spark import rows as file_rows
from helios.sources.files.spark.changes import refill_error
from helios.sources.files.spark.columns import inferred_key
from helios.spark.checkpoint.files import FILES, Checkpoint


class KeptColumns:
    """The columns of one followed folder, which the checkpoint keeps.

    Args:
        number: The number of the source among the followed sources.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._name = f"{FILES}/{number}.columns.json"
        self._kept: tuple[StructType, StructType] | None = None
        """The columns of the files, and the partition columns, as the checkpoint has them."""

    def of(self, context: SourceContext, source: FilesSource, files: Sequence[File]) -> StructType:
        """The columns of the present files and of all files that were read before; see `rows.schema_of`.

        Raises:
            CheckpointError: The columns in the checkpoint cannot be read.
            InputError: A file does not have the declared columns, or two files do not fit together.
            RunError: A file cannot be read; or the run refills the target, and a file that was read before is gone.
        """
        checkpoint = context.checkpoint if source.streaming else None
        if checkpoint is None or context.refills:
            if checkpoint is not None and source.missing == "fail":
                _refuse_refill(checkpoint, source, self._number, files)
            return file_rows.schema_of(context, source, files)
        self._kept = self._read(checkpoint, source) if source.declared_schema is None else None
        if self._kept is not None:
            columns, partition_columns = self._kept
            context.inferred.columns.setdefault(inferred_key(source), columns)
            context.inferred.partition_columns.setdefault(inferred_key(source), partition_columns)
        elif source.declared_schema is None or source.extra == "add":
            # Every file has to be opened, as it may have more columns.
            return file_rows.schema_of(context, source, files)
        known = _committed_files(checkpoint, self._number)
        unread = [file for file in files if known.get(file.path) != (file.size, file.modified)]
        return file_rows.schema_of(context, source, unread, folders=files)

    def keep(self, context: SourceContext, source: FilesSource) -> None:
        """Stores the inferred columns in the checkpoint.

        Called when a batch is planned: from then on, the pipeline owns the checkpoint.
        """
        columns, checkpoint = context.inferred.columns.get(inferred_key(source)), context.checkpoint
        partition_columns = context.inferred.partition_columns.get(inferred_key(source), StructType())
        if columns is None or source.declared_schema is not None or checkpoint is None:
            return
        if self._kept == (columns, partition_columns):
            return
        stored = {
            "v": 1,
            "read_as": _read_as(source),
            "columns": columns.jsonValue(),
            "folders": partition_columns.jsonValue(),
        }
        checkpoint.files.write(self._name, json.dumps(stored))
        self._kept = columns, partition_columns

    def _read(self, checkpoint: Checkpoint, source: FilesSource) -> tuple[StructType, StructType] | None:
        """The stored columns of the files, and the partition columns; None if none are stored for these settings."""
        text = checkpoint.files.read(self._name)
        if text is None:
            return None
        try:
            stored = json.loads(text)
            if stored["read_as"] != _read_as(source):
                return None
            return StructType.fromJson(stored["columns"]), StructType.fromJson(stored["folders"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{checkpoint.location}/{self._name}, the columns of a source, cannot be read ({error}).",
                where=source.origin,
                fix="delete this file: the columns are then taken from all files of the source again.",
            ) from error


def _read_as(source: FilesSource) -> dict[str, object]:
    """The settings that decide which columns the files have. If a setting changes, all files are opened again."""
    return {"path": source.path, "format": source.format, "options": dict(sorted(source.reader_options().items()))}


def _committed_files(checkpoint: Checkpoint, number: int) -> FileStats:
    """The files that committed batches have read. The files of a planned batch may not have been opened."""
    log, batches = FileLog(checkpoint.files, checkpoint.location, number), checkpoint.batches("commits")
    for position in checkpoint.offsets(batches[-1]) if batches else ():
        at = FolderPosition.of(position) if position is not None else None
        # Only the end of the path is compared, since the checkpoint may have been moved.
        if at is not None and at.log.endswith(f"/{FILES}/{number}"):
            return log.load(at)
    return {}


def _refuse_refill(checkpoint: Checkpoint, source: FilesSource, number: int, files: Sequence[File]) -> None:
    """Refuses a full refresh if files that were read are gone, since the emptied target would lose their rows."""
    try:
        known = _committed_files(checkpoint, number)
    except CheckpointError:
        return  # the refresh clears a damaged log, too
    gone = sorted(known.keys() - {file.path for file in files})
    if gone:
        raise refill_error(source, gone)
