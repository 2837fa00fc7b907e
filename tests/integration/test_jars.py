"""Fetching jars with the real Ivy: once from the real registry, then from a local one that misbehaves."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from helios.environment import jars
from helios.environment.jars import ensure, missing_jars_of
from helios.errors import EnvironmentProblem
from tests.suite.waiting import PATIENCE

pytestmark = pytest.mark.promise("jars")

SQLITE = "org.xerial:sqlite-jdbc:3.47.1.0"
SQLITE_PATH = "/org/xerial/sqlite-jdbc/3.47.1.0/sqlite-jdbc-3.47.1.0.jar"
SQLITE_NAME = "org.xerial_sqlite-jdbc-3.47.1.0.jar"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
ENSURE = "from helios.environment.jars import ensure; print(*ensure(['sqlite'], spark_version='4.1.4', progress=print))"


def small_jar() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", os.urandom(200_000))
    return buffer.getvalue()


class Registry(ThreadingHTTPServer):
    """A Maven registry on loopback.

    Attributes:
        files: What it has, by path.
        hold: How many bytes of a file it sends before it waits for `release`; None for all.
        fetched: The paths that were asked for with GET.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.hold: int | None = None
        self.release = threading.Event()
        self.fetched: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def _answer(self, send_body: bool) -> None:
        body = self.server.files.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if body is None or not send_body:
            return
        self.server.fetched.append(self.path)
        if self.server.hold is not None:
            self.wfile.write(body[: self.server.hold])
            self.wfile.flush()
            self.server.release.wait(30)
            body = body[self.server.hold :]
        self.wfile.write(body)

    def do_GET(self) -> None:
        self._answer(True)

    def do_HEAD(self) -> None:
        self._answer(False)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the requests are kept in `fetched`


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HELIOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HELIOS_OFFLINE", raising=False)
    return tmp_path / "cache" / "jars" / "4.1"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    server = Registry()
    server.files[SQLITE_PATH] = small_jar()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    monkeypatch.setenv("HELIOS_MAVEN_URL", server.url)
    yield server
    server.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


