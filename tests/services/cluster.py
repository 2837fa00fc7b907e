"""A Spark standalone cluster: a master and some workers, each a process that can be killed."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.services.artifacts import Java, SparkJars
from tests.services.rest import QUICK_JVM
from tests.services.server import Port, Server, Started, StartFailed

SPARK = SparkJars("cluster")
JAVA = Java("cluster")
ARTIFACTS = (JAVA, SPARK)
JOIN_SECONDS = 120.0


class _Daemon(Server):
    service = "cluster"

    def environment(self) -> Mapping[str, str]:
        return {
            "SPARK_HOME": str(SPARK.find().parent),
            "SPARK_SCALA_VERSION": "2.13",  # else executors look for a build of Spark's sources
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            # The REST interface of the master has a fixed port.
            "SPARK_DAEMON_JAVA_OPTS": f"{' '.join(QUICK_JVM)} -Dspark.master.rest.enabled=false",
            "JAVA_HOME": str(JAVA.find().parents[1]),
            "PYSPARK_PYTHON": sys.executable,
        }

    def command(self) -> Sequence[str | Path]:
        return [SPARK.find().parent / "bin" / "spark-class", *self.arguments()]

    def arguments(self) -> Sequence[str]:
        raise NotImplementedError


class Master(_Daemon):
    """The master."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._web = Port()

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def arguments(self) -> Sequence[str]:
        ports = ["--port", str(self.port), "--webui-port", str(self._web.number)]
        return ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports]

    def state(self) -> dict[str, Any]:
        """What the master says of its workers and applications."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web.number}/json/", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def alive(self) -> int:
        """How many workers have joined."""
        return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])

    def ready(self) -> bool:
        try:
            return bool(self.state()["status"] == "ALIVE")
        except OSError:
            return False

    def close(self) -> None:
        super().close()
        self._web.release()


class Worker(_Daemon):
    """A worker.

    Args:
        master: Its master's URL.
        cores: How many tasks it runs at once.
        memory: What its executors may take.
        folder: See `Server`.
    """

    def __init__(self, master: str, cores: int, memory: str, folder: Path) -> None:
        super().__init__(folder)
        self.master, self.cores, self.memory = master, cores, memory

    def arguments(self) -> Sequence[str]:
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0"]
        size = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self.folder / "work")]
        return ["org.apache.spark.deploy.worker.Worker", *where, *size, self.master]

    def ready(self) -> bool:
        return "Successfully registered with master" in self.log


class Cluster(Started):
    """A master and its workers, as a context manager.

    Args:
        workers: How many.
        cores: How many tasks each runs at once.
        memory: What the executors of each may take.
        folder: Where logs and work are kept; by default a temporary folder, removed on exit.

    Attributes:
        workers: The workers, each to be killed and started by itself.
    """

    service = "cluster"

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g", folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="helios-cluster-"))
        self.master = Master(self.folder / "master")
        self.workers = [
            Worker(self.master.url, cores, memory, self.folder / f"worker-{number}") for number in range(workers)
        ]

    @property
    def url(self) -> str:
        return self.master.url

    def conf(self) -> dict[str, str]:
        """The Spark conf of a driver on it."""
        return {"spark.master": self.url, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

    def addresses(self) -> dict[str, str]:
        return {"master": self.url}

    def start(self) -> Self:
        """Starts all and waits until every worker has joined.

        Raises:
            Unavailable: There is no Java or pyspark.
            StartFailed: Something did not come up.
        """
        self.master.start()
        for worker in self.workers:
            worker.start()
        until = time.monotonic() + JOIN_SECONDS
        while self.master.alive() < len(self.workers):
            if time.monotonic() > until:
                raise StartFailed(f"{self.master.alive()} of {len(self.workers)} workers joined; see {self.folder}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        """Asks the workers, then the master, to end."""
        for daemon in (*self.workers, self.master):
            daemon.stop()

    def close(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.close()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
