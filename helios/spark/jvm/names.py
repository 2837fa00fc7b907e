"""The names of a folder's files, in one JVM call: calls for each file would take longer than the rest of a start."""

from __future__ import annotations

from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.types.hadoop import JavaFileStatus
from helios.spark.jvm.types.java import JavaArray


def names_of(statuses: JavaArray[JavaFileStatus]) -> list[str]:
    """The names of the files of one folder."""
    if not len(statuses):
        return []
    hadoop = classes().org.apache.hadoop.fs
    # The array of an object store has its own element class, for which py4j finds no method that takes FileStatus[].
    plain: JavaArray[JavaFileStatus] = java_array(hadoop.FileStatus, size=len(statuses))
    classes().java.lang.System.arraycopy(statuses, 0, plain, 0, len(statuses))
    paths = hadoop.FileUtil.stat2Paths(plain)
    text = str(classes().scala.Predef.genericWrapArray(paths).mkString("\n"))
    folder = str(statuses[0].getPath().getParent().toString()).rstrip("/") + "/"
    return text.removeprefix(folder).split(f"\n{folder}")  # names have no slash, so this splits only between paths
