"""The columns that each file has, from one look at its footer or header, and files that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import NullType, StringType, StructField, StructType

from helios.files.entry import File
from helios.model.file_formats import CODECS, FORMATS
from helios.model.files import FilesSource
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import java_causes
from helios.spark.jvm.types.hadoop import JavaConfiguration, JavaPath
from helios.spark.sources.file_types import nullable

LOOKS = 16
"""How many files are looked at at the same time; a look is mostly waiting for the storage."""

MAGIC = {
    b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro", b"\x1f\x8b": "gzip", b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"PAR": "parquet",
}  # fmt: skip
"""What the first bytes of a file say."""

CODEC_MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd"}


class Unreadable(Exception):
    """A file that cannot be read, with the cause as its text."""


@dataclass(frozen=True)
class Found:
    """What a look at a file found.

    Attributes:
        file: The file.
        columns: Its columns in its own order, `void` where it does not say their types; None without rows.
        cause: Why it cannot be read; empty for a good one.
    """

    file: File
    columns: StructType | None = None
    cause: str = ""


def look(spark: SparkSession, source: FilesSource, files: Sequence[File]) -> list[Found]:
    """Looks at the footer or header of each file, in parallel."""
    looker = _Looker(spark, source)
    if len(files) < 2:
        return [looker(file) for file in files]
    with ThreadPoolExecutor(min(LOOKS, len(files))) as pool:
        return list(pool.map(looker, files))


class _Looker:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._spark = spark
        self._source = source
        self._state = spark._jsparkSession.sessionState()
        self._conf: JavaConfiguration = self._state.newHadoopConf()
        self._format = FORMATS[source.format]

    def __call__(self, file: File) -> Found:
        try:
            columns = self._columns(file)
        except Unreadable as error:
            return Found(file, cause=str(error))
        except (Py4JError, PySparkException) as error:
            return Found(file, cause=cause_of(error))
        if columns is not None and (twice := _twice(columns)):
            return Found(file, cause=f"its column {twice!r} is there twice")
        return Found(file, columns)

    def _columns(self, file: File) -> StructType | None:
        path: JavaPath = classes().org.apache.hadoop.fs.Path(file.path)
        if file.size == 0:
            if self._format.owns_types:
                raise Unreadable("the file is empty (0 bytes)")
            return None
        self._look_at_magic(file, path)
        if self._source.format == "parquet":
            return self._parquet(path)
        if self._format.owns_types:
            found = self._spark.read.format(self._source.format).option("__globPaths__", "false").load(file.path).schema
            kind = nullable(found)
            assert isinstance(kind, StructType)
            return kind
        return self._text(path)

    def _look_at_magic(self, file: File, path: JavaPath) -> None:
        """Compares the first bytes of a file with its format and its codec."""
        stream = path.getFileSystem(self._conf).open(path)
        try:
            first = bytes(stream.readNBytes(4))
        finally:
            stream.close()
        told = next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), None)
        ending = file.path.rsplit(".", 1)[-1].lower()
        if self._format.owns_types:
            if told != self._source.format:
                raise Unreadable(f"it is no {self._source.format} file" + (f" but {told}" if told else ""))
        elif ending in CODEC_MAGIC and not first.startswith(CODEC_MAGIC[ending]):
            raise Unreadable(f"its name ends in .{ending}, and it is not compressed so" + (f": {told}" if told else ""))
        elif ending not in CODECS and told is not None:
            raise Unreadable(f"it is no {self._source.format} file but {told}: a compressed file needs its ending")

    def _parquet(self, path: JavaPath) -> StructType:
        jvm = classes()
        skipped = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
        footer = jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter(self._conf, path, skipped)
        converter = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetToSparkSchemaConverter
        # The footer itself, and not the copy of a schema that some writer left in its metadata.
        schema = converter(self._state.conf()).convert(footer.getFileMetaData().getSchema())
        kind = nullable(StructType.fromJson(json.loads(schema.json())))
        assert isinstance(kind, StructType)
        return kind

    def _text(self, path: JavaPath) -> StructType | None:
        """The header of a csv file; no columns for other text, whose first byte only is read."""
        stream = classes().org.apache.spark.sql.execution.datasources.CodecStreams.createInputStream(self._conf, path)
        names: list[str] | None = []
        try:
            if self._source.format == "csv" and self._source.flag("header"):
                names = self._header(stream)
            elif stream.read() < 0:
                names = None
        finally:
            stream.close()
        self._read_through(path)
        if names is None:
            return None
        if self._source.format == "text":
            return StructType([StructField("value", StringType())])
        return StructType([StructField(name or f"_c{i}", NullType()) for i, name in enumerate(names)])

    def _read_through(self, path: JavaPath) -> None:
        """Reads a compressed file to its end, where damaged files are set aside: only its end says that it is whole."""
        name = str(path.getName())
        if self._source.bad_file == "quarantine" and name.rsplit(".", 1)[-1].lower() in CODECS:
            text = self._spark.read.format("text").option("__globPaths__", "false").load(str(path.toString()))
            text.write.format("noop").mode("overwrite").save()

    def _header(self, stream: object) -> list[str] | None:
        """The names in a csv header, parsed by Spark's own parser with the options of the source."""
        jvm = classes()
        options = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(self._source.reader_options())
        parsed = jvm.org.apache.spark.sql.catalyst.csv.CSVOptions(options, False, "UTC")
        settings = parsed.asParserSettings()
        settings.setInputBufferSize(1 << 16)
        settings.setLineSeparatorDetectionEnabled("lineSep" not in self._source.reader_options())
        parser = jvm.com.univocity.parsers.csv.CsvParser(settings)
        try:
            parser.beginParsing(stream, parsed.charset())
            names = parser.parseNext()
        finally:
            parser.stopParsing()
        return [name if name is not None else "" for name in names] if names is not None else None


def _twice(columns: StructType) -> str | None:
    """A column name that is there twice, as Spark compares names."""
    names = [field.name.lower() for field in columns.fields]
    return next((field.name for i, field in enumerate(columns.fields) if field.name.lower() in names[:i]), None)


def cause_of(error: BaseException) -> str:
    """Why Java could not read a file: the innermost message, in one line."""
    messages = [str(cause.getMessage()) for cause in java_causes(error) if cause.getMessage()]
    if not messages and isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return (messages[-1] if messages else str(error)).strip().splitlines()[0]
