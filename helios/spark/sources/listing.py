"""Lists files through Hadoop, as Spark's own file stream does: on any storage, in parallel, and in few calls.

Nothing crosses from the JVM file by file: Spark's index lists, Scala joins the statuses to one text, and Python
takes it apart.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from helios.files.entry import File
from helios.files.names import is_data, is_glob
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.hadoop import JavaPath
from helios.spark.jvm.types.java import ScalaSeq
from helios.spark.jvm.types.spark import ScalaText
from helios.spark.jvm.version import spark_version

Listed: TypeAlias = dict[str, tuple[int, int]]
"""Size and modification time of files, by their path."""

APART = "\0"
"""Separates paths and statuses: no path can hold it."""

PATH, LENGTH, MODIFIED = "{path=", "; isDirectory=false; length=", "; modification_time="
"""Fields of a status as text: Hadoop prints them in this order on every storage."""

MANY = 1_000
"""Files above which the whole folder is listed to look at some of them."""

SINK_LOG = "_spark_metadata"
"""The log of Spark's file sink: of such a folder only the files that it names were written whole."""


def found_under(spark: SparkSession, path: str) -> Listed | None:
    """All files under a path, of its folders too, without hidden and temporary ones.

    Args:
        spark: The session.
        path: A file, a folder or a glob.

    Returns:
        The files; None when nothing is at the path. A glob that matches nothing has no files.
    """
    roots = _paths(spark, [path], globbing=True)
    if not is_glob(path):
        [root] = [roots.apply(0)]
        system = root.getFileSystem(_conf(spark))
        if not system.exists(root):
            return None
        if system.exists(classes().org.apache.hadoop.fs.Path(root, SINK_LOG)):
            return _parsed(_of_sink(spark, root))
    listed = _parsed(_index(spark, roots))
    return {path: stat for path, stat in listed.items() if is_data(path.rpartition("/")[2])}


def looked_at(spark: SparkSession, paths: Sequence[str]) -> Listed:
    """Those of some files that are there, as they are now; one after the other, for at most `MANY` of them."""
    if not paths:
        return {}
    jvm = classes()
    everything = jvm.org.apache.spark.sql.execution.datasources.PathFilterWrapper(None)
    found: ScalaText = jvm.org.apache.spark.util.HadoopFSUtils.parallelListLeafFiles(
        spark._jsparkSession.sparkContext(),
        _paths(spark, paths, globbing=False),
        _conf(spark),
        everything,
        True,
        False,
        len(paths) + 1,  # more of them would be a Spark job of a task each
        1,
    )
    return _parsed(found)


def text_seq(texts: Iterable[str]) -> ScalaSeq[str]:
    """A Scala sequence of texts, handed over in one call."""
    jvm = classes()
    found = jvm.java.util.regex.Pattern.compile(APART).splitAsStream(APART.join(texts)).toList()
    made: ScalaSeq[str] = jvm.org.apache.spark.api.python.PythonUtils.toSeq(found)
    return made


def loaded(spark: SparkSession, reader: DataFrameReader, files: Iterable[File]) -> DataFrame:
    """What a reader makes of files; a Python list would cross py4j path by path."""
    return DataFrame(reader._jreader.load(text_seq(file.path for file in files)), spark)


def _paths(spark: SparkSession, paths: Sequence[str], *, globbing: bool) -> ScalaSeq[JavaPath]:
    """Full paths; of a glob those that it matches."""
    sources = getattr(getattr(classes().org.apache.spark.sql.execution.datasources, "DataSource$"), "MODULE$")
    found: ScalaSeq[JavaPath] = sources.checkAndGlobPathIfNecessary(
        text_seq(paths), _conf(spark), False, False, 8, globbing
    )
    return found


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


def _parsed(statuses: ScalaText) -> Listed:
    listed: Listed = {}
    for text in _joined(statuses).split(APART):
        head, _, tail = text.rpartition(LENGTH)
        if head:
            size, _, rest = tail.partition(";")
            listed[head[head.index(PATH) + len(PATH) :]] = int(size), int(rest.partition(MODIFIED)[2].partition(";")[0])
    return listed


def _joined(statuses: ScalaText) -> str:
    """Statuses as one text: of many through a file, which is faster than py4j's socket."""
    if statuses.size() < MANY:
        return statuses.mkString(APART)
    jvm = classes()
    with tempfile.TemporaryDirectory(prefix="helios-") as folder:
        file = Path(folder) / "listing"
        text = statuses.addString(jvm.scala.collection.mutable.StringBuilder(), APART)
        jvm.org.apache.commons.io.FileUtils.write(jvm.java.io.File(str(file)), text, "UTF-8")
        return file.read_bytes().decode()


def as_files(listed: Listed) -> list[File]:
    """Files by their paths."""
    return [File(path, *listed[path]) for path in sorted(listed)]
