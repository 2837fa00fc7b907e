"""Lists files through Hadoop, as Spark's own file stream does: on any storage, in parallel, and in few calls.

Nothing crosses from the JVM file by file: Spark's index lists, and the statuses cross as one text, or as one file.
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
from helios.catalog.storages import kind_of
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
from helios.table.file_names import encoded, escaped, globbed, is_data, is_glob, is_hidden, rooted

Listed: TypeAlias = dict[str, tuple[int, int]]
"""Size and modification time of files, by their path."""

APART = "\0"
"""Separates paths and statuses: no path can hold it."""

PATH, LENGTH, MODIFIED = "{path=", "; isDirectory=false; length=", "; modification_time="
"""Fields of a status as text: Hadoop prints them in this order on every storage."""

MANY = 1_000
"""Files above which the whole folder is listed to look at some of them, and their statuses cross through a file."""

STATUSES = Path(__file__).with_name("Statuses.java")

UNDECODED = re.compile("[\udc80-\udcff]")
"""Bytes of a name that are no UTF-8, as Python shows them."""

SINK_LOG = "_spark_metadata"
"""The log of Spark's file sink: of such a folder only the files that it names were written whole."""

TABLE_LOGS = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""Folders in which tables of others keep their logs."""
_NO_TABLES: set[str] = set()
"""Paths without one: a followed folder is listed at each look."""


def found_at(spark: SparkSession, path: str, source: FilesSource) -> Listed | None:
    """`found_under` of a source's path, whose errors name the source.

    Raises:
        InputError: It names hidden files, or a name below it is no text.
        RunError: The store refuses to list it.
    """
    try:
        return found_under(spark, path)
    except InputError as error:
        error.where = source.origin
        raise
    except (Py4JJavaError, PySparkException) as error:
        cause = None if is_outage(error) else diagnose(error)
        if cause is None or kind_of(path) in (None, "local"):
            raise
        raise RunError(f"{source.label()}: {cause.cause}.", where=source.origin, fix=f"{cause.fix}.") from error


def found_under(spark: SparkSession, path: str) -> Listed | None:
    """All files under a path, of its folders too, without hidden and temporary ones.

    Args:
        spark: The session.
        path: A file, a folder or a glob.

    Returns:
        The files; None when nothing is at the path. A glob that matches nothing has no files. A path that is there is
        no glob.

    Raises:
        InputError: It names hidden files, which no reader takes, or a name below it is no text.
    """
    roots = _paths(spark, [path], globbing=False)
    root = roots.apply(0)
    system = root.getFileSystem(_conf(spark))
    there = system.exists(root)
    globbing = is_glob(path) and not there
    if is_hidden(path.rpartition("/")[2]) and (globbing or (there and system.getFileStatus(root).isFile())):
        raise InputError(
            f"{path} names hidden files: readers skip names that begin with _ or a dot.",
            fix="give them other names.",
        )
    if not there and not globbing:
        return None
    _refuse_names(path, globbing)
    if globbing:
        roots = _paths(spark, [path], globbing=True)
    else:
        _refuse_other_tables(system, root, path)
    if not globbing and system.exists(classes().org.apache.hadoop.fs.Path(root, SINK_LOG)):
        return _parsed(spark, _of_sink(spark, root))
    listed = _parsed(spark, _index(spark, roots))
    return {path: stat for path, stat in listed.items() if is_data(path.rpartition("/")[2])}


def _refuse_other_tables(system: JavaFileSystem, root: JavaPath, path: str) -> None:
    """Refuses the folder of a table format, whose log decides which files and rows are part of the table.

    Raises:
        InputError: It is one.
    """
    if path in _NO_TABLES:
        return
    for log, kind in TABLE_LOGS.items():
        if system.exists(classes().org.apache.hadoop.fs.Path(root, log)):
            raise InputError(
                f"{path} is a table of {kind}: its folder also has files that are not part of it any more.",
                fix=f"read it with {kind}'s own reader, whose rows Memory.source takes, or write it as an Iceberg "
                "table.",
            )
    _NO_TABLES.add(path)


def _refuse_names(path: str, globbing: bool) -> None:
    """Refuses files below a local path that Java does not see, or sees twice.

    Raises:
        InputError: There is a name whose bytes are no text, a link to nothing, or one to a folder around it.
    """
    root, rest = rooted(path) if globbing else (path, "")
    top = local(root)
    try:
        glob = globbed(rest)
    except re.error:
        return  # Hadoop says what is wrong with it

    def is_read(parts: list[str]) -> bool:  # what a glob matches is read with all that is below it
        return not rest or any(glob.fullmatch("/".join(parts[:n])) for n in range(1, len(parts) + 1))

    folders: list[tuple[str, list[str], tuple[str, ...]]] = [(top, [], ())] if top is not None else []
    while folders:
        place, above, linked = folders.pop()
        for entry in _entries(place):
            parts, around = [*above, entry.name], linked
            name = "/".join(parts)
            if not name.isascii() and UNDECODED.search(name) and is_read(parts):
                shown = entry.path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
                raise InputError(
                    f"{shown}: the name is not UTF-8, and Java does not see the file.", fix="give it another name."
                )
            if entry.is_symlink() and is_data(entry.name) and is_read(parts):
                around = (*linked, os.path.realpath(place))
                _refuse_link(entry.path, around)
            is_folder = os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()
            is_open = not rest or len(above) < rest.count("/") or is_read(parts)
            if is_folder and is_open and not is_hidden(entry.name):
                folders.append((entry.path, parts, around))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # a file, a folder that has gone, or one that Hadoop says it cannot list
        return []


def _refuse_link(path: str, around: Sequence[str]) -> None:
    """Refuses a symbolic link that no reader follows to an end.

    Args:
        path: The link.
        around: Its folder, and those of the links that led there.

    Raises:
        InputError: It is one to nothing, or to a folder around it.
    """
    try:
        target = os.path.realpath(path, strict=True)
    except OSError as error:
        if not os.path.islink(path):
            return  # gone since
        raise InputError(
            f"{path} is a symbolic link to {os.readlink(path)}, which is not there: Java skips it.",
            fix="remove the link, or put the file there.",
        ) from error
    if any(os.path.commonpath([target, folder]) == target for folder in around):
        raise InputError(
            f"{path} is a symbolic link to {target}, a folder around it: its files would be read again and again.",
            fix="remove the link.",
        )


def looked_at(spark: SparkSession, paths: Sequence[str]) -> Listed:
    """The existing ones of some files, as they are now; one by one, for at most `MANY` files."""
    if not paths:
        return {}
    jvm = classes()
    everything = jvm.org.apache.spark.sql.execution.datasources.PathFilterWrapper(None)
    statuses: ScalaText = jvm.org.apache.spark.util.HadoopFSUtils.parallelListLeafFiles(
        spark._jsparkSession.sparkContext(),
        _paths(spark, [escaped(path) for path in paths], globbing=True),
        _conf(spark),
        everything,
        True,
        False,
        len(paths) + 1,  # more of them would be a Spark job of a task each
        1,
    )
    return _parsed(spark, statuses)


def text_seq(texts: Iterable[str]) -> ScalaSeq[str]:
    """A Scala sequence of texts, handed over in one call."""
    jvm = classes()
    parts = jvm.java.util.regex.Pattern.compile(APART).splitAsStream(APART.join(texts)).toList()
    made: ScalaSeq[str] = jvm.org.apache.spark.api.python.PythonUtils.toSeq(parts)
    return made


def loaded(spark: SparkSession, reader: DataFrameReader, files: Iterable[File]) -> DataFrame:
    """The DataFrame that a reader makes of files. A Python list would cross py4j path by path."""
    return DataFrame(reader._jreader.load(text_seq(escaped(file.path) for file in files)), spark)


def _paths(spark: SparkSession, paths: Sequence[str], *, globbing: bool) -> ScalaSeq[JavaPath]:
    """Full paths; of a glob those that it matches."""
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


def _index(spark: SparkSession, roots: ScalaSeq[JavaPath]) -> ScalaText:
    jvm = classes()
    sources, none = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option.empty()
    uncached = getattr(getattr(sources, "NoopCache$"), "MODULE$")
    columns = jvm.scala.Some(jvm.org.apache.spark.sql.types.StructType())
    index = sources.InMemoryFileIndex(spark._jsparkSession, roots, _options(), columns, uncached, none, none)
    files: ScalaText = index.allFiles()
    return files


def _of_sink(spark: SparkSession, root: JavaPath) -> ScalaText:
    """The files that the log of Spark's file sink names."""
    none = classes().scala.Option.empty()
    index = spark_version(spark).streams().MetadataLogFileIndex(spark._jsparkSession, root, _options(), none)
    files: ScalaText = index.allFiles()
    return files


