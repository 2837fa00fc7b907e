"""The Iceberg table properties for a sink's write settings."""

from __future__ import annotations

from collections.abc import Mapping

from helios.errors import DeclarationError, HeliosError, near_miss
from helios.model.sink import DEFAULT_FILE_SIZE, FORMAT_PROPERTY, IcebergSink

MERGE_MODES = ("write.merge.mode", "write.delete.mode", "write.update.mode")
SERIALIZABLE = {f"write.{command}.isolation-level": "serializable" for command in ("merge", "delete", "update")}
"""Only serializable isolation detects conflicts of inserts: otherwise two identical MERGEs insert twice."""

WRITER_CODECS: dict[str, dict[str, str]] = {
    "parquet": {"none": "uncompressed", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4", "zstd": "zstd"},
    "orc": {"none": "none", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd", "gzip": "zlib"},
    "avro": {"none": "uncompressed", "snappy": "snappy", "gzip": "gzip", "zstd": "zstd"},
}
"""The codecs of each file format, with their names in Iceberg. Spark's jars have no implementation of other codecs."""

LEVELS = {"gzip": range(1, 10), "zstd": range(1, 23)}
"""The compression levels of each codec that has levels."""
GZIP_LEVELS = ("BEST_SPEED", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "BEST_COMPRESSION")
"""The names of the levels 1 to 9 in Hadoop's codec, which Iceberg's Parquet writer uses."""

METADATA_FILES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Limits the old metadata files of a table. By default, Iceberg keeps the file of every commit, and each file lists all
snapshots; a pipeline that follows a source commits for years. 20 files are enough for readers, which load a file right
after the catalog has named it.

Iceberg's own limit of 100 files would not help more. `helios.table.ancestry` needs an old file only to find snapshots
that have expired. With a commit a minute, 20 files cover 20 minutes and 100 files less than two hours, but
`expire="5d"` keeps 7,200 snapshots. An older batch is found by the snapshot or the metadata file that the checkpoint
has recorded. If that fails, too, the run is refused and no row is lost. So 80 more files of up to 1 MB each are not
worth their cost."""


def new_table_properties(sink: IcebergSink, *, followed: bool = False) -> dict[str, str]:
    """The properties of a table that Helios creates; `followed` tells that the pipeline follows its source."""
    file_size = str(sink.bytes_per_file or DEFAULT_FILE_SIZE)
    modes = dict.fromkeys(MERGE_MODES, "merge-on-read")
    return {
        FORMAT_PROPERTY: str(sink.new_format),
        "write.target-file-size-bytes": file_size,
        **modes,
        **(METADATA_FILES if followed else {}),
        **write_overrides(sink),
        **dict(sink.properties),
    }


def default_format(sink: IcebergSink, properties: Mapping[str, str] | None = None) -> str:
    """The format of data files: from the properties of an existing table, or else from those of the sink."""
    table = dict(sink.properties) if properties is None else properties
    return table.get("write.format.default", "parquet").lower()


def write_overrides(sink: IcebergSink, file_format: str | None = None) -> dict[str, str]:
    """The properties that a pipeline's writes use instead of those of the table.

    `file_format` is the format of the table's data files; by default, the format that the sink declares for new tables.
    """
    file_format = file_format or default_format(sink)
    properties: dict[str, str] = {}
    if sink.bytes_per_file:
        properties["write.target-file-size-bytes"] = str(sink.bytes_per_file)
    if sink.row_changes:
        properties |= dict.fromkeys(MERGE_MODES, sink.row_changes)
    if sink.codec:
        codecs = WRITER_CODECS.get(file_format, {})
        properties[f"write.{file_format}.compression-codec"] = codecs.get(sink.codec, sink.codec)
        if sink.codec_level is not None:
            properties[f"write.{file_format}.compression-level"] = _level(sink.codec, sink.codec_level, file_format)
    if sink.distributes:
        properties["write.distribution-mode"] = sink.distributes
        properties["write.merge.distribution-mode"] = sink.distributes
    return properties


def _level(codec: str, level: int, file_format: str) -> str:
    """A compression level as the writer of a file format expects it: Parquet's levels of gzip have names."""
    has_name = (codec, file_format) == ("gzip", "parquet") and level in LEVELS["gzip"]
    return GZIP_LEVELS[level - 1] if has_name else str(level)


def codec_problems(sink: IcebergSink, file_format: str) -> list[HeliosError]:
    """The problems of an unknown file format, or of a codec or level that the writer of the format does not support."""
    if file_format not in WRITER_CODECS:
        return [
            DeclarationError(
                f'"write.format.default": {file_format!r} is not a format of data files. '
                f"{near_miss(file_format, WRITER_CODECS)}",
                where=sink.origin,
            )
        ]
    if sink.codec is None:
        return []
    known = WRITER_CODECS[file_format]
    if sink.codec not in known:
        return [
            DeclarationError(
                f"compression({sink.codec!r}): Spark's jars have no such codec for {file_format}.",
                where=sink.origin,
                fix=f"use one of {', '.join(known)}.",
            )
        ]
    # The codecs of ORC have no levels.
    levels = LEVELS.get(sink.codec, range(0)) if file_format != "orc" else range(0)
    if sink.codec_level is not None and sink.codec_level not in levels:
        takes = f"takes levels {levels.start} to {levels.stop - 1}" if levels else "has no levels"
        return [
            DeclarationError(
                f"compression({sink.codec!r}, {sink.codec_level}): {sink.codec} in {file_format} {takes}.",
                where=sink.origin,
            )
        ]
    return []
