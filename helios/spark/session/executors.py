"""Waits for an executor of a cluster, and verifies that the executors see the folders that a pipeline writes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from helios.catalog.conf import spark_conf
from helios.catalog.storages import storage_type_of
from helios.errors import ConfigError, EnvironmentProblem, Origin
from helios.plan.nodes import Plan
from helios.spark.jvm.classes import classes
from helios.spark.jvm.types.spark import JavaSparkContext

STORAGE_ADVICE = "or use a catalog on a storage, such as Catalog.rest(..., storage=Storage.s3(...))"
EXECUTOR_WAIT = 20.0
"""The number of seconds without an executor after which the user gets a message."""

# Expressions for the host and the process of a task. Processes in different containers may have the same id.
PROCESS = (
    "try_reflect('java.net.InetAddress', 'getLocalHost') AS host",
    "try_reflect('java.lang.ProcessHandle', 'current') AS process",
)


@dataclass(frozen=True)
class Folder:
    """A folder that a pipeline writes.

    Args:
        purpose: The beginning of a message, which says what the folder is used for.
        fix: The advice for a folder that only the driver sees.
    """

    path: Path
    purpose: str
    fix: str
    where: Origin | None


class Executors:
    """Verifies that executors see the folders of a pipeline. An executor that starts later is verified before a batch.

    Args:
        tell: Is called with a message while there is no executor. Spark itself waits silently.
        stopping: Returns True when the run stops, so that the wait ends.
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
        self._verified: set[str] = set()
        self._folders = [] if self._master.startswith("local") else folders_of(plan, checkpoint)

    def verify(self) -> None:
        """Waits for an executor, and verifies all executors if some of them have not been verified yet.

        Raises:
            ConfigError: An executor does not see a folder.
            EnvironmentProblem: The driver itself cannot write into a folder.
        """
        if self._master.startswith("local"):
            return
        self._await_executor()
        if self._stopping() or self._executor_addresses() <= self._verified:
            return
        processes_by_folder = [self._processes_that_see(folder) for folder in self._folders]
        executors = self._executor_addresses()
        if all(len(processes) >= len(executors) for processes in processes_by_folder):
            self._verified = executors  # otherwise an executor was busy or new: all are verified before the next batch

    def _await_executor(self) -> None:
        began, reported = time.monotonic(), False
        while not self._executor_addresses() and not self._stopping():
            if not reported and time.monotonic() - began > EXECUTOR_WAIT:
                reported = True
                memory = self._spark.sparkContext.getConf().get("spark.executor.memory", "1g")
                self._tell(
                    f"there is no executor on {self._master}: are the workers of the cluster up, with the cores and "
                    f"the memory that are requested (spark.executor.memory = {memory})?"
                )
            time.sleep(0.1)

    def _executor_addresses(self) -> set[str]:
        """The addresses of the executors."""
        context: JavaSparkContext = self._spark.sparkContext._jsc.sc()
        addresses = context.getExecutorMemoryStatus().keys().toSeq()
        driver = classes().org.apache.spark.SparkEnv.get().blockManager().blockManagerId().hostPort()
        return {str(addresses.apply(i)) for i in range(addresses.size())} - {str(driver)}

    def _processes_that_see(self, folder: Folder) -> set[tuple[str, str]]:
        """The processes that see a file which the driver writes into a folder. Each task reads one byte of the file."""
        tasks = 2 * max(self._spark.sparkContext.defaultParallelism, len(self._executor_addresses()), 1)
        marker = folder.path / f"helios-shared-{uuid.uuid4().hex}"
        session = self._spark.newSession()
        session.conf.set("spark.sql.files.maxPartitionBytes", "1")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            marker.write_text("\n" * tasks)
            # With this option, a task that does not see the file does not fail. A failed task would be tried again,
            # perhaps on an executor that sees the file.
            read = session.read.option("ignoreMissingFiles", "true").text(f"file:{marker}")
            successes = read.selectExpr(*PROCESS).collect()
        except OSError as error:
            raise EnvironmentProblem(
                f"{folder.purpose} {folder.path}, and the driver cannot write there: {error}.",
                where=folder.where,
                fix=f"{folder.fix}.",
            ) from error
        finally:
            marker.unlink(missing_ok=True)
        if len(successes) < tasks:
            hosts = sorted({executor.rpartition(":")[0] for executor in self._executor_addresses()})
            raise ConfigError(
                f"{folder.purpose} {folder.path}, and not every executor of {self._master} sees what "
                f"the driver writes there: {tasks - len(successes)} of {tasks} tasks on {', '.join(hosts)} did not. "
                "Nothing was written.",
                where=folder.where,
                fix=f"{folder.fix}.",
            )
        return {(str(row["host"]), str(row["process"])) for row in successes}


def folders_of(plan: Plan, checkpoint: str) -> list[Folder]:
    """The local folders that a pipeline's executors write: warehouses, and a checkpoint outside of these."""
    folders: list[Folder] = []
    for catalog in plan.catalogs:
        conf = spark_conf(catalog)
        warehouse = conf.get(f"spark.sql.catalog.{catalog.name}.warehouse", "")
        if storage_type_of(warehouse) == "local":
            purpose = f"catalog {catalog.name!r} ({catalog.type}) keeps its tables in"
            fix = f"give a folder that every machine sees, as path= or warehouse=, {STORAGE_ADVICE}"
            folders.append(Folder(_path(warehouse), purpose, fix, catalog.origin))
    if storage_type_of(checkpoint) == "local" and not any(
        _path(checkpoint).is_relative_to(folder.path) for folder in folders
    ):
        purpose = f"pipeline {plan.pipeline} keeps its progress in"
        fix = 'give a place that every machine sees: .checkpoint("/shared/checkpoints/...") or .checkpoint("s3://...")'
        folders.append(Folder(_path(checkpoint), purpose, fix, plan.declared.sink.origin))
    return folders


def _path(uri: str) -> Path:
    return Path("/" + uri.removeprefix("file:").lstrip("/"))
