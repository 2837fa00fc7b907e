"""`FILES`, the kind of source for folders of files."""

from __future__ import annotations

from helios.sources.common.kind import SourceKind
from helios.sources.files.declare import FilesSource
from helios.sources.files.describe import describe, missing_path_error, overlaps, store_folder
from helios.sources.files.folder_position import FolderPosition

FILES = SourceKind(
    declared=FilesSource,
    reader="helios.sources.files.spark.reader:FilesReader",
    position=FolderPosition,
    describe=describe,
    store_folder=store_folder,
    overlaps=overlaps,
    empty_entry={"digest": ""},
    counts_rows=False,
    logged=True,
    absent=missing_path_error,
    lag="helios.sources.files.lag:lag",
    lookup="helios.sources.files.lookup:lookup",
    failures="helios.sources.files.spark.failures:failure",
    read_reason="stateless over a folder: each batch reads the files that the source's log names",
    feed="helios.testing.feeds:FilesFeed",
)
