"""The server of the live page, over real sockets on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from helios.errors import InputError, RunError
from helios.metrics.prometheus import exposition
from helios.ui.address import TOKEN, Address, address
from helios.ui.app import MAX_PAGES, static_files
from helios.ui.lake import LakeReader
from helios.ui.live import LiveRun
from helios.ui.server import Server
from helios.ui.watch import WatchedLake
from tests.page.lakes import lake
from tests.page.runs import Run
from tests.suite.waiting import until

pytestmark = pytest.mark.promise("page")

SECRET = "0123456789abcdef"
HERE = Address("127.0.0.1", 0, SECRET, guarded=False)


@pytest.fixture
def runs() -> list[Run]:
    return [Run("orders", "local.shop.orders"), Run("big", "local.shop.big")]


@pytest.fixture
def facts(runs: list[Run]) -> Iterator[LiveRun]:
    made = LiveRun(runs, token=SECRET, title="pipeline.py")
    yield made
    made.mark_ended()


@pytest.fixture
def server(facts: LiveRun) -> Iterator[Server]:
    made = Server(facts, HERE)
    yield made
    made.stop()


def connected(server: Server) -> HTTPConnection:
    return HTTPConnection(server.address.removeprefix("http://").rstrip("/"), timeout=20)


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = connected(server)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Stream:
    """The events of a page that is open."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.connection = connected(server)
        self.connection.request("GET", "/events", headers=headers)
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, Any]:
        name = ""
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                return name, json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


# files and headers


def test_the_page_is_plain_files_and_loads_nothing_from_elsewhere(server: Server) -> None:
    answer, page = ask(server, "/")
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    policy = answer.getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page == static_files()["index.html"]
    for name, content in static_files().items():
        assert b"http://" not in content.replace(b"http://www.w3.org/", b"")
        assert b"https://" not in content
        assert ask(server, "/" if name == "index.html" else f"/{name}")[1] == content
    scripts = [content for name, content in static_files().items() if name.endswith(".js")]
    assert not any(word in content for content in scripts for word in (b"innerHTML", b"insertAdjacent", b"eval("))


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/..%2f..%2fpyproject.toml", "/static/main.js", "/app.py", "/x"]
)
def test_nothing_else_is_there(server: Server, path: str) -> None:
    assert ask(server, path)[0].status == 404


def test_errors_have_the_headers_too(server: Server) -> None:
    answer, _ = ask(server, "/x")
    assert (answer.getheader("X-Content-Type-Options"), answer.getheader("Cache-Control")) == ("nosniff", "no-store")


# who may see


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4848", "127.0.0.1.evil.example", "10.0.0.7", ""])
def test_another_name_of_this_machine_is_refused(server: Server, host: str) -> None:
    answer, body = ask(server, "/metrics", Host=host)
    assert (answer.status, b"iceberg" in body) == (403, False)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:4848"])
def test_names_of_loopback_are_served(server: Server, host: str) -> None:
    assert ask(server, "/metrics", Host=host)[0].status == 200


def test_on_another_host_everything_but_the_files_needs_the_token(facts: LiveRun) -> None:
    server = Server(facts, Address("127.0.0.1", 0, SECRET, guarded=True))
    try:
        for path in ("/events", "/metrics", "/api/table?name=a", "/api/series?pipeline=orders", "/api/rejects"):
            assert ask(server, path)[0].status == 401
            assert ask(server, path, **bearer(SECRET[:-1]))[0].status == 401
        assert ask(server, "/")[0].status == 200
        assert ask(server, "/metrics", Host="lake.example", **bearer(SECRET))[0].status == 200
    finally:
        server.stop()


def test_a_host_that_others_reach_is_refused_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(InputError, match="no token is set"):
        address("0.0.0.0:4848")
    monkeypatch.setenv(TOKEN, "short")
    with pytest.raises(InputError, match="has 5 characters"):
        address("")
    monkeypatch.setenv(TOKEN, SECRET)
    assert address("0.0.0.0:4848") == Address("0.0.0.0", 4848, SECRET, guarded=True)
    assert address("127.0.0.1:1") == Address("127.0.0.1", 1, SECRET, guarded=False)


