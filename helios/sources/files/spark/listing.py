"""Lists files through Hadoop, as Spark's own file stream does: on any storage, in parallel, and in few calls.

Spark's file index lists the files. All statuses are passed from the JVM to Python at once, as one text or in one file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from helios.catalog.diagnosis import diagnose
from helios.catalog.storages import storage_type_of
from helios.errors import InputError, RunError
from helios.sources.common.file import File
from helios.sources.files.declare import FilesSource
from helios.sources.files.describe import local
from helios.spark.iceberg.failures import is_outage
from helios.spark.jvm.classes import classes
from helios.spark.jvm.compiled import instance
from helios.spark.jvm.types.hadoop import JavaFileSystem, JavaPath
from helios.spark.jvm.types.java import ScalaSeq
from helios.spark.jvm.types.spark import JavaStatusWriter, ScalaText
from helios.spark.jvm.version import spark_version
from helios.table.file_names import encoded, escaped, glob_pattern, is_data, is_glob, is_hidden, split_glob

Listed: TypeAlias = dict[str, tuple[int, int]]
"""The size in bytes and the modification time in milliseconds of files, by their paths."""

SEPARATOR = "\0"
"""Separates paths and statuses, since no path can contain it."""

PATH, LENGTH, MODIFIED = "{path=", "; isDirectory=false; length=", "; modification_time="
"""The fields of a status as text. Hadoop prints them in this order on every storage."""

MANY = 1_000
"""From this number on, statuses are passed to Python in a file. To check more files, readers list the whole folder."""

STATUSES = Path(__file__).with_name("Statuses.java")

UNDECODED = re.compile("[\udc80-\udcff]")
"""The characters that Python uses for bytes of a name that are not UTF-8."""

SINK_LOG = "_spark_metadata"
"""The log of Spark's file sink. In a folder with this log, only the files that the log names were committed."""

TABLE_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""The folders in which other table formats keep their logs, with the names of the formats."""
_NOT_TABLES: set[str] = set()
"""The paths that are known not to be tables: a followed folder, which is listed often, is checked only once."""


def list_source(spark: SparkSession, path: str, source: FilesSource) -> Listed | None:
    """Lists the path of a source as `list_path` does. The errors name the source.

    Raises:
        InputError: As `list_path`.
        RunError: The object store refuses to list the path.
    """
    try:
        return list_path(spark, path)
    except InputError as error:
        error.where = source.origin
        raise
    except (Py4JJavaError, PySparkException) as error:
        cause = None if is_outage(error) else diagnose(error)
        if cause is None or storage_type_of(path) in (None, "local"):
            raise
        raise RunError(f"{source.label()}: {cause.cause}.", where=source.origin, fix=f"{cause.fix}.") from error


def list_path(spark: SparkSession, path: str) -> Listed | None:
    """Lists all files under a path, at any depth, without hidden and temporary files.

    Args:
        path: A file, a folder or a glob. A path that exists is never taken as a glob.

    Returns:
        The files; an empty dict if a glob matches nothing; None if the path does not exist.

    Raises:
        InputError: The path names hidden files or a table of another format, or a name or a link below it is invalid.
    """
    roots = _paths(spark, [path], globbing=False)
    root = roots.apply(0)
    system = root.getFileSystem(_conf(spark))
    exists = system.exists(root)
    globbing = is_glob(path) and not exists
    if is_hidden(path.rpartition("/")[2]) and (globbing or (exists and system.getFileStatus(root).isFile())):
        raise InputError(
            f"{path} names hidden files: readers skip names that begin with _ or a dot.",
            fix="give them other names.",
        )
    if not exists and not globbing:
        return None
    _refuse_names(path, globbing)
    if globbing:
        roots = _paths(spark, [path], globbing=True)
    else:
        _refuse_other_tables(system, root, path)
    if not globbing and system.exists(classes().org.apache.hadoop.fs.Path(root, SINK_LOG)):
        return _parsed(spark, _sink_files(spark, root))
    listed = _parsed(spark, _leaf_files(spark, roots))
    return {path: stat for path, stat in listed.items() if is_data(path.rpartition("/")[2])}


def _refuse_other_tables(system: JavaFileSystem, root: JavaPath, path: str) -> None:
    """Refuses the folder of another table format, since only a table's log says which files and rows belong to it."""
    if path in _NOT_TABLES:
        return
    for log, kind in TABLE_LOGS.items():
        if system.exists(classes().org.apache.hadoop.fs.Path(root, log)):
            raise InputError(
                f"{path} is a table of {kind}: its folder also has files that no longer belong to the table.",
                fix=f"read it with {kind}'s own reader, and pass the rows to Memory.source; or convert it to an "
                "Iceberg table.",
            )
    _NOT_TABLES.add(path)


