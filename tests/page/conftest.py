"""One browser for the tests of the page, and axe-core from npm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.page.chromium import MISSING, Chromium, browser, chromium

AXE = "axe-core@4.10.3"
CACHE = Path.home() / ".cache" / "helios" / "axe"


@pytest.fixture(scope="session")
def window() -> Iterator[Chromium]:
    if browser() is None:
        pytest.skip(MISSING)
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(window: Chromium) -> Chromium:
    """A window that shows nothing, and has said nothing."""
    window.go("about:blank")
    window.sized(1280, 900)
    window.scheme("light")
    window.console()
    return window


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, fetched once."""
    script = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core not to be had: there is no npm on PATH")
        CACHE.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run([npm, "install", "--silent", AXE], cwd=CACHE, capture_output=True, check=False)
        if fetched.returncode or not script.exists():
            pytest.skip("axe-core not to be had: npm could not fetch it")
    return script.read_text()
