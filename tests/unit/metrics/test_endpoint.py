"""The HTTP endpoint, over real sockets on loopback."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from helios.errors import InputError, RunError
from helios.metrics import endpoint as module
from helios.metrics.endpoint import Endpoint
from helios.metrics.metrics import Metrics
from helios.metrics.prometheus import exposition

pytestmark = pytest.mark.promise("metrics")


@dataclass
class Run:
    """A pipeline's handle, as far as the endpoint looks at it; the real one needs a JVM."""

    figures: Metrics = field(default_factory=lambda: Metrics("orders", "local.sales.orders"))
    state: str = "running"

    def metrics(self) -> Metrics:
        return self.figures

    def status(self) -> dict[str, Any]:
        return {"pipeline": self.figures.pipeline, "state": self.state, "error": None}


@pytest.fixture
def runs() -> list[Run]:
    return [Run(), Run(Metrics('odd "name"\\\n', "local.sales.odd"))]


@pytest.fixture
def endpoint(runs: list[Run]) -> Iterator[Endpoint]:
    with Endpoint(runs) as serving:
        yield serving


def ask(endpoint: Endpoint, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def scrape(endpoint: Endpoint) -> dict[str, Metric]:
    response, text = ask(endpoint, "/metrics")
    assert response.status == 200
    return {family.name: family for family in plain_families(text)}


def eventually(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


# /metrics


def test_it_serves_what_to_prometheus_writes(endpoint: Endpoint, runs: list[Run]) -> None:
    for number, run in enumerate(runs, start=1):
        run.figures.flushed(seconds=0.3 * number)
        run.figures.committed(records=1200 * number, bytes=40_000, files=3, seconds=0.25)
        run.figures.lag(snapshots=0, seconds=0.0)
    response, text = ask(endpoint, "/metrics")
    assert response.getheader("Content-Type", "").startswith("text/plain")
    expected = exposition(run.figures.snapshot() for run in runs)
    assert list(plain_families(text)) == list(plain_families(expected))
    written = scrape(endpoint)["iceberg_records_written"].samples
    assert [(one.labels["pipeline"], one.value) for one in written] == [("orders", 1200), ('odd "name"\\\n', 2400)]


def test_it_speaks_openmetrics_when_asked(endpoint: Endpoint, runs: list[Run]) -> None:
    runs[0].figures.committed(records=2_000_000, bytes=1, files=1, seconds=0.2)
    response, text = ask(endpoint, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert response.getheader("Content-Type", "").startswith("application/openmetrics-text")
    families = {family.name: family for family in open_families(text)}  # a strict parser: bounds, sums, the end
    counts = [one.value for one in families["iceberg_records_per_batch"].samples if one.labels.get("le") == "1e+07"]
    assert counts == [1, 0]


def test_a_scrape_sees_the_counters_as_they_are_and_no_reset(endpoint: Endpoint, runs: list[Run]) -> None:
    def written() -> float:
        return scrape(endpoint)["iceberg_records_written"].samples[0].value

    assert written() == 0
    runs[0].figures.committed(records=5, bytes=1, files=1, seconds=0.1)
    assert written() == 5
    runs[0].figures.snapshot_and_reset()
    assert (written(), runs[0].figures.records_written) == (5, 0)


def test_runs_that_begin_later_are_seen() -> None:
    runs: list[Run] = []
    with Endpoint(runs) as endpoint:
        assert scrape(endpoint)["iceberg_records_written"].samples == []
        assert json.loads(ask(endpoint, "/healthz")[1]) == {"status": "ok", "pipelines": []}
        runs.append(Run())
        assert len(scrape(endpoint)["iceberg_records_written"].samples) == 1
        assert len(json.loads(ask(endpoint, "/healthz")[1])["pipelines"]) == 1


def test_of_two_runs_of_one_pipeline_the_later_is_shown(endpoint: Endpoint, runs: list[Run]) -> None:
    runs[0].figures.committed(records=5, bytes=1, files=1, seconds=0.1)
    runs.append(Run())
    runs[2].figures.committed(records=3, bytes=1, files=1, seconds=0.1)
    samples = scrape(endpoint)["iceberg_records_written"].samples
    assert [one.value for one in samples if one.labels["pipeline"] == "orders"] == [3]


def test_many_scrapes_at_once_see_counters_that_only_grow(endpoint: Endpoint, runs: list[Run]) -> None:
    over = threading.Event()
    seen: list[list[float]] = [[] for _ in range(4)]

    def look(values: list[float]) -> None:
        while not over.is_set():
            values.append(scrape(endpoint)["iceberg_records_written"].samples[0].value)

    threads = [threading.Thread(target=look, args=(values,)) for values in seen]
    for thread in threads:
        thread.start()
    for number in range(500):
        runs[0].figures.committed(records=1, bytes=1, files=1, seconds=0.1)
        if number % 50 == 0:
            runs[0].figures.snapshot_and_reset()
            time.sleep(0.01)
    assert eventually(lambda: all(values and values[-1] == 500 for values in seen))
    over.set()
    for thread in threads:
        thread.join()
    assert all(values == sorted(values) for values in seen)


def test_the_users_own_registry_is_left_alone(endpoint: Endpoint) -> None:
    assert "iceberg_records_written" in scrape(endpoint)
    assert not [one.name for one in REGISTRY.collect() if one.name.startswith("iceberg_")]
    assert not [name for name in scrape(endpoint) if not name.startswith("iceberg_")]


# /healthz


def test_health_tells_of_every_pipeline(endpoint: Endpoint, runs: list[Run]) -> None:
    response, text = ask(endpoint, "/healthz")
    assert (response.status, response.getheader("Content-Type")) == (200, "application/json")
    assert json.loads(text) == {"status": "ok", "pipelines": [run.status() for run in runs]}


def test_health_is_503_when_a_pipeline_has_used_up_its_restarts(endpoint: Endpoint, runs: list[Run]) -> None:
    for state in ("waiting", "starting", "running", "finished", "stopped"):
        runs[1].state = state
        assert ask(endpoint, "/healthz")[0].status == 200
    runs[1].state = "failed"
    response, text = ask(endpoint, "/healthz")
    assert response.status == 503
    told = json.loads(text)
    assert (told["status"], [one["state"] for one in told["pipelines"]]) == ("failed", ["running", "failed"])


def test_a_head_request_has_the_status_and_no_body(endpoint: Endpoint, runs: list[Run]) -> None:
    runs[0].state = "failed"
    response, text = ask(endpoint, "/healthz", "HEAD")
    assert (response.status, text) == (503, "")


# other requests


def test_another_path_names_those_that_are_there(endpoint: Endpoint) -> None:
    response, text = ask(endpoint, "/")
    assert (response.status, text) == (404, "The pages are /metrics and /healthz.\n")


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/other"])
def test_nothing_can_be_written(path: str, endpoint: Endpoint) -> None:
    assert ask(endpoint, path, "POST")[0].status == 405


def test_clients_that_misbehave_are_not_the_logs_business(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.1)
    address = ("127.0.0.1", endpoint.port)
    with socket.create_connection(address) as silent:
        silent.settimeout(10)
        assert silent.recv(1) == b"", "a silent connection is closed"
    with socket.create_connection(address) as rude:
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")  # closing resets the connection
    with socket.create_connection(address) as garbage:
        garbage.sendall(b"\x16\x03\x01\r\n\r\n")
        assert b"400" in garbage.recv(1000)
    assert ask(endpoint, "/healthz")[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_a_bug_behind_a_page_is_500_and_told_once(
    endpoint: Endpoint, runs: list[Run], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(Run, "status")
    assert ask(endpoint, "/healthz")[0].status == 500
    assert capfd.readouterr().err.count("Traceback") == 1
    assert ask(endpoint, "/metrics")[0].status == 200


# listening


def test_it_listens_on_loopback_only_and_tells_where(endpoint: Endpoint) -> None:
    assert endpoint.port > 0
    assert endpoint.url == f"http://127.0.0.1:{endpoint.port}"
    assert endpoint._server.socket.getsockname() == ("127.0.0.1", endpoint.port)


def test_it_listens_where_it_is_told() -> None:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        with Endpoint([], host="::1") as endpoint:
            assert endpoint.url == f"http://[::1]:{endpoint.port}"
        return
    pytest.skip("this machine has no IPv6")


def test_a_port_in_use_is_named() -> None:
    with (
        Endpoint([]) as first,
        pytest.raises(RunError, match=rf"port {first.port} of 127\.0\.0\.1: .*in use.* Fix: pass another port, or 0"),
    ):
        Endpoint([], port=first.port)


def test_a_host_that_is_not_here_is_named() -> None:
    with pytest.raises(RunError, match=r"of 192\.0\.2\.1"):
        Endpoint([], host="192.0.2.1")  # reserved for documentation: no machine has it


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(InputError, match=f"{port} is not a port"):
        Endpoint([], port=port)


# stopping


def test_stopping_frees_the_port_and_its_thread() -> None:
    endpoint = Endpoint([])
    assert ask(endpoint, "/healthz")[0].status == 200
    endpoint.stop()
    endpoint.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(endpoint, "/healthz")
    assert not [thread for thread in threading.enumerate() if thread.name == "helios-metrics"]
    with Endpoint([], port=endpoint.port) as again:
        assert ask(again, "/healthz")[0].status == 200


def test_a_silent_client_does_not_hold_up_the_end() -> None:
    with Endpoint([]) as endpoint, socket.create_connection(("127.0.0.1", endpoint.port)):
        assert ask(endpoint, "/healthz")[0].status == 200
        began = time.monotonic()
        endpoint.stop()
        assert time.monotonic() - began < 8  # a silent client is cut off after 10 s


def test_what_fails_to_start_leaves_no_thread() -> None:
    with Endpoint([]) as first, pytest.raises(RunError):
        Endpoint([], port=first.port)
    assert not [thread for thread in threading.enumerate() if thread.name == "helios-metrics"]


def test_the_dashboard_and_the_alerts_of_the_docs_ask_for_metrics_that_are_served(endpoint: Endpoint) -> None:
    docs = Path(__file__).parents[3] / "docs"
    dashboard = json.loads((docs / "grafana.json").read_text())
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked += (docs / "metrics.md").read_text()
    _, text = ask(endpoint, "/metrics")
    served = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    names = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\biceberg_\w+", asked)}
    assert len(names) > 15
    assert names <= served