def _refuse_names(path: str, globbing: bool) -> None:
    """Refuses files below a local path that Java would skip, or would read several times.

    Raises:
        InputError: A name is not UTF-8, or a link leads nowhere or to a folder that contains the link.
    """
    root, rest = split_glob(path) if globbing else (path, "")
    top = local(root)
    try:
        glob = glob_pattern(rest)
    except re.error:
        return  # Hadoop reports what is wrong with the glob

    def is_read(parts: list[str]) -> bool:
        """True if the glob matches a path or one of its parent folders, since everything below a match is read."""
        return not rest or any(glob.fullmatch("/".join(parts[:n])) for n in range(1, len(parts) + 1))

    # Each folder to visit: its path, the parts of its path below the root, and the real paths of the folders with the
    # links that led there.
    folders: list[tuple[str, list[str], tuple[str, ...]]] = [(top, [], ())] if top is not None else []
    while folders:
        folder, parents, linked_from = folders.pop()
        for entry in _entries(folder):
            parts, containing = [*parents, entry.name], linked_from
            name = "/".join(parts)
            if not name.isascii() and UNDECODED.search(name) and is_read(parts):
                shown = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                raise InputError(
                    f"{shown}: the name is not UTF-8, and Java does not see the file.", fix="rename the file."
                )
            if entry.is_symlink() and is_data(entry.name) and is_read(parts):
                containing = (*linked_from, os.path.realpath(folder))
                _refuse_link(entry.path, containing)
            is_folder = os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()
            may_be_read = not rest or len(parents) < rest.count("/") or is_read(parts)
            if is_folder and may_be_read and not is_hidden(entry.name):
                folders.append((entry.path, parts, containing))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # it is no folder, is gone, or must not be listed: Hadoop raises the error
        return []


def _refuse_link(path: str, containing: Sequence[str]) -> None:
    """Refuses a symbolic link that leads nowhere or in a circle.

    Args:
        containing: The real paths of the folder of the link, and of the folders with the links that led to this folder.
    """
    try:
        target = os.path.realpath(path, strict=True)
    except OSError as error:
        if not os.path.islink(path):
            return  # the link was removed meanwhile
        raise InputError(
            f"{path} is a symbolic link to {os.readlink(path)}, which does not exist: Java skips the link.",
            fix="remove the link, or put the file there.",
        ) from error
    if any(os.path.commonpath([target, folder]) == target for folder in containing):
        raise InputError(
            f"{path} is a symbolic link to {target}, which contains the link: the files would be read again and again.",
            fix="remove the link.",
        )


def list_files(spark: SparkSession, paths: Sequence[str]) -> Listed:
    """The present size and time of those files that exist; for at most `MANY` files."""
    if not paths:
        return {}
    jvm = classes()
    no_filter = jvm.org.apache.spark.sql.execution.datasources.PathFilterWrapper(None)
    statuses: ScalaText = jvm.org.apache.spark.util.HadoopFSUtils.parallelListLeafFiles(
        spark._jsparkSession.sparkContext(),
        _paths(spark, [escaped(path) for path in paths], globbing=True),
        _conf(spark),
        no_filter,
        True,  # ignoreMissingFiles
        False,  # ignoreLocality
        len(paths) + 1,  # more paths than this would make Spark start a job
        1,
    )
    return _parsed(spark, statuses)


def text_seq(texts: Iterable[str]) -> ScalaSeq[str]:
    """A Scala sequence of texts, passed to the JVM in one call."""
    jvm = classes()
    parts = jvm.java.util.regex.Pattern.compile(SEPARATOR).splitAsStream(SEPARATOR.join(texts)).toList()
    seq: ScalaSeq[str] = jvm.org.apache.spark.api.python.PythonUtils.toSeq(parts)
    return seq