@pytest.mark.parametrize("text", ["pipeline.py:x", "a:70000", "http://a:80", "a b:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an address for the page"):
        address(text)


def test_a_taken_port_is_one_message(facts: LiveRun, server: Server) -> None:
    port = int(server.address.rstrip("/").rpartition(":")[2])
    with pytest.raises(RunError, match=f"cannot be served on 127.0.0.1:{port}"):
        Server(facts, Address("127.0.0.1", port, SECRET, guarded=False))


# a run


def test_figures_are_those_of_metrics(server: Server, facts: LiveRun, runs: list[Run]) -> None:
    for number, run in enumerate(runs, start=1):
        for _ in range(number):
            run.commit(facts, rows=number * 10, rejected=1)
    until(lambda: facts.items()["pipeline/big"].batches == 2, 10)
    _, text = ask(server, "/metrics")
    assert list(families(text.decode())) == list(families(exposition(r.figures.snapshot() for r in runs)))
    shown = {f"pipeline/{one.name}": facts.items()[f"pipeline/{one.name}"] for one in runs}
    samples = [sample for family in families(text.decode()) for sample in family.samples]
    for metric, field in (
        ("iceberg_records_written_total", "rows"),
        ("iceberg_batches_committed_total", "batches"),
        ("iceberg_records_failed_total", "rejected"),
    ):
        counted = {f"pipeline/{s.labels['pipeline']}": s.value for s in samples if s.name == metric}
        assert counted == {key: getattr(value, field) for key, value in shown.items()}


def test_a_commit_is_sent_within_a_second_and_only_what_changed(
    server: Server, facts: LiveRun, runs: list[Run]
) -> None:
    stream = Stream(server)
    try:
        name, first = stream.next()
        assert (name, sorted(first["set"])) == ("facts", ["graph", "pipeline/big", "pipeline/orders", "run"])
        began = time.monotonic()
        runs[0].commit(facts, snapshot=7337583217761550471)
        _, told = stream.next()
        assert time.monotonic() - began < 1
        [batch] = told["new"]
        assert (batch["snapshot"], batch["rows"]) == ("7337583217761550471", 100)  # JavaScript's numbers would round it
        assert (batch["seconds"], batch["writing"], batch["committing"]) == (1.0, 0.4, 0.2)
        assert set(told["set"]) <= {"pipeline/orders"}
    finally:
        stream.close()


def test_the_last_error_comes_with_its_line_and_fix(facts: LiveRun, runs: list[Run]) -> None:
    runs[0].state, runs[0].error = "failed", RunError("the table is away.", fix="start the catalog.")
    shown = facts.items()["pipeline/orders"]
    assert (shown.problem.what, shown.problem.fix) == ("the table is away.", "start the catalog.")
    assert facts.items()["pipeline/big"].problem is None


def test_the_stop_needs_the_token_and_a_run(server: Server, facts: LiveRun) -> None:
    asked = threading.Event()
    assert ask(server, "/api/stop", "POST", **bearer(SECRET))[0].status == 409  # Spark has not started
    facts.mark_opened({"nodes": [], "edges": []}, LakeReader(list, _no_view, min_seconds=60, max_share=0.5), asked.set)
    assert ask(server, "/api/stop", "POST")[0].status == 401
    assert ask(server, "/api/stop", "POST", **bearer("wrong"))[0].status == 401
    assert ask(server, "/api/stop", **bearer(SECRET))[0].status == 405
    assert not asked.is_set()
    assert ask(server, "/api/stop", "POST", **bearer(SECRET))[0].status == 202
    assert asked.is_set()


def _no_view() -> Any:
    return None


def test_the_end_of_a_run_is_told_with_the_last_facts(facts: LiveRun, runs: list[Run]) -> None:
    server = Server(facts, HERE)
    stream = Stream(server)
    stream.next()
    runs[0].commit(facts, rows=7)
    runs[0].state = "finished"
    facts.mark_ended()
    server.stop()
    shown: dict[str, Any] = {}
    while (told := stream.next())[0] != "end":
        shown |= told[1]["set"]
    assert (shown["pipeline/orders"]["state"], shown["pipeline/orders"]["rows"]) == ("finished", 7)
    assert shown["run"]["state"] == "ended"


def test_pages_that_go_are_forgotten_and_too_many_refused(server: Server) -> None:
    streams = [Stream(server) for _ in range(MAX_PAGES)]
    for stream in streams:
        stream.next()
    assert ask(server, "/events")[0].status == 503
    for stream in streams:
        stream.close()
    until(lambda: _opens(server), 20)


def _opens(server: Server) -> bool:
    stream = Stream(server)
    stream.close()
    return stream.answer.status == 200


# a lake


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Path, WatchedLake]]:
    from helios.cli import status, ui_page

    catalogs = {"local": lake(tmp_path, 3, 20)}
    facts = WatchedLake(
        lambda: ui_page.tables_in(catalogs), lambda: status.view_of_catalogs(catalogs), token=SECRET, title="local"
    )
    until(lambda: facts.items()["run"]["state"] == "running", 60)
    yield tmp_path, facts
    facts.close()


