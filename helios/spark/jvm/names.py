"""Names of a folder's files, in one answer of the JVM: to ask for each takes longer than the rest of a start."""

from __future__ import annotations

from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.hadoop import JavaFileStatus
from helios.spark.jvm.types.java import JavaArray


def names_of(statuses: JavaArray[JavaFileStatus]) -> list[str]:
    """The names of the files of one folder."""
    if not len(statuses):
        return []
    paths = classes().org.apache.hadoop.fs.FileUtil.stat2Paths(statuses)
    text = str(classes().scala.Predef.genericWrapArray(paths).mkString("\n"))
    folder = str(statuses[0].getPath().getParent().toString()).rstrip("/") + "/"
    return text.removeprefix(folder).split(f"\n{folder}")  # a name has no slash: this parts two paths alone
