"""One of each server for the whole test session, started by the first test that asks for it.

A server that cannot be had skips the test by name, and the summary lists these skips.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.services.azurite import Azurite
from tests.services.cluster import Cluster
from tests.services.gcs import Gcs
from tests.services.hive import Hive
from tests.services.minio import Minio
from tests.services.moto import Moto
from tests.services.nessie import Nessie
from tests.services.rest import Rest
from tests.services.rows import BY_NAME
from tests.services.server import Unavailable

SKIPPED = "service not to be had: "


@contextmanager
def named_skip() -> Iterator[None]:
    """Turns `Unavailable` into a skip that the summary lists."""
    try:
        yield
    except Unavailable as error:
        pytest.skip(f"{SKIPPED}{error}")


@contextmanager
def _running(name: str, folders: pytest.TempPathFactory) -> Iterator[Any]:
    with BY_NAME[name].running(folders.mktemp(name)) as server:
        yield server


def _fixture(name: str, folders: pytest.TempPathFactory) -> Iterator[Any]:
    running = _running(name, folders)
    with named_skip():
        server = running.__enter__()
    try:
        yield server
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio]:
    """S3."""
    yield from _fixture("minio", tmp_path_factory)


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """ADLS."""
    yield from _fixture("azurite", tmp_path_factory)


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gcs]:
    """Google Cloud Storage."""
    yield from _fixture("gcs", tmp_path_factory)


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Glue."""
    yield from _fixture("moto", tmp_path_factory)


@pytest.fixture(scope="session")
def hive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hive]:
    """A Hive Metastore with a local warehouse."""
    yield from _fixture("hive", tmp_path_factory)


@pytest.fixture(scope="session")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """A REST catalog with a local warehouse."""
    yield from _fixture("rest", tmp_path_factory)


@pytest.fixture(scope="session")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """Nessie, with its warehouse on a MinIO of its own."""
    yield from _fixture("nessie", tmp_path_factory)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Spark standalone cluster of two workers."""
    yield from _fixture("cluster", tmp_path_factory)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if match := re.search(f"{SKIPPED}(.*)", reason, re.DOTALL):
            found[match.group(1)] = found.get(match.group(1), 0) + 1
    if found:
        terminalreporter.section("services not to be had")
        for cause, tests in sorted(found.items()):
            terminalreporter.write_line(f"{cause} ({tests} test{'s' if tests > 1 else ''} skipped)")
