"""The JVM of the tests: it lives for minutes and its batches have ten rows, so what it does once is what it costs.

Measured as processor seconds of the JVM, against Spark's own defaults: `test_append.py` 23 instead of 60, the upserts
of `test_failures.py` 160 instead of 240. Tests that start `helios run` have a user's conf, and a JVM with the quick
compiler: on one core a first commit takes 7 seconds instead of 11. Those of `tests/integration` have a user's JVM.
"""

from __future__ import annotations

from helios.environment import class_archive, java

CONF = {
    # Code is generated, compiled and warmed up for each new plan, and then sees ten rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    # Replans a query after each shuffle, by statistics of ten rows.
    "spark.sql.adaptive.enabled": "false",
}


QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Only the quick compiler, and a collector without threads."""
OF_ALL_JAVA = "JDK_JAVA_OPTIONS"
"""The variable by which every Java of this process's children has options."""


def options(spark_version: str) -> str:
    """Options of the JVM: the quick ones, and the class archive if there is one."""
    return f"{QUICK} {class_archive.options(java.find_java(), spark_version)}".strip()