def _parsed(spark: SparkSession, statuses: ScalaText) -> Listed:
    if statuses.size() >= MANY:
        return _written(spark, statuses)
    listed: Listed = {}
    for text in statuses.mkString(APART).split(APART):
        head, _, tail = text.rpartition(LENGTH)
        if head:
            size, _, rest = tail.partition(";")
            listed[head[head.index(PATH) + len(PATH) :]] = int(size), int(rest.partition(MODIFIED)[2].partition(";")[0])
    return _by_the_second(listed)


def _written(spark: SparkSession, statuses: ScalaText) -> Listed:
    """Many file statuses, through a file with three fields each: a third of the time that their full text takes."""
    with tempfile.TemporaryDirectory(prefix="helios-") as folder:
        file = Path(folder) / "listing"
        writer = cast("JavaStatusWriter", instance(spark, STATUSES))
        writer.call(statuses, str(file))
        fields = file.read_bytes().decode().split(APART)
    stats = zip(map(int, fields[1::3]), map(int, fields[2::3]), strict=True)
    return _by_the_second(dict(zip(fields[:-1:3], stats, strict=True)))


def _by_the_second(listed: Listed) -> Listed:
    """Files of S3 with their times in whole seconds: some servers give milliseconds only in a listing."""
    if not next(iter(listed), "").startswith("s3"):
        return listed
    return {path: (size, modified - modified % 1000) for path, (size, modified) in listed.items()}


def as_files(listed: Listed) -> list[File]:
    """Files by their paths."""
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
    """The digest that identifies an unchanged folder. Earlier versions have stamped the same digest."""
    listed = sorted((as_uri(file.path), file.size, file.modified) for file in files)
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:32]