def loaded(spark: SparkSession, reader: DataFrameReader, files: Iterable[File]) -> DataFrame:
    """The DataFrame of a reader for files. All paths are passed to the JVM in one call."""
    return DataFrame(reader._jreader.load(text_seq(escaped(file.path) for file in files)), spark)


def _paths(spark: SparkSession, paths: Sequence[str], *, globbing: bool) -> ScalaSeq[JavaPath]:
    """The full paths. With `globbing`, each glob is replaced with the paths that it matches."""
    sources = getattr(getattr(classes().org.apache.spark.sql.execution.datasources, "DataSource$"), "MODULE$")
    matched: ScalaSeq[JavaPath] = sources.checkAndGlobPathIfNecessary(
        text_seq(paths), _conf(spark), False, False, 8, globbing
    )
    return matched


def _conf(spark: SparkSession) -> Any:
    return spark._jsparkSession.sessionState().newHadoopConf()


def _options() -> Any:
    jvm = classes()
    options = jvm.java.util.HashMap()
    options.put("recursiveFileLookup", "true")
    return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(options)


def _leaf_files(spark: SparkSession, roots: ScalaSeq[JavaPath]) -> ScalaText:
    jvm = classes()
    sources, none = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option.empty()
    uncached = getattr(getattr(sources, "NoopCache$"), "MODULE$")
    columns = jvm.scala.Some(jvm.org.apache.spark.sql.types.StructType())
    index = sources.InMemoryFileIndex(spark._jsparkSession, roots, _options(), columns, uncached, none, none)
    files: ScalaText = index.allFiles()
    return files


def _sink_files(spark: SparkSession, root: JavaPath) -> ScalaText:
    """The files that the log of Spark's file sink names."""
    none = classes().scala.Option.empty()
    index = spark_version(spark).streaming_package().MetadataLogFileIndex(spark._jsparkSession, root, _options(), none)
    files: ScalaText = index.allFiles()
    return files


def _parsed(spark: SparkSession, statuses: ScalaText) -> Listed:
    if statuses.size() >= MANY:
        return _parsed_through_file(spark, statuses)
    listed: Listed = {}
    for text in statuses.mkString(SEPARATOR).split(SEPARATOR):
        before_length, _, after_length = text.rpartition(LENGTH)
        if before_length:
            path = before_length.partition(PATH)[2]
            size = after_length.partition(";")[0]
            modified = after_length.partition(MODIFIED)[2].partition(";")[0]
            listed[path] = int(size), int(modified)
    return _in_seconds_on_s3(listed)


def _parsed_through_file(spark: SparkSession, statuses: ScalaText) -> Listed:
    """Reads many statuses through a file, with three fields for each: three times as fast as passing them as text."""
    with tempfile.TemporaryDirectory(prefix="helios-") as folder:
        file = Path(folder) / "listing"
        writer = cast("JavaStatusWriter", instance(spark, STATUSES))
        writer.call(statuses, str(file))
        fields = file.read_bytes().decode().split(SEPARATOR)[:-1]  # the last field ends with a separator, too
    paths, sizes, times = fields[0::3], map(int, fields[1::3]), map(int, fields[2::3])
    return _in_seconds_on_s3(dict(zip(paths, zip(sizes, times, strict=True), strict=True)))


def _in_seconds_on_s3(listed: Listed) -> Listed:
    """Cuts the times in a listing of S3 to whole seconds, since some servers return milliseconds only in listings."""
    if not next(iter(listed), "").startswith("s3"):
        return listed
    return {path: (size, modified - modified % 1000) for path, (size, modified) in listed.items()}


def as_files(listed: Listed) -> list[File]:
    """The files of a listing, sorted by path."""
    return [File(path, *listed[path]) for path in sorted(listed)]


def as_uri(path: str) -> str:
    """A path as Spark's `inputFiles` writes it.

    Examples:
        >>> as_uri("file:/in box/ä%.csv")
        'file:///in%20box/ä%25.csv'
    """
    scheme, _, rest = path.partition(":")
    text = encoded(rest)
    return f"{scheme}:{'//' if not text.startswith('//') else ''}{text}"


def digest_of(files: Sequence[File]) -> str:
    """The digest that identifies an unchanged folder. Tables store it, so its computation must never change."""
    listed = sorted((as_uri(file.path), file.size, file.modified) for file in files)
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:32]
