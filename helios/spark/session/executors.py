"""A cluster's executors: that they come, and see the folders that a pipeline writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from helios.catalog.conf import spark_conf
from helios.catalog.storages import kind_of
from helios.errors import ConfigError, EnvironmentProblem, Origin
from helios.plan.nodes import Plan
from helios.spark.jvm.classes import classes

STORED = "or use a catalog on a storage, such as Catalog.rest(..., storage=Storage.s3(...))"
EXECUTOR_WAIT = 20.0
"""Seconds after which it is told that no executor comes."""

# The process that ran a task, as Java tells it; the host, as some containers all have one process id.
PROCESS = (
    "try_reflect('java.net.InetAddress', 'getLocalHost') AS host",
    "try_reflect('java.lang.ProcessHandle', 'current') AS process",
)


@dataclass(frozen=True)
class Folder:
    """A folder that a pipeline writes.

    Args:
        path: Where it is.
        what: What it is to the user, as the beginning of a sentence.
        fix: What to do when it is the driver's own.
        where: The line that declared it.
    """

    path: Path
    what: str
    fix: str
    where: Origin | None


class Executors:
    """Looks whether executors see the folders of a pipeline; those that come later are looked at before a batch.

    Args:
        spark: The session.
        plan: The pipeline.
        checkpoint: Where its progress is kept.
        tell: Told when no executor comes: Spark itself would wait for ever without a word.
        stopping: Whether to wait no longer.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        checkpoint: str,
        tell: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._master = str(spark.sparkContext.master)
        self._tell = tell
        self._stopping = stopping
        self._known: set[str] = set()
        self._folders = [] if self._master.startswith("local") else folders(plan, checkpoint)

    def verify(self) -> None:
        """Waits for an executor, and looks at those that were not looked at yet.

        Raises:
            ConfigError: One of them does not see a folder.
            EnvironmentProblem: The driver itself cannot write there.
        """
        if self._master.startswith("local"):
            return
        self._await()
        if self._stopping() or self._there() <= self._known:
            return
        asked = [self._asked(folder) for folder in self._folders]
        there = self._there()
        if all(len(processes) >= len(there) for processes in asked):
            self._known = there  # else one was busy, or has just come: it is looked at before the next batch

    def _await(self) -> None:
        began, told = time.monotonic(), False
        while not self._there() and not self._stopping():
            if not told and time.monotonic() - began > EXECUTOR_WAIT:
                told = True
                memory = self._spark.sparkContext.getConf().get("spark.executor.memory", "1g")
                self._tell(
                    f"there is no executor on {self._master}: are its workers up, and have they the cores "
                    f"and the memory that are asked for (spark.executor.memory = {memory})?"
                )
            time.sleep(0.1)

    def _there(self) -> set[str]:
        jvm = classes()
        known = self._spark.sparkContext._jsc.sc().getExecutorMemoryStatus().keys().toSeq()
        driver = jvm.org.apache.spark.SparkEnv.get().blockManager().blockManagerId().hostPort()
        return {str(known.apply(i)) for i in range(known.size())} - {str(driver)}

    def _asked(self, folder: Folder) -> set[tuple[str, str]]:
        """The processes that saw a file which the driver writes; every task reads a byte of it."""
        tasks = 2 * max(self._spark.sparkContext.defaultParallelism, len(self._there()), 1)
        marker = folder.path / f"helios-shared-{uuid.uuid4().hex}"
        session = self._spark.newSession()
        session.conf.set("spark.sql.files.maxPartitionBytes", "1")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            marker.write_text("\n" * tasks)
            # A task that fails would be tried again where the file may be.
            read = session.read.option("ignoreMissingFiles", "true").text(marker.as_uri())
            seen = read.selectExpr(*PROCESS).collect()
        except OSError as error:
            raise EnvironmentProblem(
                f"{folder.what} {folder.path} cannot be written: {error}.", where=folder.where, fix=f"{folder.fix}."
            ) from error
        finally:
            marker.unlink(missing_ok=True)
        if len(seen) < tasks:
            hosts = sorted({executor.rpartition(":")[0] for executor in self._there()})
            raise ConfigError(
                f"{folder.what} {folder.path}, and not every executor of {self._master} sees what "
                f"the driver writes there: {tasks - len(seen)} of {tasks} tasks on {', '.join(hosts)} did not. "
                "Nothing was written.",
                where=folder.where,
                fix=f"{folder.fix}.",
            )
        return {(str(row["host"]), str(row["process"])) for row in seen}


def folders(plan: Plan, checkpoint: str) -> list[Folder]:
    """The folders that executors of a pipeline write: warehouses, and a checkpoint elsewhere."""
    found = []
    for catalog in plan.catalogs:
        conf = spark_conf(catalog)
        warehouse = conf.get(f"spark.sql.catalog.{catalog.name}.warehouse", "")
        if kind_of(warehouse) == "local":
            what = f"catalog {catalog.name!r} ({catalog.type}) keeps its tables in"
            fix = f"give a folder that every machine sees, as path= or warehouse=, {STORED}"
            found.append(Folder(_path(warehouse), what, fix, catalog.origin))
    if kind_of(checkpoint) == "local" and not any(_path(checkpoint).is_relative_to(one.path) for one in found):
        what = f"pipeline {plan.pipeline} keeps its progress in"
        fix = 'give a place that every machine sees: .checkpoint("/shared/checkpoints/...") or .checkpoint("s3://...")'
        found.append(Folder(_path(checkpoint), what, fix, plan.declared.sink.origin))
    return found


def _path(uri: str) -> Path:
    return Path("/" + uri.removeprefix("file:").lstrip("/"))
