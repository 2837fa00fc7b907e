"""What every real server of the tests has: a port and a folder that stay the same, a start, a stop, a kill."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Protocol, Self

GUARD = Path(__file__).parent / "guard.py"
# Below the range of outgoing connections: nothing takes the port of a server that is stopped for a while.
PORTS = range(20_000, 32_000)
STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 25


class Unavailable(Exception):
    """A server that cannot be had on this machine.

    Args:
        service: Its name.
        cause: Why, and what would help.
    """

    def __init__(self, service: str, cause: str) -> None:
        super().__init__(f"{service}: {cause}")
        self.service = service
        self.cause = cause


class StartFailed(RuntimeError):
    """A server that is installed and does not come up: a fault, no reason to skip."""


class Port:
    """A free port on loopback, held for this process by a lock: no other one of the tests picks it."""

    def __init__(self) -> None:
        folder = Path(tempfile.gettempdir(), f"helios-ports-{os.getuid()}")
        folder.mkdir(exist_ok=True)
        for number in random.sample(PORTS, len(PORTS)):
            lock = (folder / str(number)).open("ab")
            if _locked(lock) and _free(number):
                self.number, self._lock = number, lock
                return
            lock.close()
        raise StartFailed(f"no port from {PORTS.start} to {PORTS.stop - 1} is free on loopback")

    def release(self) -> None:
        self._lock.close()


def _locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def status(url: str, *, timeout: float = 5.0) -> int | None:
    """The status with which a URL answers a GET; None if it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return None


def listens(port: int) -> bool:
    """Whether something accepts connections on a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Started(ABC):
    """A context manager of something that is started on entry, and closed on exit or when it did not come up."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()


class Server(Started):
    """A real server on loopback, as a context manager: it is started on entry, and ended and swept up on exit.

    Between the two it can be stopped, killed and started again: its port, folder and data stay.

    Args:
        folder: Where its data and its log `log.txt` are kept; by default a temporary folder, removed by `close`.
    """

    service: ClassVar[str]
    start_seconds: ClassVar[float] = 180.0

    def __init__(self, folder: Path | None = None) -> None:
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix=f"helios-{self.service}-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port = Port()
        self.port = self._port.number
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begins = 0

    @abstractmethod
    def command(self) -> Sequence[str | Path]:
        """The command that runs it in the foreground.

        Raises:
            Unavailable: It is not installed.
        """

    @abstractmethod
    def ready(self) -> bool:
        """Whether it serves requests."""

    def environment(self) -> Mapping[str, str]:
        """Variables for it, beside this process's own."""
        return {}

    def prepare(self) -> None:
        """Writes the files that a start needs; many need none."""

    def addresses(self) -> dict[str, str]:
        """What a client must know, by name."""
        return {"endpoint": self.endpoint}

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The server's own process, which leads its process group."""
        return int((self.folder / "pid").read_text(encoding="ascii"))

    @property
    def log(self) -> str:
        """What it wrote since its last start."""
        path = self.folder / "log.txt"
        return path.read_bytes()[self._log_begins :].decode(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Starts it and waits until it serves.

        Raises:
            Unavailable: It is not installed.
            StartFailed: It ended or did not serve in time; the message has the end of its log.
        """
        if self.running:
            return self
        command = [str(part) for part in self.command()]
        self.prepare()
        (self.folder / "pid").unlink(missing_ok=True)
        with (self.folder / "log.txt").open("ab") as log:
            self._log_begins = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(self.folder / "pid"), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
                start_new_session=True,  # Ctrl-C is for this process, which then stops the server
            )
        self._await_ready(self._process)
        return self

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + self.start_seconds
        while process.poll() is None:
            if (self.folder / "pid").exists() and self.ready():
                return
            if time.monotonic() > until:
                self.kill()
                raise self._failed(f"did not serve within {self.start_seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        self._end()
        raise self._failed(f"ended at once with status {process.returncode}")

    def _failed(self, what: str) -> StartFailed:
        tail = "\n".join(self.log.splitlines()[-_TAIL_LINES:])
        return StartFailed(f"{self.service} {what}; the end of {self.folder / 'log.txt'}:\n{tail}")

    def stop(self) -> None:
        """Asks it to end, and kills it if it does not."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._end()

    def kill(self) -> None:
        """Ends it and its children at once, as `kill -9` does."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        self._end()

    def pause(self) -> None:
        """Stops it in its tracks: connections open, and nothing answers."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def _end(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()  # the guard kills what is left of the group
            self._process.wait()
            self._process = None

    def close(self) -> None:
        """Stops it, and removes its folder unless that was given."""
        self.stop()
        self._port.release()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


class Storage(Protocol):
    """A server of a storage, as catalogs and clients need it."""

    def iceberg(self) -> dict[str, str]:
        """The properties of Iceberg's Java FileIO for it."""

    def pyiceberg(self) -> dict[str, str]:
        """PyIceberg's properties for it."""
