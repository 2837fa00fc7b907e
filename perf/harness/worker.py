"""A process for each contender, which keeps its engine warm over the rounds and shares nothing with the others."""

from __future__ import annotations

import os
import time
import traceback
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from perf.harness.lake import Settings
from perf.harness.usage import Meter, Usage
from perf.harness.workload import Workload

STOP_SECONDS = 30
LOOK_SECONDS = 0.5
"""How often a contender's memory is looked at: processes that it starts may end before it does."""


class WorkerError(Exception):
    """A contender failed: its name, and where its log is."""


class Worker:
    """The process of one contender, which calls a workload's methods.

    Args:
        workload: The class.
        contender: Whose process it is.
        settings: The race's.

    Examples:
        `with Worker(Append, "naive", settings) as worker: worker.call("naive", "target")`
    """

    def __init__(self, workload: type[Workload], contender: str, settings: Settings) -> None:
        context = get_context("spawn")
        self.log = settings.folder / f"{contender}.log"
        self._contender = contender
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, workload, contender, settings, self.log))
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self._meter = Meter(self._process.pid)

    def call(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the workload there, and returns what it returned."""
        return self.timed(method, *arguments)[0]

    def timed(self, method: str, *arguments: Any) -> tuple[Any, Usage]:
        """Calls a method, and returns what it returned and what it used.

        Raises:
            WorkerError: The method raised, or the process ended.
        """
        self._meter.reset_peak()
        cpu, written = self._meter.totals()
        self._connection.send((method, arguments))
        try:
            while not self._connection.poll(LOOK_SECONDS):
                self._meter.look()
            error, result, seconds = self._connection.recv()
        except EOFError:
            raise WorkerError(f"{self._contender} ended in {method}; its log is {self.log}") from None
        if error:
            raise WorkerError(f"{self._contender} failed in {method}; its log is {self.log}\n{error}")
        after, bytes_after = self._meter.totals()
        return result, Usage(seconds, after - cpu, self._meter.peak(), bytes_after - written)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(connection: Connection, workload: type[Workload], contender: str, settings: Settings, log: Path) -> None:
    with log.open("ab") as file:
        # What the JVM and the engines print would tear the table apart.
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    made = workload(settings, contender)
    while True:
        try:
            method, arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        began = time.monotonic()
        try:
            result, error = getattr(made, method)(*arguments), None
        except Exception:
            result, error = None, traceback.format_exc(limit=-6)
        connection.send((error, result, time.monotonic() - began))
