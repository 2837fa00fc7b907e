"""The source of file folders: read once, or followed by Spark's file stream."""

from __future__ import annotations

import hashlib
import json

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from helios.errors import NotFound
from helios.model.files import FilesSource
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.hadoop import JavaPath
from helios.spark.sources.spans import SpanSource
from helios.table.positions import Position, Span


class FilesReader(SpanSource):
    """Files of one format as a `Source`; Spark keeps the offsets of a followed folder."""

    _current: DataFrame | None = None

    @property
    def _source(self) -> FilesSource:
        assert isinstance(self.read_plan.source, FilesSource)
        return self.read_plan.source

    def span(self, start: Position | None, end: Position | None) -> Span:
        name = self.read_plan.name
        return Span(name, start, end, {"source": name, "to": end})

    def current(self) -> Span:
        name = self.read_plan.name
        self._current = self._load(self.context.spark)
        digest = hashlib.sha256(json.dumps(self._listing(self._current)).encode()).hexdigest()[:32]
        return Span(name, None, {"digest": digest}, {"source": name, "digest": digest})

    def schema(self) -> StructType:
        return self._load(self.context.spark).schema

    def read(self, spark: SparkSession, span: Span | None, *, positioned: bool = False) -> DataFrame:
        # The files that `current` listed, not those that arrived since.
        return self._current if span is not None and self._current is not None else self._load(spark)

    def stream(self) -> DataFrame:
        source, spark = self._source, self.context.spark
        schema = source.declared_schema or self.schema()
        # Spark's default of one week silently skips a file that arrives with an older timestamp.
        options = {"maxFileAge": "36500d", **source.reader_options()}
        reader = spark.readStream.format(source.format).options(**options).schema(schema)
        if source.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", source.max_files)
        return reader.load(source.path)

    def _load(self, spark: SparkSession) -> DataFrame:
        source = self._source
        reader = spark.read.format(source.format).options(**source.reader_options())
        if source.declared_schema is not None:
            reader = reader.schema(source.declared_schema)
        elif source.format == "csv":
            reader = reader.option("inferSchema", "true")
        try:
            return reader.load(source.path)
        except AnalysisException as error:
            raise NotFound(
                f"{source.label()}: {str(error).splitlines()[0]}",
                where=source.origin,
                fix="check the path; for a folder that is still empty, pass schema=.",
            ) from error

    def _listing(self, df: DataFrame) -> list[tuple[str, int, int]]:
        """Path, length in bytes and modification time in milliseconds of each file of a DataFrame."""
        jvm = classes()
        conf = self.context.spark._jsparkSession.sessionState().newHadoopConf()
        listed = []
        for file in sorted(df.inputFiles()):
            path: JavaPath = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
            status = path.getFileSystem(conf).getFileStatus(path)
            listed.append((file, int(status.getLen()), int(status.getModificationTime())))
        return listed
