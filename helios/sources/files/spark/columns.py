"""Finds the columns of each file, from its footer or header, and the files that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from helios.errors import InputError
from helios.plan.typing.types import quoted
from helios.sources.common.file import File
from helios.sources.common.spark.protocol import DamagedFile
from helios.sources.common.spark.types import as_nullable
from helios.sources.files.declare import FilesSource
from helios.sources.files.formats import CODECS, FORMATS
from helios.spark.iceberg.failures import is_outage
from helios.spark.jvm.classes import classes
from helios.spark.jvm.errors import innermost_message
from helios.spark.jvm.sql import struct_of
from helios.spark.jvm.types.hadoop import JavaConfiguration, JavaPath
from helios.spark.jvm.types.parquet import JavaMessageType

MAX_FILES_OF_ONE_THREAD = 100
"""Up to this number of local text files, one thread is faster than several, which would wait for one another."""

THREADS = 16
"""The threads that open files. There are many, since each thread mostly waits for the storage."""

MAGIC = {
    b"PAR1": "parquet", b"ORC": "orc", b"Obj\x01": "avro", b"\x1f\x8b": "gzip", b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstandard", b"PK\x03\x04": "zip", b"PARE": "parquet",
}  # fmt: skip
"""The formats of files, by their first bytes; PARE begins a parquet file with an encrypted footer."""

CONTROLS = frozenset(range(9)) | frozenset(range(14, 32))
"""Bytes that no text has. A csv file that begins with a name such as ORCHARD has none, so it is not taken for ORC."""

NANOS = "TIMESTAMP(NANOS,"
"""The beginning of a nanosecond timestamp's type in the text of a footer; `true)` follows if the time is in UTC."""

TIME = '"type":"time('
"""The beginning of the type `time` in the JSON of a schema. Spark has the type, but does not read it from files."""

NANOS_AS_LONG = "spark.sql.legacy.parquet.nanosAsLong"
"""Spark's conf to read nanosecond timestamps as bigint. Without this conf, Spark refuses such timestamps."""

MAX_BYTES = 512 << 20
"""The maximum size of a file that one task reads as a whole. The task takes up to twenty times as much memory."""

CODEC_MAGIC = {"gz": b"\x1f\x8b", "bz2": b"BZh", "zst": b"\x28\xb5\x2f\xfd"}
"""The first bytes of compressed files, by their endings."""


def inferred_key(source: FilesSource) -> str:
    """The key of a source in `Inferred`. Two sources may read the same path with different options or columns."""
    return json.dumps([source.path, source.format, sorted(source.reader_options().items()), source.declared_schema])


