"""A receiver whose disk refuses, in a process of its own: nothing is lost, nothing comes twice, and it says so."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.suite.waiting import until
from tests.unit.webhooks.test_receiver import SECRET, ids, post

pytestmark = pytest.mark.promise("webhook", "kills")

SCRIPT = """
from helios import Iceberg, Webhook
orders = (
    Webhook.source("/orders", secret={secret!r}, schema="id bigint NOT NULL, name string")
    .listen("127.0.0.1:{port}").segments({folder!r}).incremental(poll=0.3)
    >> Iceberg.sink("a.t")
)
"""


class Receiver:
    """`helios webhook` as a process."""

    def __init__(self, folder: Path, segments: Path, limits: dict[int, int] | None = None) -> None:
        self.folder, self.segments = folder, segments
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/orders"
        script = SCRIPT.format(secret=SECRET, port=self.port, folder=str(segments))
        (folder / "hooks.py").write_text(script)
        self.start(limits or {})

    def start(self, limits: dict[int, int]) -> None:
        given = f"for one, most in {limits}.items(): resource.setrlimit(one, (most, resource.getrlimit(one)[1]))"
        call = "os.execv(sys.executable, [sys.executable, '-m', 'helios', 'webhook', 'hooks.py'])"
        command = [sys.executable, "-c", f"import os, resource, sys\n{given}\n{call}"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT)
        until(lambda: self.health()[0] == 200 or self.process.poll() is not None)
        assert self.process.poll() is None, self.told()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def health(self) -> tuple[int, dict[str, Any]]:
        try:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except OSError:
            return 0, {}
        finally:
            connection.close()

    def told(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Starts receivers, which do not outlive the test."""
    made: list[Receiver] = []

    def start(segments: Path | None = None, limits: dict[int, int] | None = None) -> Receiver:
        made.append(Receiver(tmp_path, segments or tmp_path / "segments", limits))
        return made[-1]

    yield start
    for one in made:
        one.kill()


class Senders:
    """Deliveries that are sent again until they are answered with 200, or never."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.next = 0
        self.waiting: dict[int, None] = {}
        self.accepted: set[int] = set()
        self.answers: Counter[int] = Counter()

    def send(self, name: str = "n") -> int:
        """A new delivery; the status."""
        self.next += 1
        self.waiting[self.next] = None
        return self.again(self.next, name)

    def again(self, number: int, name: str = "n") -> int:
        with suppress(OSError):
            status, _ = post(self.url, json.dumps({"id": number, "name": name}).encode(), f"m{number}")
            self.answers[status] += 1
            if status == 200:
                self.accepted.add(number)
                self.waiting.pop(number, None)
            return status
        return 0

    def finish(self) -> None:
        """Sends again what was not accepted."""
        until(lambda: not [number for number in list(self.waiting) if self.again(number) != 200])


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of some bytes."""
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.landing
def test_a_full_disk(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    with disk(tmp_path / "disk", "1m") as full:
        receiver = started(full / "segments")
        senders = Senders(receiver.url)
        assert [senders.send() for _ in range(3)] == [200] * 3
        (full / "ballast").write_bytes(b"x" * 500_000)
        health: list[tuple[int, Any]] = []

        def is_full() -> bool:
            """A delivery that is too large may leave room for the ids: then the receiver seals, and is sound again."""
            if senders.send("x" * 20_000) != 503:
                return False
            health.append(receiver.health())
            return health[-1][0] == 503

        until(is_full, 60)
        status, found = health[-1]
        assert (status, found["status"]) == (503, "broken")
        assert "No space left on device" in found["problems"][0]
        (full / "ballast").unlink()
        until(lambda: receiver.health()[0] == 200, 30)
        senders.finish()
        assert senders.send() == 200
        assert receiver.stop() == 0
        assert ids(full / "segments") == Counter(senders.accepted)
        assert set(senders.answers) == {200, 503}
        lines = receiver.told().splitlines()
        assert sum("takes no deliveries: No space left on device" in line for line in lines) >= 1
        assert len(lines) < 30, lines


def test_a_segment_that_cannot_be_sealed(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    """The names of segments cannot change for a while: what was answered with 200 stays, and comes once."""
    receiver = started()
    senders = Senders(receiver.url)
    assert senders.send() == 200
    until(lambda: ids(tmp_path / "segments") == {1: 1}, 20)
    names = tmp_path / "segments" / ".ids"
    names.rename(tmp_path / "away")
    names.write_text("a file in its place")
    assert senders.send() == 200
    until(lambda: receiver.health()[0] == 503, 20)
    assert senders.send() == 503
    receiver.kill()
    names.unlink()
    (tmp_path / "away").rename(names)
    receiver.start({})
    assert post(receiver.url, b'{"id": 2, "name": "n"}', "m2") == (200, {"status": "duplicate"})
    senders.finish()
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter([1, 2, 3])


def test_a_receiver_that_goes_on_by_itself(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    receiver = started()
    senders = Senders(receiver.url)
    names = tmp_path / "segments" / ".ids"
    names.rename(tmp_path / "away")
    assert senders.send() == 200
    until(lambda: receiver.health()[0] == 503, 20)
    (tmp_path / "away").rename(names)
    until(lambda: receiver.health()[0] == 200, 20)
    assert senders.send() == 200
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter([1, 2])
    assert "/orders takes deliveries again" in receiver.told()


def test_files_that_may_not_grow(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    receiver = started(limits={resource.RLIMIT_FSIZE: 100_000})
    senders = Senders(receiver.url)
    for _ in range(40):
        senders.send("x" * 9000)
    senders.finish()
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter(range(1, senders.next + 1))


def test_kills(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    receiver = started()
    senders = Senders(receiver.url)
    for _ in range(3):
        for _ in range(20):
            senders.send()
        receiver.kill()
        senders.send()
        receiver.start({})
    senders.finish()
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter(range(1, senders.next + 1))


@pytest.mark.landing
@pytest.mark.timeout(600)
def test_connections_that_never_end_their_headers(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    receiver = started(limits={resource.RLIMIT_NOFILE: 128})
    senders = Senders(receiver.url)
    assert senders.send() == 200
    parts = urlsplit(receiver.url)
    held = []
    for number in range(1100):
        one = socket.create_connection((parts.hostname, parts.port), 10)
        with suppress(OSError):
            one.sendall(b"POST /orders HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        held.append(one)
        if number % 100 == 99:
            assert senders.send() == 200
            assert receiver.health()[0] == 200
    time.sleep(1)
    assert senders.send() == 200
    handles = len(os.listdir(f"/proc/{receiver.process.pid}/fd"))
    assert handles < 128
    for one in held:
        one.close()
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter(range(1, senders.next + 1))
    assert len(receiver.told().splitlines()) < 20, receiver.told()


def test_no_file_handles(tmp_path: Path, started: Callable[..., Receiver]) -> None:
    receiver = started()
    senders = Senders(receiver.url)
    assert senders.send() == 200
    pid = receiver.process.pid
    until(lambda: ids(tmp_path / "segments") == {1: 1}, 20)
    connection = HTTPConnection("127.0.0.1", receiver.port, timeout=10)
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), 20000))

    def health() -> tuple[int, str]:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    until(lambda: health()[0] == 503, 20)
    assert "Too many open files" in health()[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 20000))
    until(lambda: health()[0] == 200, 20)
    assert senders.send() == 200
    assert receiver.stop() == 0
    assert ids(tmp_path / "segments") == Counter([1, 2])
    assert len(receiver.told().splitlines()) < 20, receiver.told()
