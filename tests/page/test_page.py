"""The live page in headless Chromium: what it shows, to whom, how soon, and that it does not grow."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from helios.cli import status, ui_page
from helios.errors import RunError
from helios.ui.address import Address
from helios.ui.lake import LakeReader
from helios.ui.live import LiveRun
from helios.ui.server import Server
from helios.ui.watch import WatchedLake
from tests.page.chromium import Chromium
from tests.page.lakes import lake, name_of
from tests.page.runs import Run
from tests.suite.waiting import until

pytestmark = [pytest.mark.promise("page"), pytest.mark.landing]

SECRET = "0123456789abcdef"
TABLES, COMMITS = 50, 200
MINUTES = float(os.environ.get("PAGE_MINUTES", "0.25"))
"""How long the page is open in the test of its growth; the landing check takes a quarter, `PAGE_MINUTES=10` ten."""
GRAPH = {
    "nodes": [
        {"id": "n0", "kind": "source", "label": "files data/", "pipelines": ["t00"]},
        {"id": "n1", "kind": "step", "label": "where(amount > 0)", "pipelines": ["t00"]},
        {"id": "n2", "kind": "sink", "label": "local.page.t00", "pipelines": ["t00"]},
        {"id": "n3", "kind": "sink", "label": "local.page.t01", "pipelines": ["t01"]},
    ],
    "edges": [
        {"start": "n0", "end": "n1", "label": "", "dashed": False},
        {"start": "n1", "end": "n2", "label": "", "dashed": False},
        {"start": "n2", "end": "n3", "label": "", "dashed": True},
    ],
}
LIVE = "return document.querySelector('#connection').textContent === 'live'"
AXE = "return axe.run().then((found) => found.violations.map((v) => [v.id, v.nodes.map((n) => n.html)]))"
CELL = "return [...document.querySelectorAll('tr')].some((row) => row.cells[0].textContent === arguments[0] && %s)"


class Shown:
    """A run of 50 pipelines over a lake of 10,000 commits, and its page."""

    def __init__(self, folder: Path) -> None:
        catalogs = {"local": lake(folder, TABLES, COMMITS)}
        self.runs = [Run(name_of(n), f"local.page.{name_of(n)}") for n in range(TABLES)]
        self.facts = LiveRun(self.runs, token=SECRET, title="pipeline.py")
        look, view = partial(ui_page.tables_in, catalogs), partial(status.view_of_catalogs, catalogs)
        self.lake = LakeReader(look, view, min_seconds=1, max_share=0.5, eager=True)
        self.stopped = threading.Event()
        self.facts.mark_opened(GRAPH, self.lake, self.stopped.set, maintenance={"t00": "expire snapshots after 5 d"})
        self.server = Server(self.facts, Address("127.0.0.1", 0, SECRET, guarded=False))
        until(lambda: len(self.lake.tables()) == TABLES)
        self.runs[0].commit(self.facts)

    def open(self, page: Chromium, path: str = "#/", *, token: bool = True) -> None:
        page.go(self.server.address)
        page.run("sessionStorage.clear()")
        page.go("about:blank")
        page.go(self.server.url if token else self.server.address)
        page.until(LIVE)
        page.run("location.hash = arguments[0]", path)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    made = Shown(tmp_path_factory.mktemp("lake"))
    yield made
    made.facts.mark_ended()
    made.server.stop()


PAGES = ["#/", "#/batches", "#/tables", "#/pipeline/t00", "#/table/local.page.t00", "#/batch/local.page.t00/100"]


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_whole_dark_and_light_from_400_to_1920_pixels(
    page: Chromium, shown: Shown, axe: str, path: str
) -> None:
    shown.runs[1].state, shown.runs[1].error = "failed", RunError("the table is away.", fix="start the catalog.")
    shown.runs[0].commit(shown.facts, rejected=3)
    shown.open(page, path)
    page.until("return document.querySelectorAll('h1').length === 1 && !/Loading/.test(document.body.innerText)")
    page.run(f"{axe}; window.axe = axe")
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        for width in (400, 1280, 1920):
            page.sized(width, 900)
            page.until("return innerWidth === arguments[0]", width)
            assert page.run("return document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert page.run(AXE) == [], (path, scheme, width)
    assert page.console() == []
    shown.runs[1].state, shown.runs[1].error = "running", None


def test_errors_are_shown_with_their_fix(page: Chromium, shown: Shown) -> None:
    shown.runs[1].state, shown.runs[1].error = "failed", RunError("the <b>table</b> is away.", fix="start the catalog.")
    shown.open(page)
    page.until("return /the <b>table<.b> is away/.test(document.body.innerText)")  # as text, and not as markup
    assert "Fix: start the catalog." in page.text()
    shown.runs[1].state, shown.runs[1].error = "running", None
    page.until("return !/start the catalog/.test(document.body.innerText)")


def test_figures_are_those_of_metrics(page: Chromium, shown: Shown) -> None:
    for number in range(5):
        for _ in range(number):
            shown.runs[number].commit(shown.facts, rows=1234)
    shown.open(page)
    with urlopen(f"{shown.server.address}metrics") as answer:
        text = answer.read().decode()
    samples = [sample for family in families(text) for sample in family.samples]
    rows = {s.labels["pipeline"]: s.value for s in samples if s.name == "iceberg_records_written_total"}
    assert len(rows) == TABLES
    for name, count in rows.items():
        page.until(CELL % "[...row.cells].some((cell) => cell.textContent === arguments[1])", name, f"{int(count):,}")


def test_a_commit_is_shown_within_a_second(page: Chromium, shown: Shown) -> None:
    shown.open(page, "#/batches")
    page.until("return document.querySelectorAll('tbody tr').length > 0")
    began = time.monotonic()
    shown.runs[7].commit(shown.facts, rows=424_242)
    page.until("return /424,242/.test(document.body.innerText)")
    assert time.monotonic() - began < 1


def test_answers_come_within_300_ms_after_the_first_load(page: Chromium, shown: Shown) -> None:
    shown.open(page)
    timed = """
        const began = performance.now();
        return fetch(arguments[0]).then(async (answer) => {
          await answer.text();
          return [answer.status, performance.now() - began];
        });
    """
    paths = ["api/commits?table=local.page.t03&count=100", "api/batch?table=local.page.t03&snapshot=50"]
    paths += [
        "api/table?name=local.page.t03",
        "api/rejects?table=local.page.t03&snapshot=50",
        "api/series?pipeline=t03",
    ]
    for path in paths:
        page.run(timed, path)
        tries = [page.run(timed, path) for _ in range(5)]
        assert {status for status, _ in tries} == {200}
        assert min(took for _, took in tries) < 300, (path, tries)  # a busy machine takes longer at times


def test_the_keyboard_reaches_everything(page: Chromium, shown: Shown) -> None:
    shown.open(page)
    page.until("return document.querySelectorAll('tbody tr').length > 0")
    reached = [page.tab() for _ in range(12)]
    assert reached[:5] == ["Skip to the content", "Helios", "Pipelines", "Batches", "Tables"]
    assert {"Theme: auto", "Drain, then stop", "Graph"} <= set(reached)
    assert any("local.page.t00" in one for one in reached)  # a box of the graph
    page.go("about:blank")
    shown.open(page)
    for _ in range(4):
        page.tab()
    page.enter()
    page.until("return location.hash === '#/batches' && document.activeElement.id === 'main'")


def test_the_stop_is_asked_for_with_the_token_alone(page: Chromium, shown: Shown) -> None:
    shown.open(page, token=False)
    assert page.run("return document.querySelector('#stop').disabled")
    shown.open(page)
    page.until("return !document.querySelector('#stop').disabled")
    assert "token" not in page.run("return location.href")
    page.run("document.querySelector('#stop').click()")
    assert page.run("return document.querySelector('#confirm').open")
    page.run("document.querySelector('#confirm-no').click()")
    assert not shown.stopped.is_set()
    page.run("document.querySelector('#stop').click(); document.querySelector('#confirm-yes').click()")
    page.until("return document.querySelector('#stop').textContent === 'Stopping'")
    assert shown.stopped.is_set()
    shown.stopped.clear()
    shown.facts._state = "running"


def test_an_open_page_does_not_grow(page: Chromium, shown: Shown) -> None:
    shown.open(page, "#/batches")
    page.until("return document.querySelectorAll('tbody tr').length > 0")
    counts = "return document.querySelectorAll('*').length"

    def commits(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for run in shown.runs:
                run.commit(shown.facts)
            time.sleep(0.5)

    while shown.facts.timeline(0)[0].number == 1:  # until the feed is full
        commits(1)
    commits(2)
    heap, nodes = page.heap(), page.run(counts)
    commits(MINUTES * 60)
    assert page.heap() < heap + 3_000_000
    assert page.run(counts) <= nodes + 200
    assert page.console() == []


def test_the_page_of_a_lake_shows_pipelines_that_rest(page: Chromium, tmp_path: Path) -> None:
    catalogs = {"local": lake(tmp_path, 2, 10)}
    look, view = partial(ui_page.tables_in, catalogs), partial(status.view_of_catalogs, catalogs)
    facts = WatchedLake(look, view, token=SECRET, title="local")
    server = Server(facts, Address("127.0.0.1", 0, SECRET, guarded=False))
    try:
        page.go(server.url)
        page.until("return /2 committed/.test(document.body.innerText)")
        assert page.run("return document.querySelector('#stop').hidden")
        page.run("location.hash = '#/batch/local.page.t01/5'")
        page.until("return /local.page.source: after snapshot 4 to 5/.test(document.body.innerText)")
        assert page.console() == []
    finally:
        server.stop()
        facts.close()
    page.until("return document.querySelector('#connection').textContent === 'ended'")
