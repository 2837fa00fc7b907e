"""A headless Chromium that tests drive through chromedriver, by the WebDriver protocol over plain HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.suite.waiting import PATIENCE

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
)  # fmt: skip
MISSING = "browser not to be had: there is no chromium with chromedriver on PATH"


def browser() -> str | None:
    """The browser's program; None where it or its driver is missing."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    return found if shutil.which("chromedriver") else None


class Chromium:
    """One window.

    Args:
        port: That of chromedriver.
        profile: An empty folder.
    """

    def __init__(self, port: int, profile: str) -> None:
        self._base = f"http://127.0.0.1:{port}/session"
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        options = {"binary": browser(), "args": flags}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/{made['sessionId']}"

    def go(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """The value that a script returns; a promise is awaited."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """What a script returns once that is true."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *arguments)):
            assert time.monotonic() < end, f"not within {seconds:.0f} s: {script}\n{self.text()}\n{self.console()}"
            time.sleep(0.05)
        return found

    def text(self) -> str:
        return str(self.run("return document.body.innerText"))

    def tab(self, *, back: bool = False) -> str:
        """Presses Tab, and returns what has the focus then."""
        shift = [{"type": "keyDown", "value": "\ue008"}] if back else []
        keys = [*shift, {"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]
        self.press(keys + ([{"type": "keyUp", "value": "\ue008"}] if back else []))
        return str(self.run("const e = document.activeElement; return e.getAttribute('aria-label') || e.textContent"))

    def enter(self) -> None:
        self.press([{"type": "keyDown", "value": "\ue007"}, {"type": "keyUp", "value": "\ue007"}])

    def press(self, keys: list[dict[str, str]]) -> None:
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": keys}]})

    def sized(self, width: int, height: int) -> None:
        """The size of the page in CSS pixels, below the least width of a window, too."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.cdp("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        """`dark` or `light`, as a system says it."""
        self.cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def heap(self) -> int:
        """The bytes of the page's own heap, after a collection."""
        self.cdp("HeapProfiler.collectGarbage", {})
        return int(self.cdp("Runtime.getHeapUsage", {})["usedSize"])

    def console(self) -> list[str]:
        """What the page has said on its console since the last call."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def cdp(self, command: str, parameters: Mapping[str, Any]) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def close(self) -> None:
        self._call("DELETE", "")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A window of a browser with an empty profile."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="helios-page-", ignore_cleanup_errors=True) as profile:
        driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            end = time.monotonic() + PATIENCE
            while not _listens(port):
                assert time.monotonic() < end, "chromedriver did not start"
                time.sleep(0.05)
            window = Chromium(port, profile)
            try:
                yield window
            finally:
                window.close()
        finally:
            driver.terminate()
            driver.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