class Unreadable(Exception):
    """A file cannot be read. The text of the error is the cause."""


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file, or the reason why it cannot be read.

    Attributes:
        columns: The columns in the order of the file; None if the file is empty or cannot be read. They have the type
            `void` if the format stores no types.
        nanos: The names of the columns with nanosecond timestamps.
        cause: The reason why the file cannot be read; empty if it can be read.
    """

    file: File
    columns: StructType | None = None
    nanos: frozenset[str] = frozenset()
    cause: str = ""


def columns_of(spark: SparkSession, source: FilesSource, files: Sequence[File]) -> list[FileColumns]:
    """The columns of each file, from its footer or header. The files are opened in parallel."""
    inspector = _Inspector(spark, source)
    quick = not FORMATS[source.format].stores_types and source.bad_file != "quarantine"
    local = bool(files) and urlsplit(files[0].path).scheme in ("", "file")
    if len(files) <= (MAX_FILES_OF_ONE_THREAD if local and quick else 1):
        return [inspector.columns(file) for file in files]
    with ThreadPoolExecutor(min(THREADS, len(files))) as pool:
        return list(pool.map(inspector.columns, files))


class _Inspector:
    """Opens the files of a source to find their columns."""

    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._spark = spark
        self._source = source
        self._state = spark._jsparkSession.sessionState()
        self._conf: JavaConfiguration = self._state.newHadoopConf()
        self._format = FORMATS[source.format]
        self._nanos_conf = self._state.conf().clone()
        self._nanos_conf.setConfString(NANOS_AS_LONG, "true")

    def columns(self, file: File) -> FileColumns:
        """The columns of a file, or the reason why it cannot be read."""
        try:
            inspected = self._inspected(file)
        except Unreadable as error:
            return FileColumns(file, cause=str(error))
        except (Py4JError, PySparkException) as error:
            if is_outage(error):
                raise  # the storage is down, and the file may be good
            return FileColumns(file, cause=innermost_message(error))
        repeated = _repeated_name(inspected.columns) if inspected.columns is not None else None
        if repeated is not None:
            return FileColumns(file, cause=f"its column {repeated!r} occurs twice")
        return inspected

    def _inspected(self, file: File) -> FileColumns:
        path: JavaPath = classes().org.apache.hadoop.fs.Path(file.path)
        if file.size == 0:
            if self._format.stores_types:
                raise Unreadable("the file is empty (0 bytes)")
            return FileColumns(file)
        if self._source.flag("multiLine") and file.size > MAX_BYTES:
            raise Unreadable(f"it has {file.size:,} bytes, and at most {MAX_BYTES:,} can be read with multiLine")
        self._check_magic(file, path)
        if self._source.format == "parquet":
            return self._parquet_columns(file, path)
        if self._format.stores_types:
            reader = self._spark.read.format(self._source.format).option("__globPaths__", "false")
            kind = as_nullable(reader.load(file.path).schema)
            assert isinstance(kind, StructType)
            return FileColumns(file, kind)
        return FileColumns(file, self._text_columns(file, path))

    def _check_magic(self, file: File, path: JavaPath) -> None:
        """Refuses a file of another format than the source, or of another compression than its name says."""
        stream = path.getFileSystem(self._conf).open(path)
        try:
            first = bytes(stream.readNBytes(32))
        finally:
            stream.close()
        actual = next((kind for magic, kind in MAGIC.items() if first.startswith(magic)), "")
        if actual in ("parquet", "orc", "bzip2") and not self._format.stores_types and CONTROLS.isdisjoint(first):
            actual = ""
        ending = file.path.rsplit(".", 1)[-1].lower()
        if self._format.stores_types:
            if actual != self._source.format:
                raise Unreadable(f"it is no {self._source.format} file" + (f" but {actual}" if actual else ""))
        elif ending in CODEC_MAGIC and not first.startswith(CODEC_MAGIC[ending]):
            content = f"its content is {actual}" if actual else "its content is not compressed that way"
            raise Unreadable(f"its name ends in .{ending}, but {content}")
        elif ending not in CODECS and actual:
            is_compressed = first.startswith(tuple(CODEC_MAGIC.values()))
            hint = ": the name of a compressed file must say so, by an ending such as .gz" if is_compressed else ""
            raise Unreadable(f"it is no {self._source.format} file but {actual}{hint}")

    def _parquet_columns(self, file: File, path: JavaPath) -> FileColumns:
        jvm = classes()
        no_row_groups = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.SKIP_ROW_GROUPS
        footer = jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter(self._conf, path, no_row_groups)
        # This is the schema of parquet itself. A writer may also have left a copy of Spark's schema in the metadata.
        message: JavaMessageType = footer.getFileMetaData().getSchema()
        columns, unsupported = self._converted(message)
        self._refuse_unsupported(columns, unsupported)
        kind = as_nullable(columns)
        assert isinstance(kind, StructType)
        nanos = _nanos(message, kind)
        fields = [StructField(field.name, nanos.get(field.name, field.dataType)) for field in kind.fields]
        return FileColumns(file, StructType(fields), frozenset(nanos))

    def _converted(self, message: JavaMessageType) -> tuple[StructType, dict[str, str]]:
        """The columns of a footer that Spark can read, and for each other column its parquet type, by name."""
        parquet = classes().org.apache.spark.sql.execution.datasources.parquet
        converter = parquet.ParquetToSparkSchemaConverter(self._nanos_conf)
        try:
            text = str(converter.convert(message).json())
            if TIME not in text:
                return StructType.fromJson(json.loads(text)), {}
        except (Py4JError, PySparkException) as error:
            if is_outage(error):
                raise
        columns, unsupported = StructType(), dict[str, str]()
        for field in message.getFields():
            single_field = classes().java.util.ArrayList()
            single_field.add(field)
            message_of_field = classes().org.apache.parquet.schema.MessageType("one", single_field)
            try:
                text = str(converter.convert(message_of_field).json())
            except (Py4JError, PySparkException):
                text = ""
            if not text or TIME in text:
                unsupported[str(field.getName())] = " ".join(str(field.toString()).split())
            else:
                columns = StructType([*columns.fields, *StructType.fromJson(json.loads(text)).fields])
        return columns, unsupported

    def _refuse_unsupported(self, supported: StructType, unsupported: Mapping[str, str]) -> None:
        """Refuses columns of types that Spark does not have, unless the source leaves these columns out."""
        declared = self._source.declared_schema
        wanted = set(map(str.lower, struct_of(declared).names)) if declared is not None else set()
        are_wanted = bool(wanted & {name.lower() for name in unsupported})
        leaves_out = declared is not None and self._source.extra == "ignore" and self._source.rescued is None
        if not unsupported or (leaves_out and not are_wanted):
            return
        rest = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in supported.fields)
        fix = f'; its other columns are read with schema="{rest}", extra="ignore"' if rest and not are_wanted else ""
        raise Unreadable(f"Spark has no type for {', '.join(unsupported.values())}{fix}")

    def _text_columns(self, file: File, path: JavaPath) -> StructType | None:
        """The columns of a csv header, the column `value` of a text file, or no columns; None if the file is empty.

        A compressed file is opened, since its size does not show whether its text is empty.
        """
        has_header = self._source.format == "csv" and self._source.flag("header")
        if not has_header and file.path.rsplit(".", 1)[-1].lower() not in CODECS:
            return self._untyped([])
        stream = classes().org.apache.spark.sql.execution.datasources.CodecStreams.createInputStream(self._conf, path)
        names: list[str] | None = []
        try:
            if has_header:
                names = self._header(stream)
            elif stream.read() < 0:
                names = None
        finally:
            stream.close()
        self._read_through(path)
        return self._untyped(names) if names is not None else None

    def _untyped(self, names: list[str]) -> StructType:
        """The columns of a header, whose types are not known yet; for text files, the column `value`."""
        if self._source.format == "text":
            return StructType([StructField("value", StringType())])
        return StructType([StructField(name or f"_c{i}", NullType()) for i, name in enumerate(names)])

    def _read_through(self, path: JavaPath) -> None:
        """Reads a compressed file to its end if bad files are quarantined, since damage may show only at the end."""
        if self._source.bad_file != "quarantine":
            return
        name = str(path.getName())
        if name.rsplit(".", 1)[-1].lower() in CODECS:
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
        if names is None:
            return None
        texts = [name or "" for name in names]
        if any("\n" in text or "\r" in text for text in texts) and not self._source.flag("multiLine"):
            raise Unreadable("a name in its header has a line break, which needs .option(multiLine=True)")
        return texts


def _nanos(message: JavaMessageType, columns: StructType) -> dict[str, DataType]:
    """The types of the nanosecond timestamps of a footer, by column name. Spark reads these columns as bigint."""
    if NANOS not in str(message.toString()):
        return {}
    nanos: dict[str, DataType] = {}
    types = {str(kind.getName()): kind for kind in message.getFields()}
    for field in columns.fields:
        text = str(types[field.name].toString())
        if NANOS in text and not isinstance(field.dataType, LongType):
            raise Unreadable(f"{field.name} has nested timestamps in nanoseconds, which are read only as whole columns")
        if NANOS in text:
            nanos[field.name] = TimestampType() if f"{NANOS}true)" in text else TimestampNTZType()
    return nanos


def _repeated_name(columns: StructType) -> str | None:
    """A name that occurs twice, ignoring case as Spark does; None if there is none."""
    names = [field.name.lower() for field in columns.fields]
    return next((field.name for i, field in enumerate(columns.fields) if field.name.lower() in names[:i]), None)


def unreadable_files_error(source: FilesSource, bad: Sequence[FileColumns]) -> DamagedFile:
    others = f" {len(bad) - 1} more cannot be read." if len(bad) > 1 else ""
    return DamagedFile(
        f"{bad[0].file.path} cannot be read: {bad[0].cause}.{others} Nothing of its batch was written.",
        where=source.origin,
        fix='repair or remove the file, or set such files aside: .on_bad_file("quarantine").',
    )


def type_conflict_error(
    source: FilesSource, field: StructField, file: File, earlier: StructField | None, other: File | None
) -> InputError:
    """The error for a column that has two types in two files, and no common type."""
    assert earlier is not None
    return InputError(
        f"{source.label()}: {field.name} is {field.dataType.simpleString()} in {file.path} and "
        f"{earlier.dataType.simpleString()} in {other.path if other else 'earlier files'}, and no type holds both.",
        where=source.origin,
        fix=f'declare its type: schema="..., {field.name} string, ...".',
    )
