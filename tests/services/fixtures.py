"""One of each server for the whole test session, started by the first test that asks for it.

A server that cannot be had skips the test by name, and the summary lists these skips.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.services.rows import BY_NAME
from tests.services.server import Unavailable
from tests.suite.skips import SERVICE

BUILDING = Path(__file__).parents[2] / ".venv" / ".servers.building"
"""There while servers are built."""
BUILD_SECONDS = 240.0
"""Less than what a test may take."""


@contextmanager
def named_skip() -> Iterator[None]:
    """Turns `Unavailable` into a skip that the summary lists; first waits for servers that are being built."""
    _await_build()
    try:
        yield
    except Unavailable as error:
        pytest.skip(f"{SERVICE}{error}")


def _await_build() -> None:
    """Waits for what `.ci/run` builds beside the tests."""
    until = time.monotonic() + BUILD_SECONDS
    while BUILDING.exists() and time.monotonic() < until:
        time.sleep(0.5)


def _server(name: str) -> Any:
    """The fixture of a server; its docstring is what `pytest --fixtures` shows."""

    def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
        with ExitStack() as stack:
            with named_skip():
                server = stack.enter_context(BY_NAME[name].running(tmp_path_factory.mktemp(name)))
            yield server

    start.__doc__ = BY_NAME[name].about
    return pytest.fixture(scope="session", name=name)(start)


minio = _server("minio")
azurite = _server("azurite")
gcs = _server("gcs")
moto = _server("moto")
hive = _server("hive")
rest = _server("rest")
nessie = _server("nessie")
kafka = _server("kafka")
cluster = _server("cluster")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if match := re.search(f"{SERVICE}(.*)", reason, re.DOTALL):
            found[match.group(1)] = found.get(match.group(1), 0) + 1
    if found:
        terminalreporter.section("services not to be had")
        for cause, tests in sorted(found.items()):
            terminalreporter.write_line(f"{cause} ({tests} test{'s' if tests > 1 else ''} skipped)")
