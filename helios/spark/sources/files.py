"""The source of file folders: read once, or followed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.errors import NotFound
from helios.files.entry import File
from helios.model.files import FilesSource
from helios.spark.jvm.classes import classes
from helios.spark.sources.file_rows import read_files, schema_of
from helios.spark.sources.spans import SpanSource
from helios.table.positions import Position, Span


class FilesReader(SpanSource):
    """Files of one format as a `Source`."""

    _current: list[File] | None = None

    @property
    def _source(self) -> FilesSource:
        assert isinstance(self.read_plan.source, FilesSource)
        return self.read_plan.source

    def first(self) -> Position:
        return {"files": []}

    def latest(self, after: Position) -> Position:
        read = {tuple(file) for file in after["files"]}
        new = [file for file in self._listing() if astuple(file) not in read][: self._source.max_files]
        return {"files": [*after["files"], *map(astuple, new)]} if new else after

    def current(self) -> Span:
        name = self.read_plan.name
        self._current = self._listing()
        digest = hashlib.sha256(json.dumps([astuple(file) for file in self._current]).encode()).hexdigest()[:32]
        return Span(name, None, {"digest": digest}, {"source": name, "digest": digest})

    def schema(self) -> StructType:
        return schema_of(self.context, self._source, self._listing())

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame | None:
        context = replace(self.context, spark=spark)
        if span is None or span.end is None or "files" not in span.end:
            files = self._current if span is not None and self._current is not None else self._listing()
            return read_files(context, self._source, files)
        start = (span.start or self.first())["files"]
        new = [File(*file) for file in span.end["files"][len(start) :]]
        return read_files(context, self._source, new) if new else None

    def _listing(self) -> list[File]:
        """The files under the path, by modification time."""
        source, spark = self._source, self.context.spark
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            found = reader.load(source.path).inputFiles()
        except PySparkException as error:
            raise NotFound(
                f"{source.label()}: {str(error).splitlines()[0]}",
                where=source.origin,
                fix="check the path; for a folder that is still empty, pass schema=.",
            ) from error
        jvm = classes()
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        listed = []
        for file in found:
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
            status = path.getFileSystem(conf).getFileStatus(path)
            listed.append(File(str(path.toString()), int(status.getLen()), int(status.getModificationTime())))
        return sorted(listed, key=lambda file: (file.modified, file.path))
