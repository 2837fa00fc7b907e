"""Reads the names of a folder's files with a few JVM calls, since one call for each file would take long."""

from __future__ import annotations

from helios.spark.jvm.classes import classes, java_array
from helios.spark.jvm.types.hadoop import JavaFileStatus
from helios.spark.jvm.types.java import JavaArray


def names_of(statuses: JavaArray[JavaFileStatus]) -> list[str]:
    """The names of the files in one folder, from their statuses."""
    if not len(statuses):
        return []
    hadoop = classes().org.apache.hadoop.fs
    # An object store returns an array of its own subclass of FileStatus; py4j finds no method that takes such an array.
    plain: JavaArray[JavaFileStatus] = java_array(hadoop.FileStatus, size=len(statuses))
    classes().java.lang.System.arraycopy(statuses, 0, plain, 0, len(statuses))
    paths = hadoop.FileUtil.stat2Paths(plain)
    text = str(classes().scala.Predef.genericWrapArray(paths).mkString("\n"))
    folder = str(statuses[0].getPath().getParent().toString()).rstrip("/") + "/"
    return text.removeprefix(folder).split(f"\n{folder}")  # a name has no slash, so this splits only between paths
