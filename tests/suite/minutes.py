"""Where the minutes of a run of the tests go: `pytest --minutes` prints the table, by what was waited for.

The figures are seconds of the workers, so that two workers of a run of ten minutes have 1,200.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pytest

ROWS = {
    "collect": "collecting the tests",
    "jvm": "the session of Spark, once a worker",
    "servers": "starts of servers, and other fixtures of a whole run, file or class",
    "processes": "waiting for processes of their own: `helios run`, `git`, an older commit",
    "queries": "pipelines in the session of Spark: from their start to their end",
    "sleeps": "fixed waits, and pauses between two looks",
    "rest": "everything else: tables by hand, reads of what was written, code without a JVM",
}


class Minutes:
    """Adds up what the tests of a process wait for, and tells it to the process that prints."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.began = time.monotonic()
        self.spent: Counter[str] = Counter()
        self.times: Counter[str] = Counter()
        self.workers: list[tuple[dict[str, float], dict[str, int]]] = []
        self._inside = 0
        self._timed(subprocess.Popen, "wait", "processes")
        self._timed(subprocess.Popen, "communicate", "processes")
        self._timed(time, "sleep", "sleeps")

    def _timed(self, owner: Any, name: str, row: str) -> None:
        real = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return real(*arguments, **named)
            return self.measured(row, lambda: real(*arguments, **named))

        setattr(owner, name, called)

    def measured(self, row: str, call: Callable[[], Any]) -> Any:
        """Counts the outermost of calls within each other."""
        self._inside += 1
        began = time.monotonic()
        try:
            return call()
        finally:
            self._inside -= 1
            if not self._inside:
                self.spent[row] += time.monotonic() - began
                self.times[row] += 1

    def pytest_collection_finish(self) -> None:
        self.spent["collect"] = time.monotonic() - self.began
        from helios.spark.run.run import PipelineRun

        self._timed(PipelineRun, "start", "queries")
        self._timed(PipelineRun, "await_termination", "queries")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        self._inside += 1
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._inside -= 1
            if not self._inside:
                row = "jvm" if fixturedef.argname in ("shared_spark", "spark_session", "_spark_session") else "servers"
                self.spent[row] += time.monotonic() - began
                self.times[row] += 1

    def pytest_sessionfinish(self) -> None:
        whole = time.monotonic() - self.began
        self.spent["rest"] = whole - self.spent.total()
        if hasattr(self.config, "workerinput"):
            self.config.workeroutput["minutes"] = dict(self.spent), dict(self.times)  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # A worker that crashed has no output.
        self.workers.append(getattr(node, "workeroutput", {}).get("minutes", ({}, {})))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent, times = Counter[str](), Counter[str]()
        for waited, counted in self.workers or [(self.spent, self.times)]:
            spent.update(waited)
            times.update(counted)
        terminalreporter.section("minutes")
        terminalreporter.write_line("| waiting for | times | seconds of workers | share |\n|---|---|---|---|")
        for row, says in ROWS.items():
            share = spent[row] / max(spent.total(), 1e-9)
            terminalreporter.write_line(f"| {says} | {times[row] or ''} | {spent[row]:,.0f} | {share:.0%} |")
