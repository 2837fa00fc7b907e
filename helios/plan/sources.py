"""The kinds of sources: one row each, with what the compiler and the run ask of it."""

from __future__ import annotations

from dataclasses import dataclass

from helios.errors import DeclarationError
from helios.model.files import FilesSource
from helios.model.flow import Source
from helios.model.memory import MemorySource
from helios.model.source import IcebergSource


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A kind of source.

    Attributes:
        reader: The class that reads it on Spark, as "module:Class"; a `helios.spark.sources.protocol.Source`.
        jars: Components of `helios.environment.coordinates` that it needs beside those of catalogs.
        spans: Whether a batch is read from its span, so that a replay is exact and several can be followed by one
            stateless pipeline; otherwise Spark's own stream delivers the rows.
        counts_rows: Whether rows are counted before they are read, so that they can bound a batch.
    """

    reader: str
    jars: tuple[str, ...] = ()
    spans: bool = True
    counts_rows: bool = True


SOURCES: dict[type[Source], SourceRow] = {
    IcebergSource: SourceRow(reader="helios.spark.sources.iceberg:IcebergReader"),
    FilesSource: SourceRow(reader="helios.spark.sources.files:FilesReader", spans=False, counts_rows=False),
    MemorySource: SourceRow(reader="helios.spark.sources.memory:MemoryReader"),
}
"""By the type of the declared source."""


def row_of(source: Source) -> SourceRow:
    """The row of a source.

    Raises:
        DeclarationError: Its kind is unknown.
    """
    row = SOURCES.get(type(source))
    if row is None:
        raise DeclarationError(
            f"{type(source).__name__} is no kind of source that Helios knows.",
            where=source.origin,
            fix=f"use one of {', '.join(sorted(kind.kind for kind in SOURCES))}.",
        )
    return row
