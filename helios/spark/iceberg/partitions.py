"""Counts the partitions of scan tasks, and finds data files of other partition specs than the current one.

The JVM counts the partitions, because a JVM call for each task would take too long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark import SparkContext

from helios.spark.jvm.classes import classes, listed
from helios.spark.jvm.types.iceberg import JavaSnapshot, JavaTable


def has_former_specs(table: JavaTable, snapshot: JavaSnapshot) -> bool:
    """True if a snapshot has data files of another partition spec than the table's current one."""
    current = int(table.spec().specId())
    return any(
        int(manifest.partitionSpecId()) != current
        for manifest in listed(snapshot.dataManifests(table.io()))
        if manifest.hasAddedFiles() or manifest.hasExistingFiles()
    )


def count(table: Any, tasks: Any) -> int:
    """The number of partitions that the scan tasks of a table read; 0 for a table that was never partitioned.

    Partitions of different partition specs are counted separately.
    """
    jvm = classes()
    if not tasks.size() or not jvm.org.apache.iceberg.Partitioning.isPartitioned(table):
        return 0
    lists = jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    return int(jvm.java.util.HashSet(lists.transform(tasks, _partition_of(jvm, _loader(table)))).size())


def count_of_scan(table: Any, scan: Any) -> int:
    """The number of partitions that Spark's scan of an Iceberg table has planned to read."""
    jvm = classes()
    gateway: Any = SparkContext._gateway
    scan_class = _loader(scan).loadClass("org.apache.iceberg.spark.source.SparkPartitioningAwareScan")
    # The method `tasks` is not public, and no public method returns the tasks.
    builder = jvm.org.apache.iceberg.common.DynMethods.builder("tasks")
    method = builder.hiddenImpl(scan_class, gateway.new_array(jvm.java.lang.Class, 0)).build()
    return count(table, method.invoke(scan, gateway.new_array(jvm.java.lang.Object, 0)))


def _loader(instance: Any) -> Any:
    """The class loader of Iceberg's classes, which may differ from the loader of Spark's thread."""
    return instance.getClass().getClassLoader()


@lru_cache(maxsize=1)
def _partition_of(jvm: Any, loader: Any) -> Any:
    """`PartitionScanTask::partition` as a Java function."""
    gateway: Any = SparkContext._gateway
    task = loader.loadClass("org.apache.iceberg.PartitionScanTask")
    function = loader.loadClass("org.apache.iceberg.relocated.com.google.common.base.Function")
    method = task.getMethod("partition", gateway.new_array(jvm.java.lang.Class, 0))
    handle = jvm.java.lang.invoke.MethodHandles.publicLookup().unreflect(method)
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(function, handle)