def test_a_lake_alone_has_pipelines_batches_and_tables(watched: tuple[Path, WatchedLake]) -> None:
    _, facts = watched
    items = facts.items()
    shown = items["pipeline/t01"]
    assert (shown.target, shown.batch, shown.batches, shown.state) == ("local.page.t01", 19, 20, "committed")
    assert (items["table/local.page.t01"].snapshots, items["table/local.page.t01"].files) == (20, 1)
    page = facts.commits("local.page.t01", None, 5)
    assert ([row["batch"] for row in page["commits"]], page["all"]) == ([19, 18, 17, 16, 15], 20)
    older = facts.commits("local.page.t01", page["commits"][-1]["snapshot"], 100)
    assert [row["batch"] for row in older["commits"]] == list(range(14, -1, -1))
    batch = facts.batch("local.page.t01", older["commits"][0]["snapshot"])
    assert batch["read"] == [{"source": "local.page.source", "text": "after snapshot 14 to 15"}]
    assert (batch["older"], batch["newer"]) == ("14", "16")
    assert facts.batch("local.page.t01", "999") is None
    assert facts.batch("local.page.none", "1") is None
    assert facts.table("local.page.t01")["growth"]["rows"] == [1] * 20
    assert sorted((entry.pipeline, entry.batch) for entry in facts.timeline(0)) == [
        (name, batch) for name in ("t00", "t01", "t02") for batch in range(20)
    ]


def test_a_lake_is_not_written_and_a_commit_is_seen_within_two_looks(watched: tuple[Path, WatchedLake]) -> None:
    from helios import Catalog

    folder, facts = watched
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*")}
    facts.add_open_pages(1)
    facts.batch("local.page.t00", "12")
    facts.rejects("local.page.t00", "12", samples=True)
    time.sleep(2.5)
    assert {file: file.stat().st_mtime_ns for file in folder.rglob("*")} == before
    seen = facts.timeline(0)[-1].number
    table = Catalog.local("local", path=folder / ".helios").load("page.t00").iceberg
    table.append(table.scan().to_arrow())
    until(lambda: facts.timeline(seen), 10)
    assert [entry.rows for entry in facts.timeline(seen)] == [1]


def test_of_a_script_its_pipelines_are_shown_also_before_their_first_commit(tmp_path: Path) -> None:
    from helios.cli import status, ui_page

    catalogs = {"local": lake(tmp_path, 2, 2)}
    names = {"t01": "local.page.t01", "later": "local.page.later"}
    facts = WatchedLake(
        lambda: ui_page.tables_in(catalogs),
        lambda: status.view_of_catalogs(catalogs),
        token=SECRET,
        title="p.py",
        targets=names,
        maintenance={"later": "expire snapshots after 5 d"},
    )
    try:
        until(lambda: facts.items()["run"]["state"] == "running", 60)
        shown = {key: value for key, value in facts.items().items() if key.startswith("pipeline/")}
        assert {key: value.state for key, value in shown.items()} == {
            "pipeline/t01": "committed",
            "pipeline/later": "new",
        }
        assert shown["pipeline/later"].declared == "expire snapshots after 5 d"
    finally:
        facts.close()


def test_a_lake_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    def away() -> Any:
        raise RunError("the catalog is away.", fix="start it.")

    facts = WatchedLake(away, _no_view, token=SECRET, title="local")
    try:
        until(lambda: facts.items()["run"]["problems"], 10)
        assert facts.items()["run"]["problems"] == ("the catalog is away. Fix: start it.",)
    finally:
        facts.close()