def wait_for(condition: object, seconds: float = PATIENCE) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def start() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", ENSURE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.landing
def test_a_pinned_jar_is_fetched_once_from_the_real_registry(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert missing_jars_of(["sqlite"], spark_version="4.1.4") == [SQLITE]
    (path,) = ensure(["sqlite"], spark_version="4.1.4", progress=said.append)
    assert path == cache / SQLITE_NAME
    with zipfile.ZipFile(path) as archive:
        assert "org/sqlite/JDBC.class" in archive.namelist()
    assert said[0] == f"fetching 1 jar, once, into {cache}"
    assert said[1].startswith(f"fetched {SQLITE_NAME} (")
    assert kept(cache) == [SQLITE_NAME]

    monkeypatch.setenv("HELIOS_OFFLINE", "1")
    assert ensure(["sqlite"], spark_version="4.1.4", progress=said.append) == [path]
    assert len(said) == 2
    with pytest.raises(EnvironmentProblem, match=r"Missing jar org\.apache\.iceberg.*`helios jars`"):
        ensure(["iceberg", "sqlite"], spark_version="4.1.4")


def test_a_classifier_names_its_own_file(cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "coordinates", lambda spark, components: ("a.b:c:1.0:shaded",))
    registry.files["/a/b/c/1.0/c-1.0-shaded.jar"] = small_jar()
    assert [path.name for path in ensure(["any"], spark_version="4.1")] == ["a.b_c-1.0-shaded.jar"]


def test_an_unreachable_registry_fails_fast_with_the_cause(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOS_MAVEN_URL", "http://someone:hunter2@127.0.0.1:9/maven")
    begun = time.monotonic()
    with pytest.raises(EnvironmentProblem) as raised:
        ensure(["iceberg", "sqlite"], spark_version="4.1.4")
    assert time.monotonic() - begun < 20
    text = str(raised.value)
    for part in (ICEBERG, SQLITE, str(cache), "Connection refused", "`helios jars`"):
        assert part in text
    assert "hunter2" not in text
    assert "\n" not in text
    assert kept(cache) == []


def test_what_the_registry_has_is_kept_when_something_else_is_missing(cache: Path, registry: Registry) -> None:
    with pytest.raises(EnvironmentProblem, match=r"Missing jar org\.apache\.iceberg:") as raised:
        ensure(["iceberg", "sqlite"], spark_version="4.1.4")
    assert SQLITE not in str(raised.value)
    assert "module not found: org.apache.iceberg#iceberg-spark-runtime-4.1_2.13;1.12.0" in str(raised.value)
    assert kept(cache) == [SQLITE_NAME]


@pytest.mark.landing
def test_half_a_jar_is_never_kept(cache: Path, registry: Registry) -> None:
    registry.files[SQLITE_PATH] = small_jar()[:100_000]
    with pytest.raises(EnvironmentProblem, match=f"{SQLITE_NAME} arrived damaged"):
        ensure(["sqlite"], spark_version="4.1.4")
    assert kept(cache) == []


def test_a_flipped_byte_inside_a_jar_is_noticed(cache: Path, registry: Registry) -> None:
    whole = bytearray(small_jar())
    whole[1000] ^= 0xFF
    registry.files[SQLITE_PATH] = bytes(whole)
    with pytest.raises(EnvironmentProblem, match="arrived damaged"):
        ensure(["sqlite"], spark_version="4.1.4")
    assert kept(cache) == []


def test_a_wrong_checksum_is_refused(cache: Path, registry: Registry) -> None:
    registry.files[f"{SQLITE_PATH}.sha1"] = hashlib.sha1(b"something else").hexdigest().encode()
    with pytest.raises(EnvironmentProblem, match="invalid sha1"):
        ensure(["sqlite"], spark_version="4.1.4")
    assert kept(cache) == []


def test_a_damaged_jar_in_the_cache_is_replaced(cache: Path, registry: Registry) -> None:
    cache.mkdir(parents=True)
    (cache / SQLITE_NAME).write_bytes(registry.files[SQLITE_PATH][:-40])
    (path,) = ensure(["sqlite"], spark_version="4.1.4")
    assert path.read_bytes() == registry.files[SQLITE_PATH]


def test_a_registry_that_falls_silent_is_given_up(
    cache: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars, "STALL_SECONDS", 3.0)
    registry.hold = 50_000
    begun = time.monotonic()
    with pytest.raises(EnvironmentProblem, match="nothing arrived for 3 s"):
        ensure(["sqlite"], spark_version="4.1.4")
    assert time.monotonic() - begun < 15
    assert registry.fetched == [SQLITE_PATH]
    assert kept(cache) == []


def test_ctrl_c_leaves_nothing_half_and_no_ivy_behind(cache: Path, registry: Registry) -> None:
    registry.hold = 50_000
    process = start()
    wait_for(lambda: registry.fetched)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=PATIENCE)
    assert "KeyboardInterrupt" in error
    assert kept(cache) == []
    registry.release.set()
    time.sleep(0.5)  # an Ivy that lived on would now write its jar
    assert kept(cache) == []


@pytest.mark.landing
def test_a_killed_fetch_is_cleaned_up_by_the_next(cache: Path, registry: Registry) -> None:
    registry.hold = 50_000
    process = start()
    wait_for(lambda: registry.fetched)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert len(kept(cache)) == 1  # its own folder; no jar
    registry.release.set()
    registry.hold = None
    ensure(["sqlite"], spark_version="4.1.4")
    assert kept(cache) == [SQLITE_NAME]


def test_two_processes_at_once_fetch_once(cache: Path, registry: Registry) -> None:
    registry.hold = 50_000
    first = start()
    wait_for(lambda: registry.fetched)
    second = start()
    time.sleep(1.0)  # long enough to start Python and reach the lock
    registry.release.set()
    outputs = [process.communicate(timeout=PATIENCE) for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0], outputs
    assert all(str(cache / SQLITE_NAME) in output for output, _ in outputs)
    assert "waiting for another process" in outputs[1][0]
    assert registry.fetched.count(SQLITE_PATH) == 1
    assert kept(cache) == [SQLITE_NAME]
