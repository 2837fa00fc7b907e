"""What the tests on a cluster share: workers that are all up, and a project whose `helios run` is a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from helios import Catalog
from tests.services.cluster import Cluster

CONF = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.pyspark.python": sys.executable,
}
JOIN_SECONDS = 60.0


def wait_until(found: Callable[[], Any], what: str, seconds: float = 240) -> Any:
    """What a question is answered with, once that is something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := found():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds:.0f} s")


@pytest.fixture
def workers(cluster: Cluster) -> Cluster:
    """The cluster with both workers up, whatever an earlier test did to them."""
    for worker in cluster.workers:
        worker.start()
    wait_until(lambda: cluster.master.alive() == len(cluster.workers), "workers join", JOIN_SECONDS)
    return cluster


class Driver:
    """A `helios run` in a process group of its own, whose events are read as they are told."""

    def __init__(self, command: list[str], cwd: Path, env: Mapping[str, str], log: Path) -> None:
        self._events, self._errors = log.with_suffix(".jsonl"), log.with_suffix(".txt")
        with self._events.open("wb") as out, self._errors.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=env, stdout=out, stderr=err, start_new_session=True, stdin=subprocess.DEVNULL
            )

    def events(self, kind: str, pipeline: str = "") -> list[dict[str, Any]]:
        lines = self._events.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]
        return [e for e in told if e.get("kind") == kind and str(e.get("pipeline", "")).endswith(pipeline)]

    def await_event(self, kind: str, pipeline: str = "", times: int = 1) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            told = self.events(kind, pipeline)
            assert self.process.poll() is None or len(told) >= times, self.said
            return told[times - 1] if len(told) >= times else None

        event: dict[str, Any] = wait_until(found, f"{times} {kind} of {pipeline or 'any pipeline'}")
        return event

    @property
    def said(self) -> str:
        return self._events.read_text() + self._errors.read_text()

    def kill(self) -> None:
        """Ends it and its JVM at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Project:
    """A script's folder, of which `helios run` is started in another one: nothing reaches executors by chance."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder / "project"
        self.elsewhere = folder / "elsewhere"
        self.folder.mkdir()
        self.elsewhere.mkdir()
        self.env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON")}
        self._drivers: list[Driver] = []

    def write(self, **files: str) -> None:
        """Writes modules, each by its dotted name."""
        for name, text in files.items():
            path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))

    def configure(self, toml: str = "", **conf: str) -> None:
        given = {**self.cluster.conf(), **CONF, **conf}
        master = given.pop("spark.master")
        lines = [f'"{key}" = "{value}"' for key, value in given.items()]
        text = "\n".join([dedent(toml), "[spark]", f'master = "{master}"', "[spark.conf]", *lines, ""])
        (self.folder / "helios.toml").write_text(text)

    def command(self, script: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "helios", "run", str(self.folder / script), *arguments]

    def run(self, script: str, *arguments: str, once: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs until all is drained."""
        return subprocess.run(
            [*self.command(script, *arguments), *(["--once"] if once else [])],
            cwd=self.elsewhere,
            env=self.env,
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def drain(self, script: str, *arguments: str) -> str:
        done = self.run(script, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, script: str, *arguments: str) -> Driver:
        log = self.elsewhere / f"driver-{len(self._drivers)}"
        command = self.command(script, *arguments, "--log-format", "json")
        self._drivers.append(Driver(command, self.elsewhere, self.env, log))
        return self._drivers[-1]

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()


@pytest.fixture
def project(workers: Cluster, tmp_path: Path) -> Iterator[Project]:
    made = Project(workers, tmp_path)
    made.configure()
    yield made
    made.close()


def rows(catalog: Catalog, table: str, *columns: str) -> Counter[tuple[Any, ...]]:
    """A table's rows as a multiset, read by PyIceberg."""
    arrow = catalog.load(table).iceberg.scan(selected_fields=columns or ("*",)).to_arrow()
    names = columns or tuple(sorted(arrow.column_names))
    return Counter(zip(*(arrow[name].to_pylist() for name in names), strict=True))


def command_lines() -> Iterator[str]:
    """What the processes of this machine were started with."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            yield Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


def executors(cluster: Cluster) -> list[str]:
    """The command lines of the executors of a cluster."""
    own = [f"spark://Worker@127.0.0.1:{worker.port} " for worker in cluster.workers]
    return [line for line in command_lines() if any(url in line for url in own)]
